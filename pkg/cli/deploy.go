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
	"sync"
	"time"

	"github.com/spf13/cobra"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/util/retry"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	kilnscheme "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/scheme"
)

func (c *cli) createCommand() *cobra.Command {
	var source sourceFlags
	var dryRun string
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a Function from a source file or a folder",
		Example: "  kubectl fn create greeter --runtime=nodejs24 --file=handler.js --deps=package.json\n" +
			"  kubectl fn create greeter --file=handler.js --dry-run=client -o yaml >greeter.yaml\n" +
			"  kubectl fn create greeter --dir=. --push-to=registry.example.com/team/greeter",
		Args: named,
	}
	source.add(c, command)
	out := genericclioptions.NewPrintFlags("created").WithTypeSetter(kilnscheme.Scheme)
	out.AddFlags(command)
	command.Flags().StringVar(&dryRun, "dry-run", "none", "none creates the Function, client only prints it, and server only validates it on the server.")
	must(command.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "client", "server"}, cobra.ShellCompDirectiveNoFileComp)))
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := source.check(); err != nil {
			return err
		}
		opts := metav1.CreateOptions{}
		switch dryRun {
		case "none":
		case "client", "server":
			must(out.Complete("%s (" + dryRun + " dry run)"))
			opts.DryRun = []string{metav1.DryRunAll}
		default:
			return try(fmt.Errorf("--dry-run must be client, server or none, not %q", dryRun), "--dry-run=client, server or none")
		}
		clients, err := c.connect()
		if err != nil {
			return err
		}
		fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: args[0], Namespace: clients.Namespace}}
		if err := c.change(command.Context(), clients, &source, dryRun == "none")(fn); err != nil {
			return err
		}
		if dryRun != "client" {
			if fn, err = clients.create(command.Context(), fn, opts); err != nil {
				return err
			}
		}
		printer, err := out.ToPrinter()
		if err != nil {
			return try(err, "kubectl fn create --help")
		}
		return printer.PrintObj(fn, c.Out)
	}
	return command
}

func (c *Clients) create(ctx context.Context, fn *v1alpha1.Function, opts metav1.CreateOptions) (*v1alpha1.Function, error) {
	created, err := c.Kiln.ServerlessV1alpha1().Functions(c.Namespace).Create(ctx, fn, opts)
	switch {
	case apierrs.IsAlreadyExists(err):
		return nil, try(fmt.Errorf("function %s already exists in namespace %s", fn.Name, c.Namespace), "kubectl fn deploy %s", fn.Name)
	case err != nil:
		return nil, fmt.Errorf("failed to create Function %s: %w", fn.Name, err)
	}
	return created, nil
}

func (c *cli) deployCommand() *cobra.Command {
	var source sourceFlags
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "deploy NAME",
		Short: "Create or update a Function, and wait until it runs or fails",
		Long: "Create or update a Function from a source file or a folder, and wait until it runs or fails. The exit code\n" +
			"reports which. The command prints the log of the build while it is written. Ctrl-C stops the wait and does\n" +
			"not change the Function.",
		Example:           "  kubectl fn deploy greeter --runtime=nodejs24\n  kubectl fn deploy greeter --dir=.",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	source.add(c, command)
	command.Flags().DurationVar(&timeout, "timeout", 0, "The longest time to wait, such as 5m. 0 means no limit.")
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := source.check(); err != nil {
			return err
		}
		clients, err := c.connect()
		if err != nil {
			return err
		}
		ctx := command.Context()
		fn, done, err := clients.apply(ctx, args[0], c.change(ctx, clients, &source, true))
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "function.%s/%s %s\n", serverless.GroupName, fn.Name, done)
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		err = c.followDeployment(ctx, clients, fn)
		switch {
		case isInterrupted(err):
			fmt.Fprintf(c.ErrOut, "The deployment continues. See: kubectl fn status %s\n", fn.Name)
		case errors.Is(err, context.DeadlineExceeded):
			return try(fmt.Errorf("function %s is not running after %s", fn.Name, timeout), "kubectl fn status %s", fn.Name)
		}
		return err
	}
	return command
}

func (c *Clients) apply(ctx context.Context, name string, change func(*v1alpha1.Function) error) (applied *v1alpha1.Function, done string, err error) {
	functions := c.Kiln.ServerlessV1alpha1().Functions(c.Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fn, err := functions.Get(ctx, name, metav1.GetOptions{})
		if apierrs.IsNotFound(err) && isOfObject(err) {
			fn = &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace}}
			if err := change(fn); err != nil {
				return err
			}
			done = "created"
			applied, err = functions.Create(ctx, fn, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		before := fn.Generation
		if err := change(fn); err != nil {
			return err
		}
		if applied, err = functions.Update(ctx, fn, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if done = "updated"; applied.Generation == before {
			done = "unchanged"
		}
		return nil
	})
	if err != nil && !errors.As(err, new(advisedError)) {
		return nil, "", fmt.Errorf("failed to write Function %s: %w", name, err)
	}
	return applied, done, err
}

func (c *cli) followDeployment(ctx context.Context, clients *Clients, fn *v1alpha1.Function) error {
	desired := fn.Generation
	fn, _, err := c.watch(ctx, clients, fn.Name, func(fn *v1alpha1.Function) bool {
		if fn.Generation < desired || fn.Status.ObservedGeneration < fn.Generation {
			return false
		}
		ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
		return !isUnknown(ready) && ready.GetReason() != v1alpha1.ReasonQuotaExceeded
	})
	if err != nil {
		return err
	}
	ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
	if ready.IsFalse() {
		return try(fmt.Errorf("function %s failed: %s: %s", fn.Name, ready.GetReason(), ready.GetMessage()), "kubectl fn status %s", fn.Name)
	}
	fmt.Fprintf(c.Out, "function.%s/%s runs at %s\n", serverless.GroupName, fn.Name, fn.Status.URL)
	return nil
}

// streamGrace bounds the wait for the end of a build's log after the build.
const streamGrace = 10 * time.Second

// watch prints the progress of a Function and the log of its build, until ended returns
// true. It also reports whether the build had a log.
func (c *cli) watch(ctx context.Context, clients *Clients, name string, ended func(*v1alpha1.Function) bool) (fn *v1alpha1.Function, logged bool, err error) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var streams sync.WaitGroup
	var lock sync.Mutex
	begun, reported := map[v1alpha1.BuildReference]bool{}, ""
	err = clients.followFunction(ctx, name, func(now *v1alpha1.Function) (bool, error) {
		fn = now
		if line := progress(fn); line != reported {
			reported = line
			fmt.Fprintln(c.ErrOut, line)
		}
		if build := runningBuild(fn); build != nil && !begun[*build] {
			begun[*build] = true
			streams.Go(func() {
				// A log that cannot be read does not stop the watch.
				printed, err := c.streamBuild(reading, clients, *build)
				if err != nil && reading.Err() == nil {
					fmt.Fprintln(c.ErrOut, err)
				}
				lock.Lock()
				defer lock.Unlock()
				logged = logged || printed
			})
		}
		return ended(fn), nil
	})
	if err != nil {
		stop()
	}
	timeout := time.AfterFunc(streamGrace, stop)
	defer timeout.Stop()
	streams.Wait()
	return fn, logged, err
}

func progress(fn *v1alpha1.Function) string {
	if fn.Status.ObservedGeneration < fn.Generation {
		return "Kiln has not processed the Function yet."
	}
	for _, meaning := range meanings {
		if condition := fn.Status.GetCondition(meaning.ConditionType); !condition.IsTrue() && !meaning.optional {
			return fmt.Sprintf("%s: %s", cmp.Or(fn.Status.Phase, v1alpha1.FunctionInitializing), cmp.Or(condition.GetMessage(), condition.GetReason(), meaning.words))
		}
	}
	return fmt.Sprintf("%s: %s", fn.Status.Phase, fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).GetMessage())
}

// runningBuild returns the object that builds the newest version of a Function, or
// nil.
func runningBuild(fn *v1alpha1.Function) *v1alpha1.BuildReference {
	built := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady)
	if fn.Status.ObservedGeneration < fn.Generation || fn.Status.Build == nil || !isUnknown(built) {
		return nil
	}
	switch built.GetReason() {
	case v1alpha1.ReasonTaskRunCreated, v1alpha1.ReasonTaskRunRunning, v1alpha1.ReasonJobCreated, v1alpha1.ReasonJobRunning:
		return fn.Status.Build.Ref
	}
	return nil
}
