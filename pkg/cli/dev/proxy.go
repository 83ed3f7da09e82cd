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

package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
)

// proxy is the private address of the function on the author's machine. It survives the
// pods and the versions of the code.
type proxy struct {
	httputil.ReverseProxy
	current atomic.Pointer[http.Transport]
}

// forwarded are headers that a reverse proxy replaces and the function must see unchanged.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

var errNothing = errors.New("no code runs")

func newProxy() *proxy {
	p := &proxy{}
	p.ReverseProxy = httputil.ReverseProxy{
		Transport: p,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "function"
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			r.Out.Host = r.In.Host
			for _, name := range forwarded {
				if values, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = values
				}
			}
		},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(out http.ResponseWriter, _ *http.Request, err error) {
			status := http.StatusBadGateway
			if errors.Is(err, errNothing) {
				status = http.StatusServiceUnavailable
			}
			http.Error(out, fmt.Sprintf("The function does not answer: %v. The terminal of kubectl fn dev shows why.", err), status)
		},
	}
	return p
}

// RoundTrip sends a request to the newest code.
func (p *proxy) RoundTrip(request *http.Request) (*http.Response, error) {
	to := p.current.Load()
	if to == nil {
		return nil, errNothing
	}
	return to.RoundTrip(request)
}

// use sends later requests to the address. A new version of the code at the same address
// needs it, too: the open connections lead to the version before.
func (p *proxy) use(address string) {
	to := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	if before := p.current.Swap(to); before != nil {
		before.CloseIdleConnections()
	}
}

// answers reports whether some code gets the requests.
func (p *proxy) answers() bool { return p.current.Load() != nil }
