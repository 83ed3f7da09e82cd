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
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// TestWebhookFlood stalls 64 requests to the webhook from a pod. Meanwhile Functions are
// admitted, and afterwards no webhook has restarted. It is not parallel, because it takes
// CPU from all tests.
func TestWebhookFlood(t *testing.T) {
	e := newEnv(t)
	before := webhookRestarts(e)
	if len(before) < 2 {
		e.Errorf("%d webhooks, want 2", len(before))
	}
	type result struct {
		flooded api.Flooded
		err     error
	}
	flooded := make(chan result, 1)
	go func() {
		out, err := relay.Flood(e.ctx, api.Flood{
			Address: net.JoinHostPort("webhook."+test.SystemNamespace+".svc", "443"), Path: "/defaulting",
			Connections: 64, Bytes: 3_000_000, Time: 20 * time.Second,
		})
		flooded <- result{out, err}
	}()
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	admitted, slowest := 0, time.Duration(0)
	for {
		select {
		case got := <-flooded:
			if got.err != nil || got.flooded.Sent+got.flooded.Refused < 64 {
				e.Errorf("the flood was %+v, %v", got.flooded, got.err)
			}
			if after := webhookRestarts(e); !maps.Equal(before, after) {
				e.Errorf("restarts of the webhooks: %v, before the flood %v", after, before)
			}
			e.Logf("%d Functions were admitted, the slowest in %s, during %+v", admitted, slowest, got.flooded)
			if admitted == 0 {
				e.Error("no Function was admitted during the flood")
			}
			return
		default:
		}
		fn := function(answering("hi"))
		if admitted%2 == 1 {
			fn.Spec.Source += "\n//" + strings.Repeat("x", 900<<10)
		}
		start := time.Now()
		if _, err := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace).Create(e.ctx, fn, dryRun); err != nil {
			e.Fatalf("after %d admissions: %v", admitted, err)
		}
		admitted, slowest = admitted+1, max(slowest, time.Since(start))
	}
}

// webhookRestarts returns the number of restarts of each of the webhook's pods.
func webhookRestarts(e *env) map[string]int32 {
	e.Helper()
	list, err := clients.Kube.CoreV1().Pods(test.SystemNamespace).List(e.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=webhook"})
	if err != nil {
		e.Fatal(err)
	}
	restarts := map[string]int32{}
	for i := range list.Items {
		for _, status := range list.Items[i].Status.ContainerStatuses {
			restarts[list.Items[i].Name] += status.RestartCount
		}
	}
	return restarts
}

// TestPodMetadata creates a Function with an annotation that the administrator first allows
// and then no longer. It must get a new revision without the annotation, and keep serving.
func TestPodMetadata(t *testing.T) {
	e := newEnv(t)
	const key = "sidecar.istio.io/userVolume"
	fn := function(answering("hi"))
	fn.Spec.Annotations = map[string]string{key: "[]"}
	if _, err := e.tryCreate(fn.DeepCopy()); err == nil || !strings.Contains(err.Error(), config.AllowedAnnotationsKey) {
		e.Errorf("the Function is not denied: %v", err)
	}
	configure(e, config.FunctionsConfigName, func(data map[string]string) { data[config.AllowedAnnotationsKey] = "sidecar.istio.io/*" })
	// Each webhook reads the configuration in its own time.
	err := wait.PollUntilContextTimeout(e.ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		_, err := e.tryCreate(fn.DeepCopy())
		return err == nil, nil
	})
	if err != nil {
		e.Fatal(err)
	}
	fn = e.until(fn, test.Ready)
	edit(e, clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace), config.FunctionsConfigName, func(cm *corev1.ConfigMap) {
		delete(cm.Data, config.AllowedAnnotationsKey)
	})
	fn = e.until(fn, func(fn *v1alpha1.Function) error {
		for _, target := range fn.Status.Traffic {
			if strings.HasSuffix(target.RevisionName, "-00001") {
				return fmt.Errorf("revision %s still serves", target.RevisionName)
			}
		}
		return test.Ready(fn)
	})
	e.wantAnswer(fn, "{}", "hi")
	e.wantBuilds(1)
	for _, revision := range e.wantRevisions(2) {
		_, ok := revision.Annotations[key]
		if want := strings.HasSuffix(revision.Name, "-00001"); ok != want {
			e.Errorf("revision %s has the annotation: %v, want %v", revision.Name, ok, want)
		}
	}
}
