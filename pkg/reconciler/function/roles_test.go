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
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	apiwatch "k8s.io/apimachinery/pkg/watch"
	fakekube "k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"

	"github.com/kiln-dev/kiln/pkg/pods"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// controllerRoles are those of the shipped manifests. Every table of this
// package is held to them. They are read when a test first asks, as go test only
// reruns tests when a file that they read has changed.
var controllerRoles = sync.OnceValue(func() *ktesting.Roles {
	roles, err := ktesting.LoadRoles("../../../config", "controller")
	if err != nil {
		panic(err)
	}
	return roles
})

// needed is what the controller needs, and the tests of this package cannot show.
var needed = []string{
	// The recorder of events, when one happens again.
	"patch events",
	// To set blockOwnerDeletion in owner references.
	"update functions/finalizers.serverless.kiln.dev",
	// The credentials of registries; the tests of their reconciler show it.
	"get secrets", "list secrets", "watch secrets", "update secrets", "delete secrets", "create secrets",
	// Serving without Knative; the tests of pkg/serve/kubernetes show it.
	"get deployments.apps", "list deployments.apps", "watch deployments.apps", "create deployments.apps", "update deployments.apps",
	"list replicasets.apps", "get services", "list services", "watch services", "create services", "update services",
	"get horizontalpodautoscalers.autoscaling", "list horizontalpodautoscalers.autoscaling", "watch horizontalpodautoscalers.autoscaling",
	"create horizontalpodautoscalers.autoscaling", "update horizontalpodautoscalers.autoscaling", "delete horizontalpodautoscalers.autoscaling",
	"get poddisruptionbudgets.policy", "list poddisruptionbudgets.policy", "watch poddisruptionbudgets.policy",
	"create poddisruptionbudgets.policy", "update poddisruptionbudgets.policy", "delete poddisruptionbudgets.policy",
	"get ingresses.networking.k8s.io", "list ingresses.networking.k8s.io", "watch ingresses.networking.k8s.io",
	"create ingresses.networking.k8s.io", "update ingresses.networking.k8s.io", "delete ingresses.networking.k8s.io",
	// Leader election.
	"kiln-system: get leases.coordination.k8s.io",
	"kiln-system: create leases.coordination.k8s.io",
	"kiln-system: update leases.coordination.k8s.io",
}

// TestMain also fails when the controller's roles allow more than all tests
// together have needed.
func TestMain(m *testing.M) {
	// The watches of fake clients hold a hundred events that nobody has read yet,
	// and panic when there is one more.
	apiwatch.DefaultChanSize = 1 << 16
	code := m.Run()
	if code == 0 && all() {
		for _, permission := range controllerRoles().Unused(needed...) {
			fmt.Printf("The controller may %s, and no test shows why: config/200-controller-roles.yaml\n", permission)
			code = 1
		}
	}
	os.Exit(code)
}

// all reports whether all tests ran.
func all() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}

// wantAllowed checks that the controller's roles allow what it did.
func wantAllowed(t *testing.T, actions []clientgotesting.Action) {
	t.Helper()
	if len(actions) == 0 {
		t.Error("Nothing was done")
	}
	for _, action := range actions {
		if err := controllerRoles().Check(action); err != nil {
			t.Error(err)
		}
	}
}

// TestLogsAreAllowed checks that the controller may read the logs that a failed build
// needs.
func TestLogsAreAllowed(t *testing.T) {
	// The fake client answers every request for a log like this.
	kube := fakekube.NewSimpleClientset()
	got, err := pods.Logs{Client: kube}.Tail(t.Context(), namespace, "pod", "step-install")
	if err != nil || got != "fake logs" {
		t.Errorf("Tail() = %q, %v", got, err)
	}
	wantAllowed(t, kube.Actions())
}
