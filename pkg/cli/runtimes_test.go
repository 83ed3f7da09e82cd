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
	"testing"
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
