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
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/apis"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// change is a manual change of what belongs to a Function.
type change struct {
	name string
	make func(*env, *v1alpha1.Function)
}

// TestChildrenOfRunningFunction changes and deletes the children of a running Function by
// hand. It checks that Kiln restores all of them without a build.
func TestChildrenOfRunningFunction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function("module.exports = { main: () => process.env.GREETING || 'none' };\n")), test.Ready)
	e.wantAnswer(fn, "{}", "none")

	for _, step := range slices.Concat([]change{
		{"ConfigMap deleted", deleteConfigMap},
		{"ConfigMap stripped", stripConfigMap},
		{"ConfigMap replaced", replaceConfigMap},
	}, server.changes, []change{
		{"status lost", loseStatus},
		{"build stripped", stripBuild},
		{"build deleted", deleteOnlyBuild},
	}) {
		// A later edit proves that the controller has processed the manual change.
		t.Log(step.name)
		step.make(e, fn)
		fn = e.until(fn, test.Healed)
		fn = e.until(e.edit(fn, setEnv("GREETING", step.name)), test.Healed)
		e.wantAnswerSoon(fn, step.name)
		e.wantBuilds(1)
	}
}

// configMap returns the only ConfigMap of a Function.
func (e *env) configMap(fn *v1alpha1.Function) *corev1.ConfigMap {
	e.Helper()
	list, err := clients.Kube.CoreV1().ConfigMaps(e.namespace).List(e.ctx, ofFunction(fn))
	if err != nil || len(list.Items) != 1 {
		e.Fatalf("there are %d ConfigMaps of Function %s, want 1: %v", len(list.Items), fn.Name, err)
	}
	return &list.Items[0]
}

// ofFunction selects the objects that Kiln has created for a Function.
func ofFunction(fn *v1alpha1.Function) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: serverless.FunctionUIDLabelKey + "=" + string(fn.UID)}
}

func deleteConfigMap(e *env, fn *v1alpha1.Function) {
	e.Helper()
	old := e.configMap(fn)
	configMaps := clients.Kube.CoreV1().ConfigMaps(e.namespace)
	if err := configMaps.Delete(e.ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	untilObjects(e, configMaps, func(found []*corev1.ConfigMap) error {
		if !slices.ContainsFunc(found, func(cm *corev1.ConfigMap) bool { return ownedBy(cm, fn) && cm.UID != old.UID }) {
			return fmt.Errorf("ConfigMap %s was not replaced", old.Name)
		}
		return nil
	})
}

// replaceConfigMap deletes a ConfigMap, which is immutable, and creates it with other data.
// It retries until it is faster than Kiln.
func replaceConfigMap(e *env, fn *v1alpha1.Function) {
	e.Helper()
	configMaps := clients.Kube.CoreV1().ConfigMaps(e.namespace)
	old := e.configMap(fn)
	forged := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, OwnerReferences: old.OwnerReferences},
		Data:       map[string]string{"handler.js": "by hand"},
	}
	for {
		if err := configMaps.Delete(e.ctx, old.Name, metav1.DeleteOptions{}); err != nil && !apierrs.IsNotFound(err) {
			e.Fatal(err)
		}
		_, err := configMaps.Create(e.ctx, forged, metav1.CreateOptions{})
		if err == nil {
			break
		}
		if !apierrs.IsAlreadyExists(err) {
			e.Fatal(err)
		}
	}
	untilObjects(e, configMaps, func(found []*corev1.ConfigMap) error {
		for _, cm := range found {
			if cm.Name == old.Name && maps.Equal(cm.Data, old.Data) {
				return nil
			}
		}
		return fmt.Errorf("ConfigMap %s has other data", old.Name)
	})
}

func stripConfigMap(e *env, fn *v1alpha1.Function) {
	e.Helper()
	strip(e, clients.Kube.CoreV1().ConfigMaps(e.namespace), e.configMap(fn).Name, fn)
}

func stripService(e *env, fn *v1alpha1.Function) {
	e.Helper()
	strip(e, clients.Serving.ServingV1().Services(e.namespace), fn.Name, fn)
}

// publishService removes the label that makes a Service cluster-local.
func publishService(e *env, fn *v1alpha1.Function) {
	e.Helper()
	services := clients.Serving.ServingV1().Services(e.namespace)
	edit(e, services, fn.Name, func(service *servingv1.Service) { delete(service.Labels, netapi.VisibilityLabelKey) })
	untilObjects(e, services, func(found []*servingv1.Service) error {
		if len(found) != 1 || found[0].Labels[netapi.VisibilityLabelKey] != serving.VisibilityClusterLocal {
			return errors.New("the service is public")
		}
		return nil
	})
}

// strip removes the label that Kiln's informers select by. Kiln does not see the object
// then, but its name is still in use.
func strip[T metav1.Object, L runtime.Object](e *env, objects interface {
	client[T]
	test.Watcher[L]
}, name string, fn *v1alpha1.Function) {
	e.Helper()
	edit(e, objects, name, func(object T) { stripLabel(object) })
	untilObjects(e, objects, func(found []T) error {
		for _, object := range found {
			if object.GetName() == name && object.GetLabels()[serverless.FunctionUIDLabelKey] == string(fn.UID) {
				return nil
			}
		}
		return fmt.Errorf("%T %s lacks the label", *new(T), name)
	})
}

// editService changes the image, environment and memory of a Service.
func editService(e *env, fn *v1alpha1.Function) {
	e.Helper()
	services := clients.Serving.ServingV1().Services(e.namespace)
	edited := edit(e, services, fn.Name, func(service *servingv1.Service) {
		container := &service.Spec.Template.Spec.Containers[0]
		container.Image = relayImage
		container.Env = append(container.Env, corev1.EnvVar{Name: "BY_HAND", Value: "yes"})
		container.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1900m")
	})
	untilObjects(e, services, func(found []*servingv1.Service) error {
		for _, service := range found {
			if service.Name == fn.Name && service.Generation > edited.Generation && serves(service, fn) {
				return nil
			}
		}
		return errors.New("the service still has the manual changes")
	})
}

// serves reports whether a Service has the spec that Kiln gave it for a Function.
func serves(service *servingv1.Service, fn *v1alpha1.Function) bool {
	container := service.Spec.Template.Spec.Containers[0]
	byHand := slices.ContainsFunc(container.Env, func(env corev1.EnvVar) bool { return env.Name == "BY_HAND" })
	return container.Image == fn.Status.Image && !byHand && container.Resources.Limits.Cpu().IsZero()
}

func deleteService(e *env, fn *v1alpha1.Function) {
	e.Helper()
	old := e.service(fn)
	services := clients.Serving.ServingV1().Services(e.namespace)
	if err := services.Delete(e.ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	untilObjects(e, services, func(found []*servingv1.Service) error {
		if len(found) != 1 || found[0].UID == old.UID {
			return errors.New("the service was not created again")
		}
		return nil
	})
}

func stripBuild(e *env, _ *v1alpha1.Function) {
	e.Helper()
	e.editBuild(e.onlyBuild(), stripLabel)
}

// stripLabel removes the label that Kiln's informers select by.
func stripLabel(object metav1.Object) {
	labels := object.GetLabels()
	delete(labels, serverless.FunctionUIDLabelKey)
	object.SetLabels(labels)
}

func deleteOnlyBuild(e *env, _ *v1alpha1.Function) {
	e.Helper()
	e.deleteBuild(e.onlyBuild())
}

func loseStatus(e *env, fn *v1alpha1.Function) {
	e.Helper()
	functions := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace)
	lost, err := functions.Get(e.ctx, fn.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	lost.Status = v1alpha1.FunctionStatus{}
	if _, err := functions.UpdateStatus(e.ctx, lost, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
}

func ownedBy(object metav1.Object, fn *v1alpha1.Function) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == fn.UID
}

// TestBuildDeleted checks that Kiln creates a build again that was deleted while it ran.
func TestBuildDeleted(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.create(function(answering("rebuilt")))
	e.deleteBuild(e.untilBuild(fn, nil))
	fn = e.until(fn, test.Healed)
	e.wantAnswer(fn, "{}", "rebuilt")
	e.wantBuilds(2)
}

// TestBuildStripped checks that Kiln adopts a running build that has lost its label and
// its owner.
func TestBuildStripped(t *testing.T) {
	t.Parallel()
	for name, strip := range map[string]func(metav1.Object){
		"Label": stripLabel,
		"Owner": func(object metav1.Object) { object.SetOwnerReferences(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := e.create(function(answering("found")))
			e.editBuild(e.untilBuild(fn, hasStarted), strip)
			fn = e.until(fn, test.Healed)
			e.wantAnswer(fn, "{}", "found")
			e.wantBuilds(1)
		})
	}
}

// TestServiceWhileFailed checks that Kiln restores the Service after a failed build and
// during the next build.
func TestServiceWhileFailed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("old"))), test.Ready)
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Deps = missingDependency })
	fn, _ = e.untilCondition(fn, buildFailed())

	deleteService(e, fn)
	e.wantAnswerSoon(fn, "old")
	publishService(e, fn)
	editService(e, fn)
	e.wantAnswerSoon(fn, "old")

	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Source, fn.Spec.Deps = answering("new"), ""
	})
	e.untilBuild(fn, isUnended)
	publishService(e, fn)
	editService(e, fn)
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, "new")
	if service := e.service(fn); !serves(service, fn) {
		e.Errorf("the service still has the manual changes: %+v", service.Spec.Template.Spec.Containers[0])
	}
	e.wantBuilds(3)
}

// TestServiceWhileForbidden checks that Kiln restores the Service while a quota forbids the
// next build. It starts when the quota is deleted.
func TestServiceWhileForbidden(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("old"))), test.Ready)
	quotas := clients.Kube.CoreV1().ResourceQuotas(e.namespace)
	if _, err := quotas.Create(e.ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-builds"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{builder.quota: resource.MustParse("0")}},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("new") })
	fn, condition := e.untilCondition(fn, buildFailed())
	wantWords(t, condition.Message, "exceeded quota", "no-builds")

	deleteService(e, fn)
	e.wantAnswerSoon(fn, "old")
	publishService(e, fn)
	editService(e, fn)
	e.wantAnswerSoon(fn, "old")

	if err := quotas.Delete(e.ctx, "no-builds", metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, "new")
	e.wantBuilds(2)
}

// TestConfigMapDeletedWhileBuilding checks that the build succeeds, whether or not its pod
// had already mounted the ConfigMap.
func TestConfigMapDeletedWhileBuilding(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.create(function(answering("healed")))
	e.untilBuild(fn, nil)
	deleteConfigMap(e, fn)
	fn = e.until(fn, test.Healed)
	e.wantAnswer(fn, "{}", "healed")
	e.wantBuilds(1)
}

// TestServiceOfSomebodyElse checks that Kiln does not change a Service that has the
// Function's name but another owner. When that Service is deleted, the Function uses the
// name.
func TestServiceOfSomebodyElse(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	services := clients.Serving.ServingV1().Services(e.namespace)
	before := &servingv1.Service{ObjectMeta: metav1.ObjectMeta{Name: "fn", Labels: map[string]string{"owner": "somebody-else"}}}
	before.Spec.Template.Spec.Containers = []corev1.Container{{Image: relayImage}}
	if _, err := services.Create(e.ctx, before, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	untilObjects(e, services, func(found []*servingv1.Service) error {
		if before = found[0]; !before.IsReady() {
			return errors.New("the service is not ready")
		}
		return nil
	})

	fn := e.create(function(answering("mine at last")))
	fn, _ = e.untilCondition(fn, apis.Condition{
		Type:   v1alpha1.FunctionConditionRunning,
		Status: corev1.ConditionFalse,
		Reason: v1alpha1.ReasonNotOwned,
	})
	e.wantPhase(fn, v1alpha1.FunctionFailed)
	after := e.service(fn)
	if diff := cmp.Diff(before.ObjectMeta, after.ObjectMeta, ignoreWrites); diff != "" {
		e.Errorf("the service's metadata changed (-before +after): %s", diff)
	}
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		e.Errorf("the service's spec changed (-before +after): %s", diff)
	}

	if err := services.Delete(e.ctx, before.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(before.UID))}); err != nil {
		e.Fatal(err)
	}
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, "mine at last")
	e.wantBuilds(1)
}

// ignoreWrites ignores the metadata that changes with a write of the status.
var ignoreWrites = cmp.FilterPath(func(path cmp.Path) bool {
	return path.Last().String() == ".ResourceVersion" || path.Last().String() == ".ManagedFields"
}, cmp.Ignore())

// TestServiceDeletedWhileDeploying checks that Kiln creates a Service again that was
// deleted before it became ready.
func TestServiceDeletedWhileDeploying(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.create(function(answering("deployed twice")))
	services := clients.Serving.ServingV1().Services(e.namespace)
	var first types.UID
	untilObjects(e, services, func(found []*servingv1.Service) error {
		if len(found) == 0 {
			return errors.New("there is no service")
		}
		first = found[0].UID
		return nil
	})
	if err := services.Delete(e.ctx, fn.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	fn = e.until(fn, test.Healed)
	if e.service(fn).UID == first {
		e.Error("the service is the one that was deleted")
	}
	e.wantAnswerSoon(fn, "deployed twice")
	e.wantBuilds(1)
}
