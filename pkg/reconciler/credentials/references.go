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

package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
)

const (
	// RecheckPeriod is the time between two checks of a namespace's references. No event
	// reports that a Revision is gone.
	RecheckPeriod = time.Minute

	// answerPeriod is how long an answer holds. All Functions of a namespace ask.
	answerPeriod = 10 * time.Second
)

// Find returns an object of the namespace that can give the Secret to code of an author,
// or nil. It reads past the caches.
type Find func(ctx context.Context, secret, namespace string) (*corev1.ObjectReference, error)

// ReferencedError reports that a namespace gets no credentials, because an object there
// names their Secret. Its code could read them.
type ReferencedError struct {
	Secret string
	By     corev1.ObjectReference
}

// Error implements error.
func (e *ReferencedError) Error() string {
	return fmt.Sprintf("Secret %s is not written to the namespace, because %s %s uses it and could read the credentials of the image registry. "+
		"Remove the reference, or delete this %s. Kiln checks again each minute.", e.Secret, e.By.Kind, e.By.Name, e.By.Kind)
}

// IsReferenced returns the ReferencedError in the error, or nil.
func IsReferenced(err error) *ReferencedError {
	referenced, _ := errors.AsType[*ReferencedError](err)
	return referenced
}

type reference struct {
	by *corev1.ObjectReference
	at time.Time
}

// AddFind adds a search for objects that name a Secret. It must be called before the first
// Ensure.
func (s *Secrets) AddFind(find Find) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds = append(s.finds, find)
}

// checkReferences returns a ReferencedError if an object of the namespace names the
// Secret. The webhook denies new references. This check finds earlier ones.
func (s *Secrets) checkReferences(ctx context.Context, name, namespace string) error {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	s.mu.Lock()
	last, finds := s.referenced[key], slices.Concat([]Find{s.findFunction}, s.finds, []Find{s.findPod})
	s.mu.Unlock()
	if last.by != nil && time.Since(last.at) < answerPeriod {
		return &ReferencedError{Secret: name, By: *last.by}
	}
	var by *corev1.ObjectReference
	for _, find := range finds {
		var err error
		if by, err = find(ctx, name, namespace); err != nil {
			return err
		}
		if by != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if by == nil {
		delete(s.referenced, key)
		return nil
	}
	s.referenced[key] = reference{by: by, at: time.Now()}
	return &ReferencedError{Secret: name, By: *by}
}

func (s *Secrets) findFunction(ctx context.Context, secret, namespace string) (*corev1.ObjectReference, error) {
	list := pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return s.kiln.ServerlessV1alpha1().Functions(namespace).List(ctx, opts)
	})
	return children.FindLive(ctx, list, "Function", "", func(fn *v1alpha1.Function) bool {
		return fn.Spec.ValidateSecrets([]string{secret}) != nil
	})
}

// findPod returns a pod of a Function or of a build that names the Secret. It may outlive
// what it was made from.
func (s *Secrets) findPod(ctx context.Context, secret, namespace string) (*corev1.ObjectReference, error) {
	list := pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return s.kube.CoreV1().Pods(namespace).List(ctx, opts)
	})
	return children.FindLive(ctx, list, "Pod", children.LabelSelector, func(pod *corev1.Pod) bool {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		return !ended && pods.NamesSecret(&pod.Spec, secret)
	})
}
