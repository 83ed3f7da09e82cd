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

package function

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

func TestRetry(t *testing.T) {
	configMaps := corev1.Resource("configmaps")
	tests := map[string]struct {
		err error
		// rejected errors are told by a condition; permanent and skipped ones
		// are not tried again.
		rejected, permanent, skipped bool
	}{
		"invalid":            {err: apierrs.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "x", nil), rejected: true, permanent: true},
		"denied by webhook":  {err: apierrs.NewBadRequest("no"), rejected: true, permanent: true},
		"too large":          {err: apierrs.NewRequestEntityTooLargeError("no"), rejected: true, permanent: true},
		"forbidden":          {err: apierrs.NewForbidden(configMaps, "x", errors.New("exceeded quota")), rejected: true},
		"namespace is going": {err: namespaceLeaving(), skipped: true},
		"conflict":           {err: apierrs.NewConflict(configMaps, "x", nil)},
		"server is busy":     {err: apierrs.NewTooManyRequestsError("later")},
		"webhook is down":    {err: apierrs.NewInternalError(errors.New("failed calling webhook"))},
		"connection is lost": {err: errors.New("connection reset by peer")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isRejected(tc.err); got != tc.rejected {
				t.Errorf("isRejected() = %v", got)
			}
			got := retry(fmt.Errorf("failed to create ConfigMap: %w", tc.err))
			if controller.IsPermanentError(got) != tc.permanent || controller.IsSkipKey(got) != tc.skipped {
				t.Errorf("retry() = %#v", got)
			}
			got = retryService(fmt.Errorf("failed to create Service: %w", tc.err))
			if controller.IsPermanentError(got) || controller.IsSkipKey(got) != tc.skipped {
				t.Errorf("retryService() = %#v", got)
			}
		})
	}
}

func TestEither(t *testing.T) {
	transient, later := errors.New("no answer"), errors.New("no room")
	permanent := controller.NewPermanentError(errors.New("never"))
	skipped := controller.NewSkipKey("leaving")
	due := controller.NewRequeueAfter(time.Minute)
	tests := map[string]struct {
		first, second error
		want          []error
		// permanent and skipped errors are not tried again; others are, when they are due.
		permanent, skipped, due bool
	}{
		"neither":                         {},
		"the first":                       {first: transient, want: []error{transient}},
		"the second":                      {second: transient, want: []error{transient}},
		"both":                            {first: transient, second: later, want: []error{transient, later}},
		"the first is permanent":          {first: permanent, second: transient, want: []error{transient}},
		"the second is permanent":         {first: transient, second: permanent, want: []error{transient}},
		"only the first, and permanent":   {first: permanent, want: []error{permanent}, permanent: true},
		"both are permanent":              {first: permanent, second: permanent, want: []error{permanent}, permanent: true},
		"the namespace is being deleted":  {first: skipped, second: transient, want: []error{skipped}, skipped: true},
		"the first is due later":          {first: due, want: []error{due}, due: true},
		"the second cannot wait":          {first: due, second: transient, want: []error{transient}},
		"the second is useless":           {first: due, second: permanent, want: []error{due}, due: true},
		"the namespace is deleted by now": {first: permanent, second: skipped, want: []error{skipped}, skipped: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := either(tc.first, tc.second)
			isDue, _ := controller.IsRequeueKey(got)
			if (got == nil) != (len(tc.want) == 0) || isDue != tc.due || controller.IsPermanentError(got) != tc.permanent || controller.IsSkipKey(got) != tc.skipped {
				t.Errorf("either() = %#v", got)
			}
			for _, err := range tc.want {
				if !errors.Is(got, err) {
					t.Errorf("either() = %#v, which lacks %#v", got, err)
				}
			}
		})
	}
}

func TestOwnershipOf(t *testing.T) {
	fn := function()
	ref := func(kind, apiVersion, name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, APIVersion: apiVersion, Name: name, UID: types.UID("uid-" + uid), Controller: new(true)}}
	}
	labelled := map[string]string{serverless.FunctionUIDLabelKey: string(fn.UID)}
	tests := map[string]struct {
		meta metav1.ObjectMeta
		want ownership
	}{
		"ours":                       {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1alpha1", name, "1")}, owned},
		"ours, being deleted":        {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1alpha1", name, "1"), DeletionTimestamp: &noon}, leaving},
		"ours by label":              {metav1.ObjectMeta{Labels: labelled}, owned},
		"ours by label, and going":   {metav1.ObjectMeta{Labels: labelled, DeletionTimestamp: &noon}, leaving},
		"nobody's":                   {metav1.ObjectMeta{}, foreign},
		"a deleted Function's":       {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1alpha1", name, "0")}, leaving},
		"of another API version":     {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1", name, "0")}, leaving},
		"another Function's":         {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1alpha1", "other", "2")}, foreign},
		"a Function's, not of Kiln":  {metav1.ObjectMeta{OwnerReferences: ref("Function", "example.com/v1", name, "0")}, foreign},
		"somebody's, with our label": {metav1.ObjectMeta{Labels: labelled, OwnerReferences: ref("Deployment", "apps/v1", name, "9")}, foreign},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ownershipOf(&tc.meta, fn); got != tc.want {
				t.Errorf("ownershipOf() = %v, want %v", got, tc.want)
			}
		})
	}
}
