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

package advice

import (
	"strings"
	"testing"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\r\né→😀":  "a\tb\r\né→😀",
		"\x1b[31m":     "␛[31m",
		"\a\b\x00":     "␇␈␀",
		"\x7f\u009b1m": "\ufffd\ufffd1m",
	} {
		if got := strings.Map(Visible, text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
