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

// DockerfileLanguage is the language of functions with their own Dockerfile. It makes the
// whole image, which must listen on PORT.
const DockerfileLanguage = "dockerfile"

// OwnDockerfile returns the runtime of DockerfileLanguage.
func OwnDockerfile() Runtime {
	return Runtime{
		Language:            DockerfileLanguage,
		SourceFile:          DockerfileName,
		explainBuildFailure: explainAnything,
	}
}

// IsOwnDockerfile reports whether functions have their own Dockerfile. The build
// fetches it with its files, and Kiln adds no files.
func (r Runtime) IsOwnDockerfile() bool {
	return r.Language == DockerfileLanguage
}

var errNoFiles = errors.New("the runtime builds a Dockerfile with the files beside it: put them into spec.git or spec.archive; " +
	"kubectl fn deploy --dir packs a folder")

// CheckSource returns an error if spec.source cannot have this text.
func (r Runtime) CheckSource(text string) error {
	if r.IsOwnDockerfile() && text != "" {
		return errNoFiles
	}
	return nil
}

func (fn Function) ownContext() (map[string]string, error) {
	if !fn.Fetched {
		return nil, errNoFiles
	}
	return map[string]string{}, nil
}
