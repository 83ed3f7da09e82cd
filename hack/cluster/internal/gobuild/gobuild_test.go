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

package gobuild

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestQueueOrder(t *testing.T) {
	var q queue
	holder := q.join(false)
	<-holder.enter
	order := []struct {
		name  string
		first bool
	}{{"a", false}, {"b", true}, {"c", false}, {"d", true}}
	waiters := map[string]*waiter{}
	for _, o := range order {
		waiters[o.name] = q.join(o.first)
	}
	var got []string
	for range order {
		q.leave()
		for name, w := range waiters {
			select {
			case <-w.enter:
				got = append(got, name)
				delete(waiters, name)
			default:
			}
		}
	}
	if want := []string{"b", "d", "a", "c"}; !slices.Equal(got, want) {
		t.Errorf("order = %v, want %v", got, want)
	}
}

func TestQueueExcludes(t *testing.T) {
	var q queue
	var inside, total int // The race detector tells if two are inside.
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := q.run(t.Context(), i%3 == 0, func() error {
				inside++
				total++
				if inside != 1 {
					t.Errorf("%d are inside", inside)
				}
				inside--
				return nil
			})
			if err != nil {
				t.Errorf("run() = %v", err)
			}
		})
	}
	wg.Wait()
	if total != 20 {
		t.Errorf("%d ran, want 20", total)
	}
}

func TestQueueQuit(t *testing.T) {
	var q queue
	holder := q.join(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := q.run(ctx, true, func() error { t.Error("ran though its context had ended"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("run() = %v, want %v", err, context.Canceled)
	}
	<-holder.enter
	q.leave()
	// A caller that quits during its turn passes the turn on.
	late := q.join(false)
	q.quit(late)
	if err := q.run(t.Context(), false, func() error { return nil }); err != nil {
		t.Errorf("run() after all have left = %v", err)
	}
}

func TestCommandDefaults(t *testing.T) {
	got := Command{Name: "kind", LDFlags: "-X a.b=c"}.withDefaults()
	if got.Package != "." || got.GOOS == "" || got.GOARCH == "" || got.LDFlags != "-s -w -X a.b=c" {
		t.Errorf("withDefaults() = %+v", got)
	}
}

func TestKubernetesVersion(t *testing.T) {
	flags := KubernetesVersion("v1.36.3")
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.3",
		"-X k8s.io/component-base/version.gitMajor=1",
		"-X k8s.io/client-go/pkg/version.gitMinor=36",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("flags %q lack %q", flags, want)
		}
	}
}
