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
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/cli/tunnel"
	"github.com/kiln-dev/kiln/pkg/observe"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	servingNamespace = "knative-serving"

	// servingPort is the port of Serving's proxy in the pods of functions, and of
	// Serving's activator.
	servingPort = 8012

	// activatorSelector selects the pods of the activator, which starts revisions
	// without pods.
	activatorSelector = "app=activator"

	// revisionHeader and namespaceHeader name the target of a request for the activator.
	revisionHeader  = "Knative-Serving-Revision"
	namespaceHeader = "Knative-Serving-Namespace"
)

func (c *cli) invokeCommand() *cobra.Command {
	var call call
	command := &cobra.Command{
		Use:   "invoke NAME",
		Short: "Call a function and print its response",
		Long: "Call a function and print its response while it arrives. The status and the duration go to standard error.\n" +
			"On a terminal, control characters of the response are replaced by visible ones.\n\n" +
			"The call goes through the API server, so it also reaches functions that only the cluster can reach. It starts\n" +
			"a function that has scaled to zero, if you may forward ports to Serving's activator. A status of 400 or more\n" +
			"is an error.",
		Example: "  kubectl fn invoke greeter -d '{\"name\": \"world\"}'\n" +
			"  kubectl fn invoke greeter -d @order.json --event=com.example.order\n" +
			"  kubectl fn invoke shop -X DELETE --path=/orders/7 --query=force=true -H 'Authorization: Bearer abc'\n" +
			"  kubectl fn invoke greeter -o jsonpath='{.status}'",
		Args: named, ValidArgsFunction: c.completeNames(1),
	}
	call.add(command)
	out := newOutput(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx := command.Context()
		// The function must not be called if its response could not be printed.
		if _, err := out.flags.ToPrinter(); !out.forHumans() && err != nil {
			return try(err, "kubectl fn invoke --help")
		}
		if err := call.parse(); err != nil {
			return err
		}
		body, err := c.readData(ctx, call.data)
		if err != nil {
			return err
		}
		clients, fn, err := c.function(ctx, args[0])
		if err != nil {
			return err
		}
		to, err := clients.findTarget(ctx, fn)
		if err != nil {
			return err
		}
		if to.wakes {
			fmt.Fprintln(c.ErrOut, "No pod is ready. The call starts one.")
		}
		address, stop, err := c.forward(ctx, clients, to)
		if err != nil {
			return explainForward(fn, to, err)
		}
		defer stop()
		request, err := call.request(ctx, fn, to, address, body)
		if err != nil {
			return err
		}
		return c.send(request, fn.Name, out)
	}
	return command
}

// interruptible runs a function that may block, and returns early with the context.
func interruptible(ctx context.Context, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-done:
		return err
	}
}

type target struct {
	namespace, pod, revision string

	// wakes reports whether it is a pod of the activator, which starts a pod of the
	// revision.
	wakes bool

	// direct reports whether the pod has no proxy of Serving's.
	direct bool
}

// port returns the port that takes the calls.
func (t target) port() int {
	if t.direct {
		return runtimes.Port
	}
	return servingPort
}

// findTarget returns a ready pod of the revision that the function's traffic assigns
// the call to, or a pod of the activator.
func (c *Clients) findTarget(ctx context.Context, fn *v1alpha1.Function) (target, error) {
	revision := cmp.Or(pick(fn.Status.Traffic, rand.Int64N(100)), fn.Status.LatestReadyRevisionName)
	if revision == "" {
		return target{}, try(fmt.Errorf("function %s has no ready revision", fn.Name), "kubectl fn status %s", fn.Name)
	}
	pods, err := c.pods(ctx, fn)
	if err != nil {
		return target{}, err
	}
	for _, pod := range pods {
		if revisionOf(pod) == revision && takesRequests(pod) {
			return target{namespace: pod.Namespace, pod: pod.Name, revision: revision, direct: isDeployment(fn)}, nil
		}
	}
	if isDeployment(fn) {
		return target{}, try(fmt.Errorf("revision %s has no ready pod", revision), "kubectl fn status %s", fn.Name)
	}
	activators, err := c.Kube.CoreV1().Pods(servingNamespace).List(ctx, metav1.ListOptions{LabelSelector: activatorSelector})
	if apierrs.IsForbidden(err) {
		return target{}, mayNotWake(fn, err)
	}
	if err != nil {
		return target{}, fmt.Errorf("failed to list the pods of Serving's activator: %w", err)
	}
	for _, pod := range sortPods(activators) {
		if takesRequests(pod) {
			return target{namespace: pod.Namespace, pod: pod.Name, revision: revision, wakes: true}, nil
		}
	}
	return target{}, try(fmt.Errorf("neither revision %s nor Serving's activator has a ready pod", revision), "kubectl get pods --namespace=%s", servingNamespace)
}

func takesRequests(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && observe.PodCondition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

func pick(traffic []v1alpha1.TrafficStatus, number int64) string {
	for _, share := range traffic {
		if share.Percent == nil {
			continue
		}
		if number -= *share.Percent; number < 0 {
			return share.RevisionName
		}
	}
	return ""
}

func mayNotWake(fn *v1alpha1.Function, err error) error {
	return try(fmt.Errorf("function %s has scaled to zero, and you may not access Serving's activator, which starts it: %w", fn.Name, err),
		"call it from inside the cluster at %s, or set spec.minReplicas to 1", fn.Status.URL)
}

func explainForward(fn *v1alpha1.Function, to target, err error) error {
	switch {
	case to.wakes && (apierrs.IsForbidden(err) || strings.Contains(err.Error(), "forbidden")):
		return mayNotWake(fn, err)
	case strings.Contains(err.Error(), "forbidden"):
		return try(fmt.Errorf("failed to connect to pod %s: %w", to.pod, err), "kubectl auth can-i create pods/portforward --namespace=%s", to.namespace)
	}
	return try(fmt.Errorf("failed to connect to pod %s: %w", to.pod, err), "kubectl fn status %s", fn.Name)
}

func forwardPort(ctx context.Context, clients *Clients, to target) (address string, stop func(), err error) {
	t, err := tunnel.Open(ctx, clients.Kube, clients.Config, to.namespace, to.pod, to.port())
	if err != nil {
		return "", nil, err
	}
	return t.Addresses[0], t.Close, nil
}
