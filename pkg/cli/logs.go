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
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/observe"
)

type logOptions struct {
	follow, allPods, previous bool
	tail                      int64
	since                     time.Duration
}

func (c *cli) logsCommand() *cobra.Command {
	o := logOptions{}
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the log of a function",
		Long: "Print the log of a function's newest ready pod. With --all-pods, print the logs of all pods, with the name\n" +
			"of the pod before each line. --follow --all-pods includes pods that start later.",
		Example:           "  kubectl fn logs --follow --all-pods greeter\n  kubectl fn logs --previous greeter",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	flags := command.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "Print new lines until the command is interrupted.")
	flags.BoolVar(&o.allPods, "all-pods", false, "Print the logs of all pods.")
	flags.BoolVarP(&o.previous, "previous", "p", false, "Print the log from before the last crash.")
	flags.Int64Var(&o.tail, "tail", -1, "The number of last lines of each pod. -1 means all lines.")
	flags.DurationVar(&o.since, "since", 0, "Print only lines that are newer than a duration, such as 10m.")
	command.RunE = func(command *cobra.Command, args []string) error {
		if o.follow && o.previous {
			return try(errors.New("--follow and --previous cannot be combined"), "kubectl fn logs --previous %s", args[0])
		}
		clients, fn, err := c.function(command.Context(), args[0])
		if err != nil {
			return err
		}
		if o.follow && o.allPods {
			return c.followPods(command.Context(), clients, fn, o)
		}
		pods, err := c.podsToRead(command.Context(), clients, fn, o.follow)
		if err != nil {
			return err
		}
		if !o.allPods {
			return c.copyPod(command.Context(), clients, pods[0], o, c.Out)
		}
		for _, pod := range pods {
			if err := c.copyPod(command.Context(), clients, pod, o, newPrefixer(c.Out, &sync.Mutex{}, pod.Name)); err != nil {
				return err
			}
		}
		return nil
	}
	return command
}

// podsToRead returns the pods of a function: first a ready one, then the newest.
// With wait, it waits for the first pod.
func (c *cli) podsToRead(ctx context.Context, clients *Clients, fn *v1alpha1.Function, wait bool) (pods []*corev1.Pod, err error) {
	waited := false
	err = follow(ctx, clients.Kube.CoreV1().Pods(fn.Namespace), podsOf(fn), func(list *corev1.PodList) (bool, error) {
		if pods = sortPods(list); len(pods) > 0 || !wait {
			return true, nil
		}
		if !waited {
			waited = true
			fmt.Fprintln(c.ErrOut, "There are no pods yet. Waiting for one.")
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		_, why := observe.Function(observe.Observed{Function: fn})
		return nil, try(fmt.Errorf("function %s has no pods. %s", fn.Name, why), "kubectl fn status %s", fn.Name)
	}
	for i, pod := range pods {
		if takesRequests(pod) {
			pods[0], pods[i] = pods[i], pods[0]
			break
		}
	}
	return pods, nil
}

func (c *cli) copyPod(ctx context.Context, clients *Clients, pod *corev1.Pod, o logOptions, out io.Writer) error {
	began, err := clients.hasBegun(ctx, pod.Namespace, pod.Name, children.FunctionContainer, o.follow)
	if err != nil {
		return err
	}
	if !began && observe.Trouble(pod, children.FunctionContainer) == "" && !o.previous {
		fmt.Fprintf(c.ErrOut, "Pod %s has not started yet.\n", pod.Name)
		return nil
	}
	opts := &corev1.PodLogOptions{Container: children.FunctionContainer, Follow: o.follow, Previous: o.previous}
	if o.tail >= 0 {
		opts.TailLines = &o.tail
	}
	if o.since > 0 {
		opts.SinceSeconds = new(int64(max(o.since.Seconds(), 1)))
	}
	err = copyLog(ctx, clients, pod.Namespace, pod.Name, opts, out)
	switch {
	case o.previous && apierrs.IsBadRequest(err):
		return try(fmt.Errorf("pod %s has not crashed: %w", pod.Name, err), "the command without --previous")
	case apierrs.IsBadRequest(err):
		return try(fmt.Errorf("pod %s has no log: %w", pod.Name, err), "kubectl describe pod %s --namespace=%s", pod.Name, pod.Namespace)
	}
	return err
}

// followPods prints the logs of all pods of a function, including pods that start
// later, until the user interrupts it.
func (c *cli) followPods(ctx context.Context, clients *Clients, fn *v1alpha1.Function, o logOptions) error {
	group, ctx := errgroup.WithContext(ctx)
	lines, begun := &sync.Mutex{}, map[string]bool{}
	group.Go(func() error {
		return follow(ctx, clients.Kube.CoreV1().Pods(fn.Namespace), podsOf(fn), func(list *corev1.PodList) (bool, error) {
			for _, pod := range sortPods(list) {
				if begun[pod.Name] || pod.DeletionTimestamp != nil {
					continue
				}
				begun[pod.Name] = true
				group.Go(func() error {
					err := c.copyPod(ctx, clients, pod, o, newPrefixer(c.Out, lines, pod.Name))
					if apierrs.IsNotFound(err) {
						return nil
					}
					return err
				})
			}
			return false, nil
		})
	})
	if err := group.Wait(); !isInterrupted(err) {
		return err
	}
	return nil
}

func copyLog(ctx context.Context, clients *Clients, namespace, pod string, opts *corev1.PodLogOptions, out io.Writer) error {
	stream, err := clients.Kube.CoreV1().Pods(namespace).GetLogs(pod, opts).Stream(ctx)
	if err != nil {
		return fmt.Errorf("failed to read the log of pod %s: %w", pod, err)
	}
	defer stream.Close()
	if _, err := io.Copy(out, stream); err != nil && (!opts.Follow || !isInterrupted(err)) {
		return fmt.Errorf("failed to read the log of pod %s: %w", pod, err)
	}
	if p, ok := out.(*prefixer); ok {
		p.flush()
	}
	return nil
}

// prefixer writes lines with the name of their pod before them. Several may share a
// writer without mixing their lines.
type prefixer struct {
	out    io.Writer
	shared *sync.Mutex
	prefix string
	rest   []byte
}

func newPrefixer(out io.Writer, shared *sync.Mutex, pod string) *prefixer {
	return &prefixer{out: out, shared: shared, prefix: "[" + pod + "] "}
}

const maxLine = 64 << 10

func (p *prefixer) Write(data []byte) (int, error) {
	p.rest = append(p.rest, data...)
	for {
		n, line, err := bufio.ScanLines(p.rest, false)
		if err != nil || n == 0 && len(p.rest) < maxLine {
			return len(data), err
		}
		if n == 0 {
			n, line = len(p.rest), p.rest
		}
		if err := p.print(line); err != nil {
			return 0, err
		}
		p.rest = p.rest[n:]
	}
}

// flush writes a last line without a line break.
func (p *prefixer) flush() {
	if len(p.rest) > 0 {
		// No later write could report the error.
		_ = p.print(p.rest)
		p.rest = nil
	}
}

func (p *prefixer) print(line []byte) error {
	p.shared.Lock()
	defer p.shared.Unlock()
	_, err := fmt.Fprintf(p.out, "%s%s\n", p.prefix, line)
	return err
}
