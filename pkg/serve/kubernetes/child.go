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

package kubernetes

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
)

// client reads and writes the objects of one kind in one namespace.
type client[T metav1.Object] interface {
	children.Creator[T]
	Update(ctx context.Context, object T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// checkFunc returns an error if the cached Function is stale.
type checkFunc = func(context.Context, *v1alpha1.Function) error

// object is an object of a Kubernetes API.
type object[T any] interface {
	*T
	metav1.Object
	DeepCopy() *T
}

// child is an object of a Function, besides its Deployment.
type child[T any, P object[T]] struct {
	kind  string
	store cache.Store
	// client returns the client of the namespace.
	client func(namespace string) client[P]
	// merge sets on the existing object the fields that Kiln sets.
	merge func(existing, desired P)
	// isSame reports whether both have the same fields of those.
	isSame func(a, b P) bool
}

// blocked is an object with the name of a child that the Function cannot have now.
type blocked struct {
	kind, name string
	ownership  children.Ownership
	from       children.Origin
}

func (b *blocked) Error() string {
	return fmt.Sprintf("%s %s belongs to somebody else", b.kind, b.name)
}

// cached returns the object of that name from the cache, or nil.
func cached[T any, P object[T]](store cache.Store, name types.NamespacedName) (P, error) {
	found, ok, err := store.GetByKey(name.String())
	if err != nil || !ok {
		return nil, err
	}
	return found.(P), nil
}

// apply makes the object as desired. A nil desired means that the Function has none. check
// returns an error if the Function is stale.
func (c *child[T, P]) apply(ctx context.Context, fn *v1alpha1.Function, desired P, check checkFunc) error {
	existing, err := cached[T, P](c.store, types.NamespacedName{Namespace: fn.Namespace, Name: children.ServiceName(fn)})
	if err != nil {
		return fmt.Errorf("failed to get %s: %w", c.kind, err)
	}
	if desired == nil {
		return c.remove(ctx, fn, existing, check)
	}
	from := children.Listed
	if existing == nil {
		if existing, from, err = children.CreateOrGet(ctx, c.client(fn.Namespace), c.kind, desired); err != nil {
			return c.failed(from, err)
		}
	}
	if ownership := children.OwnershipOf(existing, fn); ownership != children.Owned {
		return &blocked{kind: c.kind, name: existing.GetName(), ownership: ownership, from: from}
	}
	merged := P(existing.DeepCopy())
	restored := children.RestoreMeta(merged, desired, fn)
	if !restored && c.isSame(existing, desired) {
		return nil
	}
	if err := check(ctx, fn); err != nil {
		return err
	}
	c.merge(merged, desired)
	if _, err := c.client(fn.Namespace).Update(ctx, merged, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to update %s: %w", c.kind, err)
	}
	return nil
}

// failed returns the error of children.CreateOrGet with the kind.
func (c *child[T, P]) failed(from children.Origin, err error) error {
	if from != children.Created {
		return err
	}
	return fmt.Errorf("failed to create %s: %w", c.kind, err)
}

// remove deletes the object if the Function owns it.
func (c *child[T, P]) remove(ctx context.Context, fn *v1alpha1.Function, existing P, check checkFunc) error {
	if existing == nil || existing.GetDeletionTimestamp() != nil || children.OwnershipOf(existing, fn) != children.Owned {
		return nil
	}
	if err := check(ctx, fn); err != nil {
		return err
	}
	err := c.client(fn.Namespace).Delete(ctx, existing.GetName(), children.DeleteOptions(existing))
	if err != nil && !children.IsGone(err) {
		return fmt.Errorf("failed to delete %s: %w", c.kind, err)
	}
	return nil
}
