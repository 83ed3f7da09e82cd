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
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"knative.dev/pkg/controller"
)

// IsRejected reports whether the API server or an admission policy rejected an
// object. A person must fix that, so a condition reports it.
func IsRejected(err error) bool {
	return isInvalid(err) || apierrs.IsForbidden(err) && !IsNamespaceTerminating(err)
}

// IsNamespaceTerminating reports whether an object was rejected because its namespace
// is being deleted, together with the Function.
func IsNamespaceTerminating(err error) bool {
	return apierrs.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isInvalid reports whether the object itself is invalid, so a retry is useless.
// A forbidden object, for example one over a quota, may be allowed later.
func isInvalid(err error) bool {
	return apierrs.IsInvalid(err) || apierrs.IsBadRequest(err) || apierrs.IsRequestEntityTooLargeError(err)
}

// IsGone reports whether a deletion failed because the object no longer exists. A
// conflict means that another object has the name now.
func IsGone(err error) bool {
	return apierrs.IsNotFound(err) || apierrs.IsConflict(err)
}

// MayExist reports whether an object may have been created in spite of the error: the
// API server did not reject it, or its response was lost.
func MayExist(err error) bool {
	refusal, ok := errors.AsType[*apierrs.StatusError](err)
	return !ok || refusal.ErrStatus.Code >= http.StatusInternalServerError
}

// RetryError returns the error of a write so that the controller retries it only
// where a retry can help.
func RetryError(err error) error {
	switch {
	case IsNamespaceTerminating(err):
		return controller.NewSkipKey(err.Error())
	case isInvalid(err):
		return controller.NewPermanentError(err)
	default:
		return err
	}
}
