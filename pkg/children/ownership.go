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
	"context"
	"fmt"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// NotOwnedFormat is the message for an object, by kind and name, that has the name of
// a child and belongs to somebody else.
const NotOwnedFormat = "%s %s exists and does not belong to this Function. Delete it, or give the Function another name."

// nameRetry is how long a Function waits before it tries a taken name again.
const nameRetry = time.Minute

// RetryName returns an error that requeues the Function in a minute. An object without
// Kiln's label is not watched, so its deletion does not wake the Function.
func RetryName() error { return controller.NewRequeueAfter(nameRetry) }

// Origin is how Kiln got an object with a child's name.
type Origin int

const (
	// Listed objects are in the cache, so a change of them wakes the Function.
	Listed Origin = iota
	// Created objects are new.
	Created
	// Unlisted objects exist without Kiln's label, or the cache is stale.
	Unlisted
)

// AwaitDeletion returns an error that requeues the Function for an object that is being
// deleted. It returns nil if the watch reports the deletion.
func (o Origin) AwaitDeletion(kind, name string) error {
	if o != Unlisted {
		return nil
	}
	return fmt.Errorf("%s %s is being deleted", kind, name)
}

// Creator creates and gets the objects of one kind.
type Creator[T metav1.Object] interface {
	Create(ctx context.Context, object T, opts metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// CreateOrGet creates an object that no lister has shown, or returns the one of that
// name. Where the origin is Created, the error is the API server's own.
func CreateOrGet[T metav1.Object](ctx context.Context, objects Creator[T], kind string, desired T) (T, Origin, error) {
	object, err := objects.Create(ctx, desired, metav1.CreateOptions{})
	switch {
	case err == nil:
		return object, Created, nil
	case !apierrs.IsAlreadyExists(err):
		return object, Created, err
	}
	if object, err = objects.Get(ctx, desired.GetName(), metav1.GetOptions{}); err != nil {
		return object, Unlisted, fmt.Errorf("failed to get %s: %w", kind, err)
	}
	return object, Unlisted, nil
}

// Ownership is the owner of an object with a child's name.
type Ownership int

const (
	// Foreign objects belong to somebody else. Kiln leaves them alone.
	Foreign Ownership = iota
	// Owned objects belong to the Function.
	Owned
	// Leaving objects are being deleted, or belong to a deleted Function of the same
	// name and will be deleted.
	Leaving
)

// OwnershipOf returns whose the object is. An object that has lost its owner
// reference is recognized by its label.
func OwnershipOf(obj metav1.Object, fn *v1alpha1.Function) Ownership {
	ref := metav1.GetControllerOfNoCopy(obj)
	switch {
	case ref == nil && obj.GetLabels()[serverless.FunctionUIDLabelKey] != string(fn.UID):
		return Foreign
	case ref != nil && ref.UID != fn.UID:
		if ref.Name == fn.Name && ref.Kind == fn.GetGroupVersionKind().Kind &&
			schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group == serverless.GroupName {
			return Leaving
		}
		return Foreign
	case obj.GetDeletionTimestamp() != nil:
		return Leaving
	default:
		return Owned
	}
}

// DeleteOptions deletes the object of that UID and its dependents, and never a newer
// object of the same name.
func DeleteOptions(obj metav1.Object) metav1.DeleteOptions {
	return metav1.DeleteOptions{
		Preconditions:     metav1.NewUIDPreconditions(string(obj.GetUID())),
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}
}
