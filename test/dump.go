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

package test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	duckv1 "knative.dev/pkg/apis/duck/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

// dumpLines is the number of lines to print of each container's log.
const dumpLines = int64(40)

// Dump writes the state of a namespace in which a test failed: conditions, pods, events and
// logs.
func Dump(ctx context.Context, c *Clients, namespace string, to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 4, 2, ' ', 0)
	defer w.Flush()
	dumpConditions(ctx, c, namespace, w)
	dumpEvents(ctx, c, namespace, w)
	dumpPods(ctx, c, namespace, w)
	dumpController(ctx, c, namespace, w)
}

func dumpConditions(ctx context.Context, c *Clients, namespace string, w io.Writer) {
	if list, err := c.Kiln.ServerlessV1alpha1().Functions(namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, fn := range list.Items {
			fmt.Fprintf(w, "Function %s: generation %d, observed %d, phase %s, image %s, build %+v\n", fn.Name,
				fn.Generation, fn.Status.ObservedGeneration, fn.Status.Phase, fn.Status.ImageTag, fn.Status.Build)
			dumpStatus(w, fn.Status.Conditions)
		}
	}
	if list, err := c.Pipeline.TektonV1().TaskRuns(namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, tr := range list.Items {
			fmt.Fprintf(w, "TaskRun %s\n", tr.Name)
			dumpStatus(w, tr.Status.Conditions)
		}
	}
	if list, err := c.Kube.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, job := range list.Items {
			fmt.Fprintf(w, "Job %s: annotations %v\n", job.Name, job.Annotations)
			for _, condition := range job.Status.Conditions {
				fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	if list, err := c.Serving.ServingV1().Services(namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, svc := range list.Items {
			fmt.Fprintf(w, "Service %s: generation %d, observed %d, latest created %s, latest ready %s\n", svc.Name, svc.Generation,
				svc.Status.ObservedGeneration, svc.Status.LatestCreatedRevisionName, svc.Status.LatestReadyRevisionName)
			dumpStatus(w, svc.Status.Conditions)
		}
	}
	if list, err := c.Serving.ServingV1().Revisions(namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, rev := range list.Items {
			fmt.Fprintf(w, "Revision %s\n", rev.Name)
			dumpStatus(w, rev.Status.Conditions)
		}
	}
	ofFunctions := metav1.ListOptions{LabelSelector: serverless.ServerLabelKey}
	if list, err := c.Kube.AppsV1().Deployments(namespace).List(ctx, ofFunctions); err == nil {
		for _, d := range list.Items {
			fmt.Fprintf(w, "Deployment %s: generation %d, observed %d, revision %s, replicas %d, updated %d, available %d\n", d.Name, d.Generation,
				d.Status.ObservedGeneration, d.Spec.Template.Labels[serverless.RevisionLabelKey], d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas)
			for _, condition := range d.Status.Conditions {
				fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	if list, err := c.Kube.AutoscalingV2().HorizontalPodAutoscalers(namespace).List(ctx, ofFunctions); err == nil {
		for _, scaler := range list.Items {
			fmt.Fprintf(w, "HorizontalPodAutoscaler %s: %+v\n", scaler.Name, scaler.Status)
		}
	}
}

func dumpStatus(w io.Writer, conditions duckv1.Conditions) {
	for _, condition := range conditions {
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
}

func dumpEvents(ctx context.Context, c *Clients, namespace string, w io.Writer) {
	list, err := c.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(w, "Events: %v\n", err)
		return
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	fmt.Fprintln(w, "Events")
	for _, event := range list.Items {
		fmt.Fprintf(w, "\t%s\t%s/%s\t%s\t%s\n", event.LastTimestamp.Format("15:04:05"), event.InvolvedObject.Kind,
			event.InvolvedObject.Name, event.Reason, event.Message)
	}
}

func dumpPods(ctx context.Context, c *Clients, namespace string, w io.Writer) {
	list, err := c.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(w, "Pods: %v\n", err)
		return
	}
	for _, pod := range list.Items {
		fmt.Fprintf(w, "Pod %s: %s\n", pod.Name, pod.Status.Phase)
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			fmt.Fprintf(w, "Container %s of %s: %+v\n", status.Name, pod.Name, status.State)
			dumpLog(w, containerLog(ctx, c, &pod, status.Name), func(string) bool { return true })
		}
	}
}

// dumpController writes the controller's warnings and errors about the namespace.
func dumpController(ctx context.Context, c *Clients, namespace string, w io.Writer) {
	list, err := c.Kube.CoreV1().Pods(SystemNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(w, "Controller: %v\n", err)
		return
	}
	for _, pod := range list.Items {
		if !strings.HasPrefix(pod.Name, "controller") {
			continue
		}
		fmt.Fprintf(w, "%s on %s\n", pod.Name, namespace)
		for _, container := range pod.Spec.Containers {
			dumpLog(w, containerLog(ctx, c, &pod, container.Name), func(line string) bool {
				// The status and the events already show what the level INFO reports.
				return strings.Contains(line, namespace) && !strings.Contains(line, `"severity":"INFO"`)
			})
		}
	}
}

// containerLog returns the last lines of a container's log, or all of it for Kiln's own
// containers.
func containerLog(ctx context.Context, c *Clients, pod *corev1.Pod, container string) []byte {
	opts := &corev1.PodLogOptions{Container: container, TailLines: new(dumpLines)}
	if pod.Namespace == SystemNamespace {
		opts.TailLines = nil
	}
	log, err := c.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, opts).DoRaw(ctx)
	if err != nil {
		return []byte(err.Error())
	}
	return log
}

// dumpLog writes the last lines of a log that the filter accepts.
func dumpLog(w io.Writer, log []byte, wanted func(line string) bool) {
	var lines []string
	for line := range strings.Lines(string(log)) {
		if wanted(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	for _, line := range lines[max(0, len(lines)-int(dumpLines)):] {
		fmt.Fprintf(w, "\t| %s\n", line)
	}
}
