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

	// StandIn replaces Tekton and Serving. With the zero value everything succeeds at
	// once.
	StandIn StandIn

	// Collects runs the garbage collector, which deletes objects without their owner.
	Collects bool

	// WithoutTekton leaves out Tekton's definitions until InstallTekton is called.
	WithoutTekton bool

	// Namespaces are created.
	Namespaces []string
}

// Kiln is an installed Kiln. Its webhook runs, and its controller after StartController.
type Kiln struct {
	*Plane

	// Admin has all rights.
	Admin *test.Clients

	// Images is the registry.
	Images *Images

	// Webhook and Controller are the processes.
	Webhook, Controller *Process

	// Metrics is the address of the controller's metrics.
	Metrics string

	// Environment is the environment of the containers in the manifests, by component.
	Environment map[string][]string

	// MemoryLimits are the memory limits in the manifests in bytes, by component.
	MemoryLimits map[string]float64

	// Failed has the first error in the background.
	Failed chan error

	programs        Binaries
	standIn         *StandIn
	address, caFile string
	webhookPorts    []string
}

// Run calls do with an API server on which Kiln is installed, without its controller. It
// stops everything after do, and keeps the logs if do fails.
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
	if err := k.install(ctx, options.Config, options.WithoutTekton); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := k.standBy(ctx, options); err != nil {
		return err
	}
	return do(ctx, k)
}

// standBy creates the namespaces, and starts the replacement of Tekton and Serving.
func (k *Kiln) standBy(ctx context.Context, options Options) error {
	controllers := []string{"job-controller", "serviceaccount-controller"}
	if options.Collects {
		// The collector discovers new definitions only after half a minute, so it starts
		// after them.
		controllers = append(controllers, "garbage-collector-controller", "namespace-controller")
	}
	if err := k.startControllers(controllers...); err != nil {
		return err
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
	k.standIn = &standIn
	if !options.WithoutTekton {
		standIn.runTaskRuns(ctx)
	}
	return nil
}

// InstallTekton installs the definitions that WithoutTekton has left out. TaskRuns then
// complete until ctx ends.
func (k *Kiln) InstallTekton(ctx context.Context) error {
	definitions, err := k.definitions(isTekton)
	if err != nil {
		return err
	}
	if err := k.apply(ctx, definitions); err != nil {
		return err
	}
	k.standIn.runTaskRuns(ctx)
	return nil
}

func isTekton(definition string) bool { return strings.Contains(definition, "\n  group: tekton.dev\n") }

// definitions returns the definitions of Tekton and Serving that are wanted.
func (k *Kiln) definitions(isWanted func(string) bool) ([]byte, error) {
	all, err := os.ReadFile(k.programs.Definitions)
	if err != nil {
		return nil, fmt.Errorf("failed to read definitions: %w", err)
	}
	var wanted []string
	for definition := range strings.SplitSeq(string(all), "\n---\n") {
		if isWanted(definition) {
			wanted = append(wanted, definition)
		}
	}
	return []byte(strings.Join(wanted, "\n---\n") + "\n"), nil
}

// apply applies objects, and waits until definitions among them are served.
func (k *Kiln) apply(ctx context.Context, objects []byte) error {
	if err := k.Kubectl(ctx, objects, "apply", "--server-side", "--filename=-"); err != nil {
		return err
	}
	return k.Kubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=1m", "customresourcedefinitions", "--all")
}

// Fail sends an error to Failed.
func (k *Kiln) Fail(err error) {
	select {
	case k.Failed <- err:
	default:
	}
}

// adapted returns Kiln's manifests for an API server without a cluster, and the
// environment of the containers. With an external name in its Service, the API server
// finds a webhook that is a process.
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

// literals returns the environment of a Deployment's container, without the references to
// the pod.
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

// adapt changes the object for this API server, and reports whether it is needed.
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

// configure sets the registry, its base images, and metrics. It sets no limit for builds,
// which take no time here, unless the test does.
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
func (k *Kiln) install(ctx context.Context, config map[string]map[string]string, withoutTekton bool) (err error) {
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
	definitions, err := k.definitions(func(definition string) bool { return !withoutTekton || !isTekton(definition) })
	if err != nil {
		return err
	}
	if err := k.apply(ctx, append(definitions, objects...)); err != nil {
		return err
	}
	if err := k.StartWebhook(); err != nil {
		return err
	}
	return k.Webhook.Until(ctx, "the webhook answers", time.Minute, k.Admits)
}

// run starts a component with the environment of its manifests.
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

// StartWebhook starts the webhook, and does not wait until it serves.
func (k *Kiln) StartWebhook() (err error) {
	ports := k.webhookPorts
	k.Webhook, err = k.run("webhook", WebhookUser, k.programs.Webhook,
		"WEBHOOK_PORT="+ports[0], "METRICS_PROMETHEUS_PORT="+ports[1], "PROFILING_PORT="+ports[2])
	return err
}

// StartController starts the controller, and does not wait until it leads.
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

// Admits returns nil if the webhook admits Functions.
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

// stop kills Kiln, which would otherwise drain connections.
func (k *Kiln) stop() {
	k.Controller.Kill()
	k.Webhook.Kill()
}
