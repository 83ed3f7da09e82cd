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

package builds

import (
	"regexp"
	"strings"

	"github.com/kiln-dev/kiln/pkg/redact"
)

const (
	// maxMessage and maxLog bound a condition's message and the log in a status, in bytes.
	maxMessage = 1 << 10
	maxLog     = 4 << 10
)

var (
	ansiEscape = regexp.MustCompile("\x1b\\[[0-9;]*m")

	// verbose matches the prefixes of Kaniko's errors.
	verbose = regexp.MustCompile(`^(error building image: |error building stage: |failed to execute command: )+`)
)

// Excerpt returns the last lines of a log without secrets, at most 4 KiB.
func Excerpt(log string, secrets ...string) string {
	return tail(clean(log, secrets), maxLog)
}

// clean first removes colours and invalid UTF-8, which may split a secret.
func clean(text string, secrets []string) string {
	return redact.Text(strings.ToValidUTF8(ansiEscape.ReplaceAllString(text, ""), ""), secrets...)
}

// lastLine returns the last line of the log, where a step reports its error.
func lastLine(log string) string {
	log = strings.TrimSpace(log)
	if i := strings.LastIndexByte(log, '\n'); i >= 0 {
		log = log[i+1:]
	}
	return verbose.ReplaceAllString(log, "")
}

func head(s string, limit int) string {
	const more = " …"
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "")
	}
	return strings.ToValidUTF8(s[:limit-len(more)], "") + more
}

// tail returns at most limit bytes of the end of s. It drops a line that it would cut,
// unless there is no other.
func tail(s string, limit int) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "")
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		return rest
	}
	return strings.ToValidUTF8(s, "")
}
