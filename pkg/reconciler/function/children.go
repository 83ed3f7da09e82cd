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
	"context"
	"fmt"
	"maps"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmap"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// notOwned tells the user of an object, by kind and name, that is in the way.
const notOwned = "%s %s exists and is not the Function's. Delete it or give the Function another name."

// awaitName returns an error that has the Function looked at again in a minute: nothing
// tells of an object that is in the way, and not labelled as a Function's, when it goes.
func awaitName() error { return controller.NewRequeueAfter(time.Minute) }

// origin tells how an object of the name that Kiln needs was come by.
type origin int

const (
	// listed objects are watched: a change of them wakes the Function.
	listed origin = iota
	// created objects are new.
	created
	// unlisted objects lack our label, so that nobody watches them.
	unlisted
)

// awaitDeletion returns an error for an object that is being deleted, and whose
// end nothing will tell of: it has the Function tried again.
func (o origin) awaitDeletion(kind, name string) error {
	if o != unlisted {
		return nil
	}
	return fmt.Errorf("%s %s is being deleted", kind, name)
}

// creator creates and gets the objects of one kind.
type creator[T metav1.Object] interface {
	Create(ctx context.Context, object T, opts metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// createOrGet creates an object, or returns the one that has its name: no lister
// has shown that, so it lacks our label, or the cache has not heard of it. The
// error is the API server's own where the origin is created.
func createOrGet[T metav1.Object](ctx context.Context, objects creator[T], kind string, desired T) (T, origin, error) {
	object, err := objects.Create(ctx, desired, metav1.CreateOptions{})
	switch {
	case err == nil:
		return object, created, nil
	case !apierrs.IsAlreadyExists(err):
		return object, created, err
	}
	if object, err = objects.Get(ctx, desired.GetName(), metav1.GetOptions{}); err != nil {
		return object, unlisted, fmt.Errorf("failed to get %s: %w", kind, err)
	}
	return object, unlisted, nil
}

// ownership tells whose an object of the name that Kiln needs is.
type ownership int

const (
	// foreign objects belong to somebody else and are left alone.
	foreign ownership = iota
	// owned objects belong to the Function.
	owned
	// leaving objects are being deleted, or will be since they belong to a
	// Function of the same name that was deleted.
	leaving
)

// ownershipOf tells whose the object is. One that has lost its owner reference
// is still known by its label.
func ownershipOf(obj metav1.Object, fn *v1alpha1.Function) ownership {
	ref := metav1.GetControllerOfNoCopy(obj)
	switch {
	case ref == nil && obj.GetLabels()[serverless.FunctionUIDLabelKey] != string(fn.UID):
		return foreign
	case ref != nil && ref.UID != fn.UID:
		if ref.Name == fn.Name && ref.Kind == fn.GetGroupVersionKind().Kind &&
			schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group == serverless.GroupName {
			return leaving
		}
		return foreign
	case obj.GetDeletionTimestamp() != nil:
		return leaving
	default:
		return owned
	}
}

// heal puts back the labels, and the owner reference, that somebody has taken
// from an object of the Function. It says whether there was anything to do.
func heal(existing, desired metav1.Object, fn *v1alpha1.Function) bool {
	healed := false
	if labels := kmap.Union(existing.GetLabels(), desired.GetLabels()); !maps.Equal(labels, existing.GetLabels()) {
		existing.SetLabels(labels)
		healed = true
	}
	if !metav1.IsControlledBy(existing, fn) {
		existing.SetOwnerReferences(append(existing.GetOwnerReferences(), *kmeta.NewControllerRef(fn)))
		healed = true
	}
	return healed
}

// deleteOptions deletes the object of that UID only, whatever has its name now.
func deleteOptions(obj metav1.Object) metav1.DeleteOptions {
	return metav1.DeleteOptions{
		Preconditions:     metav1.NewUIDPreconditions(string(obj.GetUID())),
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}
}

// isGone says whether a deletion failed since there was nothing to delete: a
// conflict tells that another object has the name.
func isGone(err error) bool {
	return apierrs.IsNotFound(err) || apierrs.IsConflict(err)
}
