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
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fault is a fault of a request.
type fault string

const (
	// fine requests pass without a fault.
	fine fault = ""
	// conflict answers 409, as if another client had changed the object.
	conflict fault = "conflict"
	// tooMany answers 429 with a retry after one second.
	tooMany fault = "too many requests"
	// internal answers 500.
	internal fault = "internal error"
	// unsent breaks the connection before the API server gets the request.
	unsent fault = "not sent"
	// lost breaks the connection after the request, before the response.
	lost fault = "answer lost"
	// silent requests do not reach the API server and get no response for a long time.
	silent fault = "silence"
	// slow requests are delayed.
	slow fault = "slow"
	// expired watches get 410, because their resourceVersion is too old.
	expired fault = "watch expired"
	// dropped watches end at a random moment.
	dropped fault = "watch dropped"
)

// These are the faults of each kind of request. A watch can also be dropped later.
var (
	readFaults  = []fault{tooMany, internal, unsent, lost, silent, slow}
	writeFaults = []fault{conflict, tooMany, internal, unsent, lost, silent, slow}
	watchFaults = []fault{tooMany, internal, unsent, expired, silent, slow}
)

// dropsLess divides the rate at which a watch is dropped in each second. At a rate of 20 %
// a watch lives for 10 s.
const dropsLess = 2

// slowest is the longest delay of a slow request.
const slowest = 3 * time.Second

// proxy is a proxy for the API server that injects faults. The fault of a request depends
// on the seed, the request, and the number of equal requests before it. It does not depend
// on the order of other requests.
type proxy struct {
	seed uint64
	// silence is the delay of silent requests.
	silence time.Duration
	server  *httptest.Server
	pass    http.Handler
	ledger  *ledger
	log     io.WriteCloser

	// rate is the share of requests with a fault, in millionths.
	rate atomic.Int64

	mu    sync.Mutex
	asked map[string]uint64
}

// startProxy starts a proxy for the API server at that address, with the certificate in the
// CA file. At first it injects no faults.
func startProxy(f forecast, address, caFile, folder string) (p *proxy, ownCA string, err error) {
	target, err := url.Parse(address)
	if err != nil {
		return nil, "", fmt.Errorf("failed to parse address: %w", err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, "", fmt.Errorf("failed to read certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	p = &proxy{seed: f.seed, silence: f.silence, ledger: newLedger(), asked: map[string]uint64{}}
	if p.log, err = os.Create(filepath.Join(folder, "requests.log")); err != nil {
		return nil, "", fmt.Errorf("failed to create log: %w", err)
	}
	p.pass = p.passer(target, &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100,
	})
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.handle))
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	ownCA = filepath.Join(folder, "proxy.crt")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	if err := os.WriteFile(ownCA, encoded, 0o644); err != nil {
		return nil, "", fmt.Errorf("failed to write certificate: %w", err)
	}
	return p, ownCA, nil
}

func (p *proxy) stop() {
	p.server.CloseClientConnections()
	p.server.Close()
	_ = p.log.Close()
}

// setRate sets the share of requests with a fault.
func (p *proxy) setRate(rate float64) { p.rate.Store(int64(rate * 1e6)) }

// lot returns a number from 0 to 1 that depends on the seed and the words.
func (p *proxy) lot(words ...string) float64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, p.seed)
	for _, word := range words {
		_, _ = io.WriteString(h, word+"\x00")
	}
	return mix(h.Sum64())
}

// mix returns an evenly distributed number from 0 to 1 for a hash.
func mix(x uint64) float64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// draw returns the fault of a request, and its name for further calls of lot.
func (p *proxy) draw(r *http.Request, watches bool) (fault, string) {
	what := r.Method + " " + r.URL.Path
	if watches {
		what = "watch " + r.URL.Path
	}
	p.mu.Lock()
	n := p.asked[what]
	p.asked[what]++
	p.mu.Unlock()
	name := fmt.Sprintf("%s %d", what, n)
	if p.lot(name, "happens") >= float64(p.rate.Load())/1e6 {
		return fine, name
	}
	all := readFaults
	switch {
	case watches:
		all = watchFaults
	case r.Method != http.MethodGet:
		all = writeFaults
	}
	return all[int(p.lot(name, "what")*float64(len(all)))], name
}

// passer returns the handler that forwards requests.
func (p *proxy) passer(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(answer *http.Response) error {
			if name, ok := answer.Request.Context().Value(watchKey{}).(string); ok {
				answer.Body = p.droppable(answer, name)
			}
			return nil
		},
	}
}

// handle injects a fault into a request or forwards it.
func (p *proxy) handle(w http.ResponseWriter, r *http.Request) {
	watches := r.URL.Query().Get("watch") == "true"
	happens, name := p.draw(r, watches)
	if err := p.note(r, watches, happens); err != nil {
		panic(http.ErrAbortHandler)
	}
	if watches {
		r = r.WithContext(context.WithValue(r.Context(), watchKey{}, name))
	}
	p.answer(w, r, happens, name, p.pass)
}

// watchKey is the context key of the name of a watch.
type watchKey struct{}

// answer responds to a request with that fault.
func (p *proxy) answer(w http.ResponseWriter, r *http.Request, happens fault, name string, pass http.Handler) {
	switch happens {
	case conflict:
		refuse(w, apierrs.NewConflict(schema.GroupResource{Resource: "proxy"}, r.URL.Path, errors.New("the weather is bad")))
	case tooMany:
		w.Header().Set("Retry-After", "1")
		refuse(w, apierrs.NewTooManyRequests("the weather is bad", 1))
	case internal:
		refuse(w, apierrs.NewInternalError(errors.New("the weather is bad")))
	case unsent:
		panic(http.ErrAbortHandler)
	case lost:
		pass.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case silent:
		if wait(r, p.silence) {
			refuse(w, apierrs.NewTimeoutError("the weather is bad", 1))
		}
	case slow:
		if wait(r, time.Duration(p.lot(name, "long")*float64(slowest))) {
			pass.ServeHTTP(w, r)
		}
	case expired:
		status := apierrs.NewResourceExpired("the weather is bad").Status()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": status})
	default:
		pass.ServeHTTP(w, r)
	}
}

// wait reports whether the client still waits after that time.
func wait(r *http.Request, d time.Duration) bool {
	select {
	case <-r.Context().Done():
		return false
	case <-time.After(d):
		return true
	}
}

// refuse responds with an error in the form of the API server.
func refuse(w http.ResponseWriter, err *apierrs.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// note records a request and makes its body readable again.
func (p *proxy) note(r *http.Request, watches bool, happens fault) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e := entryOf(r, body, watches, happens)
	p.ledger.add(e)
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.log, "%s %s %s %s %s\n", e.at.Format("15:04:05.000"), e.user, e.verb, strings.TrimPrefix(r.URL.RequestURI(), "/"), happens)
	return nil
}

// droppable returns the body of a watch, which ends when the watch is dropped. It ends
// regularly or like a broken connection.
func (p *proxy) droppable(answer *http.Response, name string) io.ReadCloser {
	d := &droppable{ReadCloser: answer.Body, clean: p.lot(name, "clean") < 0.5}
	go func() {
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for n := 0; ; n++ {
			select {
			case <-answer.Request.Context().Done():
				return
			case <-second.C:
			}
			if p.lot(name, "drop", strconv.Itoa(n)) < float64(p.rate.Load())/1e6/dropsLess {
				p.ledger.drop()
				d.ended.Store(true)
				_ = d.Close()
				return
			}
		}
	}()
	return d
}

// droppable is a body that another goroutine can end.
type droppable struct {
	io.ReadCloser
	clean bool
	ended atomic.Bool
}

// Read implements io.Reader.
func (d *droppable) Read(into []byte) (int, error) {
	n, err := d.ReadCloser.Read(into)
	if err != nil && d.ended.Load() && d.clean {
		err = io.EOF
	}
	return n, err
}
