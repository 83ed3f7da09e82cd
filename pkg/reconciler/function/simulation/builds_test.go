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

package simulation

import (
	"crypto/sha256"
	"fmt"
	"strings"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/job"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// verdict is how a build will end.
type verdict int

const (
	succeeds verdict = iota
	breaks
	hangs
	isRefused
	crashes
	isUnpulled
)

// build is the object of a build: a TaskRun, or a Job with its pod.
type build struct {
	ktesting.Object

	// pod is the pod of a Job, or nil.
	pod *corev1.Pod
}

// builds returns the objects of all builds. Callers must not change them.
func (s *simulation) builds() (found []build) {
	pods := map[types.UID]*corev1.Pod{}
	all := s.server.Objects()
	for _, obj := range all {
		if pod, ok := obj.(*corev1.Pod); ok {
			pods[types.UID(pod.Labels[batchv1.ControllerUidLabel])] = pod
		}
	}
	for _, obj := range all {
		switch obj.(type) {
		case *pipelinev1.TaskRun, *batchv1.Job:
			found = append(found, build{obj, pods[obj.GetUID()]})
		}
	}
	return found
}

// run returns the build as it is.
func (b build) run() builds.Run {
	if tr, ok := b.Object.(*pipelinev1.TaskRun); ok {
		return tekton.RunOf(tr)
	}
	return job.RunOf(b.Object.(*batchv1.Job), b.pod)
}

// isLive reports whether the build holds a slot of the queue.
func (b build) isLive() bool { return !b.run().State.Ended() }

// mayRun reports whether the build may still push an image.
func (b build) mayRun() bool {
	run := b.run()
	return !run.State.Ended() || run.Unfinished
}

// queued returns the queue's view of a build that is live.
func (b build) queued() queue.Build {
	if tr, ok := b.Object.(*pipelinev1.TaskRun); ok {
		return tekton.QueuedBuild(tr)
	}
	return job.QueuedBuild(b.run())
}

// podName returns the name of the build's pod, or "".
func (b build) podName() string {
	if tr, ok := b.Object.(*pipelinev1.TaskRun); ok {
		return tr.Status.PodName
	}
	if b.pod == nil {
		return ""
	}
	return b.pod.Name
}

func (b build) volumes() []corev1.Volume {
	if tr, ok := b.Object.(*pipelinev1.TaskRun); ok {
		return tr.Spec.TaskSpec.Volumes
	}
	return b.Object.(*batchv1.Job).Spec.Template.Spec.Volumes
}

// args returns the arguments of all containers.
func (b build) args() (args []string) {
	if tr, ok := b.Object.(*pipelinev1.TaskRun); ok {
		for _, step := range tr.Spec.TaskSpec.Steps {
			args = append(args, step.Args...)
		}
		return args
	}
	for _, container := range b.Object.(*batchv1.Job).Spec.Template.Spec.Containers {
		args = append(args, container.Args...)
	}
	return args
}

// destination returns where the build pushes to. It ignores the labels.
func (b build) destination() string {
	for _, arg := range b.args() {
		if destination, ok := strings.CutPrefix(arg, "--destination="); ok {
			return destination
		}
	}
	panic("the build pushes nothing")
}

// runBuilds replaces Tekton, the Job controller and the kubelet.
func (s *simulation) runBuilds() bool { return s.runTaskRuns() || s.runJobs() }

// judge returns how the build will end, once its pod can start.
func (s *simulation) judge(b build) (verdict, bool) {
	verdict := succeeds
	for _, volume := range b.volumes() {
		if volume.ConfigMap != nil {
			cm := get[*corev1.ConfigMap](s, b.GetNamespace(), volume.ConfigMap.Name)
			if cm == nil {
				return 0, false
			}
			for _, file := range cm.Data {
				switch {
				case strings.Contains(file, brokenSource):
					verdict = breaks
				case strings.Contains(file, slowSource):
					verdict = hangs
				case strings.Contains(file, stuckSource):
					return hangs, false
				case strings.Contains(file, crashingSource):
					verdict = crashes
				case strings.Contains(file, unpulledSource) && b.run().Attempt == 1:
					return isUnpulled, true
				}
			}
		}
		if volume.Secret != nil && (volume.Secret.Optional == nil || !*volume.Secret.Optional) {
			secret := get[*corev1.Secret](s, b.GetNamespace(), volume.Secret.SecretName)
			if secret == nil {
				return 0, false
			}
			if string(secret.Data["password"]) == "wrong" {
				verdict = isRefused
			}
		}
	}
	return verdict, true
}

// push has the build push an image, and returns its digest.
func (s *simulation) push(b build, verdict verdict) string {
	tag := b.destination()
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(tag+"\n"+b.GetAnnotations()[serverless.RebuildAnnotationKey])))
	s.pushed[tag] = digest
	s.memory.made[digest] = tag
	s.crashing[digest] = verdict == crashes
	return digest
}

// ended returns the time of what ends now.
func (s *simulation) ended() metav1.Time {
	if s.clocked {
		return metav1.Now()
	}
	// This is so long ago that every delayed action is due.
	return metav1.Unix(0, 0)
}

// setBuilder sets the builder of new builds.
func (s *simulation) setBuilder(builder config.Builder) {
	s.tracef("the builder is %s", builder)
	s.config = withBuilder(s.config, builder)
	s.process.wakeAll("")
}

// changeBackends sets the other builder, and the other server of new Functions.
func (s *simulation) changeBackends() {
	server := config.KubernetesServer
	if s.config.Functions.Server == server {
		server = config.KnativeServer
	}
	s.tracef("the server of new Functions is %s", server)
	s.config = withServer(s.config, server)
	if s.config.Build.Builder == config.JobBuilder {
		s.setBuilder(config.TektonBuilder)
		return
	}
	s.setBuilder(config.JobBuilder)
}

// withServer returns a copy of the config with that server.
func withServer(cfg *config.Config, server config.Server) *config.Config {
	copied, functions := *cfg, *cfg.Functions
	copied.Functions, functions.Server = &functions, server
	return &copied
}

// withBuilder returns a copy of the config with that builder.
func withBuilder(cfg *config.Config, builder config.Builder) *config.Config {
	copied, build := *cfg, *cfg.Build
	copied.Build, build.Builder = &build, builder
	return &copied
}
