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

package dev

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/cli/advice"
	"github.com/kiln-dev/kiln/pkg/cli/tunnel"
	"github.com/kiln-dev/kiln/pkg/observe"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

const (
	// maxAge ends a pod whose terminal is lost.
	maxAge = 8 * time.Hour

	// gracePeriod is short, because the launcher ends at once.
	gracePeriod = 1

	sourceVolume = "dev"
	// sourceSize bounds the files of the author, in bytes.
	sourceSize = 256 * mebibyte
	mebibyte   = 1 << 20
	// launcherMemory is what the launcher needs beside the function.
	launcherMemory = "64Mi"

	removeTimeout = 10 * time.Second
	// listenTimeout bounds the start of the launcher in a container that runs.
	listenTimeout = time.Minute
	pollPeriod    = 100 * time.Millisecond
)

// pod is the private pod of the author.
type pod struct {
	name     string
	uid      types.UID
	since    time.Time
	launcher remote
	tunnel   *tunnel.Tunnel
	stopLogs context.CancelFunc

	lock sync.Mutex
	// sent are the files that the pod has.
	sent map[string]file
	// checked and started report whether the dependencies of the image are those of the
	// folder, and whether the launcher has started the files.
	checked, started bool
	// starting sends the outcome of a start, and stopStart ends it. No start gives nil.
	starting  <-chan func()
	stopStart context.CancelFunc
}

// cancelStart forgets a start, so that the files count as not started.
func (p *pod) cancelStart() {
	if p.stopStart != nil {
		p.stopStart()
	}
	p.started, p.starting, p.stopStart = false, nil, nil
}

// ownedBy lets an object go with the Function. It has no controller, so that the author
// needs no permission for the Function's finalizers.
func ownedBy(fn *v1alpha1.Function) []metav1.OwnerReference {
	kind := fn.GetGroupVersionKind()
	return []metav1.OwnerReference{{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: fn.Name, UID: fn.UID}}
}

// newPod returns a pod that runs the launcher like a pod of the Function. It has none of
// the Function's labels, so that nothing selects it.
func (s *Session) newPod(image, token string) (*corev1.Pod, error) {
	command, err := command(s.Language, token)
	if err != nil {
		return nil, err
	}
	spec := podspec.Make(s.Function, image, corev1.ProbeHandler{}, s.PullSecrets)
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.ActiveDeadlineSeconds = new(int64(maxAge.Seconds()))
	spec.TerminationGracePeriodSeconds = new(int64(gracePeriod))
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name:         sourceVolume,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(sourceSize, resource.BinarySI)}},
	})
	container := &spec.Containers[0]
	container.Command, container.ReadinessProbe = command, nil
	container.Resources = withLauncher(container.Resources)
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: sourceVolume, MountPath: home})
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            kmeta.ChildName(s.Function.Name, "-dev-"+utilrand.String(5)),
			Namespace:       s.Function.Namespace,
			Labels:          map[string]string{serverless.DevLabelKey: s.Function.Name},
			OwnerReferences: ownedBy(s.Function),
		},
		Spec: spec,
	}, nil
}

// withLauncher makes room for the launcher, and for two versions of the code at the same
// time. The requests stay.
func withLauncher(resources corev1.ResourceRequirements) corev1.ResourceRequirements {
	limit, ok := resources.Limits[corev1.ResourceMemory]
	if !ok {
		return resources
	}
	resources = *resources.DeepCopy()
	if _, ok := resources.Requests[corev1.ResourceMemory]; !ok {
		if resources.Requests == nil {
			resources.Requests = corev1.ResourceList{}
		}
		resources.Requests[corev1.ResourceMemory] = limit
	}
	more := limit.DeepCopy()
	more.Add(limit)
	more.Add(resource.MustParse(launcherMemory))
	resources.Limits[corev1.ResourceMemory] = more
	return resources
}

func (s *Session) pods() typedcorev1.PodInterface {
	return s.Kube.CoreV1().Pods(s.Function.Namespace)
}

// open creates a pod and connects to its launcher.
func (s *Session) open(ctx context.Context, image string) (opened *pod, err error) {
	token := rand.Text()
	desired, err := s.newPod(image, token)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(s.ErrOut, "Starting pod %s.\n", desired.Name)
	p := &pod{name: desired.Name, launcher: remote{token: token}, sent: map[string]file{}, stopLogs: func() {}}
	defer func() {
		if err != nil {
			s.remove(ctx, p)
		}
	}()
	created, err := s.pods().Create(ctx, desired, metav1.CreateOptions{})
	if apierrs.IsAlreadyExists(err) {
		p.name = ""
	}
	if err != nil {
		return nil, fmt.Errorf("failed to create pod: %w", err)
	}
	p.uid = created.UID
	if err := s.awaitRunning(ctx, p); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, p); err != nil {
		return nil, err
	}
	logs, stop := context.WithCancel(ctx)
	p.stopLogs, p.since = stop, time.Now()
	go s.copyLog(logs, p.name)
	return p, nil
}

// remove deletes a pod, also after an interrupt.
func (s *Session) remove(ctx context.Context, p *pod) {
	if p == nil || p.name == "" {
		return
	}
	p.stopLogs()
	if p.tunnel != nil {
		p.tunnel.Close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	opts := metav1.DeleteOptions{}
	if p.uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &p.uid}
	}
	if err := s.pods().Delete(ctx, p.name, opts); err != nil && !apierrs.IsNotFound(err) {
		fmt.Fprintf(s.ErrOut, "Pod %s could not be deleted: %v\nTry: kubectl delete pod %s --namespace=%s\n", p.name, err, p.name, s.Function.Namespace)
	}
}

// removeLost deletes what lost terminals have left. Without the permission to list objects,
// they stay until the Function is deleted.
func (s *Session) removeLost(ctx context.Context) {
	opts := metav1.ListOptions{LabelSelector: labels.Set{serverless.DevLabelKey: s.Function.Name}.String()}
	if list, err := s.pods().List(ctx, opts); err == nil {
		for i := range list.Items {
			// The deadline of a pod counts from its start, so one that never starts has none.
			if lost := &list.Items[i]; hasEnded(lost) || time.Since(lost.CreationTimestamp.Time) > maxAge {
				s.remove(ctx, &pod{name: lost.Name, uid: lost.UID, stopLogs: func() {}})
			}
		}
	}
	if list, err := s.functions().List(ctx, opts); err == nil {
		for i := range list.Items {
			if s.isLost(&list.Items[i]) {
				s.removeBuild(ctx, &list.Items[i])
			}
		}
	}
}

func (s *Session) awaitRunning(ctx context.Context, p *pod) error {
	reported := ""
	return wait.PollUntilContextCancel(ctx, pollPeriod, true, func(ctx context.Context) (bool, error) {
		found, err := s.pods().Get(ctx, p.name, metav1.GetOptions{})
		switch {
		case err != nil:
			return false, fmt.Errorf("failed to get pod %s: %w", p.name, err)
		case hasEnded(found):
			return false, fmt.Errorf("pod %s has ended: %s", p.name, endOf(found))
		case found.Status.Phase == corev1.PodRunning:
			return true, nil
		}
		if words := trouble(found); words != "" && words != reported {
			reported = words
			fmt.Fprintf(s.ErrOut, "Pod %s does not run yet. %s\n", p.name, words)
		}
		return false, nil
	})
}

// trouble returns why the pod cannot start, or "".
func trouble(found *corev1.Pod) string {
	if scheduled := observe.PodCondition(found, corev1.PodScheduled); scheduled.Status == corev1.ConditionFalse {
		return fmt.Sprintf("%s: %s", scheduled.Reason, scheduled.Message)
	}
	return observe.Trouble(found, children.FunctionContainer)
}

func hasEnded(found *corev1.Pod) bool {
	return found.DeletionTimestamp != nil || found.Status.Phase == corev1.PodFailed || found.Status.Phase == corev1.PodSucceeded
}

// endOf returns why a pod has ended.
func endOf(found *corev1.Pod) string {
	for _, status := range found.Status.ContainerStatuses {
		if end := status.State.Terminated; end != nil && found.Status.Reason == "" {
			return fmt.Sprintf("%s, exit code %d", cmp.Or(end.Reason, "Error"), end.ExitCode)
		}
	}
	switch {
	case found.Status.Reason != "":
		return fmt.Sprintf("%s: %s", found.Status.Reason, found.Status.Message)
	case found.DeletionTimestamp != nil:
		return "somebody has deleted it"
	}
	return string(found.Status.Phase)
}

var errNotListening = errors.New("the launcher does not listen")

// connect forwards ports to a pod that runs, and waits until its launcher listens.
func (s *Session) connect(ctx context.Context, p *pod) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	for {
		// The tunnel outlives this call.
		to, err := s.Forward(context.WithoutCancel(ctx), s.Function.Namespace, p.name, controlPort, functionPort)
		switch {
		case err != nil && strings.Contains(err.Error(), "forbidden"):
			return advice.Try(fmt.Errorf("failed to connect to pod %s: %w", p.name, err), "kubectl auth can-i create pods/portforward --namespace=%s", s.Function.Namespace)
		case err != nil:
			return fmt.Errorf("failed to connect to pod %s: %w", p.name, err)
		}
		p.tunnel, p.launcher.address = to, to.Addresses[0]
		if p.launcher.ping(ctx) {
			return nil
		}
		to.Close()
		select {
		case <-ctx.Done():
			return cmp.Or(context.Cause(ctx), errNotListening)
		case <-time.After(pollPeriod):
		}
	}
}

// copyLog prints the log of a pod until ctx ends.
func (s *Session) copyLog(ctx context.Context, name string) {
	opts := &corev1.PodLogOptions{Container: children.FunctionContainer, Follow: true}
	for ctx.Err() == nil {
		stream, err := s.pods().GetLogs(name, opts).Stream(ctx)
		switch {
		case apierrs.IsForbidden(err):
			fmt.Fprintf(s.ErrOut, "You may not read the log of pod %s: %v\n", name, err)
			return
		case err == nil:
			_, _ = io.Copy(s.Out, stream)
			stream.Close()
		}
		opts.SinceTime = new(metav1.Now())
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
