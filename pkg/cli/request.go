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
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// call is the request of kubectl fn invoke.
type call struct {
	data, event, method, path, contentType string
	headers, queries                       []string

	// header and uri are the parsed flags.
	header http.Header
	uri    string
}

func (r *call) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVarP(&r.data, "data", "d", "", "The body of a POST: text, @FILE, or @- for standard input. Without it, the call is a GET.")
	flags.StringVar(&r.event, "event", "", "Send a CloudEvent of this type.")
	flags.StringVarP(&r.method, "request", "X", "", "The method, such as PUT. The default is GET, or POST with a body or an event.")
	flags.StringArrayVarP(&r.headers, "header", "H", nil, "A header such as 'Accept: text/plain'. 'Name;' has no value, and 'Name:' removes a default. It can be repeated.")
	flags.StringVar(&r.path, "path", "/", "The path, such as /orders/7. It may have a query.")
	flags.StringArrayVar(&r.queries, "query", nil, "A parameter of the query, such as name=Ada Lovelace. It is encoded, and can be repeated.")
	flags.StringVar(&r.contentType, "content-type", "", "The type of the body. The default is application/json, text/plain or application/octet-stream, as the body is.")
	fixed := map[string][]string{
		"request":      {http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions},
		"content-type": {"application/json", "application/octet-stream", "application/x-www-form-urlencoded", "text/plain"},
		"header":       nil, "path": nil, "query": nil, "event": nil,
	}
	for flag, values := range fixed {
		must(command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
}

// parse reads the flags. It fails for each request that could not be sent as written.
func (r *call) parse() (err error) {
	if !httpguts.ValidHeaderFieldName(r.method) && r.method != "" {
		return try(fmt.Errorf("%q is no method", r.method), "-X PUT")
	}
	if r.header, err = parseHeaders(r.headers); err != nil {
		return err
	}
	if r.contentType != "" {
		if _, ok := r.header["Content-Type"]; ok {
			return try(errors.New("-H Content-Type and --content-type exclude each other"), "one of them")
		}
		if !httpguts.ValidHeaderFieldValue(r.contentType) {
			return try(fmt.Errorf("%q is no content type", r.contentType), "--content-type=application/json")
		}
		r.header.Set("Content-Type", r.contentType)
	}
	r.uri, err = requestURI(r.path, r.queries)
	return err
}

// notSent are the headers that net/http sets itself, without a look at the request's.
var notSent = []string{"Content-Length", "Trailer", "Transfer-Encoding"}

// parseHeaders reads headers in curl's form. A name without values removes a default.
func parseHeaders(lines []string) (http.Header, error) {
	header := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		removes := strings.TrimSpace(value) == ""
		if !ok {
			name, ok = strings.CutSuffix(line, ";")
			removes = false
		}
		value = strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, try(fmt.Errorf("%q is no header", line), "-H 'Name: value'")
		}
		name = http.CanonicalHeaderKey(name)
		switch {
		case slices.Contains(notSent, name):
			return nil, try(fmt.Errorf("header %s follows from the body and cannot be set", name), "the same command without it")
		case removes:
			header[name] = nil
		default:
			header[name] = append(header[name], value)
		}
	}
	return header, nil
}

// notInURL matches what a URL must not contain.
var notInURL = regexp.MustCompile("[^!-~]|[\"<>\\\\^`{|}]")

// requestURI returns the path and the query as they are sent.
func requestURI(path string, queries []string) (string, error) {
	// With a slash, no part of the path can become another host.
	uri, err := url.Parse("http://function/" + notInURL.ReplaceAllStringFunc(strings.TrimPrefix(path, "/"), url.PathEscape))
	if err != nil || strings.Contains(path, "#") {
		return "", try(fmt.Errorf("%q is no path", path), "--path=/orders/7, with %%25 for %% and %%23 for #")
	}
	var parts []string
	if uri.RawQuery != "" {
		parts = append(parts, uri.RawQuery)
	}
	for _, query := range queries {
		name, value, _ := strings.Cut(query, "=")
		parts = append(parts, url.QueryEscape(name)+"="+url.QueryEscape(value))
	}
	uri.RawQuery = strings.Join(parts, "&")
	return uri.RequestURI(), nil
}

func (c *cli) readData(ctx context.Context, data string) (body []byte, err error) {
	name, isFile := strings.CutPrefix(data, "@")
	switch {
	case data == "":
		return nil, nil
	case !isFile:
		return []byte(data), nil
	}
	err = interruptible(ctx, func() (err error) {
		if name == "-" {
			body, err = io.ReadAll(c.In)
		} else {
			body, err = os.ReadFile(name)
		}
		return err
	})
	switch {
	case isInterrupted(err):
		return nil, err
	case err != nil:
		return nil, try(fmt.Errorf("failed to read data: %w", err), "-d @FILE, or -d TEXT")
	}
	return body, nil
}

func (r *call) request(ctx context.Context, fn *v1alpha1.Function, to target, address string, body []byte) (*http.Request, error) {
	method := r.method
	switch {
	case method != "":
	case body != nil || r.event != "":
		method = http.MethodPost
	default:
		method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+r.uri, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("failed to create request: %w", err)
	}
	if fn.Status.URL != nil {
		request.Host = fn.Status.URL.Host
	}
	request.Header.Set("User-Agent", "kubectl-fn")
	if body != nil {
		request.Header.Set("Content-Type", typeOf(body))
	}
	if r.event != "" {
		request.Header.Set("Ce-Specversion", "1.0")
		request.Header.Set("Ce-Type", r.event)
		request.Header.Set("Ce-Source", "kubectl-fn")
		request.Header.Set("Ce-Id", uuid.NewString())
	}
	for name, values := range r.header {
		switch {
		case name != "Host":
			request.Header[name] = values
		case len(values) > 0:
			request.Host = values[len(values)-1]
		}
	}
	if !to.direct {
		request.Header.Set(revisionHeader, to.revision)
		request.Header.Set(namespaceHeader, fn.Namespace)
	}
	return request, nil
}

func typeOf(body []byte) string {
	switch {
	case json.Valid(body):
		return "application/json"
	case utf8.Valid(body):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// response is the output of kubectl fn invoke for programs.
type response struct {
	Status  int         `json:"status"`
	Headers http.Header `json:"headers"`
	Body    string      `json:"body"`

	// IsBase64Encoded reports whether the body is no text, and encoded.
	IsBase64Encoded bool `json:"isBase64Encoded"`
}

// maxReportedBody is the largest body that fits into a response for programs.
const maxReportedBody = 32 << 20

func (c *cli) send(request *http.Request, name string, out *output) error {
	began := time.Now()
	client := &http.Client{
		// A proxy of the environment cannot reach a local address. The body must arrive as
		// the function has sent it.
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return try(fmt.Errorf("failed to call function %s: %w", name, err), "kubectl fn logs %s", name)
	}
	defer answer.Body.Close()
	err = interruptible(request.Context(), func() error {
		if !out.forHumans() {
			return c.reportResponse(answer, out)
		}
		shown := display(c.Out)
		_, err := io.Copy(shown, answer.Body)
		return errors.Join(err, shown.Close())
	})
	if err != nil {
		return try(fmt.Errorf("failed to read the response of function %s: %w", name, err), "kubectl fn logs %s", name)
	}
	// The reason phrase is the function's, and may be anything.
	status := strings.TrimSpace(fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode)))
	fmt.Fprintf(c.ErrOut, "\n%s in %s\n", status, time.Since(began).Round(time.Millisecond))
	if answer.StatusCode >= http.StatusBadRequest {
		return try(fmt.Errorf("function %s responded with %s", name, status), "kubectl fn logs %s", name)
	}
	return nil
}

func (c *cli) reportResponse(answer *http.Response, out *output) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReportedBody+1))
	if err != nil {
		return err
	}
	if len(body) > maxReportedBody {
		return fmt.Errorf("the body is larger than %d MiB, the limit with -o", maxReportedBody>>20)
	}
	r := response{Status: answer.StatusCode, Headers: answer.Header, Body: string(body)}
	if !utf8.Valid(body) {
		r.Body, r.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	shown := display(c.Out)
	return errors.Join(out.report(shown, "Response", r), shown.Close())
}
