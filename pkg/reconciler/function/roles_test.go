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
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	fakekube "k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/pods"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// controllerRoles are those of the shipped manifests. Every table of this package must work
// with them. The first test reads them, because go test reruns tests only when a file that
// they read has changed.
var controllerRoles = sync.OnceValue(func() *ktesting.Roles {
	roles, err := ktesting.LoadRoles("../../../config", "controller")
	if err != nil {
		panic(err)
	}
	return roles
})

// needed has the rights that the controller needs and that no test of this package uses.
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
	// The watches of fake clients buffer a hundred events, and panic at one more.
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

// unpoliced are kinds that the controller writes, and that no Function owns. Another policy
// covers Secrets.
var unpoliced = []string{"events", "secrets", "functions/status", "functions/finalizers"}

// TestWritesHavePolicy checks that the admission policy covers each kind that the controller
// may write in the namespaces of Functions.
func TestWritesHavePolicy(t *testing.T) {
	policed := map[string][]admissionv1.OperationType{}
	for _, policy := range documents[admissionv1.ValidatingAdmissionPolicy](t, "500-controller-policy.yaml", "kiln-controller-children") {
		if policy.Spec.MatchConstraints == nil {
			continue
		}
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				policed[strings.Join(rule.APIGroups, ",")+"/"+resource] = rule.Operations
			}
		}
	}
	operations := map[string]admissionv1.OperationType{"create": admissionv1.Create, "update": admissionv1.Update, "patch": admissionv1.Update, "delete": admissionv1.Delete}
	checked := 0
	for _, role := range documents[rbacv1.ClusterRole](t, "200-controller-roles.yaml", "kiln-controller") {
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					operation, writes := operations[verb]
					if !writes || slices.Contains(unpoliced, resource) {
						continue
					}
					checked++
					if kind := strings.Join(rule.APIGroups, ",") + "/" + resource; !slices.Contains(policed[kind], operation) {
						t.Errorf("the controller may %s %s, and no policy limits whose: config/500-controller-policy.yaml", verb, kind)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no role was checked")
	}
}

// documents returns the objects of that name in a manifest.
func documents[T any](t *testing.T, file, name string) (all []T) {
	t.Helper()
	data, err := os.ReadFile("../../../config/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var meta struct{ Metadata struct{ Name string } }
		var object T
		if err := yaml.Unmarshal(document, &meta); err != nil || meta.Metadata.Name != name {
			continue
		}
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
	return all
}
