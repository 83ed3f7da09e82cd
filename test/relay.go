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
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/kiln-dev/kiln/test/images/relay/api"
)

const (
	// relayLifetime is longer than all tests together.
	relayLifetime = time.Hour
	// stopTimeout bounds the deletion of a relay if the API server does not answer.
	stopTimeout = 10 * time.Second
)

// Relay is a pod that sends requests from inside the cluster. Its user reaches it through
// the API server, with only a kubeconfig.
type Relay struct {
	clients *Clients
	pod     *corev1.Pod
}

// StartRelay starts a relay and waits until it answers. The image is that of
// test/images/relay, built by ko.
func StartRelay(ctx context.Context, c *Clients, namespace, image string) (*Relay, error) {
	return startRelay(ctx, c, namespace, corev1.PodSpec{
		Containers: []corev1.Container{{
			Image: image,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false),
				ReadOnlyRootFilesystem:   new(true),
				RunAsNonRoot:             new(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}},
	})
}

// StartKiller starts a relay that can see and kill the processes of a node. The namespace
// must admit privileged pods.
func StartKiller(ctx context.Context, c *Clients, namespace, image, node string) (*Relay, error) {
	return startRelay(ctx, c, namespace, corev1.PodSpec{
		NodeName: node,
		HostPID:  true,
		Containers: []corev1.Container{{
			Image: image,
			SecurityContext: &corev1.SecurityContext{
				RunAsUser:    new(int64(0)),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"KILL"}},
			},
		}},
	})
}

func startRelay(ctx context.Context, c *Clients, namespace string, spec corev1.PodSpec) (*Relay, error) {
	spec.AutomountServiceAccountToken = new(false)
	spec.EnableServiceLinks = new(false)
	spec.TerminationGracePeriodSeconds = new(int64(1))
	// If its starter is killed, the relay stops by itself.
	spec.ActiveDeadlineSeconds = new(int64(relayLifetime.Seconds()))
	spec.Containers[0].Name = "relay"
	spec.Containers[0].ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1,
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: api.HealthPath, Port: intstr.FromInt32(api.Port)}},
	}
	pods := c.Kube.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "relay-", Labels: map[string]string{"app.kubernetes.io/part-of": "kiln-test"}},
		Spec:       spec,
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to create relay: %w", err)
	}
	relay := &Relay{clients: c, pod: pod}
	err = Until(ctx, pods, Named(pod.Name), func(found []*corev1.Pod) error {
		if len(found) == 0 {
			return GiveUp(fmt.Errorf("pod %s was deleted", pod.Name))
		}
		return podReady(found[0])
	})
	if err != nil {
		return relay, fmt.Errorf("failed to wait for relay: %w", err)
	}
	return relay, nil
}

func podReady(pod *corev1.Pod) error {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			return fmt.Errorf("pod %s waits: %s %s", pod.Name, waiting.Reason, waiting.Message)
		}
	}
	return fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
}

// Stop deletes the relay's pod, even if ctx has ended.
func (r *Relay) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := r.clients.Kube.CoreV1().Pods(r.pod.Namespace).Delete(ctx, r.pod.Name, metav1.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("failed to delete relay: %w", err)
	}
	return nil
}

// Call sends one request.
func (r *Relay) Call(ctx context.Context, request api.Request) (api.Answer, error) {
	return exchange[api.Answer](ctx, r, http.MethodPost, api.CallPath, request, "")
}

const (
	// unrouted is the body of the local cluster's ingress for an unknown host, with status
	// 404.
	unrouted = "404 page not found\n"
	// refused is how kube-proxy answers for a Service without pods.
	refused = "connection refused"
	// routeTimeout is how long a node may take to route requests to a ready Function.
	routeTimeout = 30 * time.Second
)

// CallFunction sends one request to a ready Function. The ingress of the local cluster
// reports a route as ready after a fixed time, which can be too early on a busy node. So can
// the readiness of a new Deployment: kube-proxy learns of its first pod later. CallFunction
// retries until the node routes the request.
func (r *Relay) CallFunction(ctx context.Context, request api.Request) (api.Answer, error) {
	begin := time.Now()
	for {
		answer, err := r.Call(ctx, request)
		isRouted := (answer.Status != http.StatusNotFound || answer.Body != unrouted) && !strings.HasSuffix(answer.Error, refused)
		if err != nil || isRouted || time.Since(begin) > routeTimeout {
			return answer, err
		}
	}
}

// Kill sends SIGKILL to all processes of a container on the relay's node.
func (r *Relay) Kill(ctx context.Context, containerID string) (api.Killed, error) {
	return exchange[api.Killed](ctx, r, http.MethodPost, api.KillPath, api.Kill{ContainerID: containerID}, "")
}

// Flood keeps requests open that never end, and returns when its time is over.
func (r *Relay) Flood(ctx context.Context, flood api.Flood) (api.Flooded, error) {
	return exchange[api.Flooded](ctx, r, http.MethodPost, api.FloodPath, flood, "")
}

// KillProgram sends SIGKILL to all processes of a program on the relay's node.
func (r *Relay) KillProgram(ctx context.Context, path string) (api.Killed, error) {
	return exchange[api.Killed](ctx, r, http.MethodPost, api.KillPath, api.Kill{Program: path}, "")
}

// Prober sends a request repeatedly until it is stopped.
type Prober struct {
	relay *Relay
	path  string
}

// Probe starts to send a request repeatedly.
func (r *Relay) Probe(ctx context.Context, request api.Request) (*Prober, error) {
	probe, err := exchange[api.Probe](ctx, r, http.MethodPost, api.ProbesPath, request, "")
	if err != nil {
		return nil, err
	}
	return &Prober{relay: r, path: path.Join(api.ProbesPath, probe.ID)}, nil
}

// UntilAnswer waits until the last answer has that body.
func (p *Prober) UntilAnswer(ctx context.Context, body string) (api.Report, error) {
	return exchange[api.Report](ctx, p.relay, http.MethodGet, p.path, nil, body)
}

// Stop stops the prober and returns a report of all its requests.
func (p *Prober) Stop(ctx context.Context) (api.Report, error) {
	return exchange[api.Report](ctx, p.relay, http.MethodDelete, p.path, nil, "")
}

func exchange[Out any](ctx context.Context, r *Relay, method, to string, in any, until string) (out Out, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("failed to encode request to relay: %w", err)
	}
	answer, err := r.proxy(method, to, until).Body(body).Do(ctx).Raw()
	if err != nil {
		return out, fmt.Errorf("failed to ask relay: %w: %s", err, answer)
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf("failed to read answer of relay: %w", err)
	}
	return out, nil
}

func (r *Relay) proxy(method, to, until string) *rest.Request {
	request := r.clients.Kube.CoreV1().RESTClient().Verb(method).
		Namespace(r.pod.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", r.pod.Name, api.Port)).
		SubResource("proxy").Suffix(to)
	if until != "" {
		request = request.Param("until", until)
	}
	return request
}
