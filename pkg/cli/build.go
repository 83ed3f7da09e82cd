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

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/observe"
)

// buildReport is what kubectl fn build-status prints for programs.
type buildReport struct {
	Name         string              `json:"name"`
	Namespace    string              `json:"namespace"`
	Image        observe.ImageStatus `json:"image"`
	ImageMessage string              `json:"image_message,omitempty"`
	ImageName    string              `json:"image_name,omitempty"`

	// Build is what the Function's status says of it.
	Build *v1alpha1.BuildStatus `json:"build,omitempty"`
}

func (c *cli) buildStatusCommand() *cobra.Command {
	command := &cobra.Command{
		Use:               "build-status NAME",
		Short:             "Tell how the current or last build of a Function is",
		Example:           "  kubectl fn build-status greeter\n  kubectl fn build-status greeter -o jsonpath='{.image}'",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	out := newOutput(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		clients, err := c.connect()
		if err != nil {
			return err
		}
		r := buildReport{Name: args[0], Namespace: clients.Namespace}
		fn, err := clients.function(command.Context(), args[0])
		if errors.As(err, new(advisedError)) && !out.forHumans() {
			r.Image, r.ImageMessage = observe.Image(observe.Observed{})
			return errors.Join(out.report(c.Out, "BuildStatus", r), err)
		}
		if err != nil {
			return err
		}
		seen, err := clients.observe(command.Context(), fn)
		if err != nil {
			return err
		}
		r.Image, r.ImageMessage = observe.Image(seen)
		r.ImageName, r.Build = fn.Status.Image, fn.Status.Build
		if !out.forHumans() {
			return out.report(c.Out, "BuildStatus", r)
		}
		c.printBuild(c.Out, r)
		return nil
	}
	return command
}

func (c *cli) printBuild(out io.Writer, r buildReport) {
	fmt.Fprintf(out, "Image    %s: %s\n", r.Image, indent(r.ImageMessage, 9))
	if r.ImageName != "" {
		fmt.Fprintf(out, "Name     %s\n", r.ImageName)
	}
	build := r.Build
	if build == nil {
		fmt.Fprintf(out, "\nThere has been no build.\n")
		return
	}
	fmt.Fprintf(out, "Build    of version %d, since %s, attempt %d\n", build.Generation, cmp.Or(build.Reason, "unknown"), max(build.Attempts, 1))
	switch {
	case build.QueuedTime != nil:
		fmt.Fprintf(out, "Queued   %s ago\n", c.age(&metav1.Time{Time: build.QueuedTime.Time}))
	case build.CompletionTime != nil:
		fmt.Fprintf(out, "Ended    %s ago, after %s\n", c.age(build.CompletionTime), c.took(build.StartTime, build.CompletionTime))
	case build.StartTime != nil:
		fmt.Fprintf(out, "Started  %s ago\n", c.age(build.StartTime))
	}
	if build.BuildName() != "" {
		fmt.Fprintf(out, "TaskRun  %s\n", build.BuildName())
	}
	if build.Failure != nil {
		fmt.Fprintf(out, "\nFailed: %s\n  %s\n", build.Failure.Reason, indent(build.Failure.Message, 2))
	}
	fmt.Fprintf(out, "\nNext: kubectl fn build-logs %s\n", r.Name)
}

func (c *cli) buildLogsCommand() *cobra.Command {
	var followed bool
	command := &cobra.Command{
		Use:   "build-logs NAME",
		Short: "Print the log of the current or last build of a Function",
		Long: "Print the log of the current or last build of a Function.\n\n" +
			"Once the build's pod is gone, it is what the Function's status keeps: the last lines.\n" +
			"With --follow the exit code tells whether the build has failed.",
		Example:           "  kubectl fn build-logs --follow greeter",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	command.Flags().BoolVarP(&followed, "follow", "f", false, "Print the log as it is written, until the build has ended.")
	command.RunE = func(command *cobra.Command, args []string) error {
		clients, fn, err := c.function(command.Context(), args[0])
		if err != nil {
			return err
		}
		if !followed {
			return c.printBuildLog(command.Context(), clients, fn)
		}
		return c.followBuild(command.Context(), clients, fn)
	}
	return command
}

// printBuildLog prints what there is of the log of a Function's build.
func (c *cli) printBuildLog(ctx context.Context, clients *Clients, fn *v1alpha1.Function) error {
	taskRun, err := clients.taskRunOf(ctx, fn)
	if err != nil {
		return err
	}
	if taskRun != nil {
		switch printed, err := c.copySteps(ctx, clients, taskRun, false); {
		case err != nil:
			return err
		case printed:
			return nil
		}
	}
	return c.printKept(fn)
}

// printKept prints what the status of a Function keeps of the log of its build.
func (c *cli) printKept(fn *v1alpha1.Function) error {
	build := fn.Status.Build
	if build == nil {
		return try(fmt.Errorf("function %s has not been built yet", fn.Name), "kubectl fn status %s", fn.Name)
	}
	log := build.Log
	if build.Failure != nil {
		log = cmp.Or(build.Failure.Log, build.Failure.Message)
	}
	if log == "" {
		what := "the build's log is gone with its pod, and it had installed nothing"
		if build.BuildName() == "" {
			what = "no build ran: the registry had the image already"
		}
		return try(fmt.Errorf("there is no log: %s", what), "kubectl fn rebuild %s", fn.Name)
	}
	fmt.Fprintln(c.ErrOut, "The build's pod is gone. These are the last lines of its log:")
	fmt.Fprintln(c.Out, strings.TrimRight(log, "\n"))
	return nil
}

// stepContainerPrefix is Tekton's prefix of the name of a step's container.
const stepContainerPrefix = "step-"

// stepsOf returns the containers of a build in their order. What the status says
// of them has no names at first.
func stepsOf(taskRun *pipelinev1.TaskRun) (containers []string) {
	if taskRun.Spec.TaskSpec == nil {
		return nil
	}
	for _, step := range taskRun.Spec.TaskSpec.Steps {
		containers = append(containers, stepContainerPrefix+step.Name)
	}
	return containers
}

// copySteps prints the log of one step of a build after the other, and says
// whether there was any. A step that has not begun yet is waited for when the
// build is followed.
func (c *cli) copySteps(ctx context.Context, clients *Clients, taskRun *pipelinev1.TaskRun, followed bool) (printed bool, err error) {
	for _, container := range stepsOf(taskRun) {
		began, err := clients.hasBegun(ctx, taskRun.Namespace, taskRun.Status.PodName, container, followed)
		if err != nil || !began {
			return printed, err
		}
		opts := &corev1.PodLogOptions{Container: container, Follow: followed}
		switch err := copyLog(ctx, clients, taskRun.Namespace, taskRun.Status.PodName, opts, c.Out); {
		case apierrs.IsNotFound(err):
			return printed, nil
		case err != nil:
			return printed, err
		}
		printed = true
	}
	return printed, nil
}

// streamBuild prints the log of a build as it is written, from when its pod
// starts, and says whether there was any.
func (c *cli) streamBuild(ctx context.Context, clients *Clients, name string) (printed bool, err error) {
	var taskRun *pipelinev1.TaskRun
	err = follow(ctx, clients.Tekton.TektonV1().TaskRuns(clients.Namespace), onlyOne(name), func(list *pipelinev1.TaskRunList) (bool, error) {
		taskRun = nil
		for i := range list.Items {
			if list.Items[i].Name == name {
				taskRun = &list.Items[i]
			}
		}
		return taskRun == nil || taskRun.IsDone() || taskRun.Status.PodName != "", nil
	})
	if err != nil || taskRun == nil {
		return false, err
	}
	return c.copySteps(ctx, clients, taskRun, true)
}

// hasBegun says whether a container of a pod has begun to run. If asked to wait,
// it waits until that is so or cannot be any more.
func (c *Clients) hasBegun(ctx context.Context, namespace, pod, container string, wait bool) (began bool, err error) {
	if pod == "" {
		return false, nil
	}
	err = follow(ctx, c.Kube.CoreV1().Pods(namespace), onlyOne(pod), func(list *corev1.PodList) (done bool, err error) {
		for i := range list.Items {
			if list.Items[i].Name != pod {
				continue
			}
			for _, status := range list.Items[i].Status.ContainerStatuses {
				began = began || status.Name == container && (status.State.Running != nil || status.State.Terminated != nil)
			}
			phase := list.Items[i].Status.Phase
			return began || !wait || phase == corev1.PodFailed || phase == corev1.PodSucceeded, nil
		}
		return true, nil
	})
	return began, err
}

// followBuild prints the log of a Function's build as it is written, and returns
// an error if it fails.
func (c *cli) followBuild(ctx context.Context, clients *Clients, fn *v1alpha1.Function) error {
	fn, logged, err := c.watch(ctx, clients, fn.Name, func(fn *v1alpha1.Function) bool {
		built := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady)
		configured := fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady)
		return fn.Status.ObservedGeneration == fn.Generation &&
			(configured.IsFalse() || !isUnknown(built) && built.GetReason() != v1alpha1.ReasonQuotaExceeded)
	})
	if err != nil {
		return err
	}
	if !logged {
		// That there is none is told already: what built it, or why nothing did.
		_ = c.printBuildLog(ctx, clients, fn)
	}
	if ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady); ready.IsFalse() && !fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).IsTrue() {
		return try(fmt.Errorf("the build failed: %s", ready.GetMessage()), "kubectl fn status %s", fn.Name)
	}
	return nil
}

func isUnknown(condition *apis.Condition) bool {
	return !condition.IsTrue() && !condition.IsFalse()
}

// followFunction calls visit with a Function, and again after changes of its,
// until it says that it is done.
func (c *Clients) followFunction(ctx context.Context, name string, visit func(*v1alpha1.Function) (done bool, err error)) error {
	return follow(ctx, c.Kiln.ServerlessV1alpha1().Functions(c.Namespace), onlyOne(name), func(list *v1alpha1.FunctionList) (bool, error) {
		for i := range list.Items {
			if list.Items[i].Name == name {
				return visit(&list.Items[i])
			}
		}
		return true, try(fmt.Errorf("there is no Function %s in namespace %s any more", name, c.Namespace), "kubectl fn list")
	})
}
