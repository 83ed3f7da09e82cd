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
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kiln-dev/kiln/test/images/relay/api"
)

func TestCall(t *testing.T) {
	relay := httptest.NewServer(newHandler(t.Context()))
	defer relay.Close()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Answer", "b")
		w.WriteHeader(http.StatusTeapot)
		w.Write([]byte(r.Method + " " + r.Header.Get("Content-Type") + " " + r.Host + " " + r.Header.Get("X-Ask")))
	}))
	defer target.Close()

	var got api.Answer
	request := api.Request{Method: "PUT", URL: target.URL, Host: "fn.example.com", ContentType: "a/b", Headers: map[string]string{"x-ask": "a"}}
	exchange(t, http.MethodPost, relay.URL+api.CallPath, request, &got)
	if got.Status != http.StatusTeapot || got.Body != "PUT a/b fn.example.com a" || got.Headers["x-answer"] != "b" || got.Error != "" {
		t.Errorf("call answered %+v", got)
	}

	target.Close()
	exchange(t, http.MethodPost, relay.URL+api.CallPath, api.Request{Method: "GET", URL: target.URL}, &got)
	if got.Error == "" {
		t.Error("call of a closed server reported no error")
	}
}

func TestProbeReportsEveryAnswer(t *testing.T) {
	relay := httptest.NewServer(newHandler(t.Context()))
	defer relay.Close()
	var version atomic.Value
	version.Store("old")
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if version.CompareAndSwap("broken", "new") {
			w.WriteHeader(http.StatusBadGateway)
		}
		w.Write([]byte(version.Load().(string)))
	}))
	defer target.Close()

	var probe api.Probe
	exchange(t, http.MethodPost, relay.URL+api.ProbesPath, api.Request{Method: "GET", URL: target.URL}, &probe)
	probeURL := relay.URL + api.ProbesPath + "/" + probe.ID
	var report api.Report
	exchange(t, http.MethodGet, probeURL+"?until=old", nil, &report)
	version.Store("broken")
	exchange(t, http.MethodGet, probeURL+"?until="+url.QueryEscape("new"), nil, &report)
	exchange(t, http.MethodDelete, probeURL, nil, &report)

	var bodies []string
	answered := 0
	for _, run := range report.Runs {
		bodies = append(bodies, run.Body)
		answered += run.Count
	}
	if want := []string{"old", "new"}; !slices.Equal(bodies, want) {
		t.Errorf("probe saw %v, want %v", bodies, want)
	}
	if report.Failed != 1 || len(report.Failures) != 1 || report.Failures[0].Answer.Status != http.StatusBadGateway {
		t.Errorf("probe reported %d failures, %+v; want one of status 502", report.Failed, report.Failures)
	}
	if report.Requests != answered+report.Failed {
		t.Errorf("probe sent %d requests, of which %d were answered and %d failed", report.Requests, answered, report.Failed)
	}
}

func TestProcessesOfFindsContainer(t *testing.T) {
	const (
		wanted = "b2a37f1b6e7b521cb33b33ddc7a7b772cac90edbf88bc267"
		other  = "0edbf88bc267b2a37f1b6e7b521cb33b33ddc7a7b772cac9"
	)
	proc := t.TempDir()
	for pid, id := range map[string]string{"7": wanted, "8": other, "90": wanted, "self": wanted} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		group := "0::/../kubepods/cri-containerd-" + id + ".scope\n"
		if err := os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte(group), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := processesOf(proc, wanted)
	if slices.Sort(got); err != nil || !slices.Equal(got, []int{7, 90}) {
		t.Errorf("processesOf = %v, %v; want [7 90]", got, err)
	}
	for _, id := range []string{"", "b2a3", strings.Repeat("f", 64)} {
		if got, err := processesOf(proc, id); err == nil {
			t.Errorf("processesOf(%q) = %v, want an error", id, got)
		}
	}
}

func TestProcessesRunning(t *testing.T) {
	const wanted = "/usr/local/bin/containerd"
	proc := t.TempDir()
	for pid, line := range map[string]string{"7": wanted + "\x00--debug\x00", "8": wanted + "-shim\x00", "9": "sh\x00" + wanted + "\x00", "90": wanted} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := processesRunning(proc, wanted)
	if slices.Sort(got); err != nil || !slices.Equal(got, []int{7, 90}) {
		t.Errorf("processesRunning = %v, %v; want [7 90]", got, err)
	}
	if got, err := processesRunning(proc, "/usr/bin/dockerd"); err == nil {
		t.Errorf("processesRunning of another program = %v, want an error", got)
	}
}

// exchange sends in as JSON and reads the JSON answer into out.
func exchange(t *testing.T, method, to string, in, out any) {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, to, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s answered %s", method, to, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		t.Fatal(err)
	}
}

// TestFlood floods a server that ends the requests once their bytes have arrived.
func TestFlood(t *testing.T) {
	const size = 1 << 20
	arrived := make(chan struct{}, 1000)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The last requests end in the middle.
		if n, err := io.CopyN(io.Discard, r.Body, size); err == nil {
			if r.ContentLength <= n || r.URL.Path != "/defaulting" {
				t.Errorf("%s of %d bytes", r.URL, r.ContentLength)
			}
			select {
			case arrived <- struct{}{}:
			default:
			}
		}
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		connection.Close()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range 5 {
			<-arrived
		}
		cancel()
	}()
	in := api.Flood{Address: server.Listener.Addr().String(), Path: "/defaulting", Connections: 2, Bytes: size, Time: 20 * time.Second}
	if got := flood(ctx, in); got.Sent < 4 {
		t.Errorf("flood = %+v, want requests in place of those that ended", got)
	}
	server.Close()
	in.Time = 100 * time.Millisecond
	if got := flood(t.Context(), in); got.Sent > 0 || got.Refused == 0 {
		t.Errorf("flood of no server = %+v", got)
	}
}
