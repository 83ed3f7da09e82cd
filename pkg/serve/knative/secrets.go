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
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

// FindSecret returns a Service or a Revision of a Function in the namespace that gives the
// Secret to its pods, or nil. It reads past the cache. Serving may not have made the
// Revision of a Service yet.
func (s *Server) FindSecret(ctx context.Context, secret, namespace string) (*corev1.ObjectReference, error) {
	services := pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return s.Client.ServingV1().Services(namespace).List(ctx, opts)
	})
	found, err := children.FindLive(ctx, services, "Service", children.LabelSelector, func(svc *servingv1.Service) bool {
		return pods.NamesSecret(&svc.Spec.Template.Spec.PodSpec, secret)
	})
	if found != nil || err != nil {
		return found, err
	}
	revisions := pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return s.Client.ServingV1().Revisions(namespace).List(ctx, opts)
	})
	return children.FindLive(ctx, revisions, "Revision", children.LabelSelector, func(revision *servingv1.Revision) bool {
		return pods.NamesSecret(&revision.Spec.PodSpec, secret)
	})
}

// describeRefused returns a message about a wanted revision that names the Secret with
// registry credentials, or whose pods have metadata that is not allowed; or "".
func describeRefused(ctx context.Context, wanted []string, revisions []servingv1.Revision) string {
	for i := range revisions {
		if secret := podspec.ReservedSecretOf(ctx, &revisions[i].Spec.PodSpec); secret != "" && slices.Contains(wanted, revisions[i].Name) {
			return fmt.Sprintf("spec.traffic names revision %s, which uses Secret %s. It has the credentials of the image registry, "+
				"and no Function may use it. Name another revision. The previous traffic stays in effect.", revisions[i].Name, secret)
		}
		if forbidden := podspec.DescribeForbidden(ctx, revisions[i].Labels, revisions[i].Annotations); forbidden != "" && slices.Contains(wanted, revisions[i].Name) {
			return fmt.Sprintf("spec.traffic names revision %s, whose pods have %s. Name another revision. The previous traffic stays in effect.",
				revisions[i].Name, forbidden)
		}
	}
	return ""
}
