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
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
	"github.com/kiln-dev/kiln/pkg/sources/pack"
)

// newRegistry starts a registry with a password, unless it is "", and returns its
// host. The user is not logged in to it.
func newRegistry(t *testing.T, password string) (host string) {
	t.Helper()
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, got, _ := r.BasicAuth(); got != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	return strings.TrimPrefix(server.URL, "http://")
}

// registryConfig is Kiln's configuration of its registry.
func registryConfig(push string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: config.RegistryConfigName, Namespace: SystemNamespace},
		Data:       map[string]string{"push": push, "prefix": "fns"},
	}
}

// fetched returns handler.js as a build of the Function fetches it.
func fetched(t *testing.T, fn *v1alpha1.Function) []byte {
	t.Helper()
	got := &bytes.Buffer{}
	archive := fetch.Archive{URL: fn.Spec.Archive.URL, SHA256: fn.Spec.Archive.SHA256}
	if _, err := archive.Fetch(t.Context(), got, sources.Limits{Download: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := sources.Unpack(bytes.NewReader(got.Bytes()), int64(got.Len()), root, sources.Limits{Size: 1 << 20, Files: 10, Ratio: 100}); err != nil {
		t.Fatal(err)
	}
	text, err := root.ReadFile("handler.js")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestCreateFolder(t *testing.T) {
	host := newRegistry(t, "")
	files(t, map[string]string{"handler.js": "one", ".gitignore": "*.log", "x.log": "x"})
	w := newWorld(t, registryConfig(host))
	w.want("function.serverless.kiln.dev/fn created\n", "create", "fn", "--runtime=nodejs22", "--dir=.")
	fn := w.function("fn")
	if prefix := "oci://" + host + "/fns/default/fn@sha256:"; !strings.HasPrefix(fn.Spec.Archive.URL, prefix) {
		t.Errorf("the URL is %s, want %s…", fn.Spec.Archive.URL, prefix)
	}
	if fn.Spec.Runtime != "nodejs22" || fn.Spec.Source != "" {
		t.Errorf("the spec is %+v", fn.Spec)
	}
	if got := fetched(t, fn); string(got) != "one" {
		t.Errorf("the pushed source is %q", got)
	}
	want := "Packed 2 files of folder .: 1 KiB.\nPushing it to " + host + "/fns/default/fn.\n"
	if diff := cmp.Diff(want, w.errOut.String()); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
	repository, err := name.NewRepository(host + "/fns/default/fn")
	if err != nil {
		t.Fatal(err)
	}
	tags, err := remote.List(repository)
	if diff := cmp.Diff([]string{"source-" + fn.Spec.Archive.SHA256[:16]}, tags); err != nil || diff != "" {
		t.Errorf("%v, tags (-want, +got):\n%s", err, diff)
	}

	w.want("function.serverless.kiln.dev/b created\n", "create", "b", "--dir=.", "--push-to=oci://"+host+"/team/b")
	if b := w.function("b").Spec.Archive; b.SHA256 != fn.Spec.Archive.SHA256 || !strings.HasPrefix(b.URL, "oci://"+host+"/team/b@") {
		t.Errorf("the same folder is %+v and %+v", b, fn.Spec.Archive)
	}
}

// TestCreateFolderDry checks that a dry run pushes nothing and prints the real archive.
func TestCreateFolderDry(t *testing.T) {
	host := newRegistry(t, "")
	files(t, map[string]string{"handler.js": "one"})
	w := newWorld(t)
	for _, kind := range []string{"client", "server"} {
		if _, err := w.run("create", "fn", "--dir=.", "--push-to="+host+"/team/fn", "--dry-run="+kind); err != nil {
			t.Fatal(err)
		}
	}
	repository, err := name.NewRepository(host + "/team/fn")
	if err != nil {
		t.Fatal(err)
	}
	if tags, err := remote.List(repository); err == nil {
		t.Errorf("the dry run pushed %v", tags)
	}
	dry, err := w.run("create", "dry", "--dir=.", "--push-to="+host+"/team/fn", "--dry-run=client", "-o=yaml")
	if err != nil {
		t.Fatal(err)
	}
	var fn v1alpha1.Function
	if err := yaml.UnmarshalStrict([]byte(dry), &fn); err != nil {
		t.Fatal(err)
	}
	w.want("function.serverless.kiln.dev/real created\n", "create", "real", "--dir=.", "--push-to="+host+"/team/fn")
	if diff := cmp.Diff(fn.Spec.Archive, w.function("real").Spec.Archive); diff != "" {
		t.Errorf("archive (-dry, +real):\n%s", diff)
	}
}

// TestDeployFolder checks that a second deployment keeps the repository and the
// credentials.
func TestDeployFolder(t *testing.T) {
	host := newRegistry(t, "")
	dir := files(t, map[string]string{"handler.js": "one"})
	fn := newFunction("fn", serves)
	fn.Spec.Source, fn.Spec.Archive = "", &v1alpha1.ArchiveSource{URL: "oci://" + host + "/team/code:1", SecretName: "pull"}
	w := newWorld(t, fn, registryConfig("other.example.com"))
	deploy := func() *v1alpha1.ArchiveSource {
		t.Helper()
		w.onWatch(func() { w.update("fn", serves) })
		if _, err := w.run("deploy", "fn", "--dir="+dir); err != nil {
			t.Fatal(err)
		}
		return w.function("fn").Spec.Archive
	}
	first := deploy()
	if !strings.HasPrefix(first.URL, "oci://"+host+"/team/code@") || first.SecretName != "pull" {
		t.Errorf("the archive is %+v", first)
	}
	if diff := cmp.Diff(first, deploy()); diff != "" {
		t.Errorf("the same folder gives another archive (-first +second):\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(dir, "handler.js"), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if second := deploy(); second.URL == first.URL || second.SHA256 == first.SHA256 {
		t.Errorf("another folder gives the same archive: %+v", second)
	}
	if got := fetched(t, w.function("fn")); string(got) != "two" {
		t.Errorf("the pushed source is %q", got)
	}
}

// TestPushOutside pushes a folder to the registry's address for this machine. The
// Function must have the address for the cluster.
func TestPushOutside(t *testing.T) {
	host := newRegistry(t, "")
	files(t, map[string]string{"handler.js": "one"})
	hosting := func(text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "local-registry-hosting"},
			Data:       map[string]string{"localRegistryHosting.v1": text},
		}
	}
	w := newWorld(t, registryConfig("registry.invalid:5000"), hosting("host: "+host+"\nhostFromClusterNetwork: registry.invalid:5000\n"))
	w.want("function.serverless.kiln.dev/fn created\n", "create", "fn", "--dir=.")
	archive := w.function("fn").Spec.Archive
	if prefix := "oci://registry.invalid:5000/fns/default/fn@sha256:"; !strings.HasPrefix(archive.URL, prefix) {
		t.Errorf("the URL is %s, want %s…", archive.URL, prefix)
	}
	archive.URL = strings.Replace(archive.URL, "registry.invalid:5000", host, 1)
	if got := fetched(t, &v1alpha1.Function{Spec: v1alpha1.FunctionSpec{Archive: archive}}); string(got) != "one" {
		t.Errorf("the pushed source is %q", got)
	}
	if want := "Pushing it to " + host + "/fns/default/fn.\n"; !strings.Contains(w.errOut.String(), want) {
		t.Errorf("it prints %q, want %q", w.errOut, want)
	}
	// A ConfigMap for another registry, or a broken one, changes nothing.
	for _, text := range []string{"host: nowhere.invalid\nhostFromClusterNetwork: registry.invalid:5000\n", "host: nowhere.invalid\n", "- x", ""} {
		w := newWorld(t, registryConfig(host), hosting(text))
		w.want("function.serverless.kiln.dev/fn created\n", "create", "fn", "--dir=.")
	}
}

// TestPushCredentials pushes with the credentials of docker login.
func TestPushCredentials(t *testing.T) {
	host := newRegistry(t, "s3cret")
	files(t, map[string]string{"handler.js": "one"})
	w := newWorld(t)
	w.wantError("registry "+host+" denied the push to team/fn", "docker login "+host+", or another --push-to=REGISTRY/REPOSITORY",
		"create", "fn", "--dir=.", "--push-to="+host+"/team/fn")
	login := `{"auths": {"` + host + `": {"username": "user", "password": "s3cret"}}}`
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(login), 0o600); err != nil {
		t.Fatal(err)
	}
	w.want("function.serverless.kiln.dev/fn created\n", "create", "fn", "--dir=.", "--push-to="+host+"/team/fn")
}

func TestFolderErrors(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	gone := strings.TrimPrefix(closed.URL, "http://") + "/team/fn"
	files(t, map[string]string{"handler.js": "one", "other.py": ""})
	w := newWorld(t)
	const begin = "--dir=FOLDER, or start with: kubectl fn init DIR --runtime=nodejs24"
	w.wantError("the cluster does not specify a repository for the folder", pushTo, "create", "fn", "--dir=.")
	w.wantError("--dir cannot be combined with --file or --deps", "--dir, or --file and --deps", "create", "fn", "--dir=.", "--file=handler.js")
	w.wantError("--push-to needs --dir", "--dir=. --push-to=a.b/c", "deploy", "fn", "--push-to=a.b/c")
	w.wantError("runtime python313 needs handler.py in folder .", begin, "create", "fn", "--dir=.", "--runtime=python313")
	w.wantError("folder absent must have exactly one of handler.js, handler.ts, handler.py, but has 0", begin, "create", "fn", "--dir=absent")
	w.wantError(`"a.b/c:1" is not a repository`, pushTo+", without a tag", "create", "fn", "--dir=.", "--push-to=a.b/c:1")
	w.wantError("failed to push to "+gone, pushTo+", in a registry that this machine and the cluster can reach", "create", "fn", "--dir=.", "--push-to="+gone)
	files(t, map[string]string{"handler.py": "one"})
	w.wantError("no runtime was given for folder .", "kubectl fn describe-runtime, and then --runtime=NAME", "create", "fn", "--dir=.")
	files(t, map[string]string{"Dockerfile": "one"})
	w.wantError("no runtime was given for folder ., which has a Dockerfile", "--runtime=dockerfile", "create", "fn", "--dir=.")
	files(t, map[string]string{"handler.py": "one"})
	w.wantError("runtime dockerfile needs Dockerfile in folder .", begin, "create", "fn", "--dir=.", "--runtime=dockerfile")
	if err := os.Symlink("/etc/passwd", "out"); err != nil {
		t.Fatal(err)
	}
	w.wantError(`link "out" in it leads out of it`, "a .dockerignore in folder . that excludes those files",
		"create", "fn", "--dir=.", "--runtime=python313", "--push-to="+gone)
}

// TestNeeded checks that a Dockerfile is packed for each runtime that may build it.
func TestNeeded(t *testing.T) {
	for runtime, want := range map[string][]string{
		"dockerfile": {"Dockerfile"}, "dockerfile-team": {"Dockerfile"}, "images": {"Dockerfile"}, "nodejs24": nil, "python313": nil,
	} {
		if diff := cmp.Diff(want, needed(runtime)); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", runtime, diff)
		}
	}
}

func archiveAt(url string) *v1alpha1.Function {
	fn := newFunction("fn")
	fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: url}
	return fn
}

func TestRepository(t *testing.T) {
	insecure := registryConfig("registry.example.com")
	insecure.Data["insecure"] = "registry.example.com"
	tests := map[string]struct {
		fn        *v1alpha1.Function
		configMap *corev1.ConfigMap
		given     string
		want      string
		scheme    string
	}{
		"given":                 {newFunction("fn"), registryConfig("registry.example.com"), "other.example.com/a/b", "other.example.com/a/b", "https"},
		"given with a scheme":   {newFunction("fn"), nil, "oci://other.example.com/a/b", "other.example.com/a/b", "https"},
		"of the source":         {archiveAt("oci://source.example.com/a/b@sha256:" + strings.Repeat("0", 64)), registryConfig("registry.example.com"), "", "source.example.com/a/b", "https"},
		"given before source":   {archiveAt("oci://source.example.com/a/b:1"), nil, "other.example.com/a/b", "other.example.com/a/b", "https"},
		"source is no artifact": {archiveAt("https://example.com/a.zip"), registryConfig("registry.example.com"), "", "registry.example.com/fns/default/fn", "https"},
		"of the images":         {newFunction("fn"), registryConfig("registry.example.com"), "", "registry.example.com/fns/default/fn", "https"},
		"insecure":              {newFunction("fn"), insecure, "", "registry.example.com/fns/default/fn", "http"},
		"insecure, given":       {newFunction("fn"), insecure, "registry.example.com/a/b", "registry.example.com/a/b", "http"},
		"local":                 {newFunction("fn"), nil, "localhost:5000/a/b", "localhost:5000/a/b", "http"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.configMap != nil {
				w = newWorld(t, tc.configMap)
			}
			got, err := w.clients.repository(t.Context(), tc.fn, tc.given)
			if err != nil || got.Name() != tc.want || got.Scheme() != tc.scheme {
				t.Errorf("repository() = %s://%s, %v, want %s://%s", got.Scheme(), got.Name(), err, tc.scheme, tc.want)
			}
		})
	}
}

func TestRepositoryErrors(t *testing.T) {
	broken := registryConfig("registry.example.com/path")
	tests := map[string]struct {
		configMap *corev1.ConfigMap
		err       error
		given     string
		wantErr   string
	}{
		"not configured":      {configMap: registryConfig(""), wantErr: "the cluster does not specify a repository for the folder\nTry: " + pushTo},
		"not installed":       {wantErr: "the cluster does not specify a repository for the folder\nTry: " + pushTo},
		"forbidden":           {err: apierrs.NewForbidden(corev1.Resource("configmaps"), config.RegistryConfigName, errors.New("no")), wantErr: "the cluster does not specify a repository for the folder\nTry: " + pushTo},
		"cannot be read":      {err: errors.New("etcd is down"), wantErr: "failed to get ConfigMap config-registry: etcd is down"},
		"broken":              {configMap: broken, wantErr: "failed to get ConfigMap config-registry: "},
		"not needed":          {err: errors.New("etcd is down"), given: "registry.example.com/a/b"},
		"broken, not needed":  {configMap: broken, given: "registry.example.com/a/b"},
		"given with a tag":    {given: "registry.example.com/a/b:1", wantErr: `"registry.example.com/a/b:1" is not a repository: `},
		"given in upper case": {given: "registry.example.com/A", wantErr: `"registry.example.com/A" is not a repository: `},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.configMap != nil {
				w = newWorld(t, tc.configMap)
			}
			if tc.err != nil {
				w.kube.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			}
			_, err := w.clients.repository(t.Context(), newFunction("fn"), tc.given)
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.HasPrefix(err.Error(), tc.wantErr) {
				t.Errorf("repository() = %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestSourceRepository(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for url, want := range map[string]string{
		"oci://registry.example.com/a/b" + digest: "registry.example.com/a/b",
		"oci://registry.example.com/a/b:1":        "registry.example.com/a/b",
		"oci://registry.example.com:5000/ab":      "registry.example.com:5000/ab",
		"oci://UPPER":                             "",
		"https://example.com/a.zip":               "",
	} {
		t.Run(url, func(t *testing.T) {
			var got string
			if repository := sourceRepository(archiveAt(url)); repository != nil {
				got = repository.Name()
			}
			if got != want {
				t.Errorf("sourceRepository() = %q, want %q", got, want)
			}
		})
	}
	if got := sourceRepository(newFunction("fn")); got != nil {
		t.Errorf("sourceRepository() without an archive = %v", got)
	}
}

// A registry that serves the artifact as a file must name it, and must not change
// the digest of the same folder.
func TestArtifact(t *testing.T) {
	dir := files(t, map[string]string{"handler.js": "one"})
	var digests []string
	for range 2 {
		file, err := os.Create(filepath.Join(t.TempDir(), "archive"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pack.Folder(file, dir); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		artifact, layer, err := artifactOf(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if got := layer.Annotations["org.opencontainers.image.title"]; got != "source.tar.gz" {
			t.Errorf("the layer is named %q", got)
		}
		manifest, err := artifact.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar+gzip",
		}
		if diff := cmp.Diff(want, []string{string(manifest.MediaType), string(manifest.Config.MediaType), string(layer.MediaType)}); diff != "" {
			t.Errorf("media types (-want +got):\n%s", diff)
		}
		digest, err := artifact.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("the same folder is %s and %s", digests[0], digests[1])
	}
	if _, _, err := artifactOf(filepath.Join(dir, "absent")); err == nil || !strings.HasPrefix(err.Error(), "failed to create artifact: ") {
		t.Errorf("artifactOf() without a file = %v", err)
	}
}

func TestCheckFolder(t *testing.T) {
	tests := map[string]struct {
		files   map[string]string
		runtime string
		wantErr string
	}{
		"Node":                                   {map[string]string{"handler.js": ""}, "nodejs24", ""},
		"Node by default":                        {map[string]string{"handler.js": ""}, "", ""},
		"TypeScript":                             {map[string]string{"handler.ts": ""}, "nodejs24", ""},
		"TypeScript and what it was compiled to": {map[string]string{"handler.ts": "", "handler.js": ""}, "", ""},
		"neither":                                {map[string]string{"x.ts": ""}, "nodejs24", "runtime nodejs24 needs handler.js or handler.ts in folder .: "},
		"Python":                                 {map[string]string{"handler.py": ""}, "python313", ""},
		"Dockerfile":                             {map[string]string{"Dockerfile": ""}, "dockerfile", ""},
		"unknown runtime":                        {nil, "team-java", ""},
		"Python, no runtime":                     {map[string]string{"handler.py": ""}, "", "no runtime was given for folder .\n"},
		"Dockerfile, neither":                    {map[string]string{"Dockerfile": ""}, "", "no runtime was given for folder ., which has a Dockerfile\n"},
		"empty":                                  {nil, "", "folder . must have exactly one of handler.js, handler.ts, handler.py, but has 0\n"},
		"other language":                         {map[string]string{"handler.js": ""}, "python313", "runtime python313 needs handler.py in folder .: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			files(t, tc.files)
			err := checkFolder(".", tc.runtime)
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.HasPrefix(err.Error(), tc.wantErr) {
				t.Errorf("checkFolder() = %v, want %q", err, tc.wantErr)
			}
		})
	}
}
