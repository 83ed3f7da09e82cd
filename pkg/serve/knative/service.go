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
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/kmap"
	"knative.dev/serving/pkg/apis/autoscaling"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

// MakeService returns the Knative Service that runs the image, a reference by digest.
// pullSecrets are the names of the Secrets with which nodes pull the image.
func MakeService(fn *v1alpha1.Function, image string, pullSecrets ...string) *servingv1.Service {
	return makeService(fn, image, podspec.Healthy(0), pullSecrets)
}

// MakeListeningService is MakeService for an image without Kiln's wrapper: it is ready
// when it listens on its port.
func MakeListeningService(fn *v1alpha1.Function, image string, pullSecrets ...string) *servingv1.Service {
	return makeService(fn, image, podspec.Listening(0), pullSecrets)
}

func makeService(fn *v1alpha1.Function, image string, ready corev1.ProbeHandler, pullSecrets []string) *servingv1.Service {
	svc := &servingv1.Service{
		ObjectMeta: children.ObjectMeta(fn, children.ServiceName(fn)),
		Spec: servingv1.ServiceSpec{
			ConfigurationSpec: servingv1.ConfigurationSpec{
				Template: servingv1.RevisionTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{
						Labels: kmap.Union(fn.Spec.Labels, map[string]string{
							serverless.FunctionNameLabelKey: fn.Name,
							serverless.FunctionUIDLabelKey:  string(fn.UID),
						}),
						Annotations: kmap.Union(podspec.Annotations(fn), scaleAnnotations(fn)),
					},
					Spec: servingv1.RevisionSpec{
						PodSpec:              podspec.Make(fn, image, ready, pullSecrets),
						ContainerConcurrency: fn.Spec.Concurrency,
						TimeoutSeconds:       fn.Spec.TimeoutSeconds,
					},
				},
			},
			RouteSpec: servingv1.RouteSpec{Traffic: traffic(fn)},
		},
	}
	if fn.Spec.Visibility != v1alpha1.VisibilityPublic {
		svc.Labels[netapi.VisibilityLabelKey] = serving.VisibilityClusterLocal
	}
	svc.Annotations = map[string]string{
		serverless.WishHashAnnotationKey: hashOfTemplate(svc),
	}
	return svc
}

// scaleAnnotations omits a maximum of 0, which would contradict a limit of Serving's
// own. It states a minimum of 0, because Serving's default can be another.
func scaleAnnotations(fn *v1alpha1.Function) map[string]string {
	annotations := map[string]string{}
	if n := fn.Spec.MinReplicas; n != nil {
		annotations[autoscaling.MinScaleAnnotationKey] = strconv.Itoa(int(*n))
	}
	if n := fn.Spec.MaxReplicas; n != nil && *n > 0 {
		annotations[autoscaling.MaxScaleAnnotationKey] = strconv.Itoa(int(*n))
	}
	return annotations
}

// traffic sets every field that Serving would default, so the two can be compared.
func traffic(fn *v1alpha1.Function) []servingv1.TrafficTarget {
	if len(fn.Spec.Traffic) == 0 {
		return []servingv1.TrafficTarget{{LatestRevision: new(true), Percent: new(int64(100))}}
	}
	targets := make([]servingv1.TrafficTarget, 0, len(fn.Spec.Traffic))
	for _, target := range fn.Spec.Traffic {
		percent := int64(0)
		if target.Percent != nil {
			percent = *target.Percent
		}
		targets = append(targets, servingv1.TrafficTarget{
			Tag:            target.Tag,
			RevisionName:   target.RevisionName,
			LatestRevision: new(target.RevisionName == ""),
			Percent:        &percent,
		})
	}
	return targets
}
