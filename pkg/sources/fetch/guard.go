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

package fetch

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"
)

// keepAlive is that of net/http.
const keepAlive = 30 * time.Second

// dialer returns a dialer that connects only to the addresses that Guard accepts. It
// checks the address of the socket, so no name can resolve to another one afterwards.
func (g Git) dialer() *net.Dialer {
	dialer := &net.Dialer{Timeout: patience, KeepAlive: keepAlive}
	if g.Guard != nil {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("failed to parse address: %w", err)
			}
			return g.Guard(at.Addr())
		}
	}
	return dialer
}

// guard makes the transport use the dialer, also for redirects. The proxies of the
// environment are the administrator's, so the transport may connect to them.
func (g Git) guard(transport *http.Transport) {
	if g.Guard == nil {
		return
	}
	var proxies sync.Map
	if proxy := transport.Proxy; proxy != nil {
		transport.Proxy = func(request *http.Request) (*url.URL, error) {
			at, err := proxy(request)
			if at != nil && err == nil {
				proxies.Store(proxyAddress(at), true)
			}
			return at, err
		}
	}
	guarded, open := g.dialer(), Git{}.dialer()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, ok := proxies.Load(address); ok {
			return open.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
}

// proxyAddress returns the address that net/http dials for a proxy.
func proxyAddress(proxy *url.URL) string {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	if port == "" {
		port = "1080"
	}
	return net.JoinHostPort(proxy.Hostname(), port)
}
