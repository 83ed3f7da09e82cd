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
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/conformance"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// TestRuntimesConform sends the requests of the conformance suite to a Function of each
// runtime. They include CloudEvents, errors and calls that exceed the timeout. It checks
// that the metrics count them.
func TestRuntimesConform(t *testing.T) {
	t.Parallel()
	for runtime, of := range wrapped(t) {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := e.until(e.create(withLimits(conforming(t, runtime, of, conformance.Source))), test.Ready)
			conformance.Run(t, e.namespace, through(fn))
			e.wantCounted(fn)
		})
	}
}

// TestFrameworkStyles sends the requests of the suite to a Function of each runtime whose
// main has the style of Express or Flask. It then edits the Function to the other style.
func TestFrameworkStyles(t *testing.T) {
	t.Parallel()
	for runtime, of := range wrapped(t) {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := withLimits(conforming(t, runtime, of, conformance.RequestSource))
			if of.Language == "python" {
				fn.Spec.Deps = "flask\n"
			}
			fn = e.until(e.create(fn), test.Ready)
			conformance.RunRequests(t, of.Language, through(fn))
			fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
				fn.Spec.Source = conforming(t, runtime, of, conformance.Source).Spec.Source
			}), test.Ready)
			e.wantAnswer(fn, "{}", "not a path of the function")
		})
	}
}

// TestTypeScript checks a source in TypeScript, and that the status has the place of an
// error in it.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	for runtime, of := range wrapped(t) {
		if of.TypedFile == "" {
			continue
		}
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := function("type Name = { name: string };\n" +
				"export const main = ({ data }: { data: Name }): string => `hello ${data.name as string}`;\n")
			fn.Spec.Runtime = runtime
			fn = e.until(e.create(fn), test.Ready)
			e.wantAnswer(fn, `{"name": "typed"}`, "hello typed")
			e.edit(fn, func(fn *v1alpha1.Function) {
				fn.Spec.Source = "type Name = { name: string };\nexport const main = (): string => 1 +;\n"
			})
			e.until(fn, func(fn *v1alpha1.Function) error {
				running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
				if running == nil || !strings.Contains(running.Message, "handler.js:2: SyntaxError") {
					return errors.New("the message does not have the place of the error")
				}
				return nil
			})
		})
	}
}

// metricsPort is the port of a function's own metrics, which docs/runtimes.md lists.
const metricsPort = 9464

// wantCounted checks that the metrics of the Function's pod count the suite's requests. The
// suite has one request of each of these methods, and main is called for both.
func (e *env) wantCounted(fn *v1alpha1.Function) {
	e.Helper()
	metrics, err := scrape(e.ctx, e.podOf(fn), metricsPort)
	if err != nil {
		e.Fatalf("failed to read the function's metrics: %v: %s", err, metrics)
	}
	for _, want := range []string{
		`function_calls_total\{method="PUT"\} 1`,
		`function_calls_total\{method="PATCH"\} 1`,
		`function_failures_total\{method="PATCH"\} 0`,
		`function_failures_total\{method="GET"\} [1-9]\d*`,
		`function_duration_seconds_count\{method="PATCH"\} 1`,
		`process_cpu_seconds_total \d.*`,
		`process_resident_memory_bytes [1-9].*`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).Match(metrics) {
			e.Errorf("no metric matches %s; there are:\n%s", want, metrics)
		}
	}
}

// wrapped returns the language of each runtime of the cluster that has a wrapper. It checks
// that Kiln supports every language and that every language has a runtime.
func wrapped(t *testing.T) map[string]runtimes.Runtime {
	t.Helper()
	known := knownRuntimes(t)
	for _, warning := range known.Warnings() {
		t.Error(warning)
	}
	found := map[string]runtimes.Runtime{}
	missing := runtimes.Languages()
	for name, entry := range known {
		if of, ok := runtimes.For(entry.Language); ok {
			found[name] = of
			missing = slices.DeleteFunc(missing, func(language string) bool { return language == entry.Language })
		}
	}
	if len(missing) > 0 {
		t.Errorf("config-runtimes has no runtime of %v: add one to config/config-runtimes.yaml; there are %v", missing, known.Names())
	}
	return found
}

// knownRuntimes returns the runtimes of the cluster.
func knownRuntimes(t *testing.T) config.Runtimes {
	t.Helper()
	configMap, err := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace).Get(t.Context(), config.RuntimesConfigName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	known, err := config.NewRuntimesFromConfigMap(configMap)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// conforming returns a Function with a source of the suite, in a runtime of the language.
func conforming(t *testing.T, runtime string, of runtimes.Runtime, read func(language, name string) (string, error)) *v1alpha1.Function {
	t.Helper()
	source, err := read(of.Language, of.SourceFile)
	if err != nil {
		t.Fatal(err)
	}
	fn := function(source)
	fn.Name, fn.Spec.Runtime = conformance.FunctionName, runtime
	return fn
}

// withLimits sets the limits of the Function that the suite expects.
func withLimits(fn *v1alpha1.Function) *v1alpha1.Function {
	fn.Spec.TimeoutSeconds = new(int64(conformance.TimeoutSeconds))
	fn.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(conformance.MemoryLimit)}
	return fn
}

// through sends the suite's requests to the Function from inside the cluster.
func through(fn *v1alpha1.Function) conformance.Sender {
	return func(ctx context.Context, r conformance.Request) (conformance.Answer, error) {
		answer, err := relay.CallFunction(ctx, api.Request{
			Method: r.Method, URL: fn.Status.URL.String() + r.Path, Headers: r.Headers, Body: []byte(r.Body), Chunked: r.Chunked,
		})
		if err == nil && answer.Error != "" {
			err = errors.New(answer.Error)
		}
		return conformance.Answer{Status: answer.Status, Headers: answer.Headers, Body: answer.Body}, err
	}
}

// TestPythonModuleMissing checks that the status of a Python Function names a missing
// module, although the installation succeeds.
func TestPythonModuleMissing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function("import h11\nimport nothing_of_that_name\n")
	fn.Spec.Runtime, fn.Spec.Deps = "python313", "h11\n"
	e.until(e.create(fn), func(fn *v1alpha1.Function) error {
		running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
		if running == nil || !strings.Contains(running.Message, "No module named 'nothing_of_that_name'") {
			return errors.New("the message does not name the missing module")
		}
		return nil
	})
}

// trace is the trace id of the caller in TestTraces.
const trace = "4bf92f3577b34da6a3ce929d0e0e4736"

// collector is the source of a function that receives traces by OTLP. It reports whether it
// received a trace of the service "traced" with the caller's trace id, in protobuf.
const collector = `let got = false;
const wanted = ['service.name\x12\x08\x0a\x06traced', Buffer.from('` + trace + `', 'hex')];
module.exports = { main: ({ data, extensions: { request } }) => {
  if (request.path !== '/v1/traces') return String(got);
  got ||= request.get('content-type') === 'application/x-protobuf' && wanted.every((part) => data.includes(part));
} };
`

// TestTraces checks a function that has OpenTelemetry's official SDK as a dependency. It
// continues the trace of its caller and exports it by OTLP; only the endpoint is
// configured. The collector is another Function, which keeps the traces in its only pod.
func TestTraces(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function("module.exports = { main: () => 'answered' };\n")
	fn.Name = "traced"
	fn.Spec.Deps = `{"dependencies": {"@opentelemetry/api": "^1.9.0", "@opentelemetry/auto-instrumentations-node": "^0.82.0"}}`
	fn = e.create(fn)
	taker := function(collector)
	taker.Name, taker.Spec.MinReplicas, taker.Spec.MaxReplicas = "collector", new(int32(1)), new(int32(1))
	taker = e.until(e.create(taker), test.Ready)
	// The edit comes during the build, which takes longer than that of the collector.
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Env = []corev1.EnvVar{
			{Name: "OTEL_EXPORTER_OTLP_ENDPOINT", Value: taker.Status.URL.String()},
			{Name: "OTEL_METRICS_EXPORTER", Value: "none"},
			{Name: "OTEL_LOGS_EXPORTER", Value: "none"},
			{Name: "OTEL_BSP_SCHEDULE_DELAY", Value: "100"},
		}
	}), test.Ready)
	e.wantAnswer(taker, "{}", "false")
	call := request(fn, "{}")
	call.Headers = map[string]string{"traceparent": "00-" + trace + "-00f067aa0ba902b7-01"}
	answer, err := relay.CallFunction(e.ctx, call)
	if err != nil || answer.Body != "answered" {
		e.Fatalf("the function answered %+v, %v", answer, err)
	}
	e.wantAnswerSoon(taker, "true")
}

// TestCustomRuntime adds a language without a wrapper by an entry of config-runtimes, as
// the examples do. It checks that Functions of that runtime work like others.
func TestCustomRuntime(t *testing.T) {
	e := newEnv(t)
	added := &corev1.ConfigMap{}
	readExample(t, "perl-runtime.yaml", added)
	const name = "perl-e2e"
	add := func(data map[string]string) {
		var perl, node config.Runtime
		unmarshal(t, added.Data["perl5"], &perl)
		unmarshal(t, data["nodejs24"], &node)
		// The cluster may not reach another registry. This image is Debian, too.
		perl.BaseImage = node.BaseImage
		text, err := yaml.Marshal(perl)
		if err != nil {
			e.Fatal(err)
		}
		data[name] = string(text)
	}
	// After an upgrade of Kiln, the old webhook may still answer for a moment.
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
	// The webhook may see the runtime a moment later than this test.
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
			return errors.New("the message does not report the syntax error")
		}
		return nil
	})
	denied := fn.DeepCopy()
	denied.ObjectMeta = metav1.ObjectMeta{Name: "denied"}
	denied.Spec.Deps = "requires 'JSON';\n"
	_, err := e.tryCreate(denied)
	if err == nil {
		e.Fatal("deps were admitted for a runtime without a dependencyFile")
	}
	wantWords(t, err.Error(), "spec.deps", "dependencyFile", "config-runtimes")
}

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
