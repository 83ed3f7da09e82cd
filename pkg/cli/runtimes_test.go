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

package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
)

func TestDescribeRuntime(t *testing.T) {
	w := newWorld(t, runtimesConfig())
	w.want(`
RUNTIME      LANGUAGE     DEPRECATED   SOURCE FILE   DEPENDENCY FILE    BASE IMAGE
dockerfile   dockerfile   false        Dockerfile    <none>             <none>
nodejs24     nodejs       false        handler.js    package.json       node:24
python313    python       true         handler.py    requirements.txt   python:3.13
`, "describe-runtime")
	w.want(`
Runtime       python313
Language      python
Base image    python:3.13
Deprecated    yes: choose another one
Source        handler.py, in spec.source
Dependencies  requirements.txt, in spec.deps
Health        GET /healthz

Next: kubectl fn init DIR --runtime=python313
`, "describe-runtime", "python313")
	w.want(`
Runtime       dockerfile
Language      dockerfile
Base image    set by the Dockerfile
Source        Dockerfile and the files beside it, in spec.git or spec.archive
Dependencies  installed by the Dockerfile
Health        the container listens on $PORT, which is 8080

Next: kubectl fn init DIR --runtime=dockerfile
`, "describe-runtime", "dockerfile")
	w.want("python", "describe-runtime", "python313", "-o", "jsonpath={.language}")
	w.wantError("unknown runtime cobol; the runtimes are dockerfile, nodejs24, python313", "kubectl fn describe-runtime", "describe-runtime", "cobol")
	newWorld(t).wantError("Kiln is probably not installed on this cluster", "kubectl config current-context", "describe-runtime")
}

func TestDescribeRuntimeOfTheAdministrator(t *testing.T) {
	configMap := runtimesConfig()
	configMap.Data["team-node"] = "baseImage: node:24\nlanguage: nodejs\ndockerfile: |\n  FROM ${BASE_IMAGE}\n"
	w := newWorld(t, configMap)
	got, err := w.run("describe-runtime", "team-node")
	if err != nil {
		t.Fatal(err)
	}
	if want := "Dockerfile    provided by the administrator of the cluster\n"; !strings.Contains(got, want) {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

func TestDescribeRuntimesForPrograms(t *testing.T) {
	w := newWorld(t, runtimesConfig())
	got, err := w.run("describe-runtime", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Runtimes []runtimeReport `json:"runtimes"`
	}
	if err := json.Unmarshal([]byte(got), &list); err != nil {
		t.Fatal(err)
	}
	want := []runtimeReport{
		{Name: "dockerfile", Language: "dockerfile", SourceFile: "Dockerfile"},
		{Name: "nodejs24", Language: "nodejs", BaseImage: "node:24", SourceFile: "handler.js", DependencyFile: "package.json"},
		{Name: "python313", Language: "python", BaseImage: "python:3.13", Deprecated: true, SourceFile: "handler.py", DependencyFile: "requirements.txt"},
	}
	if diff := cmp.Diff(want, list.Runtimes); diff != "" {
		t.Errorf("runtimes (-want +got):\n%s", diff)
	}
}

func TestPrintRuntime(t *testing.T) {
	tests := map[string]struct {
		runtime runtimeReport
		want    string
	}{
		"of an administrator's Dockerfile": {
			runtimeReport{Name: "team", Language: "nodejs", BaseImage: "node:24", OwnDockerfile: true, SourceFile: "handler.js", DependencyFile: "package.json"},
			`
Runtime       team
Language      nodejs
Base image    node:24
Dockerfile    provided by the administrator of the cluster
Source        handler.js, in spec.source
Dependencies  package.json, in spec.deps
Health        GET /healthz

Next: kubectl fn init DIR --runtime=team
`,
		},
		"of a language without a starter": {
			runtimeReport{Name: "shell", Language: "shell", BaseImage: "bash:5", SourceFile: "handler.sh"},
			`
Runtime       shell
Language      shell
Base image    bash:5
Source        handler.sh, in spec.source
Dependencies  none
Health        GET /healthz
`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.printRuntime(tc.runtime)
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), w.out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDescribeRuntimeErrors(t *testing.T) {
	broken := runtimesConfig()
	broken.Data["nodejs24"] = "language: [\n"
	newWorld(t, broken).wantError("failed to read runtimes: ", "the command with --help", "describe-runtime")
	newWorld(t, runtimesConfig()).wantError("accepts at most 1 arg(s), received 2", "the command with --help", "describe-runtime", "a", "b")

	w := newWorld(t)
	w.kube.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrs.NewForbidden(corev1.Resource("configmaps"), config.RuntimesConfigName, errors.New("no role"))
	})
	w.wantError("failed to get ConfigMap config-runtimes: ", askAdministrator, "describe-runtime")

	// A newer Kiln may have languages that this kubectl fn does not know.
	_, err := describeRuntime(config.Runtimes{"java25": {Language: "java"}}, "java25")
	if want := "this kubectl fn does not know the language java\nTry: a newer kubectl fn"; err == nil || err.Error() != want {
		t.Errorf("describeRuntime() = %v, want %q", err, want)
	}
}
