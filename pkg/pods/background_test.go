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
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// readerFunc is a LogReader.
type readerFunc func(ctx context.Context, pod string) (string, error)

func (f readerFunc) Tail(ctx context.Context, _, pod, _ string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	return f(ctx, pod)
}

// hangs has a node that never responds for the pods "hung…", and a slow one for "slow".
var hangs = readerFunc(func(ctx context.Context, pod string) (string, error) {
	switch {
	case pod == "bomb":
		panic("out of range")
	case pod == "slow":
		time.Sleep(time.Second)
	case pod != "good":
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "the log of " + pod, nil
})

// TestBackground checks that no caller waits for a node that does not respond.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Background{Reader: hangs}
		want := func(namespace, pod, wantLog string, wantErr error) {
			t.Helper()
			begin := time.Now()
			log, err := b.Tail(t.Context(), namespace, pod, "step-push")
			if log != wantLog || !errors.Is(err, wantErr) {
				t.Errorf("Tail(%s) = %q, %v; want %q, %v", pod, log, err, wantLog, wantErr)
			}
			if took := time.Since(begin); took > grace {
				t.Errorf("Tail(%s) took %s", pod, took)
			}
		}
		want("default", "good", "the log of good", nil)
		want("default", "slow", "", ErrReading)
		want("default", "slow", "", ErrReading)
		time.Sleep(time.Second)
		want("default", "slow", "the log of slow", nil)

		for i := range 2 * readsPerNamespace {
			want("hostile", "hung"+strconv.Itoa(i), "", ErrReading)
		}
		if n := b.running("hostile"); n != readsPerNamespace {
			t.Errorf("%d reads run in the namespace, want %d", n, readsPerNamespace)
		}
		want("hostile", "good", "", ErrReading)
		want("default", "good", "the log of good", nil)
		time.Sleep(tailTimeout)
		want("hostile", "hung0", "", context.DeadlineExceeded)
		want("hostile", "good", "the log of good", nil)

		if _, err := b.Tail(t.Context(), "default", "bomb", "step-push"); err == nil || errors.Is(err, ErrReading) {
			t.Errorf("a panic is %v, want an error", err)
		}
		time.Sleep(2 * keepLog)
		synctest.Wait()
		if len(b.reads) > 0 {
			t.Errorf("logs that nobody asks for stay: %v", b.reads)
		}
	})
}
