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

package children

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/pkg/controller"
)

// namespaceTerminating returns the API server's error for a namespace that is being
// deleted.
func namespaceTerminating() error {
	err := apierrs.NewForbidden(corev1.Resource("configmaps"), "x", errors.New("namespace default is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return err
}

func TestRetryError(t *testing.T) {
	configMaps := corev1.Resource("configmaps")
	tests := map[string]struct {
		err error
		// A condition reports rejected errors. Permanent and skipped errors are not retried.
		rejected, permanent, skipped bool
	}{
		"invalid":            {err: apierrs.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "x", nil), rejected: true, permanent: true},
		"denied by webhook":  {err: apierrs.NewBadRequest("no"), rejected: true, permanent: true},
		"too large":          {err: apierrs.NewRequestEntityTooLargeError("no"), rejected: true, permanent: true},
		"forbidden":          {err: apierrs.NewForbidden(configMaps, "x", errors.New("exceeded quota")), rejected: true},
		"namespace is going": {err: namespaceTerminating(), skipped: true},
		"conflict":           {err: apierrs.NewConflict(configMaps, "x", nil)},
		"server is busy":     {err: apierrs.NewTooManyRequestsError("later")},
		"webhook is down":    {err: apierrs.NewInternalError(errors.New("failed calling webhook"))},
		"connection is lost": {err: errors.New("connection reset by peer")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := IsRejected(tc.err); got != tc.rejected {
				t.Errorf("IsRejected() = %v", got)
			}
			got := RetryError(fmt.Errorf("failed to create ConfigMap: %w", tc.err))
			if controller.IsPermanentError(got) != tc.permanent || controller.IsSkipKey(got) != tc.skipped {
				t.Errorf("RetryError() = %#v", got)
			}
		})
	}
}
