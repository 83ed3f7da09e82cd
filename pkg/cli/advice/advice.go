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

// Package advice has errors that tell the user what to try next.
package advice

import (
	"fmt"
	"strings"
	"unicode"
)

// Error is an error with advice.
type Error struct {
	error
	advice string
}

// Error returns text for a terminal. Some errors quote the log of a build or a function.
func (e Error) Error() string {
	return strings.Map(Visible, e.error.Error()+"\nTry: "+e.advice)
}

// Unwrap returns the error without the advice.
func (e Error) Unwrap() error { return e.error }

// Try adds advice, such as a command, to the error.
func Try(err error, format string, args ...any) error {
	return Error{error: err, advice: fmt.Sprintf(format, args...)}
}

// Visible replaces a control character by one that shows it.
func Visible(r rune) rune {
	const picture = '\u2400' // of NUL; those of the others follow
	switch {
	case r == '\n', r == '\r', r == '\t', !unicode.IsControl(r):
		return r
	case r < ' ':
		return picture + r
	}
	return unicode.ReplacementChar
}
