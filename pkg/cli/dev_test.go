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

package cli

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestDevRefuses(t *testing.T) {
	files(t, map[string]string{"handler.js": "", "Dockerfile": ""})
	own := newFunction("own", built)
	own.Spec.Runtime = "dockerfile"
	unknown := newFunction("unknown", built)
	unknown.Spec.Runtime = "cobol"
	python := newFunction("python", built)
	python.Spec.Runtime = "python313"
	w := newWorld(t, runtimesConfig(), own, unknown, python, newFunction("new", builds))
	w.wantError("function own has its own Dockerfile", "kubectl fn deploy own --dir=.", "dev", "own")
	w.wantError("does not support runtime cobol", "kubectl fn deploy unknown --dir=.", "dev", "unknown")
	w.wantError("runtime python313 needs handler.py in folder .", "--dir=FOLDER, or start with: kubectl fn init DIR --runtime=nodejs24", "dev", "python")
	w.wantError("function new has no image yet", "kubectl fn status new", "dev", "new")
	w.wantError("there is no Function absent", listAll, "dev", "absent")
}

// The pod is one of the author's, who may not be allowed to create it.
func TestDevForbidden(t *testing.T) {
	files(t, map[string]string{"handler.js": ""})
	w := newWorld(t, runtimesConfig(), newFunction("fn", built))
	var created *corev1.Pod
	w.kube.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created = action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		return true, nil, apierrs.NewForbidden(corev1.Resource("pods"), created.Name, errors.New("no role"))
	})
	w.wantError("failed to create pod: ", askAdministrator, "dev", "fn", "--port=0")
	if created == nil || created.Spec.Containers[0].Image != "registry.example/fn@sha256:01" {
		t.Errorf("it creates %+v", created)
	}
	changed := slices.ContainsFunc(w.kiln.Actions(), func(action clienttesting.Action) bool { return action.GetVerb() != "get" && action.GetVerb() != "list" })
	if changed {
		t.Errorf("it changes the Function: %v", w.kiln.Actions())
	}
}
