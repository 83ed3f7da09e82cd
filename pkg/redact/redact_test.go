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

package redact

import (
	"strings"
	"testing"
	"time"
)

func TestIsSecret(t *testing.T) {
	for name, want := range map[string]bool{
		"TOKEN": true, "GITHUB_TOKEN": true, "npm_config__authToken": true, "clientSecret": true, "client-secret": true,
		"DB_PASSWORD": true, "MYSQL_PWD": true, "PGPASSWD": true, "SSH_PASSPHRASE": true, "API_KEY": true, "AWS_CREDENTIALS": true,
		"PGPASSWORD": true, "apiKey": true, "APIKEY": true, "AWS_SECRET_ACCESS_KEY": true, "KEY": true, "TOKENS": true, "DB_PASS": true,
		"STORAGEKEY": true, "HMACKEY": true, "STRIPEKEYS": true, "BASICAUTH": true, "TOKENVALUE": true, "SECRETVALUE": true,
		"AUTH": true, "BASIC_AUTH": true, "AUTH_HEADER": true, "AUTHORIZATION": true, "TOKEN2": true, "TOKEN_2": true,
		"HTTP_PROXY": false, "NODE_ENV": false, "PWD": false, "OLDPWD": false, "GREETING": false, "": false, "_": false,
		"MONKEY": false, "HOTKEYS": false, "HOCKEY": false, "KEYBOARD": false, "KEYCLOAK_URL": false, "AUTHOR": false, "AUTHORITY": false, "TOKENIZER": false, "SECRETARY": false,
		"PASSENGER": false, "COMPASS": false, "AUTH_ENABLED": false, "TOKEN_TTL": false, "PASSWORD_FILE": false, "authMode": false,
	} {
		if got := IsSecret(name, "hunter2"); got != want {
			t.Errorf("IsSecret(%q) = %v", name, got)
		}
	}
	for _, value := range []string{"true", "false", "True", "1", "0"} {
		if IsSecret("AUTH", value) {
			t.Errorf("%s is a secret", value)
		}
	}
}

func TestText(t *testing.T) {
	tests := map[string]struct {
		text   string
		values []string
		want   string
	}{
		"nothing":              {text: "", values: []string{"hunter2"}, want: ""},
		"nothing secret":       {text: "npm error code E404", values: []string{"hunter2"}, want: "npm error code E404"},
		"a value":              {text: "login with hunter2 failed", values: []string{"hunter2"}, want: "login with [redacted] failed"},
		"a value, repeated":    {text: "hunter2hunter2 hunter2", values: []string{"hunter2"}, want: "[redacted] [redacted]"},
		"a value of two lines": {text: "x one\ntwo y", values: []string{"one\ntwo"}, want: "x [redacted] y"},
		"values that overlap":  {text: "x abcdefgh y", values: []string{"abcdef", "defgh"}, want: "x [redacted] y"},
		"a value in another":   {text: "x abcdefgh y", values: []string{"cdef", "abcdefgh"}, want: "x [redacted] y"},
		"a value and itself":   {text: "xaaaaaax", values: []string{"aaaa"}, want: "x[redacted]x"},
		"values too short":     {text: "a bc def", values: []string{"", "a", "bc", "def"}, want: "a bc def"},
		"a value cut in front": {text: "nter2 was refused", values: []string{"hunter2"}, want: "[redacted] was refused"},
		"a value cut behind":   {text: "login with hunt", values: []string{"hunter2"}, want: "login with [redacted]"},
		"a word of the mark":   {text: "x redacted y", values: []string{"redacted"}, want: "x [redacted] y"},
		"redacted before":      {text: "x [redacted] y", values: []string{"redacted", "[redacted]"}, want: "x [redacted] y"},

		"password in a URL":             {text: "GET https://bob:hunter2@example.com/x failed", want: "GET https://bob:[redacted]@example.com/x failed"},
		"password with signs in a URL":  {text: "redis://:p:a@ss@example.com:6379", want: "redis://:[redacted]@example.com:6379"},
		"token in a URL":                {text: "fetch https://ghp_0123456789@example.com/a.git", want: "fetch https://[redacted]@example.com/a.git"},
		"user in a URL":                 {text: "ssh://git@example.com/a.git", want: "ssh://git@example.com/a.git"},
		"a URL with a port":             {text: "http://registry.example.com:5000/v2/, mail a@b.c", want: "http://registry.example.com:5000/v2/, mail a@b.c"},
		"a package's version in a URL":  {text: "GET https://example.com/ms@2.1.3", want: "GET https://example.com/ms@2.1.3"},
		"an image by digest":            {text: "registry.example.com:5000/a@sha256:0123", want: "registry.example.com:5000/a@sha256:0123"},
		"bearer in a header":            {text: "Authorization: Bearer abc", want: "Authorization: Bearer [redacted]"},
		"basic in a header as JSON":     {text: `{"authorization":"Basic Ym9i"}`, want: `{"authorization":"Basic [redacted]"}`},
		"header of node's inspect":      {text: "headers: { authorization: 'token abc' }", want: "headers: { authorization: 'token [redacted]' }"},
		"bearer by itself":              {text: "sent bearer eyJhbGciOiJIUzI1NiJ9.e30.abc-_=", want: "sent bearer [redacted]"},
		"what is called bearer":         {text: "bearer authentication required", want: "bearer authentication required"},
		".npmrc token":                  {text: "//registry.example.com/:_authToken=npm_abc", want: "//registry.example.com/:_authToken=[redacted]"},
		".npmrc auth":                   {text: "_auth = Ym9iOmh1bnRlcjI=\nalways-auth=true", want: "_auth = [redacted]\nalways-auth=true"},
		".npmrc password":               {text: `//registry.example.com/:_password="aHVudGVyMg=="`, want: `//registry.example.com/:_password="[redacted]"`},
		"environment of a shell":        {text: "HOME=/tmp\nDB_PASSWORD=hunter2\nA=b", want: "HOME=/tmp\nDB_PASSWORD=[redacted]\nA=b"},
		"environment as JSON":           {text: `{"HOME":"/tmp","NPM_TOKEN":"a b c d"}`, want: `{"HOME":"/tmp","NPM_TOKEN":"[redacted]"}`},
		"environment of node's inspect": {text: "{ API_KEY: 'abcd', HOME: '/tmp' }", want: "{ API_KEY: '[redacted]', HOME: '/tmp' }"},
		"a syntax error":                {text: "SyntaxError: Unexpected token: '}'", want: "SyntaxError: Unexpected token: '}'"},
		"an error code":                 {text: "UNAUTHORIZED: authentication required", want: "UNAUTHORIZED: authentication required"},
		"a private key": {
			text: "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\n",
			want: "-----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY-----\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Text(tc.text, tc.values...)
			if got != tc.want {
				t.Errorf("Text() = %q, want %q", got, tc.want)
			}
			if again := Text(got, tc.values...); again != got {
				t.Errorf("Text() of that = %q", again)
			}
		})
	}
}

// Redacting twice must have the same result, because a status that is written again with
// the same text must not change.
func FuzzText(f *testing.F) {
	f.Add("login with hunter2 failed", "hunter2", "")
	f.Add("xaaaaaax", "aaaa", "aaax")
	f.Add("GET https://bob:hunter2@example.com:80@x", "bob:", "@example")
	f.Add("Authorization: Bearer bearer bearer 0123456789abcdef", "bearer", "tion: B")
	f.Add("A_TOKEN=TOKEN='abcd'TOKEN: 'abcd", "TOKEN", "='ab")
	f.Add("x [redacted] y", "redacted", "] y[redac")
	f.Add("-----BEGIN PRIVATE KEY-----\n-----BEGIN PRIVATE KEY-----abc", "KEY-", "----")
	f.Fuzz(func(t *testing.T, text, a, b string) {
		start := time.Now()
		once := Text(text, a, b)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		if twice := Text(once, a, b); twice != once {
			t.Errorf("once %q, twice %q", once, twice)
		}
		for piece := range strings.SplitSeq(once, Mark) {
			for _, value := range []string{a, b} {
				if len(value) >= leastSecret && strings.Contains(piece, value) {
					t.Errorf("%q still has %q", once, value)
				}
			}
		}
	})
}

func BenchmarkText(b *testing.B) {
	text := strings.Repeat("npm error 404 Not Found - GET https://registry.example.com/nope AUTH_", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Text(text, "hunter2", "correct horse battery staple")
	}
}
