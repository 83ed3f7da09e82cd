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

// Package bounded serves HTTPS in bounded memory, however many callers there are and
// however slowly they send. Callers cannot be authenticated: an API server presents no
// certificate to webhooks. So the package tells them apart by their address, and each
// source that is short of a resource takes it from the source that holds the most.
//
// The memory, besides that of the process at rest, is at most
//
//	maxConnections × (connectionMemory + 2 × smallBody)
//	+ maxLarge × 2 × maxBody
//	+ maxHandlers × handlerMemory
//
// which is 256 × (256 + 64) KiB + 6 × 6 MiB + 2 × 32 MiB = 180 MiB. Each body has a response
// of at most its limit.
package bounded

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// maxConnections is the number of connections in any state. It is above the number
	// of requests that an API server has in flight to one webhook.
	maxConnections = 256

	// connectionMemory is the memory of a connection: stacks, the state of TLS, the
	// headers as they are parsed, and the buffers of the kernel.
	connectionMemory = 256 << 10

	maxBody = 3 << 20

	// smallBody is the size of a body, and of a response, that each connection may have in
	// memory.
	smallBody = 32 << 10

	maxLarge = 6

	maxHandlers = 2

	handlerMemory = 32 << 20

	// maxValues limits the number of values in the JSON of a request. A value of 3 bytes
	// can take hundreds of bytes once it is decoded.
	maxValues = 10_000

	// maxHeaderBytes limits headers. net/http adds 4 KiB.
	maxHeaderBytes = 4 << 10

	// socketBuffer limits the memory that the kernel takes for each direction of a
	// connection.
	socketBuffer = 32 << 10

	// readTimeout limits the time of the TLS handshake, and of the whole request.
	readTimeout = 5 * time.Second

	// writeTimeout limits the time from the headers of the request to the end of the
	// response. API servers wait for at most 10 s, as the manifests tell them.
	writeTimeout = 15 * time.Second

	// idleTimeout is longer than the 90 s of the API server's client. So the client closes
	// idle connections, and no request meets a connection that is being closed.
	idleTimeout = 2 * time.Minute

	// patience is how long a large body has before another one may take its slot.
	patience = time.Second
)

// Memory is the memory that the requests of a server take at most.
const Memory = maxConnections*(connectionMemory+2*smallBody) + maxLarge*2*maxBody + maxHandlers*handlerMemory

// Limits share connections, memory and turns among the callers of one server.
type Limits struct {
	connections, large *slots
	turns              *turns
}

// New returns limits for one server.
func New() *Limits {
	return &Limits{
		connections: newSlots(maxConnections, 0),
		large:       newSlots(maxLarge, patience),
		turns:       newTurns(maxHandlers),
	}
}

// Server returns an HTTP server with timeouts. Its listener must be that of Listener. It
// speaks no HTTP/2, whose streams would multiply the requests of a connection.
func (l *Limits) Server(handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:        handler,
		Protocols:      protocols,
		MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout:    readTimeout,
		WriteTimeout:   writeTimeout,
		IdleTimeout:    idleTimeout,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return unwrap(c).context(ctx)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state != http.StateClosed {
				l.connections.touch(unwrap(c).slot)
				return
			}
			unwrap(c).cancel()
			l.connections.leave(unwrap(c).slot)
		},
	}
}

// Listener returns a listener that keeps the number of connections within the limits.
func (l *Limits) Listener(inner net.Listener) net.Listener {
	return &listener{Listener: inner, connections: l.connections}
}

type listener struct {
	net.Listener
	connections *slots
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := accepted.(*net.TCPConn); ok {
			if err := limitBuffers(tcp); err != nil {
				// The caller has already gone.
				_ = accepted.Close()
				continue
			}
		}
		c := &conn{Conn: accepted, source: sourceOf(accepted)}
		c.slot = newSlot(c.source, c.evict)
		if victim, ok := l.connections.enter(c.slot); !ok {
			_ = accepted.Close()
			continue
		} else if victim != nil {
			awaitEnd(victim)
		}
		return c, nil
	}
}

func limitBuffers(tcp *net.TCPConn) error {
	if err := tcp.SetReadBuffer(socketBuffer); err != nil {
		return fmt.Errorf("failed to limit read buffer: %w", err)
	}
	if err := tcp.SetWriteBuffer(socketBuffer); err != nil {
		return fmt.Errorf("failed to limit write buffer: %w", err)
	}
	return nil
}

// awaitEnd waits until the memory of an evicted connection is free. It ends at once: reads
// and writes on a closed connection fail. The timer only guards against a mistake here.
func awaitEnd(victim *slot) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-victim.left:
	case <-timer.C:
	}
}

type conn struct {
	net.Conn
	source string
	slot   *slot
	cancel context.CancelFunc
}

func (c *conn) context(ctx context.Context) context.Context {
	ctx, c.cancel = context.WithCancel(ctx)
	return context.WithValue(ctx, connKey{}, c)
}

// evict closes the connection below TLS, because a TLS close would wait for the caller.
// It also cancels the requests, because net/http may not read while they wait.
func (c *conn) evict() {
	c.cancel()
	_ = c.Close()
}

type connKey struct{}

func connOf(ctx context.Context) *conn { return ctx.Value(connKey{}).(*conn) }

func unwrap(c net.Conn) *conn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return c.(*conn)
}

func sourceOf(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}
