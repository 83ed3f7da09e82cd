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

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/test"
)

// manifests is where Kiln's manifests are.
const manifests = "config"

// kiln is Kiln, installed: its webhook runs, and its controller when it is to.
type kiln struct {
	*plane
	programs binaries
	admin    *clients

	webhook, controller *process

	// metrics is where the controller serves its metrics.
	metrics string

	// environment is what the manifests give the containers, by component.
	environment map[string][]string
}

// adapted returns Kiln's manifests as they suit an API server on this machine,
// which nothing else is left of a cluster than, and what they give the containers.
// A Service without pods, and with a name in place of an address, is all it takes
// for the API server to find a webhook that is a process.
func adapted(registry, webhookPort string) (out []byte, environment map[string][]string, err error) {
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, nil, errors.Join(err, errors.New("failed to find Kiln's manifests: please run this in the root of the repository"))
	}
	environment = map[string][]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("failed to read manifests: %w", err)
		}
		for document := range strings.SplitSeq("\n"+string(data), "\n---") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
				return nil, nil, fmt.Errorf("failed to decode %s: %w", file, err)
			}
			if o.Object == nil {
				continue
			}
			if o.GetKind() == "Deployment" {
				environment[o.GetName()] = literals(o)
			}
			if !adapt(o, registry, webhookPort) {
				continue
			}
			encoded, err := yaml.Marshal(o.Object)
			if err != nil {
				return nil, nil, fmt.Errorf("failed to encode %s: %w", file, err)
			}
			out = append(append(out, "---\n"...), encoded...)
		}
	}
	return out, environment, nil
}

// literals returns the environment that a Deployment gives its container, but for
// what it says of the pod.
func literals(deployment *unstructured.Unstructured) (env []string) {
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		variables, _, _ := unstructured.NestedSlice(container.(map[string]any), "env")
		for _, variable := range variables {
			v := variable.(map[string]any)
			if value, ok := v["value"].(string); ok {
				env = append(env, v["name"].(string)+"="+value)
			}
		}
	}
	return env
}

// baseImage is the base image of all runtimes, in the registry.
const baseImage = "base:1"

// adapt says whether the object is wanted, and makes it suit.
func adapt(o *unstructured.Unstructured, registry, webhookPort string) bool {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	switch o.GetKind() {
	case "Deployment", "PodDisruptionBudget":
		return false
	case "Service":
		o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, hook := range hooks {
			service := hook.(map[string]any)["clientConfig"].(map[string]any)["service"].(map[string]any)
			var port int64
			_, _ = fmt.Sscan(webhookPort, &port)
			service["port"] = port
		}
		o.Object["webhooks"] = hooks
	case "ConfigMap":
		configure(o.GetName(), data, registry)
		values := map[string]any{}
		for key, value := range data {
			values[key] = value
		}
		o.Object["data"] = values
	}
	return true
}

// configure sets what an installation sets: the registry, base images that it
// holds, and that there are metrics. Builds take no time here, so none has to wait
// for others to end.
func configure(name string, data map[string]string, registry string) {
	switch name {
	case "config-registry":
		data["push"], data["insecure"], data["prefix"] = registry, registry, prefix
	case "config-build":
		data["max-concurrent-builds"], data["max-concurrent-builds-per-namespace"] = "0", "0"
		for key, value := range data {
			if strings.HasPrefix(value, "ko://") {
				data[key] = registry + "/" + key + ":1"
			}
		}
	case "config-observability":
		data["metrics-protocol"] = "prometheus"
	case "config-runtimes":
		for key, value := range data {
			if key == "_example" {
				continue
			}
			var runtime map[string]any
			if yaml.Unmarshal([]byte(value), &runtime) == nil {
				runtime["baseImage"] = registry + "/" + baseImage
				if edited, err := yaml.Marshal(runtime); err == nil {
					data[key] = string(edited)
				}
			}
		}
	}
}

// install puts Kiln on the API server, with the definitions of Tekton and Serving,
// and starts its webhook.
func install(ctx context.Context, p *plane, b binaries, registry string) (*kiln, error) {
	admin, err := p.clients(harnessUser)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	objects, environment, err := adapted(registry, ports[0])
	if err != nil {
		return nil, err
	}
	k := &kiln{plane: p, programs: b, admin: admin, environment: environment}
	definitions, err := os.ReadFile(b.definitions)
	if err != nil {
		return nil, fmt.Errorf("failed to read definitions: %w", err)
	}
	if err := p.kubectl(ctx, append(definitions, objects...), "apply", "--server-side", "--filename=-"); err != nil {
		return nil, err
	}
	if err := p.kubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=1m", "customresourcedefinitions", "--all"); err != nil {
		return nil, err
	}
	k.webhook, err = k.run("webhook", webhookUser, "WEBHOOK_PORT="+ports[0], "METRICS_PROMETHEUS_PORT="+ports[1], "PROFILING_PORT="+ports[2])
	if err != nil {
		return nil, err
	}
	return k, k.webhook.until(ctx, "the webhook answers", time.Minute, k.admits)
}

// run starts a component with what its manifests give it.
func (k *kiln) run(component, user string, env ...string) (*process, error) {
	kubeconfig, err := k.kubeconfig(user)
	if err != nil {
		return nil, err
	}
	binary := k.programs.controller
	if component == "webhook" {
		binary = k.programs.webhook
	}
	env = slices.Concat(k.environment[component], env, []string{
		"POD_NAME=" + component, "SYSTEM_NAMESPACE=" + test.SystemNamespace, "KUBECONFIG=" + kubeconfig,
	})
	return start(component, k.folder, env, binary)
}

// startController starts the controller. It says nothing of whether it works yet.
func (k *kiln) startController() error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	k.metrics = "http://127.0.0.1:" + ports[0] + "/metrics"
	k.controller, err = k.run("controller", controllerUser,
		"METRICS_PROMETHEUS_PORT="+ports[0], "PROFILING_PORT="+ports[1])
	return err
}

// admits succeeds when Functions pass through the webhook.
func (k *kiln) admits(ctx context.Context) error {
	hooks, err := k.admin.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, configuration := range hooks.Items {
		for _, hook := range configuration.Webhooks {
			if len(hook.ClientConfig.CABundle) == 0 {
				return errors.New("the webhook has no certificate yet")
			}
		}
	}
	fn := newFunction(metav1.NamespaceDefault, "admitted", 0)
	created, err := k.admin.kiln.ServerlessV1alpha1().Functions(fn.Namespace).Create(ctx, fn, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	if created.Spec.TimeoutSeconds == nil {
		return errors.New("the webhook gives no defaults yet")
	}
	return nil
}

// makeNamespace makes a namespace.
func (k *kiln) makeNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := k.admin.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create namespace: %w", err)
	}
	return nil
}

// stop ends all that runs.
func (k *kiln) stop() {
	k.controller.stop()
	k.webhook.stop()
}
