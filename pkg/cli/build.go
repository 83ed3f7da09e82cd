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
	"slices"
	"strings"

	"github.com/spf13/cobra"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/observe"
)

type buildReport struct {
	Name         string              `json:"name"`
	Namespace    string              `json:"namespace"`
	Image        observe.ImageStatus `json:"image"`
	ImageMessage string              `json:"image_message,omitempty"`
	ImageName    string              `json:"image_name,omitempty"`

	// Build is status.build of the Function.
	Build *v1alpha1.BuildStatus `json:"build,omitempty"`
}

func (c *cli) buildStatusCommand() *cobra.Command {
	command := &cobra.Command{
		Use:               "build-status NAME",
		Short:             "Show the state of the current or last build of a Function",
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
		fmt.Fprintf(out, "\nThe Function has not been built yet.\n")
		return
	}
	fmt.Fprintf(out, "Build    version %d, reason %s, attempt %d\n", build.Generation, cmp.Or(build.Reason, "unknown"), max(build.Attempts, 1))
	switch {
	case build.QueuedTime != nil:
		fmt.Fprintf(out, "Queued   %s ago\n", c.age(&metav1.Time{Time: build.QueuedTime.Time}))
	case build.CompletionTime != nil:
		fmt.Fprintf(out, "Ended    %s ago, after %s\n", c.age(build.CompletionTime), c.took(build.StartTime, build.CompletionTime))
	case build.StartTime != nil:
		fmt.Fprintf(out, "Started  %s ago\n", c.age(build.StartTime))
	}
	if build.BuildName() != "" {
		fmt.Fprintf(out, "%-7s  %s\n", build.Ref.Kind, build.Ref.Name)
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
			"When the pod of the build is gone, the command prints the last lines, which the Function's status keeps.\n" +
			"With --follow, the exit code reports whether the build failed.",
		Example:           "  kubectl fn build-logs --follow greeter",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	command.Flags().BoolVarP(&followed, "follow", "f", false, "Print the log while it is written, until the build ends.")
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

func (c *cli) printBuildLog(ctx context.Context, clients *Clients, fn *v1alpha1.Function) error {
	build, err := clients.buildOf(ctx, fn)
	if err != nil {
		return err
	}
	if build != nil {
		switch printed, err := c.copySteps(ctx, clients, build, false); {
		case err != nil:
			return err
		case printed:
			return nil
		}
	}
	return c.printKept(fn)
}

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
		what := "the pod of the build is gone, and the build installed no dependencies"
		if build.BuildName() == "" {
			what = "no build ran, because the registry already had the image"
		}
		return try(fmt.Errorf("there is no log: %s", what), "kubectl fn rebuild %s", fn.Name)
	}
	fmt.Fprintln(c.ErrOut, "The pod of the build is gone. These are the last lines of its log:")
	fmt.Fprintln(c.Out, strings.TrimRight(log, "\n"))
	return nil
}

// copySteps prints the logs of the steps of a build in their order, and reports
// whether there were any. If followed, it waits for steps that have not begun.
func (c *cli) copySteps(ctx context.Context, clients *Clients, build *buildObject, followed bool) (printed bool, err error) {
	for _, container := range build.containers {
		began, err := clients.hasBegun(ctx, build.namespace, build.pod, container, followed)
		if err != nil || !began {
			return printed, err
		}
		opts := &corev1.PodLogOptions{Container: container, Follow: followed}
		switch err := copyLog(ctx, clients, build.namespace, build.pod, opts, c.Out); {
		case apierrs.IsNotFound(err):
			return printed, nil
		case err != nil:
			return printed, err
		}
		printed = true
	}
	return printed, nil
}

// streamBuild waits for the pod of a build, prints the log while it is written,
// and reports whether there was any.
func (c *cli) streamBuild(ctx context.Context, clients *Clients, ref v1alpha1.BuildReference) (printed bool, err error) {
	from, ok := builders[ref.Kind]
	if !ok {
		return false, nil
	}
	var build *buildObject
	err = from.follow(ctx, clients, clients.Namespace, ref.Name, func(now *buildObject) (bool, error) {
		build = now
		return build == nil || build.ended || build.pod != "", nil
	})
	if err != nil || build == nil {
		return false, err
	}
	return c.copySteps(ctx, clients, build, true)
}

// hasBegun reports whether a container of a pod has begun to run. With wait, it
// waits until the container has begun or can no longer begin.
func (c *Clients) hasBegun(ctx context.Context, namespace, pod, container string, wait bool) (began bool, err error) {
	if pod == "" {
		return false, nil
	}
	err = follow(ctx, c.Kube.CoreV1().Pods(namespace), onlyOne(pod), func(list *corev1.PodList) (done bool, err error) {
		for i := range list.Items {
			if list.Items[i].Name != pod {
				continue
			}
			// A Job installs dependencies in an init container.
			pod := list.Items[i].Status
			for _, status := range slices.Concat(pod.InitContainerStatuses, pod.ContainerStatuses) {
				began = began || status.Name == container && (status.State.Running != nil || status.State.Terminated != nil)
			}
			return began || !wait || pod.Phase == corev1.PodFailed || pod.Phase == corev1.PodSucceeded, nil
		}
		return true, nil
	})
	return began, err
}

// followBuild prints the log of a Function's build while it is written, and returns
// an error if the build fails.
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
		// The progress has already reported why there is no log.
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

// followFunction calls visit with a Function, and again after each change, until
// visit is done or returns an error.
func (c *Clients) followFunction(ctx context.Context, name string, visit func(*v1alpha1.Function) (done bool, err error)) error {
	return follow(ctx, c.Kiln.ServerlessV1alpha1().Functions(c.Namespace), onlyOne(name), func(list *v1alpha1.FunctionList) (bool, error) {
		for i := range list.Items {
			if list.Items[i].Name == name {
				return visit(&list.Items[i])
			}
		}
		return true, try(fmt.Errorf("function %s in namespace %s was deleted", name, c.Namespace), "kubectl fn list")
	})
}
