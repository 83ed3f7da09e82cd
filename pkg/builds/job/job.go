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

package job

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/children"
)

// deadlineGrace is how much later than its pod a Job times out. The deadline of the pod
// keeps the states and the logs of its containers, and that of the Job deletes the pod.
const deadlineGrace = 30

// MakeJob returns the Job that builds and pushes the Function's image.
func MakeJob(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) *batchv1.Job {
	timeout := int64(math.Ceil(steps.Timeout(fn, cfg.Build).Seconds()))
	job := &batchv1.Job{
		ObjectMeta: children.ObjectMeta(fn, builds.NameOf(fn, build.Request, build.Attempt)),
		Spec: batchv1.JobSpec{
			// A second pod could push while the first still runs, so each attempt is a Job.
			BackoffLimit:          new(int32(0)),
			ActiveDeadlineSeconds: new(timeout + deadlineGrace),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      children.BuildLabels(fn, build.Tag),
					Annotations: steps.PodAnnotations(fn, build),
				},
				Spec: podSpec(cfg.Build, steps.Make(fn, cfg, build, steps.Target{InTurn: true}), timeout),
			},
		},
	}
	job.Labels = children.BuildLabels(fn, build.Tag)
	job.Annotations = steps.Annotations(build)
	return job
}

func podSpec(cfg *config.Build, made steps.Steps, timeout int64) corev1.PodSpec {
	spec := corev1.PodSpec{
		Containers:                   []corev1.Container{made.Push},
		Volumes:                      made.Volumes,
		RestartPolicy:                corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:        &timeout,
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		PriorityClassName:            cfg.PriorityClassName,
		NodeSelector:                 cfg.NodeSelector,
		Tolerations:                  cfg.Tolerations,
		SecurityContext: &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	for _, c := range []*corev1.Container{made.Fetch, made.Install} {
		if c != nil {
			spec.InitContainers = append(spec.InitContainers, *c)
		}
	}
	return spec
}
