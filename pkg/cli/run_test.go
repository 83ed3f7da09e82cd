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
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun runs what init wrote, and edits it.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatal("the tests of kubectl fn run need node on PATH: ", err)
	}
	dir := files(t, nil)
	w := newWorld(t)
	if _, err := w.run("init", ".", "--runtime=nodejs24"); err != nil {
		t.Fatal(err)
	}
	free := httptest.NewServer(nil)
	address := free.Listener.Addr().String()
	free.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := w.runIn(ctx, "run", "--port", address[strings.LastIndex(address, ":")+1:])
		ended <- err
	}()
	untilAnswer(t, "http://"+address, "hello world")
	source := "module.exports = { main: () => 'edited' };\n"
	if err := os.WriteFile(filepath.Join(dir, "handler.js"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	untilAnswer(t, "http://"+address, "edited")
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("kubectl fn run returns %v", err)
	}
	if _, err := http.Get("http://" + address); err == nil {
		t.Error("the function runs on after kubectl fn run has ended")
	}
}

// untilAnswer asks until the answer is as wanted; the test's own time limits it.
func untilAnswer(t *testing.T, url, want string) {
	t.Helper()
	for t.Context().Err() == nil {
		answer, err := http.Get(url)
		if err != nil {
			continue
		}
		got := make([]byte, len(want)+1)
		n, _ := answer.Body.Read(got)
		answer.Body.Close()
		if string(got[:n]) == want {
			return
		}
	}
	t.Fatal("the test has ended before the function answered ", want)
}
