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

package poll

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"

	"github.com/kiln-dev/kiln/pkg/sources"
)

// TestResolver checks that each poll reads the Secret and leaves no files behind.
func TestResolver(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	commit := strings.Repeat("a", 40)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); strings.HasPrefix(r.URL.Path, "/private/") && password != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, "003d"+commit+" refs/heads/main\n0000")
	}))
	t.Cleanup(server.Close)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "git"},
		Data:       map[string][]byte{"token": []byte("old"), "../other": []byte("x")},
	}
	kube := fake.NewSimpleClientset(secret)
	kube.PrependReactor("get", "secrets", func(action clientgotesting.Action) (bool, runtime.Object, error) {
		name := action.(clientgotesting.GetAction).GetName()
		return name == "hidden", nil, apierrs.NewForbidden(corev1.Resource("secrets"), name, nil)
	})
	resolve := NewResolver(kube.CoreV1())
	ask := func(path, secretName string) (string, error) {
		return resolve(t.Context(), Branch{URL: server.URL + path, Revision: "main", Namespace: "default", Secret: secretName, Allowed: "127.0.0.0/8"})
	}

	if got, err := ask("/public/a", ""); got != commit || err != nil {
		t.Errorf("without a Secret: %s, %v", got, err)
	}
	for _, tc := range []struct{ secret, want string }{
		{"", "its server requires credentials"},
		{"git", "its server refuses the credentials: check the Secret with them"},
		{"nothing", "Secret nothing does not exist"},
		{"hidden", "Kiln may not read Secret hidden: allow it with a Role, as docs/sources.md says"},
	} {
		if _, err := ask("/private/a", tc.secret); err == nil || !strings.Contains(err.Error(), tc.want) || sources.ExitCode(err) != sources.ExitRefused {
			t.Errorf("with Secret %q: %v, want %q", tc.secret, err, tc.want)
		}
	}
	secret.Data["token"] = []byte("s3cret\n")
	if _, err := kube.CoreV1().Secrets("default").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := ask("/private/a", "git"); got != commit || err != nil {
		t.Errorf("with a new token: %s, %v", got, err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestResolverRefusesInternalAddresses checks that the controller sends nothing to a server
// at an internal address, unless an administrator allows it.
func TestResolverRefusesInternalAddresses(t *testing.T) {
	commit := strings.Repeat("a", 40)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, "003d"+commit+" refs/heads/main\n0000")
	}))
	t.Cleanup(server.Close)
	resolve := NewResolver(fake.NewSimpleClientset().CoreV1())
	for _, tc := range []struct {
		allowed sources.Addresses
		want    string
		refused bool
	}{
		{"", "", true},
		{"10.0.0.0/8", "", true},
		{"127.0.0.1/32", commit, false},
	} {
		got, err := resolve(t.Context(), Branch{URL: server.URL + "/code", Revision: "main", Namespace: "default", Allowed: tc.allowed})
		refused := err != nil && strings.Contains(err.Error(), "127.0.0.1 is an internal address: an administrator can allow it with follow-allowed-addresses in the ConfigMap config-build")
		if got != tc.want || refused != tc.refused {
			t.Errorf("with allowed %q: %q, %v; want %q", tc.allowed, got, err, tc.want)
		}
	}
}
