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
	"os"
	"path/filepath"
	"strings"
	"testing"
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
