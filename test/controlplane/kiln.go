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

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// manifests is where Kiln's manifests are.
const manifests = "config"

// Options change how Kiln runs, compared with its manifests.
type Options struct {
	// Prepare, if set, is called once the API server runs, before anything else. It returns
	// the address of the API server for Kiln, and the file with its CA.
	Prepare func(*Plane) (address, caFile string, err error)

	// Config has values of Kiln's ConfigMaps, by the ConfigMap's name and the key.
	Config map[string]map[string]string

	// StandIn stands for Tekton and Serving. The zero value has everything succeed at
	// once.
	StandIn StandIn

	// Collects has what has lost its owner be deleted, as a cluster does.
	Collects bool

	// Namespaces are made.
	Namespaces []string
}

// Kiln is Kiln, installed: its webhook runs, and its controller when it is to.
type Kiln struct {
	*Plane

	// Admin may do everything.
	Admin *test.Clients

	// Images is the registry.
	Images *Images

	// Webhook and Controller are the processes.
	Webhook, Controller *Process

	// Metrics is where the controller serves its metrics.
	Metrics string

	// Environment is what the manifests give the containers, by component.
	Environment map[string][]string

	// MemoryLimits are those of the manifests in bytes, by component.
	MemoryLimits map[string]float64

	// Failed has the first error of what stands by.
	Failed chan error

	programs        Binaries
	address, caFile string
	webhookPorts    []string
}

// Run calls do with an API server on which Kiln is installed, without its
// controller, and ends all of it then. Where do fails, the logs are kept.
func Run(ctx context.Context, b Binaries, options Options, do func(context.Context, *Kiln) error) (err error) {
	folder, err := os.MkdirTemp("", "kiln-control-plane-")
	if err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(folder)
			return
		}
		_ = os.RemoveAll(filepath.Join(folder, "etcd"))
		err = fmt.Errorf("%w (logs are in %s)", err, folder)
	}()
	plane, err := StartPlane(ctx, b, folder)
	if err != nil {
		return err
	}
	defer plane.Stop()
	images, err := startImages()
	if err != nil {
		return err
	}
	defer images.stop()
	k := &Kiln{Plane: plane, Images: images, Failed: make(chan error, 1), programs: b, address: plane.Address, caFile: plane.CAFile}
	if options.Prepare != nil {
		if k.address, k.caFile, err = options.Prepare(plane); err != nil {
			return err
		}
	}
	defer k.stop()
	if err := k.install(ctx, options.Config); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := k.standBy(ctx, options); err != nil {
		return err
	}
	return do(ctx, k)
}

// standBy makes the namespaces, and starts what stands for Tekton and Serving.
func (k *Kiln) standBy(ctx context.Context, options Options) error {
	if options.Collects {
		// It would know what is defined later only after half a minute.
		if err := k.startCollector(); err != nil {
			return err
		}
	}
	for _, name := range options.Namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := k.Admin.Kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create namespace: %w", err)
		}
	}
	clients, err := k.Clients(StandInUser)
	if err != nil {
		return err
	}
	standIn := options.StandIn
	standIn.clients, standIn.images, standIn.report = clients, k.Images, k.Fail
	standIn.run(ctx)
	return nil
}

// Fail sends an error to Failed.
func (k *Kiln) Fail(err error) {
	select {
	case k.Failed <- err:
	default:
	}
}

// adapted returns Kiln's manifests as they suit an API server on this machine,
// which nothing else is left of a cluster than, and what they give the containers.
// A Service without pods, and with a name in place of an address, is all it takes
// for the API server to find a webhook that is a process.
func adapted(registry, webhookPort string, config map[string]map[string]string) (out []byte, environment map[string][]string, limits map[string]float64, err error) {
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, nil, nil, errors.Join(err, errors.New("failed to find Kiln's manifests: please run this in the root of the repository"))
	}
	environment, limits = map[string][]string{}, map[string]float64{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("failed to read manifests: %w", err)
		}
		for document := range strings.SplitSeq("\n"+string(data), "\n---") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
				return nil, nil, nil, fmt.Errorf("failed to decode %s: %w", file, err)
			}
			if o.Object == nil {
				continue
			}
			if o.GetKind() == "Deployment" {
				environment[o.GetName()], limits[o.GetName()] = literals(o), memoryLimit(o)
			}
			if !adapt(o, registry, webhookPort, config[o.GetName()]) {
				continue
			}
			encoded, err := yaml.Marshal(o.Object)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("failed to encode %s: %w", file, err)
			}
			out = append(append(out, "---\n"...), encoded...)
		}
	}
	return out, environment, limits, nil
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

// memoryLimit returns the memory limit of a Deployment's container in bytes.
func memoryLimit(deployment *unstructured.Unstructured) float64 {
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		text, _, _ := unstructured.NestedString(container.(map[string]any), "resources", "limits", "memory")
		if quantity, err := resource.ParseQuantity(text); err == nil {
			return quantity.AsApproximateFloat64()
		}
	}
	return 0
}

// baseImage is the base image of all runtimes, in the registry.
const baseImage = "base:1"

// adapt reports whether the object is wanted, and makes it suit.
func adapt(o *unstructured.Unstructured, registry, webhookPort string, config map[string]string) bool {
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
		maps.Copy(data, config)
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
// for others to end, unless it is wanted.
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
			if yaml.Unmarshal([]byte(value), &runtime) == nil && runtime["baseImage"] != nil {
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
func (k *Kiln) install(ctx context.Context, config map[string]map[string]string) (err error) {
	if k.Admin, err = k.Clients(HarnessUser); err != nil {
		return err
	}
	if k.webhookPorts, err = freePorts(3); err != nil {
		return err
	}
	objects, environment, limits, err := adapted(k.Images.Address, k.webhookPorts[0], config)
	if err != nil {
		return err
	}
	k.Environment, k.MemoryLimits = environment, limits
	definitions, err := os.ReadFile(k.programs.Definitions)
	if err != nil {
		return fmt.Errorf("failed to read definitions: %w", err)
	}
	if err := k.Kubectl(ctx, append(definitions, objects...), "apply", "--server-side", "--filename=-"); err != nil {
		return err
	}
	if err := k.Kubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=1m", "customresourcedefinitions", "--all"); err != nil {
		return err
	}
	if err := k.StartWebhook(); err != nil {
		return err
	}
	return k.Webhook.Until(ctx, "the webhook answers", time.Minute, k.Admits)
}

// run starts a component with what its manifests give it.
func (k *Kiln) run(component, user, binary string, env ...string) (*Process, error) {
	kubeconfig, err := k.kubeconfig(user, k.address, k.caFile)
	if err != nil {
		return nil, err
	}
	env = slices.Concat(k.Environment[component], env, []string{
		"POD_NAME=" + component, "SYSTEM_NAMESPACE=" + test.SystemNamespace, "KUBECONFIG=" + kubeconfig,
	})
	return Start(component, k.Folder, env, binary)
}

// StartWebhook starts the webhook. It says nothing of whether it works yet.
func (k *Kiln) StartWebhook() (err error) {
	ports := k.webhookPorts
	k.Webhook, err = k.run("webhook", WebhookUser, k.programs.Webhook,
		"WEBHOOK_PORT="+ports[0], "METRICS_PROMETHEUS_PORT="+ports[1], "PROFILING_PORT="+ports[2])
	return err
}

// StartController starts the controller. It says nothing of whether it works yet.
func (k *Kiln) StartController() error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	k.Metrics = "http://127.0.0.1:" + ports[0] + "/metrics"
	k.Controller, err = k.run("controller", ControllerUser, k.programs.Controller,
		"METRICS_PROMETHEUS_PORT="+ports[0], "PROFILING_PORT="+ports[1])
	return err
}

// Admits succeeds when Functions pass through the webhook.
func (k *Kiln) Admits(ctx context.Context) error {
	hooks, err := k.Admin.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
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
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "admitted"},
		Spec:       v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: "module.exports = { main: () => 'admitted' };\n"},
	}
	created, err := k.Admin.Kiln.ServerlessV1alpha1().Functions(fn.Namespace).Create(ctx, fn, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	if created.Spec.TimeoutSeconds == nil {
		return errors.New("the webhook gives no defaults yet")
	}
	return nil
}

// stop ends Kiln, at once: it would drain connections that nobody needs.
func (k *Kiln) stop() {
	k.Controller.Kill()
	k.Webhook.Kill()
}
