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
	"slices"

	"github.com/spf13/cobra"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/observe"
)

func (c *cli) listCommand() *cobra.Command {
	var allNamespaces bool
	var selector string
	command := &cobra.Command{
		Use:               "list [NAME...]",
		Aliases:           []string{"get"},
		Short:             "List Functions, with their URLs, images and pods",
		Example:           "  kubectl fn list\n  kubectl fn get greeter -o yaml",
		ValidArgsFunction: c.completeNames(-1),
	}
	out := newOutput(command)
	command.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "List the Functions of all namespaces.")
	command.Flags().StringVarP(&selector, "selector", "l", "", "List the Functions with these labels.")
	command.RunE = func(command *cobra.Command, names []string) error {
		clients, err := c.connect()
		if err != nil {
			return err
		}
		if allNamespaces {
			clients.Namespace = metav1.NamespaceAll
		}
		if len(names) > 0 && (allNamespaces || selector != "") {
			return try(errors.New("names cannot be combined with -A or -l"), "kubectl fn list --help")
		}
		list, err := functions(command.Context(), clients, names, selector)
		if err != nil {
			return err
		}
		switch {
		case !out.forHumans() && len(names) == 1:
			return out.object(c.Out, &list.Items[0])
		case !out.forHumans():
			return out.object(c.Out, list)
		case len(list.Items) == 0:
			fmt.Fprintf(c.ErrOut, "There are no Functions in %s. Start with: kubectl fn init DIR --runtime=nodejs24\n",
				cmp.Or(clients.Namespace, "any namespace"))
			return nil
		}
		return c.printList(command.Context(), clients, out, list.Items, allNamespaces)
	}
	return command
}

func functions(ctx context.Context, clients *Clients, names []string, selector string) (*v1alpha1.FunctionList, error) {
	if len(names) == 0 {
		list, err := clients.Kiln.ServerlessV1alpha1().Functions(clients.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, fmt.Errorf("failed to list Functions: %w", err)
		}
		return list, nil
	}
	list := &v1alpha1.FunctionList{}
	for _, name := range names {
		fn, err := clients.function(ctx, name)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *fn)
	}
	return list, nil
}

func (c *cli) printList(ctx context.Context, clients *Clients, out *output, list []v1alpha1.Function, withNamespace bool) error {
	pods, err := clients.Kube.CoreV1().Pods(clients.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: serverless.FunctionUIDLabelKey,
	})
	if err != nil {
		return fmt.Errorf("failed to list pods: %w", err)
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return revisionOf(&pod) == "" })
	counts := countPods(pods)
	header := []string{"Name", "Configured", "Built", "Running", "Runtime", "Version", "Age", "Pods", "Image Age", "URL", "+Phase", "+Reason", "+Image"}
	if withNamespace {
		header = append([]string{"Namespace"}, header...)
	}
	var rows [][]any
	for i := range list {
		row := c.listRow(&list[i], counts[list[i].UID])
		if withNamespace {
			row = append([]any{list[i].Namespace}, row...)
		}
		rows = append(rows, row)
	}
	return out.table(c.Out, columns(header...), rows)
}

func (c *cli) listRow(fn *v1alpha1.Function, pods podCount) []any {
	url := none
	if fn.Status.URL != nil {
		url = fn.Status.URL.String()
	}
	ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
	reason := ready.GetReason()
	if ready.IsTrue() {
		reason = ""
	}
	return []any{
		fn.Name,
		statusOf(fn, v1alpha1.FunctionConditionConfigurationReady),
		statusOf(fn, v1alpha1.FunctionConditionBuildReady),
		statusOf(fn, v1alpha1.FunctionConditionRunning),
		cmp.Or(fn.Spec.Runtime, none), fn.Generation, c.age(&fn.CreationTimestamp),
		fmt.Sprintf("%d/%d", pods.ready, pods.all), c.age(imageTime(fn)), url,
		string(fn.Status.Phase), reason, cmp.Or(fn.Status.Image, none),
	}
}

func statusOf(fn *v1alpha1.Function, t apis.ConditionType) string {
	if condition := fn.Status.GetCondition(t); condition != nil {
		return string(condition.Status)
	}
	return string(corev1.ConditionUnknown)
}

// imageTime returns when the Function's image was built. It returns nil if
// status.build describes another build.
func imageTime(fn *v1alpha1.Function) *metav1.Time {
	build := fn.Status.Build
	if build == nil || build.Failure != nil || build.ImageTag != fn.Status.ImageTag {
		return nil
	}
	return build.CompletionTime
}

type podCount struct{ ready, all int }

// countPods counts the pods of each Function, by its UID, without those that are
// being deleted.
func countPods(pods *corev1.PodList) map[types.UID]podCount {
	counts := map[types.UID]podCount{}
	for _, pod := range slices.All(pods.Items) {
		if pod.DeletionTimestamp != nil {
			continue
		}
		uid := types.UID(pod.Labels[serverless.FunctionUIDLabelKey])
		count := counts[uid]
		count.all++
		if observe.PodCondition(&pod, corev1.PodReady).Status == corev1.ConditionTrue {
			count.ready++
		}
		counts[uid] = count
	}
	return counts
}
