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

// Command flood sends requests to Kiln's webhook that never end, as a hostile pod can. It
// has no other target, limits their number and time, and ends by itself.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// target is the Service of the webhook in config/.
	target = "webhook.kiln-system.svc:443"
	// mostRequests, mostSize and mostTime limit what the flags can ask for.
	mostRequests, mostSize, mostTime = 128, 3 << 20, 10 * time.Minute
	// again is the delay before a closed connection is replaced.
	again = time.Second
	// dialTimeout bounds the attempt to connect.
	dialTimeout = 5 * time.Second
	// healthAddress serves the readiness probe: the flood is ready when each of its requests
	// has been tried once.
	healthAddress = ":8080"
)

func main() {
	requests := flag.Int("requests", 64, "the number of concurrent requests")
	size := flag.Int("size", 3_000_000, "the announced size of each body")
	duration := flag.Duration("for", time.Minute, "the time until all of it ends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, min(*duration, mostTime))
	defer cancel()

	f := &flood{target: target, requests: min(*requests, mostRequests), size: min(*size, mostSize)}
	server := &http.Server{Addr: healthAddress, Handler: f, ReadHeaderTimeout: dialTimeout}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.Print(err)
		}
	}()
	go f.print(ctx, os.Stdout)
	f.run(ctx)
}

// flood is a number of stalled requests.
type flood struct {
	target   string
	requests int
	size     int

	// tried counts the requests that were sent, or failed, at least once.
	tried atomic.Int64
	count counts
}

// counts is what has happened so far. Each is printed as JSON.
type counts struct {
	// Open is the number of requests that wait for an answer now.
	open atomic.Int64
	// Sent counts the requests of which all but the last byte was sent.
	sent atomic.Int64
	// Closed counts those that the server ended, and failed the ones that it did not take.
	closed, failed atomic.Int64
}

// run sends all requests until ctx ends.
func (f *flood) run(ctx context.Context) {
	body := make([]byte, max(f.size-1, 0))
	for i := range body {
		body[i] = ' '
	}
	var all sync.WaitGroup
	for range f.requests {
		all.Go(func() {
			for first := true; ctx.Err() == nil; first = false {
				f.stall(ctx, body, func() {
					if first {
						f.tried.Add(1)
					}
				})
				select {
				case <-ctx.Done():
				case <-time.After(again):
				}
			}
		})
	}
	all.Wait()
}

// stall sends one request without its last byte and waits until the server closes the
// connection, or ctx ends.
func (f *flood) stall(ctx context.Context, body []byte, tried func()) {
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: dialTimeout},
		// A hostile client trusts any server.
		Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
	}
	conn, err := dialer.DialContext(ctx, "tcp", f.target)
	if err != nil {
		f.count.failed.Add(1)
		tried()
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	// A server that does not read must not keep the others from their turn.
	conn.SetWriteDeadline(time.Now().Add(dialTimeout))
	_, err = fmt.Fprintf(conn, "POST /defaulting HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", f.target, len(body)+1, body)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		f.count.failed.Add(1)
		tried()
		return
	}
	f.count.sent.Add(1)
	f.count.open.Add(1)
	tried()
	io.Copy(io.Discard, conn)
	f.count.open.Add(-1)
	if ctx.Err() == nil {
		f.count.closed.Add(1)
	}
}

// print writes the counts each second.
func (f *flood) print(ctx context.Context, to io.Writer) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		json.NewEncoder(to).Encode(map[string]int64{
			"open": f.count.open.Load(), "sent": f.count.sent.Load(), "closed": f.count.closed.Load(), "failed": f.count.failed.Load(),
		})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ServeHTTP implements http.Handler for the readiness probe.
func (f *flood) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if f.tried.Load() < int64(f.requests) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
