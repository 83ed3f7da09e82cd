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
	// resumePause is the delay between the end of a watch and the attempt to resume it.
	resumePause = time.Second
	// resumeTimeout is how long a History tries to resume. A restart of the API server
	// takes less.
	resumeTimeout = 2 * time.Minute
)

// ErrGap reports that a restarted API server could not list the changes before its restart.
var ErrGap = errors.New("the changes during a restart of the API server were missed")

// History records every object that has existed, including those that were deleted.
//
// If an API server restarts and cannot list earlier changes, History resumes with the
// objects that exist then. It keeps its records, and each object once. It misses objects
// that were created and deleted in the gap, and the last state of those that were deleted
// in it. Seen then returns ErrGap.
type History[T metav1.Object] struct {
	mu   sync.Mutex
	seen map[types.UID]T
	err  error
}

// Record starts to record the objects that opts select. It stops when ctx ends, or when the
// watch fails for another reason than a restart of the API server.
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
			if !isOfRestart(err) || time.Since(broken) >= resumeTimeout {
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

// isOfRestart reports whether a restart of the API server can cause an error: no
// connection, a denial of every request, or an expired resourceVersion.
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

// Seen returns every recorded object in its last state, oldest first. It returns an error
// if the watch failed, so that no object is missed silently. After a gap, that is ErrGap.
func (h *History[T]) Seen() ([]T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.seen), func(a, b T) int {
		return strings.Compare(
			a.GetCreationTimestamp().UTC().Format("20060102150405")+a.GetName(),
			b.GetCreationTimestamp().UTC().Format("20060102150405")+b.GetName())
	}), h.err
}
