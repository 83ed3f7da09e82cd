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
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	networkingfake "knative.dev/networking/pkg/client/clientset/versioned/fake"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const oldImage = "registry.example.com/greeter@sha256:old"

// deployedFunction returns a Function whose Service was deleted, with the last revision.
func deployedFunction(ctx context.Context) (*v1alpha1.Function, *servingv1.Revision) {
	fn := ofRuntime("nodejs24")
	fn.Status.AcceptedGeneration, fn.Status.Image = fn.Generation, oldImage
	svc := desiredService(ctx, fn)
	fn.Status.TemplateHash = Remember(svc)
	revision := &servingv1.Revision{ObjectMeta: *svc.Spec.Template.ObjectMeta.DeepCopy(), Spec: *svc.Spec.Template.Spec.DeepCopy()}
	revision.Name, revision.Namespace = "greeter-00001", fn.Namespace
	revision.Labels[serving.ServiceLabelKey] = svc.Name
	return fn, revision
}

// TestKeepTemplate checks that the last deployed template outlives the last revision with
// it, for which the new Service waits.
func TestKeepTemplate(t *testing.T) {
	ctx := config.ToContext(t.Context(), dockerfileConfig())
	fn, revision := deployedFunction(ctx)
	client := servingfake.NewSimpleClientset(revision)
	s := &Server{
		Client: client, Networking: networkingfake.NewSimpleClientset(), recent: newRecent(),
		Services: servinglisters.NewServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})),
	}
	// The edit needs the next image, which is not built yet.
	fn.Spec.ServiceAccountName = "edited"

	err := s.Hold(ctx, fn)
	if _, waits := errors.AsType[*leftoverError](err); !waits {
		t.Fatalf("Hold() = %v, want a leftover", err)
	}
	if err := client.ServingV1().Revisions(fn.Namespace).Delete(ctx, revision.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Hold(ctx, fn); err != nil {
		t.Fatal(err)
	}
	svc, err := client.ServingV1().Services(fn.Namespace).Get(ctx, fn.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(revision.Spec, svc.Spec.Template.Spec); diff != "" {
		t.Errorf("the template is not the last deployed one (-want +got): %s", diff)
	}
}

// TestDeletedServices checks that a new Function waits for the leftovers of a Service that
// a Function of the same name had.
func TestDeletedServices(t *testing.T) {
	fn := ofRuntime("nodejs24")
	s := &Server{recent: newRecent()}
	if s.mayHaveLeftovers(fn) {
		t.Error("a new Function may have leftovers")
	}
	for name, obj := range map[string]any{
		"Service":   MakeService(fn, oldImage),
		"tombstone": cache.DeletedFinalStateUnknown{Obj: MakeService(fn, oldImage)},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{recent: newRecent()}
			s.recent.noteDeletions().OnDelete(obj)
			if !s.mayHaveLeftovers(fn) {
				t.Error("a Function whose name had a Service may not have leftovers")
			}
		})
	}
}
