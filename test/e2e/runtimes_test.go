//go:build e2e

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

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"knative.dev/serving/pkg/apis/serving"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/conformance"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// TestRuntimesConform sends the requests of the conformance suite, CloudEvents,
// errors and what takes too long among them, to a Function of each runtime.
func TestRuntimesConform(t *testing.T) {
	t.Parallel()
	for runtime, language := range map[string]string{"nodejs22": "nodejs", "nodejs24": "nodejs", "python313": "python"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			of, _ := runtimes.For(language)
			source, err := conformance.Source(language, of.SourceFile)
			if err != nil {
				t.Fatal(err)
			}
			fn := function(source)
			fn.Name, fn.Spec.Runtime = conformance.FunctionName, runtime
			fn.Spec.TimeoutSeconds = new(int64(conformance.TimeoutSeconds))
			fn.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(conformance.MemoryLimit)}
			fn = e.until(e.create(fn), test.Ready)
			conformance.Run(t, e.namespace, through(fn))
		})
	}
}

// through sends the suite's requests to the Function from inside the cluster.
func through(fn *v1alpha1.Function) conformance.Sender {
	return func(ctx context.Context, r conformance.Request) (conformance.Answer, error) {
		answer, err := relay.CallFunction(ctx, api.Request{
			Method: r.Method, URL: fn.Status.URL.String() + r.Path, Headers: r.Headers, Body: r.Body, Chunked: r.Chunked,
		})
		if err == nil && answer.Error != "" {
			err = errors.New(answer.Error)
		}
		return conformance.Answer{Status: answer.Status, Headers: answer.Headers, Body: answer.Body}, err
	}
}

// TestPythonRollout wants that nobody who calls notices that a Function in Python
// gets another source, and that it says why it does not start.
func TestPythonRollout(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function("import h11\n\n\ndef main(event, context):\n    return 'old'\n")
	fn.Spec.Runtime, fn.Spec.Deps = "python313", "h11\n"
	fn = e.until(e.create(fn), test.Ready)
	prober := e.probe(fn, "old")
	e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = strings.ReplaceAll(fn.Spec.Source, "old", "new") })
	if _, err := prober.UntilAnswer(e.ctx, "new"); err != nil {
		t.Fatal(err)
	}
	e.wantAnswers(prober, "old", "new")

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = "import nothing_of_that_name\n" })
	e.until(fn, func(fn *v1alpha1.Function) error {
		running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
		if running == nil || !strings.Contains(running.Message, "No module named 'nothing_of_that_name'") {
			return errors.New("the Function does not say which module is missing")
		}
		return nil
	})
}

// TestTraces wants that a function which has OpenTelemetry's official SDK among its
// dependencies continues the trace of who calls it.
func TestTraces(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	e := newEnv(t)
	fn := function("module.exports = { main: () => 'traced' };\n")
	fn.Spec.Deps = `{"dependencies": {"@opentelemetry/api": "^1.9.0", "@opentelemetry/auto-instrumentations-node": "^0.82.0"}}`
	fn.Spec.Env = []corev1.EnvVar{
		{Name: "OTEL_TRACES_EXPORTER", Value: "console"},
		{Name: "OTEL_METRICS_EXPORTER", Value: "none"},
		{Name: "OTEL_LOGS_EXPORTER", Value: "none"},
		{Name: "OTEL_BSP_SCHEDULE_DELAY", Value: "100"},
	}
	fn = e.until(e.create(fn), test.Ready)
	call := request(fn, "{}")
	call.Headers = map[string]string{"traceparent": "00-" + trace + "-00f067aa0ba902b7-01"}
	answer, err := relay.CallFunction(e.ctx, call)
	if err != nil || answer.Body != "traced" {
		t.Fatalf("the function answered %+v, %v", answer, err)
	}
	e.awaitInLog(fn, trace)
}

// awaitInLog reads the log of a Function's pod, as it is written, until a line has
// a text.
func (e *env) awaitInLog(fn *v1alpha1.Function, text string) {
	e.Helper()
	pods, err := clients.Kube.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: serving.ServiceLabelKey + "=" + fn.Name})
	if err != nil || len(pods.Items) == 0 {
		e.Fatalf("there are %d pods of %s: %v", len(pods.Items), fn.Name, err)
	}
	opts := &corev1.PodLogOptions{Container: resources.FunctionContainerName, Follow: true}
	log, err := clients.Kube.CoreV1().Pods(e.namespace).GetLogs(pods.Items[0].Name, opts).Stream(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	defer log.Close()
	awaitLine(e, log, text)
}

// TestCustomRuntime wants that a language which Kiln does not know is added by an
// entry of config-runtimes, as the examples do, and that its Functions fare as
// any. It adds a runtime to the configuration.
func TestCustomRuntime(t *testing.T) {
	e := newEnv(t)
	added := &corev1.ConfigMap{}
	readExample(t, "perl-runtime.yaml", added)
	const name = "perl-e2e"
	add := func(data map[string]string) {
		var perl, node config.Runtime
		unmarshal(t, added.Data["perl5"], &perl)
		unmarshal(t, data["nodejs24"], &node)
		// The cluster need not reach another; this one is of Debian, too.
		perl.BaseImage = node.BaseImage
		text, err := yaml.Marshal(perl)
		if err != nil {
			t.Fatal(err)
		}
		data[name] = string(text)
	}
	// When Kiln has just been upgraded, the webhook of before may answer still.
	untilAccepted(e, func() error {
		configMaps := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace)
		cm, err := configMaps.Get(e.ctx, config.RuntimesConfigName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		add(cm.Data)
		_, err = configMaps.Update(e.ctx, cm, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	configure(e, config.RuntimesConfigName, add)
	fn := example(t, "word-count.yaml")
	fn.Spec.Runtime = name
	// The webhook may hear of the runtime a moment later than we do.
	untilAccepted(e, func() error {
		_, err := e.tryCreate(fn)
		return err
	})
	fn = e.until(fn, test.Ready)
	e.wantAnswer(fn, "b a b", "a 1\nb 2\n")

	prober := e.probe(fn, "")
	e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = "sub main { return 'new' }\n" })
	e.untilAnswer(prober, "new")
	e.wantAnswers(prober, "", "new")
	e.wantBuilds(2)

	e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = "sub main {\n" })
	e.until(fn, func(fn *v1alpha1.Function) error {
		running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
		if running == nil || !strings.Contains(running.Message, "Missing right curly") {
			return errors.New("the Function does not say what is wrong with its source")
		}
		return nil
	})
	denied := fn.DeepCopy()
	denied.ObjectMeta = metav1.ObjectMeta{Name: "denied"}
	denied.Spec.Deps = "requires 'JSON';\n"
	_, err := e.tryCreate(denied)
	if err == nil {
		t.Fatal("deps are accepted where a runtime takes none")
	}
	wantWords(t, err.Error(), "spec.deps", "dependencyFile", "config-runtimes")
}

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
