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
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kiln-dev/kiln/test/images/relay/api"
)

const (
	dialTimeout = 2 * time.Second
	// retryPause keeps a flood of a server that refuses it from taking all CPU.
	retryPause = 50 * time.Millisecond
)

// flood keeps requests open that never end, until the time is over.
func flood(ctx context.Context, in api.Flood) api.Flooded {
	ctx, cancel := context.WithTimeout(ctx, in.Time)
	defer cancel()
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		in.Path, in.Bytes+1, bytes.Repeat([]byte(" "), in.Bytes))
	var sent, refused atomic.Int64
	var callers sync.WaitGroup
	for range in.Connections {
		callers.Go(func() {
			for ctx.Err() == nil {
				if stall(ctx, in.Address, request) {
					sent.Add(1)
					continue
				}
				refused.Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(retryPause):
				}
			}
		})
	}
	callers.Wait()
	return api.Flooded{Sent: int(sent.Load()), Refused: int(refused.Load())}
}

// stall sends the text and waits until the server closes the connection or ctx ends. It
// reports whether the server took all of the text.
func stall(ctx context.Context, address string, text []byte) bool {
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: dialTimeout},
		Config:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // A hostile caller checks no certificate.
	}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	if _, err := connection.Write(text); err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, connection)
	return true
}
