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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fault is what becomes of a request on its way.
type fault string

const (
	// fine requests go through.
	fine fault = ""
	// conflict has somebody else have written the object: 409.
	conflict fault = "conflict"
	// tooMany has the API server be busy: 429, to be tried again after a second.
	tooMany fault = "too many requests"
	// internal has the API server fail: 500.
	internal fault = "internal error"
	// unsent requests do not reach the API server: the connection breaks.
	unsent fault = "not sent"
	// lost requests are done, but the connection breaks before the answer.
	lost fault = "answer lost"
	// silent requests do not reach the API server, and nobody says so for long.
	silent fault = "silence"
	// slow requests take their time.
	slow fault = "slow"
	// expired watches are told that what they know is too old: 410.
	expired fault = "watch expired"
	// dropped watches end, at any moment.
	dropped fault = "watch dropped"
)

// faults are what may become of each kind of request. Watches are dropped, too, but
// not when they start.
var (
	readFaults  = []fault{tooMany, internal, unsent, lost, silent, slow}
	writeFaults = []fault{conflict, tooMany, internal, unsent, lost, silent, slow}
	watchFaults = []fault{tooMany, internal, unsent, expired, silent, slow}
)

// dropsLess is how much less often a watch is dropped in a second than something happens
// to a request: at 20 % it lives for 10 s.
const dropsLess = 2

// slowest is how long a slow request takes at most.
const slowest = 3 * time.Second

// proxy stands before the API server, and does to requests what networks and busy
// API servers do. What becomes of a request is told by the seed, by what it asks for
// and by how often that was asked for before: not by who comes first.
type proxy struct {
	seed uint64
	// silence is how long there is no answer where there is to be none.
	silence time.Duration
	server  *httptest.Server
	pass    http.Handler
	ledger  *ledger
	log     io.WriteCloser

	// rate is the share of the requests that something happens to, in millionths.
	rate atomic.Int64

	mu    sync.Mutex
	asked map[string]uint64
}

// startProxy starts a proxy for the API server of that address, which the CA file
// knows. Nothing happens to requests before it is told.
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

// setRate sets the share of the requests that something happens to.
func (p *proxy) setRate(rate float64) { p.rate.Store(int64(rate * 1e6)) }

// lot returns a number from 0 to 1 that the seed has for the words.
func (p *proxy) lot(words ...string) float64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, p.seed)
	for _, word := range words {
		_, _ = io.WriteString(h, word+"\x00")
	}
	return mix(h.Sum64())
}

// mix returns a number from 0 to 1 for a hash whose last bits tell more than its
// first.
func mix(x uint64) float64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// draw returns what becomes of a request, and the name by which more can be drawn
// for it.
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

// passer returns what passes requests on.
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

// handle handles a request.
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

// watchKey is the key of the name of a watch.
type watchKey struct{}

// answer has happen to a request what was drawn.
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

// refuse answers as the API server does.
func refuse(w http.ResponseWriter, err *apierrs.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// note writes down a request, whose body can be read again.
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

// droppable returns the body of a watch, which ends when it is to be dropped: like
// one whose time is over, or like one whose connection breaks.
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
			if p.lot(name, "drop", fmt.Sprint(n)) < float64(p.rate.Load())/1e6/dropsLess {
				p.ledger.drop()
				d.ended.Store(true)
				_ = d.Close()
				return
			}
		}
	}()
	return d
}

// droppable is a body that somebody else may end.
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
