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
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"knative.dev/pkg/apis"

	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const latest = "latest"

type revisionReport struct {
	Name    string   `json:"name"`
	Percent int64    `json:"percent"`
	Tags    []string `json:"tags,omitempty"`
	Ready   string   `json:"ready"`
	Reason  string   `json:"reason,omitempty"`
	Image   string   `json:"image,omitempty"`

	Created metav1.Time `json:"created"`
}

// revisions returns the revisions of a Function, the newest first.
func (c *Clients) revisions(ctx context.Context, fn *v1alpha1.Function) (revisions []servingv1.Revision, err error) {
	if isDeployment(fn) {
		revisions, err = c.replicaSets(ctx, fn)
	} else {
		var list *servingv1.RevisionList
		list, err = c.Serving.ServingV1().Revisions(c.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: labels.Set{serving.ServiceLabelKey: fn.Name}.String(),
		})
		if err == nil {
			revisions = list.Items
		}
	}
	if err != nil {
		return nil, fmt.Errorf("failed to list revisions: %w", err)
	}
	slices.SortFunc(revisions, func(a, b servingv1.Revision) int {
		return cmp.Or(cmp.Compare(len(b.Name), len(a.Name)), strings.Compare(b.Name, a.Name))
	})
	return revisions, nil
}

// replicaSets returns the ReplicaSets of a Function as revisions. One without pods counts as
// ready, like a Revision that has scaled to zero.
func (c *Clients) replicaSets(ctx context.Context, fn *v1alpha1.Function) ([]servingv1.Revision, error) {
	list, err := c.Kube.AppsV1().ReplicaSets(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: podsOf(fn).LabelSelector})
	if err != nil {
		return nil, err
	}
	var revisions []servingv1.Revision
	for i := range list.Items {
		set := &list.Items[i]
		name := set.Labels[serverless.RevisionLabelKey]
		if slices.ContainsFunc(revisions, func(r servingv1.Revision) bool { return r.Name == name }) {
			continue
		}
		r := servingv1.Revision{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: set.Namespace, CreationTimestamp: set.CreationTimestamp},
			Spec:       servingv1.RevisionSpec{PodSpec: set.Spec.Template.Spec},
		}
		ready := apis.Condition{Type: servingv1.RevisionConditionReady, Status: corev1.ConditionTrue}
		if set.Status.ReadyReplicas < set.Status.Replicas {
			ready.Status, ready.Reason = corev1.ConditionUnknown, "PodsNotReady"
		}
		r.Status.Conditions = append(r.Status.Conditions, ready)
		revisions = append(revisions, r)
	}
	return revisions, nil
}

func (c *cli) revisionsCommand() *cobra.Command {
	command := &cobra.Command{
		Use:               "revisions NAME",
		Short:             "List the revisions of a function and their shares of the requests",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	out := newOutput(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		clients, fn, err := c.function(command.Context(), args[0])
		if err != nil {
			return err
		}
		revisions, err := clients.revisions(command.Context(), fn)
		if err != nil {
			return err
		}
		reports := reportRevisions(fn, revisions)
		switch {
		case !out.forHumans():
			return out.report(c.Out, "RevisionsReport", map[string]any{"name": fn.Name, "namespace": fn.Namespace, "revisions": reports})
		case len(reports) == 0:
			fmt.Fprintf(c.ErrOut, "There are no revisions yet. See: kubectl fn status %s\n", fn.Name)
			return nil
		}
		var rows [][]any
		for _, r := range reports {
			rows = append(rows, []any{
				r.Name, fmt.Sprintf("%d%%", r.Percent), cmp.Or(strings.Join(r.Tags, ","), none), r.Ready, c.age(&r.Created), r.Reason, r.Image,
			})
		}
		return out.table(c.Out, columns("Revision", "Traffic", "Tags", "Ready", "Age", "Reason", "+Image"), rows)
	}
	return command
}

func reportRevisions(fn *v1alpha1.Function, revisions []servingv1.Revision) []revisionReport {
	reports := make([]revisionReport, 0, len(revisions))
	for i := range revisions {
		revision := &revisions[i]
		ready := revision.Status.GetCondition(servingv1.RevisionConditionReady)
		r := revisionReport{Name: revision.Name, Ready: "Unknown", Created: revision.CreationTimestamp}
		if ready != nil {
			r.Ready, r.Reason = string(ready.Status), ready.Reason
		}
		if len(revision.Spec.Containers) > 0 {
			r.Image = revision.Spec.Containers[0].Image
		}
		for _, target := range fn.Status.Traffic {
			if target.RevisionName != revision.Name {
				continue
			}
			if target.Percent != nil {
				r.Percent += *target.Percent
			}
			if target.Tag != "" {
				r.Tags = append(r.Tags, target.Tag)
			}
		}
		reports = append(reports, r)
	}
	return reports
}

func (c *cli) rollbackCommand() *cobra.Command {
	var to string
	command := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Send all requests to an earlier revision",
		Long: "Send all requests to an earlier revision: to the newest ready revision that is older than all revisions\n" +
			"with requests, or to the one that --to names. This builds nothing. Newer revisions get no requests until\n" +
			"kubectl fn traffic assigns them some.",
		Example:           "  kubectl fn rollback greeter\n  kubectl fn rollback greeter --to=greeter-00003",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	command.Flags().StringVar(&to, "to", "", "The revision, by its name or its number.")
	must(command.RegisterFlagCompletionFunc("to", c.completeRevisions("")))
	command.RunE = func(command *cobra.Command, args []string) error {
		clients, fn, err := c.function(command.Context(), args[0])
		if err != nil {
			return err
		}
		revisions, err := clients.revisions(command.Context(), fn)
		if err != nil {
			return err
		}
		name, err := earlier(fn, revisions)
		if to != "" {
			name, err = findRevision(fn, revisions, to)
		}
		if err != nil {
			return err
		}
		if err := setTraffic(command.Context(), clients, fn.Name, map[string]int64{name: 100}); err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "function.%s/%s rolled back to %s\n", v1alpha1.SchemeGroupVersion.Group, fn.Name, name)
		fmt.Fprintf(c.ErrOut, "Newer revisions get no requests until: kubectl fn traffic %s latest=100\n", fn.Name)
		return nil
	}
	return command
}

// earlier returns the newest ready revision that is older than all revisions with
// requests.
func earlier(fn *v1alpha1.Function, revisions []servingv1.Revision) (string, error) {
	oldest := -1
	for i, r := range reportRevisions(fn, revisions) {
		if r.Percent > 0 {
			oldest = i
		}
	}
	for i := oldest + 1; i < len(revisions); i++ {
		// A revision that has scaled to zero is still Ready.
		if revisions[i].Status.GetCondition(servingv1.RevisionConditionReady).IsTrue() {
			return revisions[i].Name, nil
		}
	}
	return "", try(fmt.Errorf("function %s has no earlier ready revision", fn.Name), "kubectl fn revisions %s", fn.Name)
}

func findRevision(fn *v1alpha1.Function, revisions []servingv1.Revision, given string) (string, error) {
	number, err := strconv.Atoi(given)
	for i := range revisions {
		name := revisions[i].Name
		if name == given || err == nil && name == fmt.Sprintf("%s-%05d", fn.Name, number) {
			return name, nil
		}
	}
	return "", try(fmt.Errorf("function %s has no revision %s", fn.Name, given), "kubectl fn revisions %s", fn.Name)
}

func (c *cli) trafficCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "traffic NAME [REVISION=PERCENT,...]",
		Short: "Show or set how requests are split between revisions",
		Long: "Show or set how requests are split between revisions. A revision is a name, a number, or latest, which is\n" +
			"the newest ready revision. The percentages must add up to 100. Tags do not change.",
		Example:           "  kubectl fn traffic greeter greeter-00001=10,latest=90\n  kubectl fn traffic greeter latest=100",
		ValidArgsFunction: c.completeTraffic,
	}
	command.Args = func(command *cobra.Command, args []string) error {
		if len(args) != 2 {
			return named(command, args)
		}
		return nil
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		clients, fn, err := c.function(command.Context(), args[0])
		if err != nil {
			return err
		}
		if len(args) == 1 {
			return c.printTraffic(fn)
		}
		revisions, err := clients.revisions(command.Context(), fn)
		if err != nil {
			return err
		}
		shares, err := parseShares(fn, revisions, args[1])
		if err != nil {
			return err
		}
		if err := setTraffic(command.Context(), clients, fn.Name, shares); err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "function.%s/%s traffic set\n", v1alpha1.SchemeGroupVersion.Group, fn.Name)
		return nil
	}
	return command
}

func (c *cli) printTraffic(fn *v1alpha1.Function) error {
	var rows [][]any
	for _, target := range fn.Status.Traffic {
		name, url, percent := target.RevisionName, none, int64(0)
		if target.LatestRevision != nil && *target.LatestRevision {
			name += " (latest)"
		}
		if target.URL != nil {
			url = target.URL.String()
		}
		if target.Percent != nil {
			percent = *target.Percent
		}
		rows = append(rows, []any{name, fmt.Sprintf("%d%%", percent), cmp.Or(target.Tag, none), url})
	}
	if len(rows) == 0 {
		fmt.Fprintf(c.ErrOut, "No revision gets requests yet. See: kubectl fn status %s\n", fn.Name)
		return nil
	}
	return printTable(c.Out, false, columns("Revision", "Traffic", "Tag", "URL"), rows)
}

func parseShares(fn *v1alpha1.Function, revisions []servingv1.Revision, text string) (map[string]int64, error) {
	shares, sum := map[string]int64{}, int64(0)
	for share := range strings.SplitSeq(text, ",") {
		given, number, ok := strings.Cut(share, "=")
		percent, err := strconv.ParseInt(strings.TrimSuffix(number, "%"), 10, 64)
		if !ok || err != nil || percent < 0 || percent > 100 {
			return nil, try(fmt.Errorf("%q does not have the form REVISION=PERCENT", share), "kubectl fn traffic %s latest=100", fn.Name)
		}
		name := latest
		if given != latest {
			if name, err = findRevision(fn, revisions, given); err != nil {
				return nil, err
			}
		}
		if _, twice := shares[name]; twice {
			return nil, try(fmt.Errorf("revision %s is given twice", name), "kubectl fn traffic %s latest=100", fn.Name)
		}
		shares[name], sum = percent, sum+percent
	}
	if sum != 100 {
		return nil, try(fmt.Errorf("the percentages add up to %d, not 100", sum), "kubectl fn traffic %s latest=100", fn.Name)
	}
	return shares, nil
}

func setTraffic(ctx context.Context, clients *Clients, name string, shares map[string]int64) error {
	return clients.edit(ctx, name, func(fn *v1alpha1.Function) {
		fn.Spec.Traffic = retarget(fn.Spec.Traffic, shares)
	})
}

// retarget returns targets with these shares and the tags of the old ones. It returns
// nil for the default: all requests to the latest revision and no tags.
func retarget(old []v1alpha1.TrafficTarget, shares map[string]int64) []v1alpha1.TrafficTarget {
	var targets []v1alpha1.TrafficTarget
	for _, target := range old {
		if target.Tag != "" {
			target.Percent = new(int64(0))
			targets = append(targets, target)
		}
	}
	if len(targets) == 0 && shares[latest] == 100 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		target := v1alpha1.TrafficTarget{RevisionName: name}
		if name == latest {
			target = v1alpha1.TrafficTarget{LatestRevision: new(true)}
		}
		i := slices.IndexFunc(targets, func(t v1alpha1.TrafficTarget) bool {
			return t.RevisionName == target.RevisionName && *t.Percent == 0
		})
		if i < 0 {
			targets = append(targets, target)
			i = len(targets) - 1
		}
		targets[i].Percent = new(shares[name])
	}
	return targets
}
