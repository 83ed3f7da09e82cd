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

package pods

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// grace is how long a caller waits for a log. Most logs come sooner, so their
	// Functions need no second reconcile.
	grace = 100 * time.Millisecond

	// readsPerNamespace bounds the concurrent reads of a namespace.
	readsPerNamespace = 8

	// keepLog is how long a log waits for its caller.
	keepLog = time.Minute
)

// ErrReading means that a log is still being read. The caller must ask again.
var ErrReading = errors.New("the log is still being read")

// Background reads logs in the background, so that a node that does not respond does not
// block its callers. The next process reads again what this one has not returned.
type Background struct {
	Reader LogReader

	mu    sync.Mutex
	reads map[container]*read
}

type container struct{ namespace, pod, name string }

type read struct {
	done chan struct{}
	log  string
	err  error
}

// Tail implements LogReader. It returns ErrReading if the log does not come at once. A
// later call returns the log.
func (b *Background) Tail(ctx context.Context, namespace, pod, name string) (string, error) {
	key := container{namespace, pod, name}
	r := b.start(ctx, key)
	if r == nil {
		return "", ErrReading
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-r.done:
		b.drop(key, r)
		return r.log, r.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return "", ErrReading
}

// start returns the read of the log. It starts one if there is none, or returns nil where
// the namespace has too many.
func (b *Background) start(ctx context.Context, key container) *read {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.reads[key]; r != nil {
		return r
	}
	if b.running(key.namespace) >= readsPerNamespace {
		return nil
	}
	r := &read{done: make(chan struct{})}
	if b.reads == nil {
		b.reads = map[container]*read{}
	}
	b.reads[key] = r
	go func() {
		// The read outlasts the reconcile. Its Reader bounds it.
		r.log, r.err = b.read(context.WithoutCancel(ctx), key)
		close(r.done)
		time.AfterFunc(keepLog, func() { b.drop(key, r) })
	}()
	return r
}

func (b *Background) running(namespace string) (n int) {
	for key, r := range b.reads {
		select {
		case <-r.done:
		default:
			if key.namespace == namespace {
				n++
			}
		}
	}
	return n
}

func (b *Background) read(ctx context.Context, key container) (log string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("failed to read log: panic: %v", cause)
		}
	}()
	return b.Reader.Tail(ctx, key.namespace, key.pod, key.name)
}

func (b *Background) drop(key container, r *read) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reads[key] == r {
		delete(b.reads, key)
	}
}
