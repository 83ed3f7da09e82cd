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
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newProxy starts a proxy for a server and returns a client for it.
func newProxy(t *testing.T, seed uint64, handler http.HandlerFunc) (*proxy, *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	folder := t.TempDir()
	ca := filepath.Join(folder, "ca.crt")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, encoded, 0o644); err != nil {
		t.Fatal(err)
	}
	p, _, err := startProxy(forecast{seed: seed, silence: time.Millisecond}, server.URL, ca, folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p, p.server.Client()
}

// drawn returns the faults of a number of requests for each path, in that order of paths.
func drawn(p *proxy, paths ...string) map[string][]fault {
	all := map[string][]fault{}
	for range 200 {
		for _, path := range paths {
			happens, _ := p.draw(httptest.NewRequest(http.MethodPut, path, http.NoBody), false)
			all[path] = append(all[path], happens)
		}
	}
	return all
}

// TestDraw checks that the same seed gives the same faults in any order of requests. It
// also checks their rate, and that each kind of fault occurs.
func TestDraw(t *testing.T) {
	proxies := make([]*proxy, 3)
	for i, seed := range []uint64{1, 1, 2} {
		proxies[i] = &proxy{seed: seed, asked: map[string]uint64{}}
		proxies[i].setRate(0.2)
	}
	first, again, other := drawn(proxies[0], "/a", "/b"), drawn(proxies[1], "/b", "/a"), drawn(proxies[2], "/a", "/b")
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same seed has other faults (-first, +again): %s", diff)
	}
	if cmp.Equal(first, other) {
		t.Error("another seed has the same faults")
	}
	counts := map[fault]int{}
	for _, happens := range slices.Concat(first["/a"], first["/b"]) {
		counts[happens]++
	}
	if happened := 400 - counts[fine]; happened < 60 || happened > 100 {
		t.Errorf("%d of 400 requests have a fault, want about 80", happened)
	}
	for _, kind := range writeFaults {
		if counts[kind] == 0 {
			t.Errorf("there is no fault %q", kind)
		}
	}
	proxies[0].setRate(0)
	for _, happens := range drawn(proxies[0], "/c")["/c"] {
		if happens != fine {
			t.Fatalf("fault %q at a rate of 0", happens)
		}
	}
}

// TestAnswer checks how each fault appears to the client, and whether the server got the
// request.
func TestAnswer(t *testing.T) {
	for _, test := range []struct {
		happens fault
		// A status of 0 means no response.
		status   int
		arrives  bool
		contains string
	}{
		{fine, http.StatusOK, true, "body"},
		{conflict, http.StatusConflict, false, `"reason":"Conflict"`},
		{tooMany, http.StatusTooManyRequests, false, `"reason":"TooManyRequests"`},
		{internal, http.StatusInternalServerError, false, `"reason":"InternalError"`},
		{unsent, 0, false, ""},
		{lost, 0, true, ""},
		{silent, http.StatusGatewayTimeout, false, `"reason":"Timeout"`},
		{slow, http.StatusOK, true, "body"},
		{expired, http.StatusOK, false, `"type":"ERROR"`},
	} {
		t.Run(string(test.happens), func(t *testing.T) {
			var arrived atomic.Bool
			p, _ := newProxy(t, 1, func(w http.ResponseWriter, r *http.Request) {
				arrived.Store(true)
				_, _ = io.Copy(w, r.Body)
			})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p.answer(w, r, test.happens, "name", p.pass)
			}))
			server.Config.ErrorLog = p.server.Config.ErrorLog
			server.Start()
			defer server.Close()
			answer, err := http.Post(server.URL, "text/plain", bytes.NewReader([]byte("body")))
			if got := arrived.Load(); got != test.arrives {
				t.Errorf("the request arrives: %t, want %t", got, test.arrives)
			}
			if err != nil {
				if test.status != 0 {
					t.Errorf("there is no response: %v", err)
				}
				return
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != test.status || !bytes.Contains(body, []byte(test.contains)) {
				t.Errorf("the answer is %d %s, %v; want %d with %s", answer.StatusCode, body, err, test.status, test.contains)
			}
		})
	}
}

// TestDropped checks that watches end, over HTTP/2 like those of Kiln's clients.
func TestDropped(t *testing.T) {
	watching := make(chan struct{})
	p, client := newProxy(t, 1, func(w http.ResponseWriter, r *http.Request) {
		close(watching)
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	answer, err := client.Get(p.server.URL + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.ProtoMajor != 2 {
		t.Errorf("the proxy speaks %s", answer.Proto)
	}
	<-watching
	p.setRate(dropsLess)
	// The way it ends is random.
	body, _ := io.ReadAll(answer.Body)
	if string(body) != "first\n" {
		t.Errorf("the watch has sent %q", body)
	}
	if got := p.ledger.take().faults[string(dropped)]; got != 1 {
		t.Errorf("%d watches were dropped, want 1", got)
	}
}
