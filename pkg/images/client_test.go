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

package images

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	containerregistry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const absent = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// refuse answers requests of the method.
type refuse struct {
	method string
	status int
}

// fakeRegistry is a registry in memory with two images in one repository, and an index.
// It starts to refuse requests only after these exist.
type fakeRegistry struct {
	Repository
	images  []containerregistry.Image
	index   containerregistry.ImageIndex
	refuses *refuse

	mu     sync.Mutex
	writes []string
	// pings is how often it was asked how it wants to be spoken to.
	pings int
}

func newRegistry(t *testing.T) *fakeRegistry {
	t.Helper()
	fake := &fakeRegistry{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r := fake.refuses; r != nil && (r.method == "" || r.method == req.Method) {
			w.WriteHeader(r.status)
			return
		}
		if req.Method == http.MethodPut || req.Method == http.MethodPost {
			fake.mu.Lock()
			fake.writes = append(fake.writes, req.Method+" "+req.URL.Path)
			fake.mu.Unlock()
		}
		if req.URL.Path == "/v2/" {
			fake.mu.Lock()
			fake.pings++
			fake.mu.Unlock()
		}
		inner.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	fake.Name = strings.TrimPrefix(server.URL, "http://") + "/functions/default/greeter"
	repository := repositoryOf(t, fake.Name)
	for _, tag := range []string{"one", "two"} {
		image, err := random.Image(64, 1)
		if err != nil {
			t.Fatal(err)
		}
		fake.images = append(fake.images, image)
		if err := remote.Write(repository.Tag(tag), image); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if fake.index, err = random.Index(64, 1, 2); err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(repository.Tag("index"), fake.index); err != nil {
		t.Fatal(err)
	}
	fake.writes, fake.pings = nil, 0
	return fake
}

func repositoryOf(t *testing.T, s string) name.Repository {
	t.Helper()
	repository, err := name.NewRepository(s)
	if err != nil {
		t.Fatal(err)
	}
	return repository
}

func digestOf(t *testing.T, of interface {
	Digest() (containerregistry.Hash, error)
}) string {
	t.Helper()
	digest, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func anonymous(context.Context, string, string) (authn.Keychain, error) {
	return authn.NewMultiKeychain(), nil
}

// recorded returns a lookup of an image of that digest.
func recorded(r *fakeRegistry, digest string) Lookup {
	return Lookup{Repository: r.Repository, Image: v1alpha1.BuiltImage{Tag: "one", Digest: digest}, Base: "node@" + absent}
}

func TestFind(t *testing.T) {
	first := func(r *fakeRegistry) string { return digestOf(t, r.images[0]) }
	lost := func(*fakeRegistry) string { return absent }
	tests := map[string]struct {
		recorded func(*fakeRegistry) string
		refuses  *refuse
		found    bool
		err      string
	}{
		"an image":                 {recorded: first, found: true},
		"an index":                 {recorded: func(r *fakeRegistry) string { return digestOf(t, r.index) }, found: true},
		"nothing is recorded":      {recorded: func(*fakeRegistry) string { return "" }},
		"the image is lost":        {recorded: lost},
		"HEAD is not answered":     {recorded: first, refuses: &refuse{http.MethodHead, http.StatusMethodNotAllowed}, found: true},
		"HEAD is not, and is lost": {recorded: lost, refuses: &refuse{http.MethodHead, http.StatusMethodNotAllowed}},
		"the registry is broken":   {recorded: first, refuses: &refuse{status: http.StatusInternalServerError}, err: "500"},
		"the registry refuses":     {recorded: first, refuses: &refuse{status: http.StatusForbidden}, err: "403"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.refuses = tc.refuses
			digest := tc.recorded(r)
			want := Found{Base: absent}
			if tc.found {
				want = Found{Image: digest}
			}
			got, err := NewClient(anonymous).Find(t.Context(), recorded(r, digest))
			if got != want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("Find() = %+v, %v; want %+v, %q", got, err, want, tc.err)
			}
		})
	}
}

// TestFindTrustsNoTag moves the tags of an image and of its dependencies to a forged
// image, as every other tenant can who can push to the registry.
func TestFindTrustsNoTag(t *testing.T) {
	r := newRegistry(t)
	forged, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	image, dependencies := digestOf(t, r.images[0]), digestOf(t, r.images[1])
	unrecorded := Lookup{Repository: r.Repository, Base: "node@" + absent, Dependencies: "0123"}
	for _, tag := range []string{"one", unrecorded.DependenciesTag(absent)} {
		if err := remote.Write(repositoryOf(t, r.Name).Tag(tag), forged); err != nil {
			t.Fatal(err)
		}
	}
	all := unrecorded
	all.Image = v1alpha1.BuiltImage{Tag: "one", Digest: image, BaseDigest: absent}
	all.Installed = v1alpha1.DependencyImage{Tag: unrecorded.DependenciesTag(absent), Digest: dependencies}
	onlyDependencies := all
	onlyDependencies.Image = v1alpha1.BuiltImage{}
	for name, tc := range map[string]struct {
		lookup Lookup
		want   Found
	}{
		"nothing is recorded":           {unrecorded, Found{Base: absent}},
		"the image is recorded":         {all, Found{Image: image}},
		"the dependencies are recorded": {onlyDependencies, Found{Base: absent, Dependencies: dependencies}},
	} {
		if got, err := NewClient(anonymous).Find(t.Context(), tc.lookup); got != tc.want || err != nil {
			t.Errorf("%s: Find() = %+v, %v; want %+v", name, got, err, tc.want)
		}
	}
}

// TestFindPings checks that a lookup of many images pings the registry only once.
func TestFindPings(t *testing.T) {
	r := newRegistry(t)
	_, err := NewClient(anonymous).Find(t.Context(), Lookup{
		Repository: r.Repository, Image: v1alpha1.BuiltImage{Digest: digestOf(t, r.images[0]), BaseDigest: "sha256:moved"}, Base: "node@" + absent,
		Dependencies: "aaaa", Installed: v1alpha1.DependencyImage{Tag: (&Lookup{Dependencies: "aaaa"}).DependenciesTag(absent), Digest: absent},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.pings != 1 {
		t.Errorf("the registry was asked %d times, want once", r.pings)
	}
}

// TestFindBase checks that images are found only upon the base image as it is now.
func TestFindBase(t *testing.T) {
	r := newRegistry(t)
	one, two, index := digestOf(t, r.images[0]), digestOf(t, r.images[1]), digestOf(t, r.index)
	upon := func(base string) v1alpha1.BuiltImage {
		return v1alpha1.BuiltImage{Tag: "one", Digest: one, BaseDigest: base}
	}
	unknown := upon("")
	for name, tc := range map[string]struct {
		image              v1alpha1.BuiltImage
		base, dependencies string
		want               Found
		err                string
	}{
		"an image whose base image is unknown":      {image: unknown, base: "index", dependencies: "0123", want: Found{Image: one}},
		"an image and no such base image":           {image: unknown, base: "three", dependencies: "0123", want: Found{Image: one}},
		"an image upon this base image":             {image: upon(index), base: "index", want: Found{Image: one}},
		"an image upon another":                     {image: upon(index), base: "two", dependencies: "0123", want: Found{Base: two}},
		"an image whose base image is gone":         {image: upon(index), base: "three", want: Found{Image: one}},
		"dependencies":                              {base: "index", dependencies: "0123", want: Found{Base: index, Dependencies: two}},
		"others":                                    {base: "index", dependencies: "4567", want: Found{Base: index}},
		"the base image was moved":                  {base: "two", dependencies: "0123", want: Found{Base: two}},
		"nothing to install":                        {base: "index", want: Found{Base: index}},
		"no such base image":                        {base: "three", dependencies: "0123"},
		"a base image by digest":                    {base: "three@" + absent, want: Found{Base: absent}},
		"a base image that cannot be had a name of": {base: "A B", err: "failed to parse the name of the base image"},
	} {
		got, err := NewClient(anonymous).Find(t.Context(), Lookup{
			Repository: r.Repository, Image: tc.image, Base: r.Name + ":" + tc.base, Dependencies: tc.dependencies,
			Installed: v1alpha1.DependencyImage{Tag: (&Lookup{Dependencies: "0123"}).DependenciesTag(index), Digest: two},
		})
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: Find() = %+v, %v; want %+v, %q", name, got, err, tc.want, tc.err)
		}
	}
}

// TestFindWithoutBase checks that a silent registry of the base image does not prevent the
// lookup of the image, and does not exceed its timeout.
func TestFindWithoutBase(t *testing.T) {
	r := newRegistry(t)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
	t.Cleanup(silent.Close)
	lookup := recorded(r, digestOf(t, r.images[0]))
	lookup.Base, lookup.Dependencies = strings.TrimPrefix(silent.URL, "http://")+"/node:24", "0123"
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if got, err := NewClient(anonymous).Find(ctx, lookup); got.Image == "" || err != nil {
		t.Errorf("Find() = %+v, %v; want the image", got, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	lookup.Image.Digest = absent
	if got, err := NewClient(anonymous).Find(ctx, lookup); got != (Found{}) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Find() = %+v, %v; want nothing, as there was no time", got, err)
	}
}

func TestDependenciesTag(t *testing.T) {
	lookup := Lookup{Dependencies: "0123"}
	if got, want := lookup.DependenciesTag(absent), "deps-0123-"+strings.Repeat("a", 32); got != want {
		t.Errorf("DependenciesTag() = %q, want %q", got, want)
	}
	if got := lookup.DependenciesTag(""); got != "" {
		t.Errorf("DependenciesTag() of an unknown base image = %q", got)
	}
	if got := new(Lookup).DependenciesTag(absent); got != "" {
		t.Errorf("DependenciesTag() of nothing = %q", got)
	}
}

func TestFindInEmptyRepository(t *testing.T) {
	r := newRegistry(t)
	r.Name += "-2"
	if got, err := NewClient(anonymous).Find(t.Context(), recorded(r, absent)); got != (Found{Base: absent}) || err != nil {
		t.Errorf("Find() = %+v, %v; want nothing", got, err)
	}
}

// TestFindInTime checks that a registry which does not answer keeps nobody longer
// than the context allows.
func TestFindInTime(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := NewClient(anonymous).Find(ctx, Lookup{Repository: Repository{Name: strings.TrimPrefix(server.URL, "http://") + "/functions/x"}, Image: v1alpha1.BuiltImage{Digest: absent}})
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > lookupTimeout/2 {
		t.Errorf("Find() = %v after %s", err, took)
	}
}

func TestTag(t *testing.T) {
	r := newRegistry(t)
	client := NewClient(anonymous)
	second := digestOf(t, r.images[1])
	for _, tag := range []string{"g1", "one"} {
		if err := client.Tag(t.Context(), Tagging{Repository: r.Repository, Digest: second, Tag: tag}); err != nil {
			t.Fatalf("Tag(%s) = %v", tag, err)
		}
		if got, err := remote.Head(repositoryOf(t, r.Name).Tag(tag)); err != nil || got.Digest.String() != second {
			t.Errorf("tag %s is of %+v, %v; want %q", tag, got, err, second)
		}
	}
	// The manifest, and no layer.
	manifests := "PUT /v2/functions/default/greeter/manifests/"
	if want := []string{manifests + "g1", manifests + "one"}; !slices.Equal(r.writes, want) {
		t.Errorf("writes are %q, want %q", r.writes, want)
	}
	if err := client.Tag(t.Context(), Tagging{Repository: r.Repository, Digest: absent, Tag: "g2"}); err == nil {
		t.Error("Tag() of an image that is not there succeeds")
	}
	r.refuses = &refuse{http.MethodPut, http.StatusForbidden}
	if err := client.Tag(t.Context(), Tagging{Repository: r.Repository, Digest: second, Tag: "g2"}); err == nil {
		t.Error("Tag() succeeds though the registry refuses")
	}
}

// keychain is the credentials for every registry.
type keychain struct{ authn.Authenticator }

func (k keychain) Resolve(authn.Resource) (authn.Authenticator, error) { return k, nil }

func TestCredentials(t *testing.T) {
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "kiln" || password != "of team-a in pushers" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	repository := Repository{Name: strings.TrimPrefix(server.URL, "http://") + "/functions/x", Credentials: "pushers"}
	client := NewClient(func(_ context.Context, secret, namespace string) (authn.Keychain, error) {
		if namespace == "broken" {
			return nil, errors.New("the Secret is no Docker configuration")
		}
		return keychain{&authn.Basic{Username: "kiln", Password: "of " + namespace + " in " + secret}}, nil
	})
	for namespace, words := range map[string]string{"team-a": "", "team-b": "401", "broken": "the Secret is no"} {
		repository.Namespace = namespace
		_, err := client.Find(t.Context(), Lookup{Repository: repository, Image: v1alpha1.BuiltImage{Digest: absent}, Base: "node@" + absent})
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("Find() with the credentials of %s: %v, want %q", namespace, err, words)
		}
	}
}

func TestInsecure(t *testing.T) {
	for insecure, scheme := range map[bool]string{false: "https", true: "http"} {
		repository, _, err := NewClient(anonymous).open(t.Context(), Repository{Name: "registry.example.com/functions/x", Insecure: insecure})
		if err != nil || repository.Scheme() != scheme {
			t.Errorf("open() speaks %s, %v; want %s", repository.Scheme(), err, scheme)
		}
	}
	if _, _, err := NewClient(anonymous).open(t.Context(), Repository{Name: "registry.example.com/functions/X"}); err == nil {
		t.Error("open() of a bad name succeeds")
	}
}

// TestFindWithoutKnownBase checks that an image of which only its build knows the base is
// found.
func TestFindWithoutKnownBase(t *testing.T) {
	r := newRegistry(t)
	client := NewClient(anonymous)
	two := digestOf(t, r.images[1])
	for digest, want := range map[string]Found{two: {Image: two}, absent: {}, "": {}} {
		got, err := client.Find(t.Context(), Lookup{Repository: r.Repository, Image: v1alpha1.BuiltImage{Digest: digest}})
		if err != nil || got != want {
			t.Errorf("Find(%q) = %+v, %v, want %+v", digest, got, err, want)
		}
	}
}
