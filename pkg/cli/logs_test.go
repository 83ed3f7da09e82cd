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

package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

func TestLogs(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), crashing("fn-00002", "a"), pod("fn-00001", "b"), buildPod())
	w.want("fake logs", "logs", "fn")
	w.want("[b] fake logs\n[a] fake logs\n", "logs", "--all-pods", "fn")
	w.wantError("--follow and --previous cannot be combined", "kubectl fn logs --previous fn", "logs", "--follow", "--previous", "fn")
	newWorld(t, newFunction("fn", serves)).wantError("function fn has no pods", "kubectl fn status fn", "logs", "fn")
}

func TestPrefixer(t *testing.T) {
	var out strings.Builder
	lines := &sync.Mutex{}
	a, b := newPrefixer(&out, lines, "a"), newPrefixer(&out, lines, "b")
	for _, write := range []struct {
		to   *prefixer
		text string
	}{{a, "one\ntw"}, {b, "other\r\n"}, {a, "o\n\n"}, {b, "open"}} {
		if n, err := write.to.Write([]byte(write.text)); n != len(write.text) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", write.text, n, err)
		}
	}
	b.flush()
	b.flush()
	if got, want := out.String(), "[a] one\n[b] other\n[a] two\n[a] \n[b] open\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestLogOptions(t *testing.T) {
	tests := map[string]struct {
		args []string
		want corev1.PodLogOptions
	}{
		"default":          {nil, corev1.PodLogOptions{Container: "function"}},
		"previous":         {[]string{"--previous"}, corev1.PodLogOptions{Container: "function", Previous: true}},
		"short previous":   {[]string{"-p"}, corev1.PodLogOptions{Container: "function", Previous: true}},
		"follow":           {[]string{"-f"}, corev1.PodLogOptions{Container: "function", Follow: true}},
		"tail":             {[]string{"--tail=5"}, corev1.PodLogOptions{Container: "function", TailLines: new(int64(5))}},
		"tail of nothing":  {[]string{"--tail=0"}, corev1.PodLogOptions{Container: "function", TailLines: new(int64(0))}},
		"since":            {[]string{"--since=10m"}, corev1.PodLogOptions{Container: "function", SinceSeconds: new(int64(600))}},
		"since a moment":   {[]string{"--since=10ms"}, corev1.PodLogOptions{Container: "function", SinceSeconds: new(int64(1))}},
		"tail and follow":  {[]string{"--tail=1", "-f"}, corev1.PodLogOptions{Container: "function", TailLines: new(int64(1)), Follow: true}},
		"tail of all pods": {[]string{"--tail=1", "--all-pods"}, corev1.PodLogOptions{Container: "function", TailLines: new(int64(1))}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"))
			if _, err := w.run(append([]string{"logs", "fn"}, tc.args...)...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]corev1.PodLogOptions{tc.want}, w.logOptions()); diff != "" {
				t.Errorf("options of the log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogsErrors(t *testing.T) {
	tests := map[string]struct {
		status        int
		args          []string
		words, advice string
	}{
		"no crash":  {http.StatusBadRequest, []string{"--previous"}, "pod a has not crashed: ", "the command without --previous"},
		"no log":    {http.StatusBadRequest, nil, "pod a has no log: ", "kubectl describe pod a --namespace=default"},
		"all pods":  {http.StatusBadRequest, []string{"--all-pods"}, "pod a has no log: ", "kubectl describe pod a --namespace=default"},
		"forbidden": {http.StatusForbidden, nil, "failed to read the log of pod a: ", askAdministrator},
		"no node":   {http.StatusInternalServerError, nil, "failed to read the log of pod a: ", "the command with --help"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"))
			w.logs(func(url.Values) (int, string) { return tc.status, "reason of the server" })
			w.wantError(tc.words, tc.advice, append([]string{"logs", "fn"}, tc.args...)...)
		})
	}
}

// The log of a server is printed byte by byte, and with --all-pods line by line.
func TestLogsOfAServer(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"), pod("fn-00002", "b"))
	w.logs(func(query url.Values) (int, string) {
		return http.StatusOK, "one of " + query.Get("container") + "\ntwo without an end"
	})
	w.want("one of function\ntwo without an end", "logs", "fn")
	w.want(`
[a] one of function
[a] two without an end
[b] one of function
[b] two without an end
`, "logs", "fn", "--all-pods")
}

func TestLogsOfAPodThatHasNotStarted(t *testing.T) {
	starting := pod("fn-00002", "a")
	starting.Status.Conditions = nil
	starting.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	w := newWorld(t, newFunction("fn", serves), starting)
	w.want("", "logs", "fn")
	if got, want := w.errOut.String(), "Pod a has not started yet.\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	// The server knows whether there is a log from before.
	w.want("fake logs", "logs", "fn", "--previous")
}

func TestPodsToRead(t *testing.T) {
	at := func(p *corev1.Pod, d time.Duration) *corev1.Pod {
		p.CreationTimestamp = ago(d)
		return p
	}
	deleted := pod("fn-00002", "deleted")
	deleted.DeletionTimestamp, deleted.Finalizers = new(ago(0)), []string{"example.com/test"}
	stranger := pod("fn-00002", "stranger")
	stranger.Labels[serverless.FunctionUIDLabelKey] = "another"
	tests := map[string]struct {
		pods []runtime.Object
		want []string
	}{
		"newest first":       {[]runtime.Object{at(pod("r", "old"), time.Hour), at(pod("r", "new"), time.Minute)}, []string{"new", "old"}},
		"by name":            {[]runtime.Object{pod("r", "b"), pod("r", "a")}, []string{"a", "b"}},
		"ready first":        {[]runtime.Object{at(crashing("r", "new"), time.Minute), at(pod("r", "old"), time.Hour)}, []string{"old", "new"}},
		"all crash":          {[]runtime.Object{at(crashing("r", "old"), time.Hour), at(crashing("r", "new"), time.Minute)}, []string{"new", "old"}},
		"deleted is last":    {[]runtime.Object{at(deleted, time.Second), at(pod("r", "old"), time.Hour)}, []string{"old", "deleted"}},
		"no build, stranger": {[]runtime.Object{buildPod(), stranger, pod("r", "a")}, []string{"a"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.pods...)
			pods, err := w.podsToRead(t.Context(), w.clients, newFunction("fn", serves), false)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range pods {
				got = append(got, p.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

// onPodWatch calls change once, after the first watch of pods has begun.
func (w *world) onPodWatch(change func()) {
	var once sync.Once
	w.kube.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		changes, err := w.kube.Tracker().Watch(action.GetResource(), action.GetNamespace())
		once.Do(func() { go change() })
		return true, changes, err
	})
}

// start creates a pod, as Serving does.
func (w *world) start(p *corev1.Pod) {
	if _, err := w.kube.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		w.Error(err)
	}
}

func TestLogsWaitForAPod(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves))
	w.onPodWatch(func() { w.start(pod("fn-00002", "late")) })
	w.want("fake logs", "logs", "--follow", "fn")
	if got, want := w.errOut.String(), "There are no pods yet. Waiting for one.\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

// safeBuffer is a buffer that several goroutines write to. It calls full when it
// holds all texts.
type safeBuffer struct {
	sync.Mutex
	bytes.Buffer
	texts []string
	full  func()
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	n, err := b.Buffer.Write(p)
	for _, text := range b.texts {
		if !strings.Contains(b.String(), text) {
			return n, err
		}
	}
	b.full()
	return n, err
}

// With --follow and --all-pods, the command ends when the user interrupts it.
func TestLogsFollowAllPods(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "early"))
	w.onPodWatch(func() { w.start(pod("fn-00002", "late")) })
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	want := []string{"[early] fake logs\n", "[late] fake logs\n"}
	out := &safeBuffer{texts: want, full: interrupt}
	w.Out = out
	if _, err := w.runIn(ctx, "logs", "--follow", "--all-pods", "fn"); err != nil {
		t.Errorf("an interrupted command returns %v", err)
	}
	got := slices.Sorted(strings.Lines(out.String()))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestLogsFollowAllPodsError(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"))
	w.logs(func(url.Values) (int, string) { return http.StatusInternalServerError, "disk is full" })
	w.wantError("failed to read the log of pod a: ", "the command with --help", "logs", "--follow", "--all-pods", "fn")
}

// A line without an end must not fill the memory.
func TestPrefixerSplitsLongLines(t *testing.T) {
	var out strings.Builder
	p := newPrefixer(&out, &sync.Mutex{}, "a")
	half := bytes.Repeat([]byte("x"), maxLine/2)
	for range 3 {
		if _, err := p.Write(half); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(p.rest); got != maxLine/2 {
		t.Errorf("the buffer holds %d bytes, want %d", got, maxLine/2)
	}
	if got, want := out.String(), "[a] "+strings.Repeat("x", maxLine)+"\n"; got != want {
		t.Errorf("it prints %d bytes, want %d", len(got), len(want))
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestPrefixerReportsErrors(t *testing.T) {
	p := newPrefixer(brokenWriter{}, &sync.Mutex{}, "a")
	if n, err := p.Write([]byte("line\n")); n != 0 || err == nil || err.Error() != "broken pipe" {
		t.Errorf("Write() = %d, %v, want the error of the writer", n, err)
	}
}
