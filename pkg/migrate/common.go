/*
Copyright 2026 The Kiln Authors

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// shipped are the runtimes that Functions are imported to. config-runtimes has them.
var shipped = config.Runtimes{
	"nodejs22":  {BaseImage: "node:22", Language: "nodejs"},
	"nodejs24":  {BaseImage: "node:24", Language: "nodejs"},
	"python313": {BaseImage: "python:3.13", Language: "python"},
}

// runtimeName matches names such as nodejs20, nodejs6.10, nodejs_distroless8 and python3.7.
var runtimeName = regexp.MustCompile(`^(nodejs|python)[^0-9]*([0-9]{1,4})(\.[0-9]+)?$`)

func (d *draft) setRuntime(name string) {
	spec := &d.Function.Spec
	spec.Runtime = name
	if _, ok := shipped[name]; ok {
		return
	}
	if name == "" {
		d.note("spec.runtime", "none is set. Kiln sets the default of the cluster")
		return
	}
	match := runtimeName.FindStringSubmatch(name)
	if match == nil {
		d.note("spec.runtime", "Kiln has no runtime %q: an administrator can add it to the ConfigMap %s", name, config.RuntimesConfigName)
		return
	}
	version, _ := strconv.Atoi(match[2])
	switch {
	case match[1] == "python" && version == 2:
		spec.Runtime = "python313"
		d.note("spec.runtime", "%s instead of %s: port the code to Python 3", spec.Runtime, name)
	case match[1] == "python":
		spec.Runtime = "python313"
		d.note("spec.runtime", "%s instead of %s: check that the dependencies support it", spec.Runtime, name)
	case version > 22:
		spec.Runtime = "nodejs24"
		d.note("spec.runtime", "%s instead of %s: check that the dependencies support it", spec.Runtime, name)
	default:
		spec.Runtime = "nodejs22"
		d.note("spec.runtime", "%s instead of %s: check that the dependencies support it", spec.Runtime, name)
	}
	switch name {
	case "nodejs26":
		spec.Env = append(spec.Env, corev1.EnvVar{Name: "FUNC_API", Value: "request"})
		d.note("spec.env", "FUNC_API has main called with (req, res), as %s does", name)
	case "python314":
		d.note("spec.deps", "functions of %s need flask: it was installed for every function", name)
	}
}

// renamed are variables with another name in Kiln, and the factor between their units.
var renamed = map[string]struct {
	name string
	unit int64
}{
	"FUNC_MEMFILE_MAX":   {"REQ_MB_LIMIT", 1 << 20},
	"FUNC_BODY_MB_LIMIT": {"REQ_MB_LIMIT", 1},
}

// withoutEffect are variables that Kiln's servers and builds do not read, and what to do.
var withoutEffect = map[string]string{
	"CHERRYPY_NUMTHREADS":          "set spec.concurrency to limit the concurrent requests of a pod",
	"KYMA_INTERNAL_LOGGER_ENABLED": "Kiln's servers do not log requests",
	"SERVER_INTERNAL_LOGGER":       "Kiln's servers do not log requests",
	"NPM_REGISTRY":                 "put an .npmrc into the Secret that spec.build.secretName names",
	"NPM_SCOPE":                    "put an .npmrc into the Secret that spec.build.secretName names",
	"NPM_CONFIG_EXTRA":             "put an .npmrc into the Secret that spec.build.secretName names",
}

// reserved are variables that Kiln and Knative set.
var reserved = []string{
	"PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION", runtimes.EnvFunctionName, runtimes.EnvFunctionNamespace,
	runtimes.EnvFunctionRuntime, runtimes.EnvFunctionMemoryLimit, "FUNC_PORT", "MOD_NAME", "NODE_PATH", "PYTHONPATH",
}

func (d *draft) addEnv(env []corev1.EnvVar) {
	for i, variable := range env {
		field := fmt.Sprintf("spec.env %q", variable.Name)
		again := func(other corev1.EnvVar) bool { return other.Name == variable.Name }
		hint, ignored := withoutEffect[variable.Name]
		to, isRenamed := renamed[variable.Name]
		from := variable.ValueFrom
		switch {
		case slices.ContainsFunc(env[i+1:], again):
			d.note(field, "left out: a later variable has the same name")
		case ignored:
			d.note(field, "left out: %s", hint)
		case slices.Contains(reserved, variable.Name):
			d.note(field, "left out: Kiln or Knative sets this variable")
		case from != nil && from.SecretKeyRef == nil && from.ConfigMapKeyRef == nil:
			d.note(field, "left out: a value can come from a Secret or a ConfigMap only. FUNC_NAME and FUNC_NAMESPACE have the names of the Function")
		case variable.Name == runtimes.EnvFunctionTimeout:
			d.setTimeout(field, variable.Value)
		case isRenamed:
			d.addRenamed(field, variable.Value, to.name, to.unit)
		default:
			d.Function.Spec.Env = append(d.Function.Spec.Env, variable)
		}
	}
}

func (d *draft) setTimeout(field, text string) {
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || seconds < 1 {
		d.note(field, "left out: %q is no number of seconds. Set spec.timeoutSeconds", text)
		return
	}
	d.Function.Spec.TimeoutSeconds = &seconds
}

func (d *draft) addRenamed(field, text, name string, unit int64) {
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || limit < 1 {
		d.note(field, "left out: %q is no number. Set %s, in MiB", text, name)
		return
	}
	megabytes := (limit-1)/unit + 1
	d.Function.Spec.Env = append(d.Function.Spec.Env, corev1.EnvVar{Name: name, Value: strconv.FormatInt(megabytes, 10)})
}

// preinstalled are packages that the other projects install for every function.
var preinstalled = map[string]struct{ imports, listed *regexp.Regexp }{
	"axios":       {regexp.MustCompile(`(require\(\s*|from\s+)["']axios["']`), regexp.MustCompile(`"axios"`)},
	"bottle":      {regexp.MustCompile(`(?m)^\s*(import|from)\s+bottle\b`), regexp.MustCompile(`(?mi)^\s*bottle\b`)},
	"requests":    {regexp.MustCompile(`(?m)^\s*(import|from)\s+requests\b`), regexp.MustCompile(`(?mi)^\s*requests\b`)},
	"cloudevents": {regexp.MustCompile(`(require\(\s*|from\s+)["']cloudevents["']|(?m)^\s*(import|from)\s+cloudevents\b`), regexp.MustCompile(`(?mi)(^\s*|")cloudevents\b`)},
}

func (d *draft) setInline(source, deps string) {
	spec := &d.Function.Spec
	spec.Source, spec.Deps = source, deps
	for _, name := range []string{"axios", "bottle", "cloudevents", "requests"} {
		if is := preinstalled[name]; is.imports.MatchString(source) && !is.listed.MatchString(deps) {
			d.note("spec.deps", "add %s, which the source imports: it was installed for every function", name)
		}
	}
}
