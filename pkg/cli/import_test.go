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
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	kymaFunction = `apiVersion: serverless.kyma-project.io/v1alpha2
kind: Function
metadata: {name: greeter}
spec:
  runtime: nodejs24
  replicas: 1
  source: {inline: {source: 'module.exports = {}'}}
  resourceConfiguration: {function: {profile: XS}}
`
	kilnFunction = `# spec.minReplicas, spec.maxReplicas: the number of pods stays 1. Remove both to scale with the requests, and to 0 without any
apiVersion: serverless.kiln.dev/v1alpha1
kind: Function
metadata:
  name: greeter
spec:
  maxReplicas: 1
  minReplicas: 1
  resources:
    limits:
      cpu: 100m
      memory: 128Mi
    requests:
      cpu: 50m
      memory: 64Mi
  runtime: nodejs24
  source: module.exports = {}
`
	apiRule = "apiVersion: gateway.kyma-project.io/v1beta1\nkind: APIRule\nmetadata: {name: rule}\n"
)

func TestImport(t *testing.T) {
	item := "- " + strings.ReplaceAll(strings.TrimSpace(kymaFunction), "\n", "\n  ") + "\n"
	const passedOver = ": APIRule rule is not imported: set spec.visibility: public in the Function, or route to it with your own gateway\n"
	tests := map[string]struct {
		manifest, want, wantErrOut string
	}{
		"a Function":      {kymaFunction, kilnFunction, ""},
		"two Functions":   {kymaFunction + "---\n" + kymaFunction, kilnFunction + "---\n" + kilnFunction, ""},
		"a list":          {"apiVersion: v1\nkind: List\nitems:\n" + item + item, kilnFunction + "---\n" + kilnFunction, ""},
		"a typed list":    {"apiVersion: serverless.kyma-project.io/v1alpha2\nkind: FunctionList\nitems:\n" + item, kilnFunction, ""},
		"another kind":    {apiRule + "---\n" + kymaFunction, kilnFunction, "standard input" + passedOver},
		"no object":       {"replicas: 1\n---\nkind: Values\n---\n\n---\n" + kymaFunction, kilnFunction, "standard input: Values is passed over\nstandard input: a document that is no object is passed over\n"},
		"hostile name":    {"apiVersion: v1\nkind: \"K\\e[31m\"\nmetadata: {name: \"a\\nb\"}\n---\n" + kymaFunction, kilnFunction, "standard input: K␛[31m a b is passed over\n"},
		"an empty object": {"{}\n---\n" + kymaFunction, kilnFunction, "standard input: a document that is no object is passed over\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.In = strings.NewReader(tc.manifest)
			w.want(tc.want, "import", "-f", "-")
			if got := w.errOut.String(); got != tc.wantErrOut {
				t.Errorf("standard error is %q, want %q", got, tc.wantErrOut)
			}
		})
	}
}

func TestImportFolders(t *testing.T) {
	dir := files(t, map[string]string{"a.yaml": kymaFunction, "README.md": "no manifest"})
	if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "deep", "b.yml"), []byte(kymaFunction), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.want(kilnFunction, "import", "-f", ".")
	w.want(kilnFunction+"---\n"+kilnFunction, "import", "-R", "-f", ".")
	w.want(kilnFunction+"---\n"+kilnFunction, "import", "-f", "a.yaml", "-f", "deep/b.yml")
}

func TestImportErrors(t *testing.T) {
	rejected := strings.Replace(kymaFunction, "nodejs24", "ruby2.4", 1)
	unreadable := strings.Replace(kymaFunction, "replicas: 1", "replicas: many", 1)
	for name, tc := range map[string]struct {
		manifest, words, advice, wantOut string
	}{
		"nothing":    {"", "the manifests have no Function of Kyma or Kubeless", "kubectl fn import -R -f FOLDER", ""},
		"rejected":   {rejected + "---\n" + kymaFunction, "1 of 2 Functions need a correction", "correct them as their comments say", kilnFunction},
		"unreadable": {unreadable + "---\n" + kymaFunction, "failed to read 1 Functions", "correct the manifests as the lines above say", kilnFunction},
		"no YAML":    {"a: {{ b }}\n", "failed to read the manifests: error parsing", "kubectl fn import --help", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files(t, map[string]string{"a.yaml": tc.manifest, "b.txt": "no manifest"})
			w := newWorld(t)
			w.wantError(tc.words, tc.advice, "import", "-f", "a.yaml")
			if got := w.out.String(); !strings.HasSuffix(got, tc.wantOut) {
				t.Errorf("it prints %q, want the end %q", got, tc.wantOut)
			}
		})
	}
	w := newWorld(t)
	w.wantError("no manifest was given", "kubectl fn import -f kyma.yaml", "import")
	w.wantError(`the path "none.yaml" does not exist`, "kubectl fn import --help", "import", "-f", "none.yaml")
}

// An interrupt ends the wait for standard input.
func TestImportIsInterrupted(t *testing.T) {
	w := newWorld(t)
	read, write := io.Pipe()
	defer write.Close()
	w.In = read
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if _, err := w.runIn(ctx, "import", "-f", "-"); !isInterrupted(err) {
		t.Errorf("error is %v, want an interrupt", err)
	}
}
