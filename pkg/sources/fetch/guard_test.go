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

package fetch_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

// TestGuard checks that Resolve connects to no address that the guard refuses: by a name, by
// a redirect and by SSH.
func TestGuard(t *testing.T) {
	var asked atomic.Int32
	internal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		advertise(commitA+" refs/heads/main\n", "")(w, r)
	}))
	t.Cleanup(internal.Close)
	_, port, err := net.SplitHostPort(internal.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// Another loopback address stands for a server of the internet.
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("this system has no 127.0.0.2: %v", err)
	}
	outside := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/elsewhere/") {
			http.Redirect(w, r, internal.URL, http.StatusFound)
			return
		}
		advertise(commitA+" refs/heads/main\n", "")(w, r)
	})}}
	outside.Start()
	t.Cleanup(outside.Close)

	guard := sources.Addresses("127.0.0.2/32").Check
	for name, tc := range map[string]struct {
		url  string
		want string
	}{
		"allowed":         {outside.URL + "/code", commitA},
		"by its address":  {internal.URL + "/code", ""},
		"by a name":       {"http://localhost:" + port + "/code", ""},
		"by IPv6":         {"http://[::ffff:127.0.0.1]:" + port + "/code", ""},
		"by a number":     {"http://[::]:" + port + "/code", ""},
		"by a redirect":   {outside.URL + "/elsewhere/code", ""},
		"cloud metadata":  {"http://169.254.169.254/latest/", ""},
		"the API server":  {"https://10.96.0.1/api", ""},
		"private address": {"http://192.168.1.1/code", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fetch.Git{URL: tc.url, Revision: "main", Guard: guard}.Resolve(t.Context())
			if got != tc.want || tc.want == "" && (sources.ExitCode(err) != sources.ExitRefused || !strings.Contains(err.Error(), "is an internal address")) {
				t.Errorf("Resolve(%s) = %q, %v, want %q", tc.url, got, err, tc.want)
			}
		})
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the internal server got %d requests", n)
	}
}

// TestGuardOfProxy checks that the proxy of the environment works, also at an internal
// address. net/http reads the environment once, so the test runs itself again.
func TestGuardOfProxy(t *testing.T) {
	const address = "KILN_TEST_PROXIED"
	if at := os.Getenv(address); at != "" {
		refuse := func(netip.Addr) error { return sources.Refuse("an internal address") }
		got, err := fetch.Git{URL: at, Revision: "main", Guard: refuse}.Resolve(t.Context())
		if got != commitA || err != nil {
			t.Errorf("Resolve() = %q, %v", got, err)
		}
		return
	}
	proxy := httptest.NewServer(advertise(commitA+" refs/heads/main\n", ""))
	t.Cleanup(proxy.Close)
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGuardOfProxy$")
	again.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, "NO_PROXY=", "no_proxy=", "http_proxy=", address+"=http://git.example.com/code")
	if output, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}
