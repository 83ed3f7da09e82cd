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

package function

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	fakekubeclient "knative.dev/pkg/client/injection/kube/client/fake"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	pkgreconciler "knative.dev/pkg/reconciler"
	"knative.dev/pkg/system"

	"github.com/kiln-dev/kiln/pkg/apis/config"
)

func TestWarnOfConfig(t *testing.T) {
	ctx, impl, watcher := startController(t)
	events := controller.GetEventRecorder(ctx).(*record.FakeRecorder).Events
	wantEvents := func(when string, want ...string) {
		t.Helper()
		var got []string
		for len(events) > 0 {
			got = append(got, <-events)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	broken := map[string]string{"kaniko-image": "registry.example.com/kaniko", "compose-image": "registry.example.com/compose", "timeout": "soon"}

	watcher.OnChange(systemConfigMap(config.BuildConfigName, broken))
	wantEvents("while others lead")

	if err := impl.Reconciler.(pkgreconciler.LeaderAware).Promote(pkgreconciler.UniversalBucket(), func(pkgreconciler.Bucket, types.NamespacedName) {}); err != nil {
		t.Fatal("Promote() =", err)
	}
	watcher.OnChange(systemConfigMap(config.BuildConfigName, broken))
	wantEvents("broken", "Warning InvalidConfiguration What it said before stays in force. "+
		`ConfigMap config-build: failed to parse "timeout": "soon" is not a duration such as 15m or 1h30m`)
	watcher.OnChange(systemConfigMap(config.RegistryConfigName, map[string]string{"push": "no host"}))
	if got := <-events; !strings.Contains(got, "ConfigMap config-registry: ") {
		t.Errorf("got %q", got)
	}

	broken["timeout"] = "30m"
	watcher.OnChange(systemConfigMap(config.BuildConfigName, broken))
	wantEvents("mended")
}

// TestEventRecorder has an event written, and logged with the key of its object.
func TestEventRecorder(t *testing.T) {
	ctx := t.Context()
	core, logs := observer.New(zap.InfoLevel)
	ctx, kube := fakekubeclient.With(logging.WithLogger(ctx, zap.New(core).Sugar()))
	ctx = withEventRecorder(ctx)
	controller.GetEventRecorder(ctx).Event(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: system.Namespace(), Name: config.BuildConfigName},
	}, corev1.EventTypeWarning, "Reason", "What is wrong")

	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		return len(kube.Actions()) > 0 && logs.Len() > 0, nil
	}); err != nil {
		t.Fatal("There was no event:", err)
	}
	wantAllowed(t, kube.Actions())
	got := kube.Actions()[0].(clientgotesting.CreateAction).GetObject().(*corev1.Event)
	if got.InvolvedObject.Kind != "ConfigMap" || got.Message != "What is wrong" || got.Source.Component != component {
		t.Errorf("The event: %+v", got)
	}
	entry := logs.All()[0]
	if key := entry.ContextMap()["knative.dev/key"]; key != system.Namespace()+"/"+config.BuildConfigName || entry.Message != "What is wrong" {
		t.Errorf("The log: %+v", entry)
	}
	if again := withEventRecorder(ctx); again != ctx {
		t.Error("A second recorder was made")
	}
}
