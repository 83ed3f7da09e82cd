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
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInit(t *testing.T) {
	dir := files(t, nil)
	w := newWorld(t)
	w.want("wrote fn/handler.py and fn/requirements.txt\n", "init", "fn", "--runtime=python313")
	if got, err := os.ReadFile(filepath.Join(dir, "fn", "handler.py")); err != nil || !strings.Contains(string(got), "def main(event, context):") {
		t.Errorf("handler.py is %q, %v", got, err)
	}
	w.wantError("handler.py already exists", "another folder", "init", "fn", "--runtime=python313")
	w.want("wrote own/Dockerfile and own/server.pl\n", "init", "own", "--runtime=dockerfile")
	own := filepath.Join(dir, "own")
	w.wantError("kubectl fn does not build Dockerfiles",
		"docker build -t fn "+own+" && docker run --rm -e PORT=8081 -p 8081:8081 fn, or kubectl fn deploy NAME --runtime=dockerfile --dir="+own,
		"run", "--dir=own", "--port=8081")
	w.wantError("runtime dockerfile needs a folder with a Dockerfile", "--dir=.", "create", "fn", "--runtime=dockerfile")
	w.wantError(`there is no starter for runtime "cobol"`, "--runtime=nodejs24 or --runtime=python313", "init", "x", "--runtime=cobol")
}

// Each starter must deploy as it is.
func TestStarters(t *testing.T) {
	tests := map[string]struct {
		wantFiles []string
		wantNext  string
	}{
		"nodejs24":   {[]string{"handler.js", "package.json"}, "Next: cd fn, kubectl fn run, and kubectl fn deploy NAME --runtime=nodejs24\n"},
		"python313":  {[]string{"handler.py", "requirements.txt"}, "Next: cd fn, kubectl fn run, and kubectl fn deploy NAME --runtime=python313\n"},
		"dockerfile": {[]string{"Dockerfile", "server.pl"}, "Next: cd fn, and kubectl fn deploy NAME --runtime=dockerfile --dir=.\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := files(t, nil)
			w := newWorld(t)
			w.want(fmt.Sprintf("wrote fn/%s and fn/%s\n", tc.wantFiles[0], tc.wantFiles[1]), "init", "fn", "--runtime", name)
			if got := w.errOut.String(); got != tc.wantNext {
				t.Errorf("it prints %q, want %q", got, tc.wantNext)
			}
			entries, err := os.ReadDir(filepath.Join(dir, "fn"))
			if err != nil {
				t.Fatal(err)
			}
			var written []string
			for _, entry := range entries {
				written = append(written, entry.Name())
			}
			if diff := cmp.Diff(tc.wantFiles, written); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			t.Chdir("fn")
			args := []string{"create", "fn", "--runtime", name, "--dry-run=client"}
			if name == "dockerfile" {
				args = append(args, "--dir=.", "--push-to=registry.example.com/a/b")
			}
			w.want("function.serverless.kiln.dev/fn created (client dry run)\n", args...)
		})
	}
}

func TestInitKeepsFiles(t *testing.T) {
	dir := files(t, map[string]string{"handler.js": "mine", "Dockerfile": "mine"})
	w := newWorld(t)
	w.wantError("handler.js already exists", "another folder", "init", ".")
	w.wantError("Dockerfile already exists", "another folder", "init", ".", "--runtime=dockerfile")
	for _, name := range []string{"handler.js", "Dockerfile"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != "mine" {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	w.wantError("failed to create folder: ", "the command with --help", "init", "handler.js")
	w.wantError("expected one folder, got 0", "kubectl fn init greeter --runtime=nodejs24", "init")
	w.wantError("expected one folder, got 2", "kubectl fn init greeter --runtime=nodejs24", "init", "a", "b")
}
