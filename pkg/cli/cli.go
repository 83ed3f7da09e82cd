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

// Package cli implements kubectl fn: everyday operations on Functions that need no
// knowledge of the objects that Kiln creates.
package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

type cli struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags

	// connect creates the clients. Commands that need no cluster do not call it.
	connect func() (*Clients, error)
	now     func() time.Time

	forward func(ctx context.Context, clients *Clients, to target) (address string, stop func(), err error)
}

// New returns the command kubectl fn.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	// These handlers print that a connection has broken, which the commands report or repair.
	utilruntime.ErrorHandlers = nil
	c := &cli{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), now: time.Now, forward: forwardPort}
	c.connect = func() (*Clients, error) {
		return newClients(c.flags, rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true}))
	}
	return c.command()
}

func (c *cli) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-fn",
		Short: "Work with Kiln's Functions",
		Long: "kubectl fn creates, watches, calls and repairs Kiln's Functions.\n\n" +
			"It is a kubectl plugin: the binary kubectl-fn must be on PATH.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fn"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(c.Out)
	root.SetErr(c.ErrOut)
	root.SetIn(c.In)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return try(err, "%s --help", command.CommandPath())
	})
	c.flags.AddFlags(root.PersistentFlags())
	must(root.RegisterFlagCompletionFunc("namespace", c.completeNamespaces))
	must(root.RegisterFlagCompletionFunc("context", c.completeContexts))
	root.AddCommand(
		c.listCommand(), c.statusCommand(), c.buildStatusCommand(), c.buildLogsCommand(), c.logsCommand(),
		c.revisionsCommand(), c.rollbackCommand(), c.trafficCommand(), c.rebuildCommand(), c.deleteCommand(),
		c.describeRuntimeCommand(), c.createCommand(), c.deployCommand(), c.invokeCommand(), c.initCommand(), c.runCommand(), c.devCommand(), c.importCommand(),
	)
	return root
}

func named(command *cobra.Command, args []string) error {
	if len(args) != 1 {
		return try(fmt.Errorf("expected the name of one Function, got %d names", len(args)), "kubectl fn list, or %s --help", command.CommandPath())
	}
	return nil
}

type watcher[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// rewatch is the delay before a broken watch is restarted.
const rewatch = time.Second

// follow calls visit with the objects that opts select, and again after each
// change, until visit is done or returns an error.
func follow[L runtime.Object](ctx context.Context, client watcher[L], opts metav1.ListOptions, visit func(L) (done bool, err error)) error {
	for {
		list, err := client.List(ctx, opts)
		if err != nil {
			return fmt.Errorf("failed to list: %w", err)
		}
		if done, err := visit(list); done || err != nil {
			return err
		}
		listMeta, err := meta.ListAccessor(list)
		if err != nil {
			return fmt.Errorf("failed to read list: %w", err)
		}
		from := opts
		from.ResourceVersion = listMeta.GetResourceVersion()
		if err := awaitChange(ctx, client, from); err != nil {
			return err
		}
	}
}

// awaitChange returns after a change. It also returns after a broken watch, which
// may have missed one.
func awaitChange[L runtime.Object](ctx context.Context, client watcher[L], from metav1.ListOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := client.Watch(ctx, from)
	if err != nil {
		return fmt.Errorf("failed to watch: %w", err)
	}
	defer changes.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case event, ok := <-changes.ResultChan():
		if ok && event.Type != watch.Error {
			return nil
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rewatch):
		return nil
	}
}

func isInterrupted(err error) bool {
	return errors.Is(err, context.Canceled)
}
