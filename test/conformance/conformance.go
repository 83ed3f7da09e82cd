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

// Package conformance tests that all runtimes behave alike. It has a table of requests
// and expected answers, and a function in each language that gives them. Tests run it
// against the wrappers as processes, and against their images on a cluster.
package conformance

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml functions
var files embed.FS

const (
	// FunctionName is the required name of the function.
	FunctionName = "conformance"

	// TimeoutSeconds is the required timeout of the function, in seconds.
	TimeoutSeconds = 5

	// MemoryLimit is the required memory limit of the function.
	MemoryLimit = "128Mi"

	// LongPath is the path whose answer, LongAnswer, takes LongTime.
	LongPath = "/long"

	// LongTime is long enough for a test to delete or replace a pod meanwhile.
	LongTime = 2 * time.Second

	// LongAnswer occurs once in the source of the function, so that tests can replace it.
	LongAnswer = "after a long time"

	// namespace is the placeholder in the table for the function's namespace.
	namespace = "namespace: default"
)

// Case is a request and the expected answer. cases.yaml describes the fields.
type Case struct {
	Name    string            `json:"name"`
	Method  string            `json:"method,omitempty"`
	Path    string            `json:"path"`
	Send    map[string]string `json:"send,omitempty"`
	Body    *string           `json:"body,omitempty"`
	Bytes   int               `json:"bytes,omitempty"`
	Raw     []byte            `json:"raw,omitempty"`
	Lists   int               `json:"lists,omitempty"`
	Chunked bool              `json:"chunked,omitempty"`

	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	JSON    any               `json:"json,omitempty"`
	Expect  *string           `json:"expect,omitempty"`
	Matches string            `json:"matches,omitempty"`
}

// Request is an HTTP request.
type Request struct {
	Method  string
	Path    string
	Headers map[string]string
	Body    string
	// Chunked omits the length of the body.
	Chunked bool
}

// Answer is the answer of a function. The names of headers are in lower case.
type Answer struct {
	Status  int
	Headers map[string]string
	Body    string
}

// Sender sends a request to a function.
type Sender func(context.Context, Request) (Answer, error)

// Cases returns the table for a function in the namespace.
func Cases(functionNamespace string) ([]Case, error) {
	return readCases("cases.yaml", functionNamespace)
}

// RequestCases returns the table for a function whose main has the style of Express or
// Flask.
func RequestCases(language string) ([]Case, error) {
	return readCases("functions/"+language+"/request.yaml", "")
}

func readCases(file, functionNamespace string) ([]Case, error) {
	text, err := files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("failed to read cases: %w", err)
	}
	text = bytes.ReplaceAll(text, []byte(namespace), []byte("namespace: "+functionNamespace))
	var cases []Case
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		return nil, fmt.Errorf("failed to parse cases: %w", err)
	}
	return cases, nil
}

// Source returns the source of the function in a language of pkg/runtimes. name is the
// name of the source file in that language.
func Source(language, name string) (string, error) {
	text, err := fs.ReadFile(files, "functions/"+language+"/"+name)
	if err != nil {
		return "", fmt.Errorf("failed to read the function of the suite in %s: write test/conformance/functions/%s/%s, which answers cases.yaml: %w",
			language, language, name, err)
	}
	return string(text), nil
}

// RequestSource returns the source of the function for RequestCases. name is the name of
// the source file in the language.
func RequestSource(language, name string) (string, error) {
	return Source(language, "request"+path.Ext(name))
}

// Run sends all requests of the table and checks the answers.
func Run(t *testing.T, functionNamespace string, send Sender) {
	t.Helper()
	cases, err := Cases(functionNamespace)
	if err != nil {
		t.Fatal(err)
	}
	run(t, cases, send)
}

// RunRequests sends all requests of RequestCases and checks the answers.
func RunRequests(t *testing.T, language string, send Sender) {
	t.Helper()
	cases, err := RequestCases(language)
	if err != nil {
		t.Fatal(err)
	}
	run(t, cases, send)
}

func run(t *testing.T, cases []Case, send Sender) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			answer, err := send(t.Context(), c.request())
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range c.check(answer) {
				t.Error(problem)
			}
		})
	}
}

func (c Case) request() Request {
	request := Request{Method: c.Method, Path: c.Path, Headers: c.Send, Chunked: c.Chunked}
	if c.Body != nil {
		request.Body = *c.Body
	}
	switch {
	case c.Bytes > 0:
		request.Body = strings.Repeat("x", c.Bytes)
	case c.Raw != nil:
		request.Body = string(c.Raw)
	case c.Lists > 0:
		request.Body = strings.Repeat("[", c.Lists) + strings.Repeat("]", c.Lists)
	}
	if request.Method == "" {
		request.Method = "GET"
		if request.Body != "" {
			request.Method = "POST"
		}
	}
	return request
}

// check returns the differences between the answer and the expected one.
func (c Case) check(answer Answer) (problems []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if c.Status != 0 && answer.Status != c.Status {
		complain("status is %d, want %d; the body is %q", answer.Status, c.Status, answer.Body)
	}
	for name, want := range c.Headers {
		if got := answer.Headers[name]; got != want {
			complain("%s is %q, want %q", name, got, want)
		}
	}
	if c.Expect != nil && answer.Body != *c.Expect {
		complain("body is %q, want %q", answer.Body, *c.Expect)
	}
	if c.Matches != "" && !regexp.MustCompile(c.Matches).MatchString(answer.Body) {
		complain("body is %q, want a match of %s", answer.Body, c.Matches)
	}
	if c.JSON != nil {
		var got any
		if err := json.Unmarshal([]byte(answer.Body), &got); err != nil {
			complain("body is %q: %v", answer.Body, err)
		} else if diff := cmp.Diff(c.JSON, got); diff != "" {
			complain("body (-want, +got):\n%s", diff)
		}
	}
	return problems
}
