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
	"strings"
	"sync"
	"testing"
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
