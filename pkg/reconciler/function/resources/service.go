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

package resources

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/kmap"
	"knative.dev/serving/pkg/apis/autoscaling"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources/names"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// FunctionContainerName is the name of the container that runs the function.
	FunctionContainerName = "function"

	tmpVolumeName = "tmp"
	tmpPath       = "/tmp"
	// tmpSize bounds what a function can write to its node's disk.
	tmpSize = "512Mi"
)

// Change is what it takes to make a Service as it is wished for.
type Change int

const (
	// NoChange says that the Service is as it is wished for.
	NoChange Change = iota
	// RouteChange says that requests are to reach its revisions another way.
	RouteChange
	// RevisionChange says that a new revision is to be made, too, or the one that
	// there is to be made sure of.
	RevisionChange
)

// MakeService returns the Knative Service that runs the image, a reference by
// digest, as the Function says. pullSecrets are the names of the Secrets that
// nodes pull it with.
func MakeService(fn *v1alpha1.Function, image string, pullSecrets ...string) *servingv1.Service {
	return makeService(fn, image, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: runtimes.HealthPath, Port: intstr.FromInt32(0)}}, pullSecrets)
}

// MakeListeningService is MakeService for an image that need not know of Kiln: it is
// ready when it listens.
func MakeListeningService(fn *v1alpha1.Function, image string, pullSecrets ...string) *servingv1.Service {
	return makeService(fn, image, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(0)}}, pullSecrets)
}

func makeService(fn *v1alpha1.Function, image string, ready corev1.ProbeHandler, pullSecrets []string) *servingv1.Service {
	svc := &servingv1.Service{
		ObjectMeta: objectMeta(fn, names.Service(fn)),
		Spec: servingv1.ServiceSpec{
			ConfigurationSpec: servingv1.ConfigurationSpec{
				Template: servingv1.RevisionTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{
						Labels: kmap.Union(fn.Spec.Labels, map[string]string{
							serverless.FunctionNameLabelKey: fn.Name,
							serverless.FunctionUIDLabelKey:  string(fn.UID),
						}),
						Annotations: kmap.Union(fn.Spec.Annotations, scaleAnnotations(fn)),
					},
					Spec: servingv1.RevisionSpec{
						PodSpec:              podSpec(fn, image, ready, pullSecrets),
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

// MergeService returns a copy of an existing Service that is as desired, and
// what that changes. Labels and annotations that others have put on the Service
// stay: Serving does not allow its own to change. Its revision template is
// Kiln's alone: it has to be written where it is not as remembered of the last
// time. Else it stays, and is shortened where the existing one is.
func MergeService(desired, existing *servingv1.Service, remembered string) (*servingv1.Service, Change) {
	merged, change := MergeRoute(desired, existing)
	if wishOf(existing) != wishOf(desired) || Remember(existing) != remembered {
		merged.Annotations = kmap.Union(existing.Annotations, desired.Annotations)
		merged.Spec.Template = desired.Spec.Template
		change = RevisionChange
	}
	return merged, change
}

// MergeRoute is MergeService without the revision template, which stays as it is.
func MergeRoute(desired, existing *servingv1.Service) (*servingv1.Service, Change) {
	merged := existing.DeepCopy()
	visibility := desired.Labels[netapi.VisibilityLabelKey]
	if equality.Semantic.DeepEqual(existing.Spec.RouteSpec, desired.Spec.RouteSpec) &&
		existing.Labels[netapi.VisibilityLabelKey] == visibility {
		return merged, NoChange
	}
	merged.Spec.RouteSpec = desired.Spec.RouteSpec
	merged.Labels = kmap.Union(existing.Labels, desired.Labels)
	if visibility == "" {
		delete(merged.Labels, netapi.VisibilityLabelKey)
	}
	return merged, RouteChange
}

// KeepRoute has the desired Service reached as the existing one is.
func KeepRoute(desired, existing *servingv1.Service) {
	desired.Spec.RouteSpec = existing.Spec.RouteSpec
	if visibility, ok := existing.Labels[netapi.VisibilityLabelKey]; ok {
		desired.Labels[netapi.VisibilityLabelKey] = visibility
	} else {
		delete(desired.Labels, netapi.VisibilityLabelKey)
	}
}

func wishOf(svc *servingv1.Service) string {
	return svc.Annotations[serverless.WishHashAnnotationKey]
}

// Remember returns what is to be remembered of the revision template of a Service
// that Kiln has just written: a hash of what was wished for, and one of what is
// stored, in which Serving has filled in what was left out.
func Remember(stored *servingv1.Service) string {
	return wishOf(stored) + "." + hashOfTemplate(stored)
}

// ShortenTemplate leaves of the Service's revision template a hash, in place of its
// name, which is all that has to be known of it: it is most of a Service, and each
// Function has one.
func ShortenTemplate(svc *servingv1.Service) {
	svc.Spec.Template = servingv1.RevisionTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: hashOfTemplate(svc)}}
}

// HasTemplate says whether the Service has its revision template, and not what
// ShortenTemplate has left: Serving takes none without a container.
func HasTemplate(svc *servingv1.Service) bool {
	return len(svc.Spec.Template.Spec.Containers) > 0
}

// hashOfTemplate returns a hash of the Service's revision template, be it shortened or
// not.
func hashOfTemplate(svc *servingv1.Service) string {
	if !HasTemplate(svc) {
		return svc.Spec.Template.Name
	}
	return hash(svc.Spec.Template)
}

// IsTemplateEdited says whether somebody else has changed the Service's revision
// template. It is not so sure of a Service that was made for another wish than
// the remembered one: Kiln may have lost the memory of that.
func IsTemplateEdited(svc *servingv1.Service, remembered string) bool {
	wish, stored, ok := strings.Cut(remembered, ".")
	return ok && (wishOf(svc) == wish || wishOf(svc) == "") && hashOfTemplate(svc) != stored
}

// RestoreTemplate gives the Service the revision template that is remembered, if
// one of the revisions was made of it, and says whether that is so.
func RestoreTemplate(svc *servingv1.Service, revisions []servingv1.Revision, remembered string) bool {
	wish, stored, _ := strings.Cut(remembered, ".")
	for i := range revisions {
		if template := templateOf(&revisions[i]); hash(template) == stored {
			svc.Spec.Template = template
			svc.Annotations = kmap.Union(svc.Annotations, map[string]string{serverless.WishHashAnnotationKey: wish})
			return true
		}
	}
	return false
}

// templateOf returns the template that the revision was made of.
func templateOf(revision *servingv1.Revision) servingv1.RevisionTemplateSpec {
	return servingv1.RevisionTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      withoutServing(revision.Labels),
			Annotations: withoutServing(revision.Annotations),
		},
		Spec: *revision.Spec.DeepCopy(),
	}
}

// withoutServing drops what Serving writes on a revision.
func withoutServing(metadata map[string]string) map[string]string {
	return kmap.Filter(metadata, func(key string) bool {
		return strings.HasPrefix(key, serving.GroupNamePrefix) && !slices.Contains(templateAnnotations, key)
	})
}

// templateAnnotations are the annotations of Serving's that it knows in a
// template, and copies to the revision.
var templateAnnotations = []string{serving.ProgressDeadlineAnnotationKey, serving.RolloutDurationKey}

// scaleAnnotations leaves out a maximum of 0, which would contradict a limit of
// Serving's own. A minimum of 0 is said, since Serving's default can be another.
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

// readinessProbe asks each second. Where no period is said, Serving's own is ten
// seconds: as much longer takes a pod that does not answer the first probe, since
// its queue proxy, or the function, is still about to start. A function that
// computes for long keeps its pod as long as with Kubernetes' defaults, though:
// three probes of ten seconds each.
func readinessProbe(ready corev1.ProbeHandler) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     ready,
		SuccessThreshold: 1,
		PeriodSeconds:    1,
		TimeoutSeconds:   1,
		FailureThreshold: 30,
	}
}

// podSpec returns a pod that satisfies the restricted Pod Security Standard.
// All of it is said of the container, since Serving allows nothing of that kind
// to be said of the pod.
func podSpec(fn *v1alpha1.Function, image string, ready corev1.ProbeHandler, pullSecrets []string) corev1.PodSpec {
	var references []corev1.LocalObjectReference
	for _, name := range pullSecrets {
		references = append(references, corev1.LocalObjectReference{Name: name})
	}
	mounts := slices.SortedFunc(slices.Values(fn.Spec.SecretMounts), func(a, b v1alpha1.SecretMount) int {
		return cmp.Compare(a.MountPath, b.MountPath)
	})
	return corev1.PodSpec{
		ServiceAccountName:           fn.Spec.ServiceAccountName,
		AutomountServiceAccountToken: automount(fn),
		EnableServiceLinks:           new(false),
		ImagePullSecrets:             references,
		NodeSelector:                 fn.Spec.NodeSelector,
		Tolerations:                  fn.Spec.Tolerations,
		Containers: []corev1.Container{{
			Name:            FunctionContainerName,
			Image:           image,
			Env:             env(fn),
			EnvFrom:         fn.Spec.EnvFrom,
			Resources:       fn.Spec.Resources,
			ReadinessProbe:  readinessProbe(ready),
			SecurityContext: restricted(),
			VolumeMounts:    append([]corev1.VolumeMount{{Name: tmpVolumeName, MountPath: tmpPath}}, secretVolumeMounts(mounts)...),
		}},
		Volumes: append([]corev1.Volume{{
			Name: tmpVolumeName,
			VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(tmpSize))},
			},
		}}, secretVolumes(mounts)...),
	}
}

// automount withholds the token of a service account that nobody has named. To
// ask for the token of one, Serving does not allow; it is Kubernetes' default.
func automount(fn *v1alpha1.Function) *bool {
	if fn.Spec.ServiceAccountName != "" {
		return nil
	}
	return new(false)
}

func secretVolumes(mounts []v1alpha1.SecretMount) []corev1.Volume {
	var volumes []corev1.Volume
	for i, mount := range mounts {
		volumes = append(volumes, corev1.Volume{
			Name:         secretVolumeName(i),
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: mount.SecretName}},
		})
	}
	return volumes
}

func secretVolumeMounts(mounts []v1alpha1.SecretMount) []corev1.VolumeMount {
	var volumeMounts []corev1.VolumeMount
	for i, mount := range mounts {
		volumeMounts = append(volumeMounts, corev1.VolumeMount{Name: secretVolumeName(i), MountPath: mount.MountPath, ReadOnly: true})
	}
	return volumeMounts
}

func secretVolumeName(i int) string {
	return fmt.Sprintf("secret-%d", i)
}

// traffic says all that Serving would fill in, so that it can be compared.
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

// env returns what the function is told about itself, and what its author says.
func env(fn *v1alpha1.Function) []corev1.EnvVar {
	told := []corev1.EnvVar{
		{Name: runtimes.EnvFunctionName, Value: fn.Name},
		{Name: runtimes.EnvFunctionNamespace, Value: fn.Namespace},
		{Name: runtimes.EnvFunctionRuntime, Value: fn.Spec.Runtime},
	}
	if seconds := fn.Spec.TimeoutSeconds; seconds != nil {
		told = append(told, corev1.EnvVar{Name: runtimes.EnvFunctionTimeout, Value: strconv.FormatInt(*seconds, 10)})
	}
	if limit, ok := fn.Spec.Resources.Limits[corev1.ResourceMemory]; ok {
		told = append(told, corev1.EnvVar{Name: runtimes.EnvFunctionMemoryLimit, Value: limit.String()})
	}
	return append(told, fn.Spec.Env...)
}
