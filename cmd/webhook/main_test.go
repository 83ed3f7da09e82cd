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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	_ "knative.dev/pkg/client/injection/kube/informers/admissionregistration/v1/mutatingwebhookconfiguration/fake"
	_ "knative.dev/pkg/client/injection/kube/informers/admissionregistration/v1/validatingwebhookconfiguration/fake"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	_ "knative.dev/pkg/injection/clients/namespacedkube/informers/core/v1/secret/fake"
	"knative.dev/pkg/observability/resource"
	rtesting "knative.dev/pkg/reconciler/testing"
	_ "knative.dev/pkg/system/testing"
	"knative.dev/pkg/webhook"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// manifests reads the objects in config/.
func manifests(t *testing.T) (objects []*unstructured.Unstructured) {
	t.Helper()
	files, err := filepath.Glob("../../config/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects
}

func typed[T any](t *testing.T, kind string) (found []*T) {
	t.Helper()
	for _, object := range manifests(t) {
		if object.GetKind() != kind {
			continue
		}
		into := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
			t.Fatalf("%s %s: %v", kind, object.GetName(), err)
		}
		found = append(found, into)
	}
	return found
}

// shippedConfig returns the ConfigMaps in config/ with the images resolved, as ko does.
func shippedConfig(t *testing.T) (configMaps []*corev1.ConfigMap) {
	t.Helper()
	for _, configMap := range typed[corev1.ConfigMap](t, "ConfigMap") {
		for key, value := range configMap.Data {
			if strings.HasPrefix(value, "ko://") {
				configMap.Data[key] = "registry.example.com/" + key + ":v1"
			}
		}
		configMaps = append(configMaps, configMap)
	}
	return configMaps
}

// admission starts one of the webhook's controllers with the shipped configuration
// after an edit.
func admission(t *testing.T, constructor func(context.Context, configmap.Watcher) *controller.Impl, edits ...func(*corev1.ConfigMap)) (context.Context, webhook.AdmissionController) {
	t.Helper()
	configuration := shippedConfig(t)
	for _, configMap := range configuration {
		for _, edit := range edits {
			edit(configMap)
		}
	}
	ctx, _ := rtesting.SetupFakeContext(t)
	ctx = webhook.WithOptions(ctx, webhook.Options{ServiceName: serviceName, SecretName: secretName})
	impl := constructor(ctx, configmap.NewStaticWatcher(configuration...))
	return ctx, impl.Reconciler.(webhook.AdmissionController)
}

func request(t *testing.T, operation admissionv1.Operation, kind metav1.GroupVersionKind, object, old any) *admissionv1.AdmissionRequest {
	t.Helper()
	raw := func(object any) runtime.RawExtension {
		if object == nil {
			return runtime.RawExtension{}
		}
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	return &admissionv1.AdmissionRequest{Operation: operation, Kind: kind, Object: raw(object), OldObject: raw(old)}
}

var (
	functionKind  = metav1.GroupVersionKind{Group: "serverless.kiln.dev", Version: "v1alpha1", Kind: "Function"}
	configMapKind = metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
)

func greeter() *v1alpha1.Function {
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: "default"},
		Spec:       v1alpha1.FunctionSpec{Source: "module.exports = { main: () => 'hello' }"},
	}
}

func TestDefaulting(t *testing.T) {
	ctx, ac := admission(t, newDefaulting)
	response := ac.Admit(ctx, request(t, admissionv1.Create, functionKind, greeter(), nil))
	if !response.Allowed {
		t.Fatalf("denied: %v", response.Result)
	}
	for _, want := range []string{`"/spec/runtime","value":"nodejs24"`, `"/spec/minReplicas","value":0`, `"256Mi"`} {
		if !strings.Contains(string(response.Patch), want) {
			t.Errorf("the patch lacks %s: %s", want, response.Patch)
		}
	}
	if strings.Contains(string(response.Patch), "/status/") {
		t.Errorf("the patch changes the status: %s", response.Patch)
	}
}

func TestValidation(t *testing.T) {
	ctx, ac := admission(t, newValidation)
	fn := greeter()
	fn.Spec.Runtime = "nodejs22"
	if response := ac.Admit(ctx, request(t, admissionv1.Create, functionKind, fn, nil)); !response.Allowed {
		t.Errorf("denied: %v", response.Result)
	}

	fn.Spec.Runtime = "cobol"
	response := ac.Admit(ctx, request(t, admissionv1.Create, functionKind, fn, nil))
	const want = `validation failed: unknown runtime "cobol": choose one of dockerfile, nodejs22, nodejs24, python313: spec.runtime`
	if response.Allowed || response.Result.Message != want {
		t.Errorf("got %v, want %q", response.Result, want)
	}

	relabelled := fn.DeepCopy()
	relabelled.Labels = map[string]string{"a": "b"}
	if response := ac.Admit(ctx, request(t, admissionv1.Update, functionKind, relabelled, fn)); !response.Allowed {
		t.Errorf("an edit of labels is denied: %v", response.Result)
	}
}

// TestWarning deprecates a runtime. An edit of the spec must get a warning, and an edit
// of labels must not.
func TestWarning(t *testing.T) {
	ctx, ac := admission(t, newValidation, func(configMap *corev1.ConfigMap) {
		if configMap.Name == "config-runtimes" {
			configMap.Data["nodejs22"] += "\ndeprecated: true\n"
		}
	})
	fn := greeter()
	fn.Spec.Runtime = "nodejs22"
	want := []string{`runtime "nodejs22" is deprecated: spec.runtime`}
	response := ac.Admit(ctx, request(t, admissionv1.Create, functionKind, fn, nil))
	if diff := cmp.Diff(want, response.Warnings); diff != "" || !response.Allowed {
		t.Errorf("on creation %v (-want +got):\n%s", response.Result, diff)
	}
	edited := fn.DeepCopy()
	edited.Spec.Source += "\n"
	response = ac.Admit(ctx, request(t, admissionv1.Update, functionKind, edited, fn))
	if diff := cmp.Diff(want, response.Warnings); diff != "" || !response.Allowed {
		t.Errorf("on an edit %v (-want +got):\n%s", response.Result, diff)
	}
	relabelled := fn.DeepCopy()
	relabelled.Labels = map[string]string{"a": "b"}
	if response := ac.Admit(ctx, request(t, admissionv1.Update, functionKind, relabelled, fn)); len(response.Warnings) > 0 {
		t.Errorf("on an edit of labels: %v", response.Warnings)
	}
	fn.Spec.Runtime = "nodejs24"
	if response := ac.Admit(ctx, request(t, admissionv1.Create, functionKind, fn, nil)); len(response.Warnings) > 0 {
		t.Errorf("of another runtime: %v", response.Warnings)
	}
}

// TestConfigWarning adds a language that only a newer Kiln knows. An upgrade does so
// before it replaces the webhook.
func TestConfigWarning(t *testing.T) {
	ctx, ac := admission(t, newConfigValidation)
	for _, configMap := range shippedConfig(t) {
		response := ac.Admit(ctx, request(t, admissionv1.Update, configMapKind, configMap, nil))
		if len(response.Warnings) > 0 {
			t.Errorf("of %s as it is shipped: %v", configMap.Name, response.Warnings)
		}
		configMap.Data["cobol85"] = "language: cobol\nlayouts: [a]\n"
		response = ac.Admit(ctx, request(t, admissionv1.Update, configMapKind, configMap, nil))
		if configMap.Name != "config-runtimes" {
			continue
		}
		if !response.Allowed || len(response.Warnings) != 1 || !strings.Contains(response.Warnings[0], `"cobol"`) {
			t.Errorf("got %v and the warnings %q", response.Result, response.Warnings)
		}
	}
}

// TestConfigValidation admits the shipped configuration and the examples in it. It
// denies invalid configuration and edited examples.
func TestConfigValidation(t *testing.T) {
	ctx, ac := admission(t, newConfigValidation)
	shipped := shippedConfig(t)
	if len(shipped) != 7 {
		t.Errorf("%d ConfigMaps are shipped, want 7", len(shipped))
	}
	bad := map[string][2]string{
		"config-build":           {"timeout", "soon"},
		"config-functions":       {"default-min-replicas", "-1"},
		"config-leader-election": {"buckets", "2"},
		"config-logging":         {"loglevel.controller", "loud"},
		"config-observability":   {"metrics-protocol", "smoke"},
		"config-registry":        {"push", "https://x"},
		"config-runtimes":        {"nodejs24", "image: x"},
	}
	for _, configMap := range shipped {
		t.Run(configMap.Name, func(t *testing.T) {
			admit := func(configMap *corev1.ConfigMap) *admissionv1.AdmissionResponse {
				return ac.Admit(ctx, request(t, admissionv1.Update, configMapKind, configMap, nil))
			}
			if response := admit(configMap); !response.Allowed {
				t.Errorf("the shipped configuration is denied: %v", response.Result)
			}

			example := configMap.DeepCopy()
			values := map[string]string{}
			if err := yaml.Unmarshal([]byte(configMap.Data[configmap.ExampleKey]), &values); err != nil {
				t.Fatal(err)
			}
			maps.Copy(example.Data, values)
			if response := admit(example); !response.Allowed {
				t.Errorf("the example is denied: %v", response.Result)
			}

			wrong := configMap.DeepCopy()
			wrong.Data[bad[configMap.Name][0]] = bad[configMap.Name][1]
			if response := admit(wrong); response.Allowed {
				t.Errorf("%q is admitted", bad[configMap.Name])
			} else {
				t.Log(response.Result.Message)
			}

			large := configMap.DeepCopy()
			large.Data["large"] = strings.Repeat("[", maxConfigBytes)
			if response := admit(large); response.Allowed || !strings.Contains(response.Result.Message, "more than the limit of 131072") {
				t.Errorf("a ConfigMap that is too large gets %v", response.Result)
			}

			edited := configMap.DeepCopy()
			edited.Data[configmap.ExampleKey] += "\n# more\n"
			if response := admit(edited); response.Allowed {
				t.Error("an edited example is admitted")
			}
		})
	}
}

// TestNamesInManifests checks that the webhook may update the configurations of its
// names, and that they name its Service.
func TestNamesInManifests(t *testing.T) {
	var mutating, validating []string
	for _, c := range typed[admissionregistrationv1.MutatingWebhookConfiguration](t, "MutatingWebhookConfiguration") {
		mutating = append(mutating, c.Name)
		for _, hook := range c.Webhooks {
			checkHook(t, c.Name, hook.Name, hook.ClientConfig, hook.FailurePolicy)
		}
	}
	for _, c := range typed[admissionregistrationv1.ValidatingWebhookConfiguration](t, "ValidatingWebhookConfiguration") {
		validating = append(validating, c.Name)
		for _, hook := range c.Webhooks {
			checkHook(t, c.Name, hook.Name, hook.ClientConfig, hook.FailurePolicy)
		}
	}
	if diff := cmp.Diff([]string{defaultingName}, mutating); diff != "" {
		t.Errorf("mutating (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{validationName, configValidationName}, validating); diff != "" {
		t.Errorf("validating (-want +got):\n%s", diff)
	}

	for _, role := range typed[rbacv1.ClusterRole](t, "ClusterRole") {
		if role.Name != "kiln-webhook" {
			continue
		}
		if got := namesToUpdate(role, "mutatingwebhookconfigurations"); !slices.Equal(got, mutating) {
			t.Errorf("may update %v, want %v", got, mutating)
		}
		if got := namesToUpdate(role, "validatingwebhookconfigurations"); !slices.Equal(got, validating) {
			t.Errorf("may update %v, want %v", got, validating)
		}
	}
}

func checkHook(t *testing.T, configuration, hook string, client admissionregistrationv1.WebhookClientConfig, policy *admissionregistrationv1.FailurePolicyType) {
	t.Helper()
	// The webhook fills in only the entry with the name of the configuration.
	if hook != configuration {
		t.Errorf("%s has a webhook %s", configuration, hook)
	}
	if client.Service == nil || client.Service.Name != serviceName || client.Service.Namespace != "kiln-system" {
		t.Errorf("%s names the Service %v", configuration, client.Service)
	}
	if policy == nil || *policy != admissionregistrationv1.Fail {
		t.Errorf("%s admits objects without the webhook", configuration)
	}
}

// TestStatusNeedsNoWebhook checks that writes of Functions call the webhook, and writes of
// their status do not. It evaluates the match conditions as the API server does.
func TestStatusNeedsNoWebhook(t *testing.T) {
	conditions := map[string][]admissionregistrationv1.MatchCondition{}
	for _, c := range typed[admissionregistrationv1.MutatingWebhookConfiguration](t, "MutatingWebhookConfiguration") {
		conditions[c.Name] = c.Webhooks[0].MatchConditions
	}
	for _, c := range typed[admissionregistrationv1.ValidatingWebhookConfiguration](t, "ValidatingWebhookConfiguration") {
		conditions[c.Name] = c.Webhooks[0].MatchConditions
	}
	for _, name := range []string{defaultingName, validationName} {
		for subresource, want := range map[string]bool{"": true, "status": false} {
			if got := isCalled(t, conditions[name], subresource); got != want {
				t.Errorf("%s is called for a write of %q: %v, want %v", name, subresource, got, want)
			}
		}
	}
}

// isCalled reports whether a Function calls a webhook with these match conditions.
func isCalled(t *testing.T, conditions []admissionregistrationv1.MatchCondition, subresource string) bool {
	t.Helper()
	expressions := make([]cel.ExpressionAccessor, 0, len(conditions))
	for _, c := range conditions {
		expressions = append(expressions, (*matchconditions.MatchCondition)(&c))
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	options := cel.OptionalVariableDeclarations{HasParams: false, HasAuthorizer: true}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(expressions, options, environment.StoredExpressions), nil, "webhook", "test", t.Name())
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fn"}}
	kind, resource := v1alpha1.SchemeGroupVersion.WithKind("Function"), v1alpha1.SchemeGroupVersion.WithResource("functions")
	attributes := apiadmission.NewAttributesRecord(fn, fn, kind, fn.Namespace, fn.Name, resource, subresource, apiadmission.Update, nil, false, &user.DefaultInfo{})
	result := matcher.Match(t.Context(), &apiadmission.VersionedAttributes{
		Attributes: attributes, VersionedKind: kind, VersionedObject: fn, VersionedOldObject: fn,
	}, nil, nil)
	if result.Error != nil {
		t.Fatal(result.Error)
	}
	return result.Matches
}

func namesToUpdate(role *rbacv1.ClusterRole, resource string) (names []string) {
	for _, rule := range role.Rules {
		if slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, "update") {
			names = append(names, rule.ResourceNames...)
		}
	}
	return names
}

// TestServiceLeadsToWebhook checks that the Service selects the webhook's port, and that
// the Secret for its certificate exists.
func TestServiceLeadsToWebhook(t *testing.T) {
	services := typed[corev1.Service](t, "Service")
	if len(services) != 1 || services[0].Name != serviceName || services[0].Spec.Ports[0].Port != 443 {
		t.Fatalf("Services: %+v", services)
	}
	target := services[0].Spec.Ports[0].TargetPort.String()
	var found bool
	for _, deployment := range typed[deployment](t, "Deployment") {
		template := deployment.Spec.Template
		if !labels.SelectorFromSet(services[0].Spec.Selector).Matches(labels.Set(template.Labels)) {
			continue
		}
		for _, p := range template.Spec.Containers[0].Ports {
			found = found || p.Name == target && p.ContainerPort == port
		}
	}
	if !found {
		t.Errorf("no pod of the Service has a port %s that is %d", target, port)
	}

	secrets := typed[corev1.Secret](t, "Secret")
	if len(secrets) != 1 || secrets[0].Name != secretName {
		t.Errorf("Secrets: %+v", secrets)
	}
}

// deployment has the fields of a Deployment that the tests read.
type deployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas int32                  `json:"replicas"`
		Selector metav1.LabelSelector   `json:"selector"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

// TestDeploymentsAreHardened checks the restricted Pod Security Standard, probes,
// resources and service links.
func TestDeploymentsAreHardened(t *testing.T) {
	deployments := typed[deployment](t, "Deployment")
	if len(deployments) != 2 {
		t.Errorf("%d Deployments, want 2", len(deployments))
	}
	for _, deployment := range deployments {
		pod := deployment.Spec.Template.Spec
		// Service links would set variables for a Service named webhook. Some are options.
		if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
			t.Errorf("%s: the pod has service links", deployment.Name)
		}
		if s := pod.SecurityContext; s == nil || !*s.RunAsNonRoot || *s.RunAsUser != 65532 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the pod is not restricted: %+v", deployment.Name, s)
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s: the container %s is not restricted: %+v", deployment.Name, c.Name, s)
			}
			if c.ReadinessProbe == nil || c.LivenessProbe == nil {
				t.Errorf("%s: the container %s lacks a probe", deployment.Name, c.Name)
			}
			for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
				if list.Cpu().IsZero() || list.Memory().IsZero() {
					t.Errorf("%s: the container %s lacks requests or limits", deployment.Name, c.Name)
				}
			}
		}
		for key, value := range deployment.Spec.Selector.MatchLabels {
			if deployment.Spec.Template.Labels[key] != value {
				t.Errorf("%s selects pods of others", deployment.Name)
			}
		}
	}
}

// TestObservability makes the resource that sharedmain makes when a program of Kiln starts.
// It panics if the schema of OpenTelemetry's SDK is not that of Knative.
func TestObservability(t *testing.T) {
	defer func() {
		if reason := recover(); reason != nil {
			t.Errorf("Knative does not start with this version of OpenTelemetry: %v", reason)
		}
	}()
	if url := resource.Default("webhook").SchemaURL(); url == "" {
		t.Error("the resource has no schema")
	}
}
