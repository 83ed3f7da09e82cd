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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"

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
	wantEvents("broken", "Warning InvalidConfiguration The previous values stay in effect: "+
		`ConfigMap config-build: failed to parse "timeout": "soon" is not a duration such as 15m or 1h30m`)
	watcher.OnChange(systemConfigMap(config.RegistryConfigName, map[string]string{"push": "no host"}))
	if got := <-events; !strings.Contains(got, "ConfigMap config-registry: ") {
		t.Errorf("got %q", got)
	}

	broken["timeout"] = "30m"
	watcher.OnChange(systemConfigMap(config.BuildConfigName, broken))
	wantEvents("corrected")
}
