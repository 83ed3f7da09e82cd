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
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/reconciler"
	rtesting "knative.dev/pkg/reconciler/testing"
	"knative.dev/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/bounded"
)

// startServer starts the webhook's server with its real handlers, and returns its address.
func startServer(t *testing.T) string {
	t.Helper()
	ctx, defaults := admission(t, newDefaulting)
	_, validation := admission(t, newValidation)
	_, configuration := admission(t, newConfigValidation)
	admitter, err := webhook.New(ctx, []any{defaults, validation, configuration})
	if err != nil {
		t.Fatal(err)
	}
	admitter.InformersHaveSynced()
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS13}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The server would drain connections for 45 s, so it ends with the test binary.
	go func() {
		if err := serve(context.WithoutCancel(ctx), listener, config, admitter); err != nil {
			panic(err)
		}
	}()
	return listener.Addr().String()
}

// admit sends a Function of that size for admission, as the API server does.
func admit(t *testing.T, address, path string, size int) {
	t.Helper()
	fn := greeter()
	fn.Spec.Source += "\n//" + strings.Repeat("x", size)
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  request(t, admissionv1.Create, functionKind, fn, nil),
	}
	review.Request.UID = "1"
	text, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	caller := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // It is a test server.
	defer caller.CloseIdleConnections()
	// The API server's client repeats a refused request.
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(time.Second) {
		response, err := caller.Post("https://"+address+path, "application/json", bytes.NewReader(text))
		if err != nil {
			t.Errorf("%d bytes for %s: %v", size, path, err)
			return
		}
		answer, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests {
			continue
		}
		if !strings.Contains(string(answer), `"uid":"1"`) {
			t.Errorf("%d bytes for %s: got %d and %.200s", size, path, response.StatusCode, answer)
		}
		return
	}
	t.Errorf("%d bytes for %s: refused for 10 s", size, path)
}

// flood opens connections that each send the text, and does not close them.
func flood(t *testing.T, address string, n int, text []byte) {
	t.Helper()
	var senders sync.WaitGroup
	for range n {
		dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // It is a test server.
		senders.Go(func() {
			connection, err := dialer.DialContext(t.Context(), "tcp", address)
			if err != nil {
				return // The server may close some.
			}
			t.Cleanup(func() { connection.Close() })
			_ = connection.SetWriteDeadline(time.Now().Add(3 * time.Second))
			_, _ = connection.Write(text)
		})
	}
	senders.Wait()
}

// TestConstructors checks that sharedmain starts no server of Knative's, elects a leader,
// and announces that the informers have synced.
func TestConstructors(t *testing.T) {
	ctx, _ := rtesting.SetupFakeContext(t)
	ctx = webhook.WithOptions(ctx, webhook.Options{ServiceName: serviceName, SecretName: secretName})
	front := &front{}
	var impls []*controller.Impl
	for _, construct := range front.constructors(newDefaulting, newValidation, newConfigValidation) {
		impls = append(impls, construct(ctx, configmap.NewStaticWatcher(shippedConfig(t)...)))
	}
	if len(front.admissions) != 3 || front.synced == nil {
		t.Fatalf("the front serves %d admission controllers, want 3", len(front.admissions))
	}
	announced := 0
	front.synced = func() { announced++ }
	for _, impl := range impls {
		if _, ok := impl.Reconciler.(webhook.AdmissionController); ok {
			t.Errorf("%s: sharedmain would start Knative's server", impl.Name)
		}
		if _, ok := impl.Reconciler.(reconciler.LeaderAware); !ok {
			t.Errorf("%s: sharedmain would refuse to elect a leader", impl.Name)
		}
		if impl.WorkQueue().Len() == 0 {
			t.Errorf("%s: nothing would call the reconciler", impl.Name)
		}
		// It leads nothing here.
		if err := impl.Reconciler.Reconcile(ctx, "synced"); !controller.IsSkipKey(err) {
			t.Errorf("%s: %v", impl.Name, err)
		}
	}
	if announced != len(impls) {
		t.Errorf("%d reconcilers announce the sync, want %d", announced, len(impls))
	}
}

// TestFlood admits Functions while callers send requests that do not end, or that are
// expensive. All callers have one address here, as behind a NAT.
func TestFlood(t *testing.T) {
	post := func(path string, length int, body string) []byte {
		return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, length, body)
	}
	review := func(path, object string) []byte {
		body := fmt.Sprintf(`{"request": {"operation": "CREATE", "kind": {"group": "serverless.kiln.dev", "version": "v1alpha1", "kind": "Function"}, "object": %s}}`, object)
		return post(path, len(body), body)
	}
	const stalled = 3_000_000
	for name, tc := range map[string]struct {
		n    int
		text []byte
	}{
		"64 stalled":     {64, post("/validation", stalled+1, "{"+strings.Repeat(" ", stalled))},
		"512 stalled":    {512, post("/defaulting", stalled+1, "{"+strings.Repeat(" ", stalled))},
		"no request":     {64, post("/validation", 2, "{}")},
		"many variables": {8, review("/validation", `{"spec": {"env": [`+strings.Repeat("{},", 3000)+`{}]}}`)},
		"many resources": {8, review("/validation", `{"spec": {"resources": {"limits": {`+many(5000, `"%d": 1`)+`}}}}`)},
		"many dependencies": {8, review("/validation", `{"spec": {"runtime": "nodejs24", "source": "x", "deps": "[`+
			strings.Repeat("{},", 900_000)+`{}]"}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			address := startServer(t)
			admit(t, address, "/validation", 10)
			before := heapInUse()
			flood(t, address, tc.n, tc.text)
			if used := heapInUse() - before; used > bounded.Memory {
				t.Errorf("%d MiB of memory, more than the limit of %d MiB", used>>20, bounded.Memory>>20)
			}
			for _, path := range []string{"/defaulting", "/validation"} {
				admit(t, address, path, 10)
				admit(t, address, path, 900<<10)
			}
		})
	}
}

// many returns a list in which the format has the numbers below n.
func many(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(items, ", ")
}

func heapInUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse) //nolint:gosec // Memory is no more than that.
}

// TestMemoryLimit checks that the memory of requests is below the limit of the manifest,
// with enough left for the process itself, and that Go collects garbage in time.
func TestMemoryLimit(t *testing.T) {
	const atRest = 40 << 20
	for _, deployment := range typed[deployment](t, "Deployment") {
		if deployment.Name != "webhook" {
			continue
		}
		container := deployment.Spec.Template.Spec.Containers[0]
		limit := container.Resources.Limits.Memory().Value()
		if bounded.Memory+atRest > limit {
			t.Errorf("requests take %d MiB and the process %d MiB, but the limit is %d MiB", bounded.Memory>>20, atRest>>20, limit>>20)
		}
		var collected string
		for _, variable := range container.Env {
			if variable.Name == "GOMEMLIMIT" {
				collected = variable.Value
			}
		}
		if want := fmt.Sprintf("%dMiB", limit*9/10>>20); collected != want {
			t.Errorf("GOMEMLIMIT is %q, want %q, which is 90 %% of the limit", collected, want)
		}
		if deployment.Spec.Replicas != 2 {
			t.Errorf("%d replicas, want 2", deployment.Spec.Replicas)
		}
	}
}

// TestNetworkPolicy checks that the example selects the webhook's pods and names their
// ports.
func TestNetworkPolicy(t *testing.T) {
	text, err := os.ReadFile("../../examples/webhook-network-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy := &networkingv1.NetworkPolicy{}
	if err := yaml.UnmarshalStrict(text, policy); err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	for _, deployment := range typed[deployment](t, "Deployment") {
		template := deployment.Spec.Template
		if got := selector.Matches(labels.Set(template.Labels)); got != (deployment.Name == "webhook") {
			t.Errorf("the policy selects %s: %v", deployment.Name, got)
		}
		if deployment.Name != "webhook" {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			if len(rule.From) == 0 || len(rule.Ports) != 1 || !slices.ContainsFunc(template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
				return p.ContainerPort == rule.Ports[0].Port.IntVal
			}) {
				t.Errorf("the rule is for everybody, or for another port than the pod has: %+v", rule)
			}
		}
	}
}
