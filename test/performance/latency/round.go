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

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/apis"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/test"
)

// The rows of the report.
const (
	// rowFloor is the time of the platform without Kiln: a TaskRun of one empty step, and
	// a Service like that of a Function, with an image that the node has.
	rowFloor = "floor"
	// rowFirstBuild is a new Function without dependencies.
	rowFirstBuild = "first-build"
	// rowFirstBuildNPM is a new Function with a small npm dependency.
	rowFirstBuildNPM = "first-build-npm"
	rowSourceEdit    = "source-edit"
	rowDepsEdit      = "deps-edit"
	rowEnvEdit       = "env-edit"
	// rowJob is the prefix of the rows with Jobs instead of TaskRuns. Their floor is an
	// empty Job, and a Service.
	rowJob = "job-"
	// rowPlain is the prefix of the rows with Jobs, and Deployments instead of Knative
	// Services. Their floor is an empty Job, and a Deployment with a Service.
	rowPlain = "plain-"
	// rowReuse is an edit back to a source whose image the registry has.
	rowReuse = "reuse"
)

// rows are all rows in the order of the report.
func rows() []string {
	all := []string{rowFloor, rowFirstBuild, rowFirstBuildNPM, rowSourceEdit, rowDepsEdit, rowEnvEdit, rowReuse,
		rowJob + rowFloor, rowJob + rowFirstBuild, rowJob + rowFirstBuildNPM, rowJob + rowSourceEdit,
		rowPlain + rowFloor, rowPlain + rowFirstBuild, rowPlain + rowFirstBuildNPM, rowPlain + rowSourceEdit, rowPlain + rowEnvEdit}
	for _, g := range greeters {
		all = append(all, rowColdStart+g.runtime+bare, rowColdStart+g.runtime)
	}
	return all
}

// patience bounds each step.
const patience = 5 * time.Minute

// stage is a namespace in which one round is played.
type stage struct {
	clients    *test.Clients
	namespace  string
	relayImage string
	camera     *camera
	tell       func(name string, took time.Duration, parts map[string]float64)
}

// playRound measures each row once, in a new namespace.
func playRound(ctx context.Context, clients *test.Clients, relayImage string, tell func(string, time.Duration, map[string]float64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	namespaces := clients.Kube.CoreV1().Namespaces()
	namespace, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kiln-latency-"}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create namespace: %w", err)
	}
	defer func() {
		if err := namespaces.Delete(context.WithoutCancel(ctx), namespace.Name, metav1.DeleteOptions{}); err != nil {
			fmt.Println("failed to delete namespace:", err)
		}
	}()
	s := &stage{clients: clients, namespace: namespace.Name, relayImage: relayImage, camera: newCamera(ctx, clients, namespace.Name), tell: tell}
	if err := s.playFunctions(ctx); err != nil {
		return err
	}
	if err := s.playJobs(ctx); err != nil {
		return err
	}
	if err := s.playPlain(ctx); err != nil {
		return err
	}
	return s.playColdStarts(ctx)
}

// act is what an author does to a Function, and the row that it counts for.
type act struct {
	row    string
	fn     *v1alpha1.Function
	change func(*v1alpha1.FunctionSpec)
}

// newFunctions returns a Function without dependencies, and one with a small npm
// dependency. No registry holds anything of them.
func newFunctions(prefix string) (plain, npm *v1alpha1.Function) {
	unique := fmt.Sprintf("// %d\n", time.Now().UnixNano())
	plain = function(prefix+"plain", unique+"module.exports = { main: () => 'hello' };\n", "")
	npm = function(prefix+"npm", unique+"const ms = require('ms');\nmodule.exports = { main: () => ms('1h') };\n", dependency("2.1.3"))
	return plain, npm
}

func editSource(spec *v1alpha1.FunctionSpec) { spec.Source += "// edited\n" }

func editEnv(spec *v1alpha1.FunctionSpec) { spec.Env = []corev1.EnvVar{{Name: "EDITED", Value: "yes"}} }

// playFunctions applies the edits of an author to two Functions.
func (s *stage) playFunctions(ctx context.Context) error {
	plain, npm := newFunctions("")
	if err := s.play(ctx, rowFirstBuild, plain, nil); err != nil {
		return fmt.Errorf("failed to take %s: %w", rowFirstBuild, err)
	}
	if err := s.playFloor(ctx, rowFloor, plain.Name, emptyTaskRun, s.runEmptyTaskRun); err != nil {
		return fmt.Errorf("failed to take %s: %w", rowFloor, err)
	}
	return s.playAll(ctx, []act{
		{rowFirstBuildNPM, npm, nil},
		{rowSourceEdit, npm, editSource},
		{rowEnvEdit, npm, editEnv},
		{rowDepsEdit, npm, func(spec *v1alpha1.FunctionSpec) { spec.Deps = dependency("2.1.2") }},
		{rowReuse, npm, func(spec *v1alpha1.FunctionSpec) { spec.Deps = dependency("2.1.3") }},
	})
}

// playJobs is playFunctions with Jobs, which config-build chooses meanwhile.
func (s *stage) playJobs(ctx context.Context) error {
	plain, npm := newFunctions(rowJob)
	return s.with(ctx, config.BuildConfigName, builderKey, string(config.JobBuilder), func(ctx context.Context) error {
		if err := s.play(ctx, rowJob+rowFirstBuild, plain, nil); err != nil {
			return fmt.Errorf("failed to take %s: %w", rowJob+rowFirstBuild, err)
		}
		runJob := func(ctx context.Context, image string) error { return s.runEmptyJob(ctx, rowJob+rowFloor, image) }
		if err := s.playFloor(ctx, rowJob+rowFloor, plain.Name, emptyJob, runJob); err != nil {
			return fmt.Errorf("failed to take %s: %w", rowJob+rowFloor, err)
		}
		return s.playAll(ctx, []act{
			{rowJob + rowFirstBuildNPM, npm, nil},
			{rowJob + rowSourceEdit, npm, editSource},
		})
	})
}

// builderKey is the key of the builder in config-build.
const builderKey = "builder"

// with calls do while a key of one of Kiln's ConfigMaps has a value.
func (s *stage) with(ctx context.Context, name, key, value string, do func(context.Context) error) (err error) {
	former, err := s.setKey(ctx, name, key, value)
	if err != nil {
		return err
	}
	defer func() {
		_, restored := s.setKey(context.WithoutCancel(ctx), name, key, former)
		err = errors.Join(err, restored)
	}()
	return do(ctx)
}

// setKey sets a key of one of Kiln's ConfigMaps, and returns the former value. "" is no
// value.
func (s *stage) setKey(ctx context.Context, name, key, value string) (former string, err error) {
	configMaps := s.clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := configMaps.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		former = current.Data[key]
		if value == "" {
			delete(current.Data, key)
		} else {
			current.Data[key] = value
		}
		_, err = configMaps.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return former, fmt.Errorf("failed to set %s in %s: %w", key, name, err)
	}
	return former, nil
}

func (s *stage) playAll(ctx context.Context, acts []act) error {
	for _, step := range acts {
		if err := s.play(ctx, step.row, step.fn, step.change); err != nil {
			return fmt.Errorf("failed to take %s: %w", step.row, err)
		}
	}
	return nil
}

func function(name, source, deps string) *v1alpha1.Function {
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: source, Deps: deps},
	}
}

func dependency(version string) string {
	return fmt.Sprintf(`{"dependencies": {"ms": %q}}`, version)
}

// play creates the Function, or applies the change, and records the time until it is
// Ready.
func (s *stage) play(ctx context.Context, row string, fn *v1alpha1.Function, change func(*v1alpha1.FunctionSpec)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	functions := s.clients.Kiln.ServerlessV1alpha1().Functions(s.namespace)
	write := func() (*v1alpha1.Function, error) { return functions.Create(ctx, fn, metav1.CreateOptions{}) }
	if change != nil {
		current, err := functions.Get(ctx, fn.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("failed to get Function: %w", err)
		}
		change(&current.Spec)
		write = func() (*v1alpha1.Function, error) { return functions.Update(ctx, current, metav1.UpdateOptions{}) }
	}
	start := time.Now()
	asked, err := write()
	if err != nil {
		return fmt.Errorf("failed to write Function: %w", err)
	}
	written := time.Now()
	done, err := test.WaitForFunction(ctx, s.clients, s.namespace, fn.Name, test.Ready)
	if err != nil {
		return err
	}
	ready := time.Now()
	if done.Generation != asked.Generation {
		return fmt.Errorf("somebody else has edited Function %s", fn.Name)
	}
	isPlain := strings.HasPrefix(row, rowPlain)
	if ref := done.Status.Build.Ref; (isPlain || strings.HasPrefix(row, rowJob)) != (ref != nil && ref.Kind == "Job") {
		return fmt.Errorf("%s was built by %+v", row, ref)
	}
	if isPlain != (done.Status.Serving == string(config.KubernetesServer)) {
		return fmt.Errorf("%s is served by %q", row, done.Status.Serving)
	}
	m, pod := s.camera.marks(start, written, ready, done)
	if pod != "" {
		if m.log, err = s.readLog(ctx, pod); err != nil {
			return err
		}
	}
	s.tell(row, ready.Sub(start), m.split())
	return nil
}

// readLog reads the logs of a build.
func (s *stage) readLog(ctx context.Context, name string) (times buildLog, err error) {
	pod, err := s.clients.Kube.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return times, fmt.Errorf("failed to get Pod: %w", err)
	}
	for _, container := range containersOf(pod) {
		log, err := s.clients.Kube.CoreV1().Pods(s.namespace).
			GetLogs(name, &corev1.PodLogOptions{Container: container.Name, Timestamps: true}).Stream(ctx)
		if err != nil {
			return times, fmt.Errorf("failed to read the log of pod %s: %w", name, err)
		}
		read := times.readPush
		if strings.HasSuffix(container.Name, steps.Install) {
			read = times.readInstall
		}
		if err := errors.Join(read(log), log.Close()); err != nil {
			return times, err
		}
	}
	return times, nil
}

// containersOf returns the containers that build. The init containers of a TaskRun are
// Tekton's own.
func containersOf(pod *corev1.Pod) []corev1.Container {
	if pod.Labels[batchv1.JobNameLabel] == "" {
		return pod.Spec.Containers
	}
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// playFloor measures the platform without Kiln. Its Service equals that of a Function
// except the name.
func (s *stage) playFloor(ctx context.Context, row, like, part string, run func(ctx context.Context, image string) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	svc, err := s.serviceLike(ctx, like, row)
	if err != nil {
		return err
	}
	clock := newSplit()
	if err := run(ctx, svc.Spec.Template.Spec.Containers[0].Image); err != nil {
		return err
	}
	clock.mark(part)
	if err := s.runService(ctx, svc); err != nil {
		return err
	}
	clock.mark(service)
	s.tell(row, clock.total(), clock.parts)
	return nil
}

// serviceLike returns a copy of a Function's Service under another name.
func (s *stage) serviceLike(ctx context.Context, function, name string) (*servingv1.Service, error) {
	svc, err := s.clients.Serving.ServingV1().Services(s.namespace).Get(ctx, function, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get Service: %w", err)
	}
	svc.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: map[string]string{netapi.VisibilityLabelKey: serving.VisibilityClusterLocal}}
	return svc, nil
}

func (s *stage) runEmptyTaskRun(ctx context.Context, image string) error {
	client := s.clients.Pipeline.TektonV1().TaskRuns(s.namespace)
	_, err := client.Create(ctx, &pipelinev1.TaskRun{
		ObjectMeta: metav1.ObjectMeta{Name: rowFloor},
		Spec: pipelinev1.TaskRunSpec{TaskSpec: &pipelinev1.TaskSpec{Steps: []pipelinev1.Step{{
			Name:    "nothing",
			Image:   image,
			Command: []string{"true"},
		}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create TaskRun: %w", err)
	}
	return test.Until(ctx, client, test.Named(rowFloor), func(taskRuns []*pipelinev1.TaskRun) error {
		for _, tr := range taskRuns {
			switch condition := tr.Status.GetCondition(apis.ConditionSucceeded); {
			case condition.IsTrue():
				return nil
			case condition.IsFalse():
				return test.GiveUp(fmt.Errorf("the empty TaskRun failed: %s", condition.Message))
			}
		}
		return errors.New("the empty TaskRun has not ended")
	})
}

func (s *stage) runEmptyJob(ctx context.Context, name, image string) error {
	client := s.clients.Kube.BatchV1().Jobs(s.namespace)
	_, err := client.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "nothing", Image: image, Command: []string{"true"}}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create Job: %w", err)
	}
	return test.Until(ctx, client, test.Named(name), func(jobs []*batchv1.Job) error {
		for _, job := range jobs {
			switch {
			case job.Status.CompletionTime != nil:
				return nil
			case job.Status.Failed > 0:
				return test.GiveUp(errors.New("the empty Job failed"))
			}
		}
		return errors.New("the empty Job has not ended")
	})
}

func (s *stage) runService(ctx context.Context, svc *servingv1.Service) error {
	client := s.clients.Serving.ServingV1().Services(s.namespace)
	if _, err := client.Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Service: %w", err)
	}
	return test.Until(ctx, client, test.Named(svc.Name), func(services []*servingv1.Service) error {
		for _, svc := range services {
			if svc.IsReady() {
				return nil
			}
		}
		return errors.New("the Service is not ready")
	})
}
