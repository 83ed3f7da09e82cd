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
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestStall checks that each request reaches the server without its last byte, that a
// request which the server ends is replaced, and that all end with the context.
func TestStall(t *testing.T) {
	const requests, size = 4, 1 << 16
	got := make(chan int, 8*requests)
	hold := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, size)
		n, _ := io.ReadFull(io.LimitReader(r.Body, size-1), body)
		got <- n
		<-hold
		// Without it, the server would wait for the last byte.
		http.NewResponseController(w).SetReadDeadline(time.Now())
	}))
	defer server.Close()
	f := &flood{target: strings.TrimPrefix(server.URL, "https://"), requests: requests, size: size}
	if code := readiness(f); code != http.StatusServiceUnavailable {
		t.Errorf("readiness before the flood is %d", code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		f.run(ctx)
		close(done)
	}()
	for range requests {
		if n := <-got; n != size-1 {
			t.Errorf("the server got %d bytes, want %d", n, size-1)
		}
	}
	// The server ends one request and gets another.
	hold <- struct{}{}
	if n := <-got; n != size-1 {
		t.Errorf("the server got %d bytes of another request, want %d", n, size-1)
	}
	cancel()
	<-done
	close(hold)
	if code := readiness(f); code != http.StatusOK {
		t.Errorf("readiness of the flood is %d", code)
	}
	if sent, closed := f.count.sent.Load(), f.count.closed.Load(); sent < requests+1 || closed < 1 {
		t.Errorf("%d requests were sent and %d closed, want %d and 1", sent, closed, requests+1)
	}
	if open := f.count.open.Load(); open != 0 {
		t.Errorf("%d requests are open after the end", open)
	}
}

// TestUnreachable checks that a flood which reaches nobody becomes ready and counts that.
func TestUnreachable(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close()
	f := &flood{target: strings.TrimPrefix(server.URL, "https://"), requests: 1, size: 9}
	tried := false
	f.stall(t.Context(), nil, func() { tried = true })
	if !tried || f.count.failed.Load() != 1 || f.count.sent.Load() != 0 {
		t.Errorf("tried is %v, failed %d and sent %d", tried, f.count.failed.Load(), f.count.sent.Load())
	}
}

func readiness(f *flood) int {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code
}
