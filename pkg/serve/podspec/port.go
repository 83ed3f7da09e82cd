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

package podspec

import (
	"fmt"
	"time"

	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// PortTimeout is how long an image may run before the status reports that it does not
// listen. Some images start slowly.
const PortTimeout = 30 * time.Second

// ListenAdvice is the advice for an image that does not listen.
var ListenAdvice = fmt.Sprintf("The command in the Dockerfile must listen on $PORT, which is %d.", runtimes.Port)

// AwaitPort reports with the reason that the image of a revision has run for PortTimeout
// without listening. Until then it returns an error that requeues the Function, because no
// event reports a pod that runs and is not ready.
func AwaitPort(fn *v1alpha1.Function, reason, revision string, since time.Time) error {
	left := PortTimeout
	if !since.IsZero() {
		left -= time.Since(since)
	}
	if left > 0 {
		return controller.NewRequeueAfter(left)
	}
	fn.Status.MarkRunningUnknown(reason, "Revision %s: its image runs but does not listen on port %d yet. %s See the log of its pod.",
		revision, runtimes.Port, ListenAdvice)
	return nil
}
