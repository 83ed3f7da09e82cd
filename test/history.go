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

package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// resumePause is how long after its watch broke a History takes up again.
	resumePause = time.Second
	// restartPatience is how long it tries to, since then. A restart takes less.
	restartPatience = 2 * time.Minute
)

// ErrGap says that an API server that started anew did not tell what had happened before.
var ErrGap = errors.New("what came and went while the API server started anew was not seen")

// History remembers every object that there has been, also those that are gone.
//
// When an API server starts anew and cannot tell what happened since, History takes up
// again with what there is then. It keeps what it has seen, and has each object once, but
// an object that both came and went in between it does not know, nor what became of one
// that went. From then on Seen says so by ErrGap.
type History[T metav1.Object] struct {
	mu   sync.Mutex
	seen map[types.UID]T
	err  error
}

// Record starts to remember the objects that opts select. It goes on until ctx
// ends, or until the watch breaks for another reason than an API server that starts anew.
func Record[T metav1.Object, L runtime.Object](ctx context.Context, client Watcher[L], opts metav1.ListOptions) *History[T] {
	h := &History[T]{seen: map[types.UID]T{}}
	go func() {
		var broken time.Time
		for {
			err := follow(ctx, client, opts, func(objects []T) bool {
				broken = time.Time{}
				h.remember(objects)
				return false
			})
			if ctx.Err() != nil {
				return
			}
			if broken.IsZero() {
				broken = time.Now()
			}
			if !isOfRestart(err) || time.Since(broken) >= restartPatience {
				h.fail(err)
				return
			}
			h.fail(fmt.Errorf("%w: %w", ErrGap, err))
			select {
			case <-ctx.Done():
				return
			case <-time.After(resumePause):
			}
		}
	}()
	return h
}

func (h *History[T]) remember(objects []T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, object := range objects {
		h.seen[object.GetUID()] = object
	}
}

func (h *History[T]) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// isOfRestart reports whether an error may be one of an API server that starts anew: nobody
// answers, or it denies everything at first, or does not know what was before it.
func isOfRestart(err error) bool {
	if errors.As(err, new(net.Error)) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	refusal, ok := errors.AsType[*apierrs.StatusError](err)
	if !ok {
		return false
	}
	switch code := refusal.ErrStatus.Code; code {
	case http.StatusForbidden, http.StatusGone, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

// Seen returns every object that there has been, in its last state, oldest
// first. It fails when the watch broke, so that nothing can be missed silently: with
// ErrGap where it has been taken up again.
func (h *History[T]) Seen() ([]T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.seen), func(a, b T) int {
		return strings.Compare(
			a.GetCreationTimestamp().UTC().Format("20060102150405")+a.GetName(),
			b.GetCreationTimestamp().UTC().Format("20060102150405")+b.GetName())
	}), h.err
}
