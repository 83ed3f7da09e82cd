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

package pods

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadEnd(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"empty":      {"", ""},
		"short":      {"abc", "abc"},
		"as long":    {"abcde", "abcde"},
		"longer":     {"0123456789abcde", "abcde"},
		"far longer": {strings.Repeat("x", 200<<10) + "abcde", "abcde"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readEnd(strings.NewReader(tc.in), 5)
			if err != nil || got != tc.want {
				t.Errorf("readEnd() = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	broken := errors.New("broken")
	if got, err := readEnd(iotest.ErrReader(broken), 5); !errors.Is(err, broken) || got != "" {
		t.Errorf("readEnd() of what breaks = %q, %v", got, err)
	}
	if got, err := readEnd(iotest.OneByteReader(strings.NewReader("0123456789")), 5); err != nil || got != "56789" {
		t.Errorf("readEnd() byte by byte = %q, %v", got, err)
	}
}
