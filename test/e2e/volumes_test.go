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
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// filer is the source of a function that reads a ConfigMap and writes to its folders.
const filer = `const fs = require('fs');
const write = (file) => { try { fs.writeFileSync(file, 'written'); return fs.readFileSync(file, 'utf8'); } catch (error) { return error.code; } };
module.exports = { main: () => [fs.readFileSync('/settings/level', 'utf8'), write('/settings/other'), write('/scratch/file'), write('/other')].join(' ') };
`

func (e *env) createConfigMap(name string, data map[string]string) {
	e.Helper()
	_, err := clients.Kube.CoreV1().ConfigMaps(e.namespace).Create(e.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
}

// TestMounts mounts a ConfigMap and an empty folder. It checks that the function can write to
// the folder only, and that the removal of both creates one revision and no build.
func TestMounts(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.createConfigMap("settings", map[string]string{"level": "debug"})
	fn := function(filer)
	fn.Spec.ConfigMapMounts = []v1alpha1.ConfigMapMount{{ConfigMapName: "settings", MountPath: "/settings"}}
	fn.Spec.EmptyDirMounts = []v1alpha1.EmptyDirMount{{MountPath: "/scratch"}}
	fn = e.until(e.create(fn), test.Healed)
	if size := fn.Spec.EmptyDirMounts[0].SizeLimit; size == nil || size.String() != "512Mi" {
		e.Errorf("the default size is %s", size)
	}
	e.wantAnswer(fn, "{}", "debug EROFS written EROFS")
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Source, fn.Spec.ConfigMapMounts, fn.Spec.EmptyDirMounts = answering("bare"), nil, nil
	}), test.Healed)
	e.wantAnswerSoon(fn, "bare")
	e.wantRevisions(2)
}

// keeper is the source of a function that keeps a text in a volume.
const keeper = `const fs = require('fs');
const file = '/data/kiln-' + process.env.FUNC_NAMESPACE;
module.exports = { main: ({ data }) => {
  if (data.text) fs.writeFileSync(file, data.text);
  const text = fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : 'nothing';
  if (data.remove) fs.rmSync(file);
  return text;
} };
`

// createVolume creates a PersistentVolumeClaim, and its volume: the folder /tmp of the node, in
// which everybody can write. A volume of the cluster's default class need not be writable.
func (e *env) createVolume(claim string) {
	e.Helper()
	name, size := e.namespace+"-"+claim, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	_, err := clients.Kube.CoreV1().PersistentVolumes().Create(e.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Namespace: e.namespace, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp", Type: new(corev1.HostPathDirectory)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := clients.Kube.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(e.ctx), name, metav1.DeleteOptions{}); err != nil {
			e.Error(err)
		}
	})
	_, err = clients.Kube.CoreV1().PersistentVolumeClaims(e.namespace).Create(e.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claim},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size},
			StorageClassName: new(""), VolumeName: name,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
}

// TestPersistentVolumeClaim checks that a file outlives a revision. Under Knative, the status
// first names the missing features of Serving, and the last revision serves. The test sets
// these features, so it is not parallel.
func TestPersistentVolumeClaim(t *testing.T) {
	e := newEnv(t)
	e.createVolume("data")
	fn := e.until(e.create(function(keeper)), test.Healed)
	e.wantAnswer(fn, "{}", "nothing")
	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.PersistentVolumeClaimMounts = []v1alpha1.PersistentVolumeClaimMount{{ClaimName: "data", MountPath: "/data"}}
	})
	if server == knative {
		features := []string{"kubernetes.podspec-persistent-volume-claim", "kubernetes.podspec-persistent-volume-write"}
		refused, condition := e.untilCondition(fn, revisionFailed())
		wantWords(t, condition.Message, append(features, "config-features")...)
		e.wantAnswer(refused, "{}", "nothing")
		for _, feature := range features {
			e.configure("config-features", feature, "enabled")
		}
	}
	fn = e.until(fn, test.Healed)
	// A pod without the volume still answers for a moment.
	if _, err := e.probeOften(request(fn, `{"text": "kept"}`), 1, "kept")[0].Stop(e.ctx); err != nil {
		e.Fatal(err)
	}
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A", Value: "1"}} }), test.Healed)
	e.wantAnswerSoon(fn, "kept")
	e.wantAnswer(fn, `{"remove": true}`, "kept")
	// Without the features, Serving would deny the next update of this Function's Service.
	e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.PersistentVolumeClaimMounts = nil }), test.Healed)
	e.wantRevisions(4)
	e.wantBuilds(1)
}

// servedBy checks that the Function is Ready with that revision.
func servedBy(revision string) func(*v1alpha1.Function) error {
	return func(fn *v1alpha1.Function) error {
		if ready := fn.Status.LatestReadyRevisionName; ready != revision {
			return fmt.Errorf("revision %s is the last ready one, not %s", ready, revision)
		}
		return test.Healed(fn)
	}
}

// TestRolloutOnChange changes a Secret of a Function with the annotation. It checks that Kiln
// reports the missing permission, that a change then creates exactly one revision without a
// failed request, and that the removal of the annotation creates none.
func TestRolloutOnChange(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.createSecret("api")
	fn := function("module.exports = { main: () => process.env.TOKEN };\n")
	fn.Annotations = map[string]string{serverless.RolloutOnChangeAnnotationKey: "true"}
	fn.Spec.MinReplicas = new(int32(1))
	fn.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "api"}, Key: "token",
	}}}}
	fn = e.until(e.create(fn), test.Healed)
	fn, condition := e.untilCondition(fn, apis.Condition{
		Type: v1alpha1.FunctionConditionContentFollowed, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonContentNotRead,
	})
	wantWords(t, condition.Message, "Kiln may not read Secret api")
	prober := e.probe(fn, "s3cret")
	e.wantRevisions(1)

	e.letKilnRead("api")
	fn, condition = e.untilCondition(fn, apis.Condition{
		Type: v1alpha1.FunctionConditionContentFollowed, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonContentRead,
	})
	wantWords(t, condition.Message, "Secret api")
	fn = e.until(fn, servedBy("fn-00002"))
	first := fn.Status.ContentHash
	edit(e, clients.Kube.CoreV1().Secrets(e.namespace), "api", func(secret *corev1.Secret) { secret.Data = map[string][]byte{"token": []byte("n3w")} })
	e.untilAnswer(prober, "n3w")
	fn = e.until(fn, servedBy("fn-00003"))
	if fn.Status.ContentHash == first {
		e.Errorf("the hash of the content is still %s", first)
	}
	e.wantAnswers(prober, "s3cret", "n3w")
	e.wantRevisions(3)

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Annotations = nil })
	fn = e.until(fn, func(fn *v1alpha1.Function) error {
		if fn.Status.GetCondition(v1alpha1.FunctionConditionContentFollowed) != nil {
			return errors.New("the content is still followed")
		}
		return test.Healed(fn)
	})
	e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Labels = map[string]string{"a": "b"} }), test.Healed)
	e.wantRevisions(4)
	e.wantBuilds(1)
}
