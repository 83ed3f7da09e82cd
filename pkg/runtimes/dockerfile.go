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

package runtimes

import "errors"

// DockerfileLanguage is the language of functions that bring a Dockerfile, which
// makes the whole image, upon whatever it likes: of any language, then. All that
// Kiln wants of the image is that it listens on PORT.
const DockerfileLanguage = "dockerfile"

// OwnDockerfile returns the runtime of DockerfileLanguage.
func OwnDockerfile() Runtime {
	return Runtime{
		Language:            DockerfileLanguage,
		SourceFile:          DockerfileName,
		explainBuildFailure: explainAnything,
	}
}

// IsOwnDockerfile says whether the Dockerfile is the function's own. Then it and
// all that it builds is in what the build fetches, and Kiln adds nothing.
func (r Runtime) IsOwnDockerfile() bool {
	return r.Language == DockerfileLanguage
}

// errNoFiles tells why a function with its own Dockerfile cannot be in a Function.
var errNoFiles = errors.New("the runtime builds a Dockerfile with the files that are beside it: have them in spec.git or spec.archive; " +
	"kubectl fn deploy --dir packs a folder")

// CheckSource says why the source cannot be text of the Function.
func (r Runtime) CheckSource(text string) error {
	if r.IsOwnDockerfile() && text != "" {
		return errNoFiles
	}
	return nil
}

// ownBuildContext is BuildContext of DockerfileLanguage.
func (r Runtime) ownBuildContext(fn Function) (map[string]string, error) {
	if !fn.Fetched {
		return nil, errNoFiles
	}
	_, _, err := r.dependencies(fn.Dependencies)
	return map[string]string{}, err
}
