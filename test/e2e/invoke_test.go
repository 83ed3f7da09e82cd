//go:build e2e

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
package e2e

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/test"
)

// echoing describes each request. One of its responses ends only when another
// request has asked for it.
const echoing = `
let finish;
const finished = new Promise((resolve) => { finish = resolve; });
module.exports = { main: async (event) => {
	const { request, response } = event.extensions;
	switch (request.path) {
	case '/stream':
		return (async function* () { yield 'first\n'; await finished; yield 'second\n'; })();
	case '/finish':
		return finish();
	case '/bytes':
		return event.data;
	case '/missing':
		response.status(404);
	}
	return { method: request.method, path: request.path, name: request.query.name, key: request.get('x-key'), type: request.get('content-type'), data: event.data, event: event['ce-type'] };
} };
`

// call is what the function echoing says of a request.
type call struct {
	Method, Path, Name, Key, Type, Event string
	Data                                 any
}

// TestInvoke calls a function with each flag of kubectl fn invoke.
func TestInvoke(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function(echoing)
	fn.Spec.MinReplicas = new(int32(1))
	e.until(e.create(fn), test.Ready)
	term := newTerminal(e)

	for name, tc := range map[string]struct {
		flags []string
		want  call
	}{
		"no flags":     {nil, call{Method: "GET", Path: "/", Data: map[string]any{}}},
		"data":         {[]string{"-d", `{"a": 1}`}, call{Method: "POST", Path: "/", Type: "application/json", Data: map[string]any{"a": 1.0}}},
		"content type": {[]string{"-d", "a=b", "--content-type=text/plain; charset=utf-8"}, call{Method: "POST", Path: "/", Type: "text/plain; charset=utf-8", Data: "a=b"}},
		"all of a request": {
			[]string{"-X", "PUT", "-H", "X-Key: secret", "--path=/orders/7", "--query", "name=Ada Lovelace", "-d", "text"},
			call{Method: "PUT", Path: "/orders/7", Name: "Ada Lovelace", Key: "secret", Type: "text/plain; charset=utf-8", Data: "text"},
		},
		"event": {[]string{"--event=order.paid", "-d", `"x"`}, call{Method: "POST", Path: "/", Type: "application/json", Data: "x", Event: "order.paid"}},
	} {
		var got call
		printed := term.run([]string{"200 OK"}, append([]string{"invoke", fn.Name}, tc.flags...)...)
		if err := json.Unmarshal([]byte(printed), &got); err != nil {
			t.Errorf("%s: %v: %s", name, err, printed)
		} else if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", name, diff)
		}
	}
	term.fail([]string{"404", `"path":"/missing"`}, "invoke", fn.Name, "--path=/missing")
	term.invokeBytes(fn.Name)
	term.invokeStream(fn.Name)
}

// invokeBytes checks that bytes that are no text arrive and return unchanged.
func (t *terminal) invokeBytes(fn string) {
	t.Helper()
	const body = "\x00\xff\r\n\x1b[31m"
	t.write("body", body)
	if got := t.run(nil, "invoke", fn, "--path=/bytes", "-d", "@body"); got != body {
		t.Errorf("the response is %q, want %q", got, body)
	}
	if got := t.run(nil, "invoke", fn, "--path=/bytes", "-d", "@body", "-o", "jsonpath={.status} {.isBase64Encoded} {.body}"); got != "200 true AP8NChtbMzFt" {
		t.Errorf("the response is printed as %q", got)
	}
}

// invokeStream checks that each piece of a response is printed when it arrives.
func (t *terminal) invokeStream(fn string) {
	t.Helper()
	command := t.command(t.ctx, "fn", "invoke", fn, "--path=/stream", "--namespace="+t.namespace)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	t.run(nil, "invoke", fn, "--path=/finish")
	if line, err := lines.ReadString('\n'); strings.TrimSpace(line) != "second" {
		t.Errorf("the second line is %q, %v", line, err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("kubectl fn invoke: %v", err)
	}
}
