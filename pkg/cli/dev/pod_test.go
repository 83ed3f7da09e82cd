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

package dev

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// TestNewPod checks what makes the pod private, short-lived and like the Function's own.
func TestNewPod(t *testing.T) {
	language, _ := runtimes.For("python")
	fn := newFunction("python313")
	fn.Spec.Labels = map[string]string{"app.kubernetes.io/part-of": "shop"}
	fn.Spec.Env = []corev1.EnvVar{{Name: "GREETING", Value: "hello"}}
	fn.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: "key", MountPath: "/etc/key"}}
	fn.Spec.ServiceAccountName = "shop"
	s := &Session{Function: fn, Language: language, PullSecrets: []string{"registry"}}
	const token = "t0k3n-0f-the-author"
	pod, err := s.newPod(fn.Status.Image, token)
	if err != nil {
		t.Fatal(err)
	}
	want := metav1.ObjectMeta{
		Name: pod.Name, Namespace: namespace, Labels: map[string]string{serverless.DevLabelKey: "fn"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "serverless.kiln.dev/v1alpha1", Kind: "Function", Name: "fn", UID: "uid-of-fn"}},
	}
	if diff := cmp.Diff(want, pod.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	container := pod.Spec.Containers[0]
	for what, ok := range map[string]bool{
		"a deadline":                        *pod.Spec.ActiveDeadlineSeconds == 8*60*60,
		"a secret token":                    !strings.Contains(strings.Join(container.Command, " "), token),
		"no restarts":                       pod.Spec.RestartPolicy == corev1.RestartPolicyNever,
		"the image":                         container.Image == fn.Status.Image,
		"the environment":                   slices.Contains(container.Env, fn.Spec.Env[0]),
		"no probe, as it listens to nobody": container.ReadinessProbe == nil,
		"no ports":                          len(container.Ports) == 0,
		"the security context":              cmp.Equal(container.SecurityContext, children.Restricted()),
		"the service account":               pod.Spec.ServiceAccountName == "shop",
		"words that Kubernetes passes on unchanged": !slices.ContainsFunc(container.Command, func(word string) bool { return strings.Contains(word, "$(") || strings.Contains(word, "$$") }),
		"the pull secret": pod.Spec.ImagePullSecrets[0].Name == "registry",
		"the Secret":      slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/key" }),
		"a bounded folder": slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == sourceVolume && !v.EmptyDir.SizeLimit.IsZero()
		}),
	} {
		if !ok {
			t.Errorf("the pod lacks %s: %+v", what, pod.Spec)
		}
	}
}

func TestWithLauncher(t *testing.T) {
	memory := func(quantity string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(quantity)}
	}
	for name, test := range map[string]struct{ given, want corev1.ResourceRequirements }{
		"nothing":      {},
		"a request":    {corev1.ResourceRequirements{Requests: memory("64Mi")}, corev1.ResourceRequirements{Requests: memory("64Mi")}},
		"a limit":      {corev1.ResourceRequirements{Limits: memory("128Mi")}, corev1.ResourceRequirements{Requests: memory("128Mi"), Limits: memory("320Mi")}},
		"both of them": {corev1.ResourceRequirements{Requests: memory("64Mi"), Limits: memory("128Mi")}, corev1.ResourceRequirements{Requests: memory("64Mi"), Limits: memory("320Mi")}},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.given.DeepCopy()
			if diff := cmp.Diff(test.want, withLauncher(test.given)); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(*before, test.given); diff != "" {
				t.Errorf("the Function's own resources changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestInstalled(t *testing.T) {
	for name, test := range map[string]struct {
		language, a, b string
		same           bool
	}{
		"no file and an empty one":   {"nodejs", "", "{}\n", true},
		"another script":             {"nodejs", `{"dependencies": {"ms": "2"}, "scripts": {"a": "b"}}`, `{"type": "module", "dependencies": {"ms":"2"}}`, true},
		"another version":            {"nodejs", `{"dependencies": {"ms": "2"}}`, `{"dependencies": {"ms": "3"}}`, false},
		"another kind":               {"nodejs", `{"dependencies": {"ms": "2"}}`, `{"optionalDependencies": {"ms": "2"}}`, false},
		"an override":                {"nodejs", `{"dependencies": {"ms": "2"}}`, `{"dependencies": {"ms": "2"}, "overrides": {"a": {"b": "1"}}}`, false},
		"the same lock file":         {"nodejs", `{"dependencies": {"ms": "2"}}` + "\n" + `{"lockfileVersion": 3}`, `{"dependencies": {"ms":"2"}}` + "\n" + `{"lockfileVersion": 3}` + "\n", true},
		"another lock file":          {"nodejs", `{"dependencies": {"ms": "2"}}` + "\n" + `{"lockfileVersion": 3}`, `{"dependencies": {"ms":"2"}}` + "\n" + `{"lockfileVersion": 2}`, false},
		"a new lock file":            {"nodejs", `{"dependencies": {"ms": "2"}}`, `{"dependencies": {"ms":"2"}}` + "\n" + `{"lockfileVersion": 2}`, false},
		"comments and blank lines":   {"python", "flask\n", "# the web\n\n  flask \n", true},
		"another requirement":        {"python", "flask\n", "flask\nrequests\n", false},
		"no file and no requirement": {"python", "", "\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			language, _ := runtimes.For(test.language)
			a, errA := installed(language, test.a)
			b, errB := installed(language, test.b)
			if errA != nil || errB != nil || (a == b) != test.same {
				t.Errorf("installed() = %q and %q, %v, %v; want the same: %v", a, b, errA, errB, test.same)
			}
		})
	}
	language, _ := runtimes.For("nodejs")
	if _, err := installed(language, "{"); err == nil {
		t.Error("invalid JSON is accepted")
	}
}

func TestScan(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"handler.js", "lib/a.js", "node_modules/ms/index.js", "lib/node_modules/b/index.js", ".git/HEAD", "secret.txt", "run.sh"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for err := range slices.Values([]error{
		os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("secret.txt\n"), 0o600),
		os.Chmod(filepath.Join(dir, "run.sh"), 0o700),
		os.Symlink("handler.js", filepath.Join(dir, "linked.js")),
		os.Symlink("lib", filepath.Join(dir, "folder")),
		os.Symlink("absent", filepath.Join(dir, "dangling")),
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	files, err := scan(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for name, file := range files {
		got[name] = file.executable
	}
	want := map[string]bool{".gitignore": false, "handler.js": false, "lib/a.js": false, "linked.js": false, "run.sh": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files, and whether they are executable (-want +got):\n%s", diff)
	}
	big := filepath.Join(dir, "big")
	if err := errors.Join(os.WriteFile(big, nil, 0o600), os.Truncate(big, sourceSize)); err != nil {
		t.Fatal(err)
	}
	if _, err := scan(dir); err == nil || !strings.Contains(err.Error(), "257 MiB") {
		t.Errorf("scan() of too large a folder = %v", err)
	}
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "outside")); err != nil {
		t.Fatal(err)
	}
	if _, err := scan(dir); err == nil {
		t.Error("a link out of the folder is followed")
	}
}

func TestCompare(t *testing.T) {
	before := map[string]file{"a": {size: 1}, "b": {size: 1}, "c": {size: 1}}
	after := map[string]file{"a": {size: 1}, "b": {size: 2}, "d": {size: 1}, "e": {executable: true}}
	written, deleted := compare(before, after)
	if diff := cmp.Diff([][]string{{"b", "d", "e"}, {"c"}}, [][]string{written, deleted}); diff != "" {
		t.Errorf("written and deleted (-want +got):\n%s", diff)
	}
}
