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

package bounded

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// answerSize is a handler that answers with the size of the request.
func answerSize(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	fmt.Fprint(w, n, err)
}

// serve starts a server with the limits and returns its address.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	return serveWith(t, New(), handler)
}

func serveWith(t *testing.T, limits *Limits, handler http.HandlerFunc) string {
	t.Helper()
	server := limits.Server(limits.Handler(handler))
	server.ErrorLog = log.New(io.Discard, "", 0)
	server.TLSConfig = certificate(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(limits.Listener(inner), "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return inner.Addr().String()
}

// certificate returns the TLS configuration of a test server.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS13}
}

// client is a caller at one address.
func client(t *testing.T, source string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // It is a test server.
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// post sends a body as the API server's client does, which repeats a refused request.
func post(t *testing.T, caller *http.Client, address string, body []byte) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Second) {
		response, err := caller.Post("https://"+address+"/", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Errorf("%d bytes: %v", len(body), err)
			return
		}
		answer, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests && time.Since(start) < 9*time.Second {
			continue
		}
		if want := fmt.Sprint(len(body), nil); string(answer) != want {
			t.Errorf("%d bytes: got %d and %q, want %q", len(body), response.StatusCode, answer, want)
		}
		return
	}
}

// stall opens connections that each send the records and then nothing more.
func stall(t *testing.T, address, source string, n int, isTLS bool, records ...[]byte) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 10 * time.Second}
	var senders sync.WaitGroup
	limit := make(chan struct{}, 16)
	for range n {
		limit <- struct{}{}
		connection, err := dialer.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if isTLS {
			connection = tls.Client(connection, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // It is a test server.
		}
		t.Cleanup(func() { connection.Close() })
		senders.Go(func() {
			defer func() { <-limit }()
			// The server closes some of the connections.
			_ = connection.SetWriteDeadline(time.Now().Add(time.Second))
			for _, record := range records {
				_, _ = connection.Write(record)
			}
		})
	}
	senders.Wait()
}

const headers = "POST / HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"

// TestStalledRequests stalls requests at each stage, from the caller's own address and
// from another one. Requests must be answered within the API server's timeout, and
// the memory must stay within the documented bound.
func TestStalledRequests(t *testing.T) {
	const megabytes = 3_000_000
	body := fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", headers, megabytes+1, strings.Repeat("x", megabytes))
	var bomb strings.Builder
	for i := range 1400 {
		fmt.Fprintf(&bomb, "%x:\r\n", i)
	}
	for name, tc := range map[string]struct {
		n     int
		isTLS bool
		text  []byte
	}{
		"512 bodies":           {512, true, body},
		"300 promised bodies":  {300, true, fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n", headers, megabytes)},
		"300 small bodies":     {300, true, fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", headers, smallBody, strings.Repeat("x", smallBody-1))},
		"300 headers":          {300, true, []byte("POST / HTTP/1.1\r\n" + bomb.String())},
		"512 handshakes":       {512, false, []byte("\x16\x03\x01\x02\x00\x01")},
		"512 open connections": {512, false, nil},
		"300 idle connections": {300, true, []byte(headers + "Content-Length: 0\r\n\r\n")},
	} {
		for _, source := range []string{"127.0.0.1", "127.0.0.2"} {
			t.Run(name+" from "+source, func(t *testing.T) {
				address := serve(t, answerSize)
				before := heap()
				stall(t, address, source, tc.n, tc.isTLS, tc.text)
				used := heap() - before
				t.Logf("%d MiB of memory", used>>20)
				if used > Memory {
					t.Errorf("the limit is %d MiB of memory", Memory>>20)
				}
				caller := client(t, "127.0.0.1")
				for _, size := range []int{2 << 10, 1 << 20} {
					post(t, caller, address, bytes.Repeat([]byte("x"), size))
				}
			})
		}
	}
}

// heap returns the memory in use by the heap and by stacks, without garbage.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse) //nolint:gosec // Memory is no more than that.
}

// TestRefusals checks requests that the handler must not get.
func TestRefusals(t *testing.T) {
	address := serve(t, answerSize)
	caller := client(t, "127.0.0.1")
	for name, tc := range map[string]struct {
		body io.Reader
		want int
	}{
		"chunked":         {io.MultiReader(strings.NewReader("{}")), http.StatusLengthRequired},
		"too large":       {strings.NewReader(strings.Repeat("x", maxBody+1)), http.StatusRequestEntityTooLarge},
		"too many values": {strings.NewReader(strings.Repeat("[", maxValues+1)), http.StatusRequestEntityTooLarge},
		"as large as can": {strings.NewReader(strings.Repeat("x", maxBody)), http.StatusOK},
	} {
		response, err := caller.Post("https://"+address+"/", "application/json", tc.body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		response.Body.Close()
		if response.StatusCode != tc.want || response.ProtoMajor != 1 {
			t.Errorf("%s: got %s with %s, want %d", name, response.Status, response.Proto, tc.want)
		}
	}
}

// TestManyLargeRequests sends more large requests at once than there are slots.
func TestManyLargeRequests(t *testing.T) {
	address := serve(t, answerSize)
	caller := client(t, "127.0.0.1")
	var callers sync.WaitGroup
	for range 3 * maxLarge {
		callers.Go(func() { post(t, caller, address, bytes.Repeat([]byte("x"), 1<<20)) })
	}
	callers.Wait()
}

// TestWaitingLargeRequests has large requests wait for longer than the patience with
// others. One more request of their source is refused, and none of them is lost.
func TestWaitingLargeRequests(t *testing.T) {
	started, release := make(chan struct{}, 2*maxLarge), make(chan struct{})
	limits := New()
	address := serveWith(t, limits, func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-release
		answerSize(w, r)
	})
	caller := client(t, "127.0.0.1")
	large := bytes.Repeat([]byte("x"), 1<<20)
	var callers sync.WaitGroup
	var lost atomic.Int32
	for range maxLarge {
		callers.Go(func() {
			response, err := caller.Post("https://"+address+"/", "application/json", bytes.NewReader(large))
			if err != nil {
				lost.Add(1)
				return
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				lost.Add(1)
			}
		})
	}
	for range maxHandlers {
		<-started
	}
	untilWhole(t, limits, maxLarge)
	deadline := time.Now().Add(2 * patience)
	refused := 0
	// A refused connection stays open for half a second. Hundreds of them would evict the
	// source's others.
	interval := time.NewTicker(20 * time.Millisecond)
	defer interval.Stop()
	for time.Now().Before(deadline) {
		<-interval.C
		response, err := caller.Post("https://"+address+"/", "application/json", bytes.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
			t.Fatalf("got %s, want a refusal", response.Status)
		}
		refused++
	}
	close(release)
	callers.Wait()
	if lost.Load() > 0 || refused == 0 {
		t.Errorf("%d requests were lost, and %d refused", lost.Load(), refused)
	}
}

// untilWhole waits until that many large requests have arrived.
func untilWhole(t *testing.T, limits *Limits, want int) {
	t.Helper()
	for {
		got := 0
		limits.large.mu.Lock()
		for holder := range limits.large.holders {
			if holder.whole {
				got++
			}
		}
		limits.large.mu.Unlock()
		if got == want {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("%d large requests have arrived, want %d", got, want)
		}
		runtime.Gosched()
	}
}

// TestLongWait has requests wait for their turn for longer than a request may take to
// arrive. A caller that has gone must not get a turn.
func TestLongWait(t *testing.T) {
	started, release := make(chan struct{}, maxHandlers+2), make(chan struct{})
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-release
		answerSize(w, r)
	})
	caller := client(t, "127.0.0.1")
	var callers sync.WaitGroup
	send := func() {
		response, err := caller.Post("https://"+address+"/", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Error(err)
			return
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("got %s", response.Status)
		}
	}
	for range maxHandlers {
		callers.Go(send)
		<-started
	}
	callers.Go(send)
	impatient := client(t, "127.0.0.2")
	impatient.Timeout = readTimeout / 2
	if response, err := impatient.Post("https://"+address+"/", "application/json", strings.NewReader("{}")); err == nil {
		response.Body.Close()
		t.Errorf("an answer although all turns are taken: %s", response.Status)
	}
	time.AfterFunc(readTimeout, func() { close(release) })
	callers.Wait()
	if len(started) != 1 {
		t.Errorf("%d requests were handled after the first ones, want 1", len(started))
	}
}

// TestEvictedWhileWaiting evicts callers that wait for a turn. net/http does not notice
// that their connections are closed, because they have sent more than one request.
func TestEvictedWhileWaiting(t *testing.T) {
	release := make(chan struct{})
	address := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	stall(t, address, "127.0.0.2", maxConnections, true, []byte(headers+"Content-Length: 2\r\n\r\n{}"), []byte("POST"))
	start := time.Now()
	for range 4 {
		connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // It is a test server.
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("4 connections took %s", took)
	}
}

// TestPanic checks that a handler that panics gives its turn and its slots back.
func TestPanic(t *testing.T) {
	limits := New()
	handler := limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh") }))
	c := &conn{source: "pod"}
	c.slot = newSlot(c.source, func() {})
	limits.connections.enter(c.slot)
	for range maxLarge + maxHandlers {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", smallBody+1)))
		r = r.WithContext(context.WithValue(r.Context(), connKey{}, c))
		func() {
			defer func() { _ = recover() }()
			handler.ServeHTTP(httptest.NewRecorder(), r)
			t.Error("no panic")
		}()
	}
	if limits.turns.free != maxHandlers || len(limits.large.holders) > 0 || c.slot.busy {
		t.Errorf("turns: %d, large: %d, busy: %v", limits.turns.free, len(limits.large.holders), c.slot.busy)
	}
}
