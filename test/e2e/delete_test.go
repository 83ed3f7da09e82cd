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
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

func TestDeletedWhileBuilding(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.create(function(answering("never")))
	e.untilBuild(fn, nil)
	e.deleteAndWantNothing(fn, "configmaps/", builder.resource+"/")
}

func TestDeletedWhileRunning(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("goodbye"))), test.Ready)
	e.wantAnswer(fn, "{}", "goodbye")
	e.deleteAndWantNothing(fn, "configmaps/", builder.resource+"/", "services/", "deployments/")
}

// TestDeletedAndCreatedAgain checks that a Function can have the name of one that is being
// deleted.
func TestDeletedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := e.until(e.create(function(answering("first"))), test.Ready)
	functions := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace)
	if err := functions.Delete(e.ctx, first.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	second := e.until(e.create(function(answering("second"))), test.Healed)
	e.wantAnswerSoon(second, "second")
	e.wantBuilds(2)
}

// deleteAndWantNothing deletes a Function that has objects of each of those kinds, and
// waits until all are deleted.
func (e *env) deleteAndWantNothing(fn *v1alpha1.Function, kinds ...string) {
	e.Helper()
	contents, err := test.Contents(e.ctx, clients, e.namespace)
	if err != nil {
		e.Fatal(err)
	}
	for _, kind := range append(kinds, "functions/") {
		if !slices.ContainsFunc(contents, func(object string) bool { return len(object) > len(kind) && object[:len(kind)] == kind }) {
			e.Errorf("there is no %s in %v", kind, contents)
		}
	}
	functions := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace)
	if err := functions.Delete(e.ctx, fn.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	if err := test.UntilEmpty(e.ctx, clients, e.namespace); err != nil {
		e.Error(err)
	}
}
