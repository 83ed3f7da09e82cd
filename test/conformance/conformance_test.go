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

package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// startTimeout allows for a busy machine.
const startTimeout = 30 * time.Second

// commands has the commands that can run a language. The first one that passes the check
// is used.
var commands = map[string]struct {
	check []string
	args  []string
	names []string
}{
	"nodejs": {check: []string{"--version"}, names: []string{"node"}},
	"python": {
		check: []string{"-c", "import uvicorn, uvloop, httptools, flask"}, args: []string{"-P"},
		names: []string{os.Getenv("KILN_PYTHON"), "python3.13", "python3", "/usr/bin/python3"},
	},
}

// TestProcesses runs the suite against each wrapper, as a process.
func TestProcesses(t *testing.T) {
	for _, language := range runtimes.Languages() {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			Run(t, "default", start(t, language, Source))
		})
		t.Run(language+" in the style of its framework", func(t *testing.T) {
			t.Parallel()
			RunRequests(t, language, start(t, language, RequestSource))
		})
	}
}

// TestCheck checks that each mistake in an answer is reported.
func TestCheck(t *testing.T) {
	c := Case{Status: 200, Headers: map[string]string{"a": ""}, JSON: map[string]any{"a": 1.0}, Expect: new("x"), Matches: "y"}
	if got := c.check(Answer{Status: 500, Headers: map[string]string{"a": "b"}, Body: `{"a":2}`}); len(got) != 5 {
		t.Errorf("check() = %v, want five problems", got)
	}
}

// TestSource checks that the error names the file to add for a new language.
func TestSource(t *testing.T) {
	const want = "write test/conformance/functions/cobol/handler.cob"
	if _, err := Source("cobol", "handler.cob"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
}

// start runs a function of the suite in a process.
func start(t *testing.T, language string, read func(language, name string) (string, error)) Sender {
	t.Helper()
	runtime, _ := runtimes.For(language)
	source, err := read(language, runtime.SourceFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := runtime.BuildContext(runtimes.Function{BaseImage: "base", Source: source})
	if err != nil {
		t.Fatal("BuildContext:", err)
	}
	var layout runtimes.Layout
	if err := json.Unmarshal([]byte(files[runtimes.LayoutName]), &layout); err != nil {
		t.Fatal("failed to parse layout:", err)
	}
	folder := t.TempDir()
	for name, file := range layout.Files {
		if err := os.MkdirAll(filepath.Dir(folder+file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(folder+file, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The entrypoint ends with the wrapper and the function.
	arguments := layout.Entrypoint[len(layout.Entrypoint)-2:]
	cmd := exec.Command(find(t, language), append(slices.Clone(commands[language].args), folder+arguments[0], folder+arguments[1])...)
	cmd.Env = append(os.Environ(), "PORT=0", "OTEL_EXPORTER_PROMETHEUS_PORT=0", "FUNC_NAME="+FunctionName, "FUNC_NAMESPACE=default",
		fmt.Sprint("FUNC_TIMEOUT=", TimeoutSeconds), "FUNC_MEMORY_LIMIT="+MemoryLimit)
	output, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return sender(fmt.Sprintf("http://127.0.0.1:%d", readPort(t, output)))
}

// find returns the command that runs a language.
func find(t *testing.T, language string) string {
	t.Helper()
	of, ok := commands[language]
	if !ok {
		t.Fatalf("add the command that runs %s to commands in conformance_test.go", language)
	}
	for _, name := range of.names {
		if name != "" && exec.Command(name, of.check...).Run() == nil {
			return name
		}
	}
	t.Fatalf("none of %q can run %q: install what test/README.md lists", of.names, of.check)
	return ""
}

// readPort waits for the wrapper's log line "ready" and returns the port in it.
func readPort(t *testing.T, output io.Reader) int {
	t.Helper()
	ports := make(chan int, 1)
	var log strings.Builder
	go func() {
		defer close(ports)
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			var entry struct {
				Message string `json:"message"`
				Port    int    `json:"port"`
			}
			if err := json.Unmarshal(lines.Bytes(), &entry); err == nil && entry.Message == "ready" {
				ports <- entry.Port
				_, _ = io.Copy(io.Discard, output)
				return
			}
			log.WriteString(lines.Text() + "\n")
		}
	}()
	select {
	case port, ok := <-ports:
		if !ok {
			t.Fatalf("the wrapper ended before it was ready:\n%s", log.String())
		}
		return port
	case <-time.After(startTimeout):
		t.Fatal("the wrapper is not ready")
	}
	return 0
}

func sender(url string) Sender {
	client := &http.Client{Timeout: startTimeout}
	return func(ctx context.Context, r Request) (Answer, error) {
		var body io.Reader = strings.NewReader(r.Body)
		if r.Chunked {
			body = io.MultiReader(body) // The client cannot see its length.
		}
		request, err := http.NewRequestWithContext(ctx, r.Method, url+r.Path, body)
		if err != nil {
			return Answer{}, err
		}
		for name, value := range r.Headers {
			request.Header.Set(name, value)
		}
		response, err := client.Do(request)
		if err != nil {
			return Answer{}, err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		answer := Answer{Status: response.StatusCode, Headers: map[string]string{}, Body: string(text)}
		for name, values := range response.Header {
			answer.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
		}
		if len(response.TransferEncoding) > 0 {
			delete(answer.Headers, "content-length")
		}
		return answer, err
	}
}
