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
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/kmap"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// Slim is a transform that replaces the revision template of a Service by its hash.
func Slim(obj any) (any, error) {
	svc, ok := obj.(*servingv1.Service)
	if !ok {
		return obj, nil
	}
	ShortenTemplate(svc)
	slim.ShareMeta(&svc.ObjectMeta)
	slim.ShareStatus(&svc.Status.Status)
	slim.ShareURL(svc.Status.URL, svc.Status.Address)
	return svc, nil
}

func desiredHashOf(svc *servingv1.Service) string {
	return svc.Annotations[serverless.WishHashAnnotationKey]
}

// Remember returns what status.templateHash remembers of a Service that Kiln has just
// written: a hash of the desired revision template, and one of the stored template,
// which has Serving's defaults.
func Remember(stored *servingv1.Service) string {
	return desiredHashOf(stored) + "." + hashOfTemplate(stored)
}

// ShortenTemplate replaces the Service's revision template by its hash, which takes
// the place of its name. The template is most of a cached Service.
func ShortenTemplate(svc *servingv1.Service) {
	svc.Spec.Template = servingv1.RevisionTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: hashOfTemplate(svc)}}
}

// HasTemplate reports whether the Service has a whole revision template, not one that
// ShortenTemplate has shortened. Serving accepts no template without a container.
func HasTemplate(svc *servingv1.Service) bool {
	return len(svc.Spec.Template.Spec.Containers) > 0
}

// hashOfTemplate returns the hash of the Service's revision template, also of a
// shortened one.
func hashOfTemplate(svc *servingv1.Service) string {
	if !HasTemplate(svc) {
		return svc.Spec.Template.Name
	}
	return podspec.Hash(svc.Spec.Template)
}

// IsTemplateEdited reports whether somebody else has changed the Service's revision
// template. It reports false where the desired template differs from the remembered
// one: the status may have lost Kiln's last write.
func IsTemplateEdited(svc *servingv1.Service, remembered string) bool {
	desired, stored, ok := strings.Cut(remembered, ".")
	return ok && (desiredHashOf(svc) == desired || desiredHashOf(svc) == "") && hashOfTemplate(svc) != stored
}

// RestoreTemplate gives the Service the remembered revision template, if one of the
// revisions has it. It reports whether it did.
func RestoreTemplate(svc *servingv1.Service, revisions []servingv1.Revision, remembered string) bool {
	desired, stored, _ := strings.Cut(remembered, ".")
	for i := range revisions {
		if template := templateOf(&revisions[i]); podspec.Hash(template) == stored {
			svc.Spec.Template = template
			svc.Annotations = kmap.Union(svc.Annotations, map[string]string{serverless.WishHashAnnotationKey: desired})
			return true
		}
	}
	return false
}

func templateOf(revision *servingv1.Revision) servingv1.RevisionTemplateSpec {
	return servingv1.RevisionTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      withoutServing(revision.Labels),
			Annotations: withoutServing(revision.Annotations),
		},
		Spec: *revision.Spec.DeepCopy(),
	}
}

// withoutServing drops the keys that Serving writes on a revision.
func withoutServing(metadata map[string]string) map[string]string {
	return kmap.Filter(metadata, func(key string) bool {
		return strings.HasPrefix(key, serving.GroupNamePrefix) && !slices.Contains(templateAnnotations, key)
	})
}

// templateAnnotations are the annotations of Serving that it copies from a template to
// the revision.
var templateAnnotations = []string{serving.ProgressDeadlineAnnotationKey, serving.RolloutDurationKey}
