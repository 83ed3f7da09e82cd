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

package contents

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func functionOf(t *testing.T, spec string) *v1alpha1.Function {
	t.Helper()
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "greeter"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &fn.Spec); err != nil {
		t.Fatal(err)
	}
	return fn
}

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spec, want string
		count      int
	}{
		"nothing": {spec: `{env: [{name: A, value: b}], emptyDirMounts: [{mountPath: /a}], persistentVolumeClaimMounts: [{claimName: p, mountPath: /b}]}`},
		"all fields": {`{
			env: [{name: A, valueFrom: {secretKeyRef: {name: b, key: k}}}, {name: B, valueFrom: {configMapKeyRef: {name: d, key: k}}}],
			envFrom: [{secretRef: {name: a}}, {configMapRef: {name: c}}],
			secretMounts: [{secretName: e, mountPath: /e}], configMapMounts: [{configMapName: f, mountPath: /f}]}`,
			"ConfigMap c, ConfigMap d, ConfigMap f, Secret a, Secret b, Secret e", 6},
		"the same twice":      {`{envFrom: [{secretRef: {name: a}}, {secretRef: {name: a}, prefix: B}]}`, "Secret a", 1},
		"the same, two kinds": {`{envFrom: [{secretRef: {name: a}}, {configMapRef: {name: a}}]}`, "ConfigMap a, Secret a", 2},
		"optional":            {`{envFrom: [{secretRef: {name: a, optional: true}}, {configMapRef: {name: a, optional: false}}]}`, "ConfigMap a, Secret a (optional)", 2},
		"optional once":       {`{envFrom: [{secretRef: {name: a, optional: true}}], secretMounts: [{secretName: a, mountPath: /a}]}`, "Secret a", 1},
		"required first":      {`{envFrom: [{secretRef: {name: a}}, {secretRef: {name: a, optional: true}, prefix: B}]}`, "Secret a", 1},
		"optional twice":      {`{envFrom: [{secretRef: {name: a, optional: true}}, {secretRef: {name: a, optional: true}, prefix: B}]}`, "Secret a (optional)", 1},
	} {
		t.Run(name, func(t *testing.T) {
			fn := functionOf(t, tc.spec)
			got := Of(fn)
			if diff := cmp.Diff(Request{Namespace: "default", Objects: tc.want}, got); diff != "" || got.Count() != tc.count {
				t.Errorf("%d objects, want %d (-want, +got):\n%s", got.Count(), tc.count, diff)
			}
			if diff := cmp.Diff(objectsOf(&fn.Spec), got.objects(), cmp.AllowUnexported(object{})); diff != "" {
				t.Errorf("the objects in words (-want, +got):\n%s", diff)
			}
		})
	}
}

// cluster has a Secret and a ConfigMap. Getting another object fails with the error of that
// name.
func cluster() *fake.Clientset {
	kube := fake.NewSimpleClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", UID: "1"}, Data: map[string][]byte{"k": []byte("v")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "2"}, Data: map[string]string{"k": "v"}},
	)
	kube.PrependReactor("get", "*", func(action clientgotesting.Action) (bool, runtime.Object, error) {
		name := action.(clientgotesting.GetAction).GetName()
		err := map[string]error{
			"forbidden":  apierrs.NewForbidden(corev1.Resource("secrets"), name, nil),
			"overloaded": apierrs.NewTooManyRequests("10.0.0.1:4242", 1),
			"refused":    errors.New("dial tcp 10.0.0.1:4242: connection refused"),
		}[name]
		return err != nil, nil, err
	})
	return kube
}

// TestHash checks which changes change the hash.
func TestHash(t *testing.T) {
	request := Request{Namespace: "default", Objects: "ConfigMap c, ConfigMap o (optional), Secret s"}
	read := func(kube *fake.Clientset, request Request) string {
		t.Helper()
		found := NewReader(kube.CoreV1())(t.Context(), request)
		if found.Failure != "" || !request.Matches(found.Hash) {
			t.Fatalf("read %+v of %+v", found, request)
		}
		return found.Hash
	}
	before := read(cluster(), request)
	if again := read(cluster(), request); again != before {
		t.Errorf("the hash of the same objects is %s, and then %s", before, again)
	}
	if other := (Request{Namespace: "default", Objects: "Secret s"}); other.Matches(before) {
		t.Error("the hash matches other names")
	}
	secret := func(edit func(*corev1.Secret)) func(*fake.Clientset) error {
		return func(kube *fake.Clientset) error {
			s, err := kube.CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{})
			if err != nil {
				return err
			}
			edit(s)
			_, err = kube.CoreV1().Secrets("default").Update(t.Context(), s, metav1.UpdateOptions{})
			return err
		}
	}
	configMap := func(edit func(*corev1.ConfigMap)) func(*fake.Clientset) error {
		return func(kube *fake.Clientset) error {
			cm, err := kube.CoreV1().ConfigMaps("default").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				return err
			}
			edit(cm)
			_, err = kube.CoreV1().ConfigMaps("default").Update(t.Context(), cm, metav1.UpdateOptions{})
			return err
		}
	}
	for name, tc := range map[string]struct {
		edit    func(*fake.Clientset) error
		changes bool
	}{
		"metadata":       {secret(func(s *corev1.Secret) { s.Annotations, s.ResourceVersion = map[string]string{"a": "b"}, "7" }), false},
		"value":          {secret(func(s *corev1.Secret) { s.Data["k"] = []byte("w") }), true},
		"key":            {secret(func(s *corev1.Secret) { s.Data = map[string][]byte{"l": []byte("v")} }), true},
		"another Secret": {secret(func(s *corev1.Secret) { s.UID = "3" }), true},
		"text":           {configMap(func(cm *corev1.ConfigMap) { cm.Data["k"] = "w" }), true},
		"binary":         {configMap(func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"b": {0}} }), true},
		"labels":         {configMap(func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"a": "b"} }), false},
		"optional ConfigMap": {func(kube *fake.Clientset) error {
			_, err := kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o"}}, metav1.CreateOptions{})
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			kube := cluster()
			if err := tc.edit(kube); err != nil {
				t.Fatal(err)
			}
			if changed := read(kube, request) != before; changed != tc.changes {
				t.Errorf("the hash has changed: %t, want %t", changed, tc.changes)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	for objects, want := range map[string]string{
		"ConfigMap c, Secret gone":             "Secret gone does not exist.",
		"ConfigMap gone":                       "ConfigMap gone does not exist.",
		"Secret forbidden, Secret s":           "Kiln may not read Secret forbidden. Allow it with a Role, as docs/guides/secrets.md says.",
		"Secret forbidden (optional)":          "Kiln may not read Secret forbidden. Allow it with a Role, as docs/guides/secrets.md says.",
		"Secret overloaded":                    "Secret overloaded could not be read: TooManyRequests.",
		"ConfigMap refused":                    "ConfigMap refused could not be read: the API server did not answer.",
		"ConfigMap gone (optional), Secret no": "Secret no does not exist.",
	} {
		got := NewReader(cluster().CoreV1())(t.Context(), Request{Namespace: "default", Objects: objects})
		unanswered := strings.HasSuffix(want, "TooManyRequests.") || strings.HasSuffix(want, "did not answer.")
		if diff := cmp.Diff(Found{Failure: want, Unanswered: unanswered}, got); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", objects, diff)
		}
	}
}

// TestWorker checks that failures do not slow down the requests, that only a changed result
// wakes the Function, and that the first result need not take a minute.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var found atomic.Value
		found.Store(Found{Failure: "no"})
		var asked, woken atomic.Int32
		w := New(func(context.Context, Request) Found {
			asked.Add(1)
			return found.Load().(Found)
		}, func(types.NamespacedName) { woken.Add(1) })
		w.Start(ctx)
		key, request := types.NamespacedName{Namespace: "default", Name: "greeter"}, Request{Namespace: "default", Objects: "Secret s"}
		w.Ask(key, request)
		w.Hurry(key)
		w.Answer(key, request, true)
		time.Sleep(time.Second)
		synctest.Wait()
		if asked.Load() != 1 || woken.Load() != 1 {
			t.Errorf("within a second: asked %d times, woken %d times, want 1 and 1", asked.Load(), woken.Load())
		}
		time.Sleep(22 * interval)
		synctest.Wait()
		if asked.Load() < 20 || asked.Load() > 23 || woken.Load() != 1 {
			t.Errorf("within 22 minutes: asked %d times, woken %d times, want about 21 and 1", asked.Load(), woken.Load())
		}
		found.Store(Found{Hash: "a"})
		time.Sleep(2 * interval)
		synctest.Wait()
		if answer, ok := w.Answer(key, request, true); !ok || answer != found.Load() || woken.Load() != 2 {
			t.Errorf("the answer is %v, %t, woken %d times", answer, ok, woken.Load())
		}
		cancel()
		synctest.Wait()
	})
}

// TestPace checks that many objects do not take more requests a second.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := NewReader(cluster().CoreV1())
		start := time.Now()
		const times = 3
		objects := strings.Repeat("Secret s, ", MaxObjects-1) + "Secret s"
		for range times {
			if found := read(t.Context(), Request{Namespace: "default", Objects: objects}); found.Hash == "" {
				t.Error(found.Failure)
			}
		}
		if least, took := time.Duration(times*MaxObjects-perSecond-1)*time.Second/perSecond, time.Since(start); took < least || took > timeout/2 {
			t.Errorf("%d objects took %s, want at least %s", times*MaxObjects, took, least)
		}
	})
}
