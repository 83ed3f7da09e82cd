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

package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
)

// TestPush pushes an archive and fetches it as a build does.
func TestPush(t *testing.T) {
	server := httptest.NewServer(handler())
	t.Cleanup(server.Close)
	images := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(images.Close)
	artifact := strings.TrimPrefix(images.URL, "http://") + "/team/code"
	answer, err := http.Post(server.URL+"/push?name=nodejs-1.zip&to="+artifact+":1", "", strings.NewReader(`{"auths": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	digest, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", answer.Status, digest, err)
	}
	got := &bytes.Buffer{}
	archive := fetch.Archive{URL: "oci://" + artifact + "@" + string(digest)}
	if _, err := archive.Fetch(t.Context(), got, sources.Limits{Download: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), sourcestest.Functions()["nodejs-1.zip"]) {
		t.Errorf("it is another archive of %d bytes", got.Len())
	}
}
