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

	"github.com/spf13/cobra"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/observe"
)

// report is the output of kubectl fn status for programs. Scripts read its image,
// function and pod_statuses.
type report struct {
	Name            string                   `json:"name"`
	Namespace       string                   `json:"namespace"`
	Runtime         string                   `json:"runtime,omitempty"`
	Version         int64                    `json:"version,omitempty"`
	Phase           v1alpha1.FunctionPhase   `json:"phase,omitempty"`
	URL             string                   `json:"url,omitempty"`
	Image           observe.ImageStatus      `json:"image"`
	ImageMessage    string                   `json:"image_message,omitempty"`
	ImageName       string                   `json:"image_name,omitempty"`
	Source          *v1alpha1.SourceStatus   `json:"source,omitempty"`
	Function        observe.FunctionStatus   `json:"function"`
	FunctionMessage string                   `json:"function_message,omitempty"`
	PodStatuses     map[string]podReport     `json:"pod_statuses,omitempty"`
	Conditions      []apis.Condition         `json:"conditions,omitempty"`
	Traffic         []v1alpha1.TrafficStatus `json:"traffic,omitempty"`
	Next            string                   `json:"next,omitempty"`
}

type podReport struct {
	Status   observe.FunctionStatus `json:"status"`
	Message  string                 `json:"message,omitempty"`
	Revision string                 `json:"revision,omitempty"`
	Restarts int32                  `json:"restarts"`
}

func (c *cli) statusCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "status NAME",
		Short: "Show the state of a Function and what to do next",
		Long: "Show the state of a Function and what to do next.\n\n" +
			"For scripts, -o json has image (in_progress, error, completed, not_found or pending),\n" +
			"function (running, waiting, terminated, not_found or pending) and pod_statuses.",
		Example:           "  kubectl fn status greeter\n  kubectl fn status greeter -o jsonpath='{.function}'",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	out := newOutput(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		clients, err := c.connect()
		if err != nil {
			return err
		}
		fn, err := clients.function(command.Context(), args[0])
		if errors.As(err, new(advisedError)) && !out.forHumans() {
			// A script also needs a status for a Function that does not exist.
			return errors.Join(out.report(c.Out, "FunctionStatus", newReport(clients.Namespace, args[0], observe.Observed{})), err)
		}
		if err != nil {
			return err
		}
		seen, err := clients.observe(command.Context(), fn)
		if err != nil {
			return err
		}
		r := newReport(fn.Namespace, fn.Name, seen)
		if !out.forHumans() {
			return out.report(c.Out, "FunctionStatus", r)
		}
		events, err := eventsOf(command.Context(), clients, fn)
		if err != nil {
			return err
		}
		c.printStatus(c.Out, fn, r, seen.Pods, events)
		return nil
	}
	return command
}

func newReport(namespace, name string, seen observe.Observed) report {
	r := report{Name: name, Namespace: namespace}
	r.Image, r.ImageMessage = observe.Image(seen)
	r.Function, r.FunctionMessage = observe.Function(seen)
	fn := seen.Function
	if fn == nil {
		return r
	}
	r.Runtime, r.Version, r.Phase, r.ImageName = fn.Spec.Runtime, fn.Generation, fn.Status.Phase, fn.Status.Image
	r.Conditions, r.Traffic, r.Source = fn.Status.Conditions, fn.Status.Traffic, fn.Status.Source
	if fn.Status.URL != nil {
		r.URL = fn.Status.URL.String()
	}
	r.PodStatuses = map[string]podReport{}
	for _, pod := range seen.Pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		p := podReport{Revision: revisionOf(pod)}
		p.Status, p.Message = observe.Pod(pod, seen.Container)
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name == seen.Container {
				p.Restarts = status.RestartCount
			}
		}
		r.PodStatuses[pod.Name] = p
	}
	r.Next = next(fn, r.Image, r.Function)
	return r
}

func next(fn *v1alpha1.Function, image observe.ImageStatus, function observe.FunctionStatus) string {
	ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
	switch {
	case fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady).IsFalse():
		return "Correct the Function as ConfigurationReady says: kubectl edit fn " + fn.Name
	case image == observe.ImageError:
		return "See why the build failed: kubectl fn build-logs " + fn.Name
	case image == observe.ImageInProgress:
		return "Watch the build: kubectl fn build-logs --follow " + fn.Name
	case image == observe.ImagePending:
		return "See what the build waits for: kubectl fn build-status " + fn.Name
	case function == observe.FunctionTerminated:
		return "See the log from before the crash: kubectl fn logs --previous " + fn.Name
	case function == observe.FunctionPending:
		return "Make its pods fit a node: lower spec.resources, or add a node. For details: kubectl describe pod"
	case ready.IsFalse():
		return "Correct the Function as Ready says, or go back: kubectl fn rollback " + fn.Name
	case function == observe.FunctionWaiting:
		return "Wait: kubectl wait --for=condition=Ready fn/" + fn.Name
	default:
		return "Call it: kubectl fn invoke " + fn.Name
	}
}

const lastEvents = 5

func eventsOf(ctx context.Context, clients *Clients, fn *v1alpha1.Function) ([]corev1.Event, error) {
	list, err := clients.Kube.CoreV1().Events(fn.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(fn.UID)).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("failed to list events: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int {
		return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list.Items[max(0, len(list.Items)-lastEvents):], nil
}

// meanings are the conditions of a Function in their order, with names for people.
var meanings = []struct {
	apis.ConditionType
	words string

	// optional conditions do not exist for all Functions.
	optional bool
}{
	{v1alpha1.FunctionConditionConfigurationReady, "Configuration", false},
	{v1alpha1.FunctionConditionSourceFollowed, "Branch", true},
	{v1alpha1.FunctionConditionBuildReady, "Build", false},
	{v1alpha1.FunctionConditionContentFollowed, "Content", true},
	{v1alpha1.FunctionConditionRunning, "Service", false},
}

func (c *cli) printStatus(out io.Writer, fn *v1alpha1.Function, r report, pods []*corev1.Pod, events []corev1.Event) {
	fmt.Fprintf(out, "%s/%s  %s  version %d, %s, %s old\n", r.Namespace, r.Name, cmp.Or(string(r.Phase), "new"), r.Version, cmp.Or(r.Runtime, "no runtime"), c.age(&fn.CreationTimestamp))
	if r.URL != "" {
		fmt.Fprintf(out, "URL       %s\n", r.URL)
	}
	fmt.Fprintf(out, "Image     %s: %s\n", r.Image, indent(r.ImageMessage, 10))
	switch {
	case r.Source == nil:
	case r.Source.Commit != "":
		fmt.Fprintf(out, "Source    commit %s\n", r.Source.Commit)
	default:
		fmt.Fprintf(out, "Source    archive of sha256 %s\n", r.Source.SHA256)
	}
	fmt.Fprintf(out, "Function  %s: %s\n", r.Function, indent(r.FunctionMessage, 10))

	fmt.Fprint(out, "\nSteps\n")
	for _, meaning := range meanings {
		condition := fn.Status.GetCondition(meaning.ConditionType)
		if condition == nil && meaning.optional {
			continue
		}
		fmt.Fprintf(out, "  %-14s%-12s%s\n", meaning.words, wordFor(condition), cmp.Or(condition.GetReason(), "-"))
		if !condition.IsTrue() && condition.GetMessage() != "" {
			fmt.Fprintf(out, "    %s\n", indent(condition.GetMessage(), 4))
		}
	}
	fmt.Fprint(out, "\nPods\n")
	if len(r.PodStatuses) == 0 {
		fmt.Fprint(out, "  none\n")
	}
	for _, pod := range pods {
		p, ok := r.PodStatuses[pod.Name]
		if !ok {
			continue
		}
		fmt.Fprintf(out, "  %s  %s, %d restarts, %s old\n", pod.Name, p.Status, p.Restarts, c.age(&pod.CreationTimestamp))
		if p.Message != "" {
			fmt.Fprintf(out, "    %s\n", indent(p.Message, 4))
		}
	}
	if len(events) > 0 {
		fmt.Fprint(out, "\nLast events\n")
	}
	for _, event := range events {
		fmt.Fprintf(out, "  %-6s%-8s%-22s%s\n", c.age(&event.LastTimestamp), event.Type, event.Reason, indent(event.Message, 4))
	}
	fmt.Fprintf(out, "\nNext: %s\n", r.Next)
}

func wordFor(condition *apis.Condition) string {
	switch {
	case condition.IsTrue():
		return "done"
	case condition.IsFalse():
		return "failed"
	default:
		return "not yet"
	}
}
