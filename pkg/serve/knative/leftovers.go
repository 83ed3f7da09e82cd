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

package knative

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/kmeta"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
)

const (
	// recentSize and recentPeriod bound what recent remembers.
	recentSize   = 1024
	recentPeriod = time.Hour
)

// recent remembers recently deleted Services, and the templates to restore. Losing it, in
// a restart, matters only to a Function that replaces one of the same name, or that has
// changed since it was deployed.
type recent struct{ entries *utilcache.LRUExpireCache }

func newRecent() recent { return recent{utilcache.NewLRUExpireCache(recentSize)} }

func (r recent) add(key, value any) {
	if r.entries != nil {
		r.entries.Add(key, value, recentPeriod)
	}
}

func (r recent) get(key any) (any, bool) {
	if r.entries == nil {
		return nil, false
	}
	return r.entries.Get(key)
}

// noteDeletions returns a handler that remembers each deleted Service.
func (r recent) noteDeletions() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if svc, err := kmeta.DeletionHandlingAccessor(obj); err == nil {
			r.add(types.NamespacedName{Namespace: svc.GetNamespace(), Name: svc.GetName()}, true)
		}
	}}
}

// leftoverError reports an object of a deleted Service that blocks a new Service.
type leftoverError struct{ *corev1.ObjectReference }

// Error implements error.
func (e *leftoverError) Error() string {
	return fmt.Sprintf("%s %s of the deleted Service still exists", e.Kind, e.Name)
}

// mayHaveLeftovers reports whether there may have been an earlier Service. The first
// creation of a Service needs no request to find out.
func (s *Server) mayHaveLeftovers(fn *v1alpha1.Function) bool {
	_, deleted := s.recent.get(types.NamespacedName{Namespace: fn.Namespace, Name: children.ServiceName(fn)})
	return deleted || fn.Status.TemplateHash != "" || fn.Status.LatestCreatedRevisionName != ""
}

// findLeftover returns an object of an earlier Service of that name that still exists, or
// nil. Serving gives the objects of a new Service the same names. A PodAutoscaler that
// finds the name of its ServerlessService or Metric taken becomes inactive, and its
// revision never becomes ready. The garbage collector deletes owners first, and so the
// owners are listed first.
func (s *Server) findLeftover(ctx context.Context, namespace, service string) (*corev1.ObjectReference, error) {
	opts := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{serving.ServiceLabelKey: service}).String(), Limit: 1}
	services, scaling, networking := s.Client.ServingV1(), s.Client.AutoscalingV1alpha1(), s.Networking.NetworkingV1alpha1()
	for _, of := range []struct {
		kind string
		list func() (runtime.Object, error)
	}{
		{"Configuration", listOf(ctx, services.Configurations(namespace).List, opts)},
		{"Revision", listOf(ctx, services.Revisions(namespace).List, opts)},
		{"PodAutoscaler", listOf(ctx, scaling.PodAutoscalers(namespace).List, opts)},
		{"Metric", listOf(ctx, scaling.Metrics(namespace).List, opts)},
		{"ServerlessService", listOf(ctx, networking.ServerlessServices(namespace).List, opts)},
	} {
		list, err := of.list()
		if err != nil {
			return nil, fmt.Errorf("failed to list %ss: %w", of.kind, err)
		}
		var found *corev1.ObjectReference
		if err := meta.EachListItem(list, func(obj runtime.Object) error {
			found = &corev1.ObjectReference{Kind: of.kind, Namespace: namespace, Name: obj.(metav1.Object).GetName()}
			return nil
		}); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

func listOf[List runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (List, error), opts metav1.ListOptions) func() (runtime.Object, error) {
	return func() (runtime.Object, error) { return list(ctx, opts) }
}

// checkLeftovers returns a leftoverError while objects of a deleted Service remain. Where
// the Service exists, but the lister does not show it, it returns the Service instead.
func (s *Server) checkLeftovers(ctx context.Context, fn *v1alpha1.Function, name string) (*servingv1.Service, error) {
	if !s.mayHaveLeftovers(fn) {
		return nil, nil
	}
	found, err := s.findLeftover(ctx, fn.Namespace, name)
	if found == nil || err != nil {
		return nil, err
	}
	svc, err := s.Client.ServingV1().Services(fn.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return svc, nil
	case apierrs.IsNotFound(err):
		return nil, &leftoverError{found}
	default:
		return nil, fmt.Errorf("failed to get Service: %w", err)
	}
}

// keepTemplate remembers the template of a Service that waits for leftovers to go. The
// last revision with that template is one of them.
func (s *Server) keepTemplate(fn *v1alpha1.Function, desired *servingv1.Service) {
	s.recent.add(fn.UID, servingv1.Revision{ObjectMeta: desired.Spec.Template.ObjectMeta, Spec: desired.Spec.Template.Spec})
}

// keptTemplate returns what keepTemplate has remembered, as a list of revisions.
func (s *Server) keptTemplate(fn *v1alpha1.Function) []servingv1.Revision {
	kept, ok := s.recent.get(fn.UID)
	if !ok {
		return nil
	}
	return []servingv1.Revision{kept.(servingv1.Revision)}
}
