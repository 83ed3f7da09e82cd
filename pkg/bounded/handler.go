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
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Handler returns a handler that gives the inner one whole bodies, a few at a time, and
// sends its response later. So no caller that stalls occupies the inner handler.
func (l *Limits) Handler(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		exchange := &exchange{limits: l, conn: connOf(ctx), cancel: cancel}
		defer exchange.end()
		exchange.serve(w, r.WithContext(ctx), inner)
	})
}

type exchange struct {
	limits *Limits
	conn   *conn
	// large is the slot for what is more than a small body, or nil.
	large    *slot
	cancel   context.CancelFunc
	responds atomic.Bool
}

func (e *exchange) serve(w http.ResponseWriter, r *http.Request, inner http.Handler) {
	switch size := r.ContentLength; {
	case size < 0:
		http.Error(w, "the request must state its Content-Length", http.StatusLengthRequired)
		return
	case size > maxBody:
		http.Error(w, fmt.Sprintf("the request is %d bytes, more than the limit of %d", size, maxBody), http.StatusRequestEntityTooLarge)
		return
	case size > smallBody && !e.enlarge():
		refuse(w)
		return
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		refuse(w)
		return
	}
	if e.large != nil {
		e.limits.large.setWhole(e.large, true)
	}
	if n := countValues(body); n > maxValues {
		http.Error(w, fmt.Sprintf("the request has %d JSON values, more than the limit of %d", n, maxValues), http.StatusRequestEntityTooLarge)
		return
	}
	response, ok := e.handle(r, body, inner)
	if !ok {
		refuse(w)
		return
	}
	if size := response.body.Len(); size > maxBody {
		http.Error(w, fmt.Sprintf("the response is %d bytes, more than the limit of %d", size, maxBody), http.StatusInternalServerError)
		return
	}
	if response.body.Len() > smallBody && e.large == nil && !e.enlarge() {
		refuse(w)
		return
	}
	e.responds.Store(true)
	if e.large != nil {
		e.limits.large.setWhole(e.large, false)
	}
	response.send(w)
}

func (e *exchange) enlarge() bool {
	e.large = newSlot(e.conn.source, e.abort)
	victim, ok := e.limits.large.enter(e.large)
	if victim != nil {
		awaitEnd(victim)
	}
	return ok
}

func (e *exchange) abort() {
	e.cancel()
	if e.responds.Load() {
		e.conn.evict()
		return
	}
	_ = e.conn.SetReadDeadline(time.Unix(1, 0))
}

func (e *exchange) end() {
	if e.large != nil {
		e.limits.large.leave(e.large)
	}
}

// handle waits for a turn, and calls the inner handler. It returns false if the caller has
// gone or was evicted.
func (e *exchange) handle(r *http.Request, body []byte, inner http.Handler) (*response, bool) {
	if !e.limits.turns.take(r.Context(), e.conn.source) {
		return nil, false
	}
	// The inner handler may panic.
	defer e.limits.turns.give()
	if !e.setBusy(true) {
		return nil, false
	}
	defer e.setBusy(false)
	out := &response{header: http.Header{}, status: http.StatusOK}
	r.Body = io.NopCloser(bytes.NewReader(body))
	inner.ServeHTTP(out, r)
	return out, true
}

func (e *exchange) setBusy(busy bool) bool {
	ok := e.limits.connections.setBusy(e.conn.slot, busy)
	if e.large != nil {
		ok = e.limits.large.setBusy(e.large, busy) && ok
	}
	return ok
}

// refuse asks the caller to repeat the request. The API server's client does so until the
// timeout of the admission.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Connection", "close")
	http.Error(w, "too many large requests: try again", http.StatusTooManyRequests)
}

// countValues returns the number of values in JSON, counted by what begins or separates
// them outside of strings.
func countValues(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '[' || c == ','):
			n++
		}
	}
	return n
}

type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *response) Write(data []byte) (int, error) { return r.body.Write(data) }

func (r *response) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Set("Content-Length", strconv.Itoa(r.body.Len()))
	w.WriteHeader(r.status)
	// The caller may have gone.
	_, _ = w.Write(r.body.Bytes())
}
