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
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewRequest(t *testing.T) {
	base := http.Header{
		"User-Agent": {"kubectl-fn"}, "Knative-Serving-Revision": {"fn-00002"}, "Knative-Serving-Namespace": {namespace},
	}
	with := func(pairs ...string) http.Header {
		header := base.Clone()
		for i := 0; i < len(pairs); i += 2 {
			header.Set(pairs[i], pairs[i+1])
		}
		return header
	}
	event := []string{"Ce-Specversion", "1.0", "Ce-Type", "com.example.order", "Ce-Source", "kubectl-fn"}
	tests := map[string]struct {
		body       []byte
		event      string
		wantMethod string
		wantHeader http.Header
	}{
		"nothing":          {nil, "", http.MethodGet, base},
		"empty text":       {[]byte{}, "", http.MethodPost, with("Content-Type", "text/plain; charset=utf-8")},
		"text":             {[]byte("hello"), "", http.MethodPost, with("Content-Type", "text/plain; charset=utf-8")},
		"object":           {[]byte(`{"a": 1}`), "", http.MethodPost, with("Content-Type", "application/json")},
		"number":           {[]byte("1"), "", http.MethodPost, with("Content-Type", "application/json")},
		"broken object":    {[]byte(`{"a": 1`), "", http.MethodPost, with("Content-Type", "text/plain; charset=utf-8")},
		"binary":           {[]byte("\xff\x00"), "", http.MethodPost, with("Content-Type", "application/octet-stream")},
		"event":            {nil, "com.example.order", http.MethodPost, with(event...)},
		"event with data":  {[]byte("{}"), "com.example.order", http.MethodPost, with(append(event, "Content-Type", "application/json")...)},
		"event with words": {[]byte("hello"), "com.example.order", http.MethodPost, with(append(event, "Content-Type", "text/plain; charset=utf-8")...)},
	}
	ids := map[string]bool{}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			call := call{event: tc.event, path: "/"}
			if err := call.parse(); err != nil {
				t.Fatal(err)
			}
			got, err := call.request(t.Context(), newFunction("fn", serves), target{revision: "fn-00002"}, "127.0.0.1:1234", tc.body)
			if err != nil {
				t.Fatal(err)
			}
			if got.Method != tc.wantMethod || got.URL.String() != "http://127.0.0.1:1234/" || got.Host != "fn.default.svc.cluster.local" {
				t.Errorf("request is %s %s to %s", got.Method, got.URL, got.Host)
			}
			if id := got.Header.Get("Ce-Id"); tc.event != "" && (id == "" || ids[id]) {
				t.Errorf("the ID %q of the event is not unique", id)
			} else {
				ids[id] = true
			}
			got.Header.Del("Ce-Id")
			if diff := cmp.Diff(tc.wantHeader, got.Header); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			body, err := io.ReadAll(got.Body)
			if err != nil || string(body) != string(tc.body) {
				t.Errorf("body is %q, %v, want %q", body, err, tc.body)
			}
		})
	}
}

func TestReadData(t *testing.T) {
	files(t, map[string]string{"order.json": `{"a": 1}`})
	for data, want := range map[string]string{
		"":            "",
		"text":        "text",
		"a@b":         "a@b",
		"@order.json": `{"a": 1}`,
		"@-":          "of standard input",
	} {
		t.Run(data, func(t *testing.T) {
			w := newWorld(t)
			w.In = strings.NewReader("of standard input")
			got, err := w.readData(t.Context(), data)
			if err != nil || string(got) != want || (got == nil) != (data == "") {
				t.Errorf("readData() = %q, %v, want %q", got, err, want)
			}
		})
	}
}

// calls starts a server with this handler for the calls of Function fn.
func calls(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"))
	w.forward = func(context.Context, *Clients, target) (string, func(), error) {
		return server.Listener.Addr().String(), func() {}, nil
	}
	return w
}

func TestInvokeFlags(t *testing.T) {
	type seen struct {
		Method, Host, URI, Body string
		Header                  http.Header
	}
	var got seen
	w := calls(t, func(_ http.ResponseWriter, in *http.Request) {
		body, _ := io.ReadAll(in.Body)
		got = seen{Method: in.Method, Host: in.Host, URI: in.RequestURI, Body: string(body), Header: http.Header{}}
		for _, name := range []string{"Accept", "Accept-Encoding", "Content-Type", "User-Agent", "X-Empty", revisionHeader} {
			if values, ok := in.Header[name]; ok {
				got.Header[name] = values
			}
		}
	})
	base := http.Header{"User-Agent": {"kubectl-fn"}, revisionHeader: {"fn-00002"}}
	with := func(header http.Header) http.Header {
		all := base.Clone()
		maps.Copy(all, header)
		return all
	}
	const host = "fn.default.svc.cluster.local"
	files(t, map[string]string{"image": "\xff\x00\r\n"})
	tests := map[string]struct {
		args []string
		want seen
	}{
		"method":         {[]string{"-X", "PATCH"}, seen{"PATCH", host, "/", "", base}},
		"method, body":   {[]string{"--request=PUT", "-d", "hi"}, seen{"PUT", host, "/", "hi", with(http.Header{"Content-Type": {"text/plain; charset=utf-8"}})}},
		"binary body":    {[]string{"-d", "@image"}, seen{"POST", host, "/", "\xff\x00\r\n", with(http.Header{"Content-Type": {"application/octet-stream"}})}},
		"standard input": {[]string{"-d", "@-"}, seen{"POST", host, "/", "\xffpiped", with(http.Header{"Content-Type": {"application/octet-stream"}})}},
		"content type":   {[]string{"-d", "a=1", "--content-type=application/x-www-form-urlencoded"}, seen{"POST", host, "/", "a=1", with(http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})}},
		"headers":        {[]string{"-H", "accept: a, b", "-H", "Accept:c", "-H", "X-Empty;"}, seen{"GET", host, "/", "", with(http.Header{"Accept": {"a, b", "c"}, "X-Empty": {""}})}},
		"no type":        {[]string{"-d", "hi", "-H", "Content-Type:"}, seen{"POST", host, "/", "hi", base}},
		"own agent":      {[]string{"-H", "User-Agent: me"}, seen{"GET", host, "/", "", with(http.Header{"User-Agent": {"me"}})}},
		"no agent":       {[]string{"-H", "User-Agent:"}, seen{"GET", host, "/", "", http.Header{revisionHeader: {"fn-00002"}}}},
		"host":           {[]string{"-H", "Host: shop.example.com"}, seen{"GET", "shop.example.com", "/", "", base}},
		"routing":        {[]string{"-H", revisionHeader + ": other-00001"}, seen{"GET", host, "/", "", base}},
		"path":           {[]string{"--path=/orders/a b%2Fc"}, seen{"GET", host, "/orders/a%20b%2Fc", "", base}},
		"relative path":  {[]string{"--path=orders"}, seen{"GET", host, "/orders", "", base}},
		"path of a host": {[]string{"--path=@example.com/"}, seen{"GET", host, "/@example.com/", "", base}},
		"two slashes":    {[]string{"--path=//example.com/"}, seen{"GET", host, "//example.com/", "", base}},
		"query":          {[]string{"--query=b=1&2", "--query=a=é =", "--query=b=3", "--query=flag"}, seen{"GET", host, "/?b=1%262&a=%C3%A9+%3D&b=3&flag=", "", base}},
		"both queries":   {[]string{"--path=/?flag", "--query=a=1"}, seen{"GET", host, "/?flag&a=1", "", base}},
		"raw query":      {[]string{"--path=/a?q=é b%26"}, seen{"GET", host, "/a?q=%C3%A9%20b%26", "", base}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w.In = strings.NewReader("\xffpiped")
			if _, err := w.run(append([]string{"invoke", "fn"}, tc.args...)...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// A request that cannot be sent as it is written reaches nothing.
func TestInvokeRejects(t *testing.T) {
	w := calls(t, func(http.ResponseWriter, *http.Request) { t.Error("the function was called") })
	for words, args := range map[string][]string{
		`"GE T" is no method`:                             {"-X", "GE T"},
		`"Accept" is no header`:                           {"-H", "Accept"},
		`"A b: c" is no header`:                           {"-H", "A b: c"},
		`"A: b\r\nC: d" is no header`:                     {"-H", "A: b\r\nC: d"},
		"header Content-Length follows from the body":     {"-H", "content-length: 7"},
		"header Transfer-Encoding follows from the body":  {"-H", "Transfer-Encoding: chunked"},
		"-H Content-Type and --content-type exclude":      {"-H", "Content-Type: a/b", "--content-type=a/b"},
		`"a\nb" is no content type`:                       {"--content-type=a\nb"},
		`"/a#b" is no path`:                               {"--path=/a#b"},
		`"/%zz" is no path`:                               {"--path=/%zz"},
		"unable to match a printer suitable":              {"-o", "xml"},
		"template format specified but no template given": {"-o", "jsonpath"},
		"failed to read data: open none: no such file":    {"-d", "@none"},
	} {
		t.Run(words, func(t *testing.T) {
			_, err := w.run(append([]string{"invoke", "fn"}, args...)...)
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("error is %v, want %q", err, words)
			}
		})
	}
}

func TestInvokeForPrograms(t *testing.T) {
	w := calls(t, func(out http.ResponseWriter, in *http.Request) {
		out.Header()["Date"] = nil
		out.Header()["X-Order"] = []string{"b", "a"}
		out.Header().Set("Content-Type", "text/html")
		if in.URL.Path == "/binary" {
			out.WriteHeader(http.StatusTeapot)
			_, _ = out.Write([]byte{0xff, 0})
			return
		}
		_, _ = io.WriteString(out, "<b>é</b>\n")
	})
	type object = map[string]any
	want := object{
		"apiVersion": "serverless.kiln.dev/v1alpha1", "kind": "Response", "status": 200.0, "body": "<b>é</b>\n", "isBase64Encoded": false,
		"headers": object{"Content-Length": []any{"10"}, "Content-Type": []any{"text/html"}, "X-Order": []any{"b", "a"}},
	}
	check := func(wantErr bool, args ...string) {
		t.Helper()
		out, err := w.run(append([]string{"invoke", "fn", "-o", "json"}, args...)...)
		if (err != nil) != wantErr {
			t.Errorf("error is %v", err)
		}
		var got object
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err, out)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("response (-want +got):\n%s", diff)
		}
	}
	check(false)
	want["status"], want["body"], want["isBase64Encoded"] = 418.0, "/wA=", true
	want["headers"].(object)["Content-Length"] = []any{"2"}
	check(true, "--path=/binary")
	w.want("200", "invoke", "fn", "-o", "jsonpath={.status}")
}

// A program gets no response without an end. People can read it.
func TestInvokeEndlessBody(t *testing.T) {
	w := calls(t, func(out http.ResponseWriter, in *http.Request) {
		for piece := bytes.Repeat([]byte("a"), 1<<20); in.Context().Err() == nil; {
			_, _ = out.Write(piece)
		}
	})
	w.wantError("the body is larger than 32 MiB, the limit with -o", "kubectl fn logs fn", "invoke", "fn", "-o", "json")
}

// The response is printed as it comes. An interrupt ends the command, even if nobody
// reads what it prints.
func TestInvokeStreams(t *testing.T) {
	next := make(chan string)
	w := calls(t, func(out http.ResponseWriter, in *http.Request) {
		for {
			select {
			case piece := <-next:
				_, _ = io.WriteString(out, piece)
				out.(http.Flusher).Flush()
			case <-in.Context().Done():
				return
			}
		}
	})
	read, write := io.Pipe()
	defer read.Close()
	w.Out = write
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.runIn(ctx, "invoke", "fn")
		ended <- err
	}()
	out := bufio.NewReader(read)
	for _, piece := range []string{"one\n", "two\n"} {
		next <- piece
		if got, err := out.ReadString('\n'); err != nil || got != piece {
			t.Fatalf("it prints %q, %v, want %q", got, err, piece)
		}
	}
	next <- "never read\n"
	interrupt()
	if err := <-ended; !isInterrupted(err) {
		t.Errorf("error is %v, want an interrupt", err)
	}
}

// An interrupt also ends the wait for standard input.
func TestReadDataIsInterrupted(t *testing.T) {
	w := newWorld(t)
	read, write := io.Pipe()
	defer write.Close()
	w.In = read
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if _, err := w.readData(ctx, "@-"); !isInterrupted(err) {
		t.Errorf("readData() = %v, want an interrupt", err)
	}
}

// The function chooses the reason phrase and may break the protocol. Neither reaches a
// terminal as it is.
func TestInvokeHostileText(t *testing.T) {
	for name, answer := range map[string]string{
		"reason": "HTTP/1.1 500 \x1b]0;title\a\r\nContent-Length: 0\r\n\r\n",
		"header": "HTTP/1.1 200 OK\r\n\x1b]0;title\a\r\n\r\n",
		"status": "\x1b]0;title\a",
	} {
		t.Run(name, func(t *testing.T) {
			w := calls(t, func(out http.ResponseWriter, _ *http.Request) {
				connection, _, err := out.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer connection.Close()
				_, _ = io.WriteString(connection, answer)
			})
			out, err := w.run("invoke", "fn")
			if err == nil || strings.ContainsAny(out+w.errOut.String()+err.Error(), "\x1b\a") {
				t.Errorf("it prints %q, %q and the error %q", out, w.errOut, err)
			}
		})
	}
}
