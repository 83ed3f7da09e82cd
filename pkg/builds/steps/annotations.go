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

package steps

import (
	"strconv"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// Annotations returns the annotations of the object that runs the build. RunOf reads them.
func Annotations(build builds.Spec) map[string]string {
	annotations := map[string]string{
		serverless.GenerationAnnotationKey:   strconv.FormatInt(build.Generation, 10),
		serverless.BuildReasonAnnotationKey:  build.Reason,
		serverless.BuildInputsAnnotationKey:  build.Fingerprint,
		serverless.BuildAttemptAnnotationKey: strconv.Itoa(int(build.Attempt)),
	}
	for key, value := range map[string]string{
		serverless.RebuildAnnotationKey:          build.Rebuild,
		serverless.BuildCommitAnnotationKey:      build.Commit,
		serverless.BuildCredentialsAnnotationKey: build.CredentialsVersion,
	} {
		if value != "" {
			annotations[key] = value
		}
	}
	return annotations
}

// PodAnnotations returns the annotations of the build's pod.
func PodAnnotations(fn *v1alpha1.Function, build builds.Spec) map[string]string {
	// The sidecar of a mesh would keep the pod from ending.
	annotations := map[string]string{"sidecar.istio.io/inject": "false"}
	if env := buildEnv(fn, build); len(env) > 0 {
		annotations[serverless.BuildEnvAnnotationKey] = runtimes.EnvFile(env)
	}
	return annotations
}
