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

package fetch

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/kiln-dev/kiln/pkg/sources"
)

// TestBounded checks that nothing is sent in the open to where a registry with TLS
// redirects to.
func TestBounded(t *testing.T) {
	transport := &bounded{RoundTripper: http.DefaultTransport, secure: true}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/v2/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err == nil {
		response.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "its registry redirects from https to http") || sources.ExitCode(err) != sources.ExitRefused {
		t.Errorf("RoundTrip() = %v", err)
	}
}

func TestIsPlain(t *testing.T) {
	a := Archive{Insecure: []string{"10.0.0.5:5000"}}
	for registry, want := range map[string]bool{
		"10.0.0.5:5000": true, "127.0.0.1:5000": true, "[::1]:5000": true, "localhost:5000": true,
		"10.0.0.5:5001": false, "192.168.0.1:5000": false, "registry.example.com": false,
	} {
		parsed, err := name.NewRegistry(registry)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.isPlain(parsed); got != want {
			t.Errorf("isPlain(%s) = %v, want %v", registry, got, want)
		}
	}
}
