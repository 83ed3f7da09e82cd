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

// Package redact takes secrets out of text that people get to see: logs of
// builds and the last words of functions. It knows the values that it is told,
// and the forms in which programs print secrets. It cannot know all of them.
package redact

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	// Mark stands where a secret was.
	Mark = "[redacted]"

	// leastSecret is how many bytes a value must have to be hidden. Shorter ones
	// are everywhere.
	leastSecret = 4

	// mostFragment bounds, in bytes, the part of a secret that is looked for where
	// the text was cut.
	mostFragment = 1 << 10
)

// secretWord finds, among the words of a variable's name, the one that tells of a
// secret. Most also end longer words, such as PGPASSWORD and APIKEY.
var secretWord = regexp.MustCompile(`^(?:.*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(?:VALUE)?|.*KEYS?|.*AUTH|AUTHORIZATION|PASS|PWD)[0-9]*$`)

// otherWord finds words that only look so.
var otherWord = regexp.MustCompile(`^(?:MONKEY|DONKEY|TURKEY|HOCKEY|JOCKEY|WHISKEY|HOTKEY)S?$`)

// aboutSecret finds the last word of names such as AUTH_ENABLED and TOKEN_TTL,
// which tell of a secret without holding one.
var aboutSecret = regexp.MustCompile(`^(?:ENABLED|DISABLED|REQUIRED|TYPE|MODE|METHOD|TTL|TIMEOUT|EXPIRY|LENGTH|FILE|PATH|DIR)$`)

// wordEnd finds where a word of a name ends without a sign in between, as in
// clientSecret.
var wordEnd = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// IsSecret says whether the value of a variable of that name is a secret, by the
// words of the name. A switch is none, however it is called.
func IsSecret(name, value string) bool {
	if _, err := strconv.ParseBool(value); err == nil {
		return false
	}
	words := strings.FieldsFunc(strings.ToUpper(wordEnd.ReplaceAllString(name, "${1}_${2}")), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	// PWD by itself is the working directory.
	if len(words) == 0 || name == "PWD" || aboutSecret.MatchString(words[len(words)-1]) {
		return false
	}
	return slices.ContainsFunc(words, func(word string) bool { return secretWord.MatchString(word) && !otherWord.MatchString(word) })
}

// forms are how secrets are printed; the last group is what to hide. None looks
// at what is beside a match, so that to hide one makes no other.
var forms = []*regexp.Regexp{
	// https://user:password@host, and https://token@host.
	regexp.MustCompile(`://[^\s/:@]*:([^\s/]+)@`),
	regexp.MustCompile(`(?i)https?://([^\s/:@]{8,})@`),
	// Authorization: Bearer …, in whatever spelling, and its value by itself.
	regexp.MustCompile(`(?i)authorization["']?\s*[:=]\s*["']?(?:basic|bearer|digest|token)\s+([^\s"',]+)`),
	regexp.MustCompile(`(?i)(?:basic|bearer)\s+([\w.~+/-]{16,}=*)`),
	// .npmrc: //registry.example.com/:_authToken=…
	regexp.MustCompile(`(?i)_(?:auth|authToken|password)["']?\s*[:=]\s*["']?([^\s"']+)`),
	// An environment that is printed: by a shell, as JSON, by node's inspect.
	regexp.MustCompile(environment + `["']?\s*=\s*["']?([^\s"']{4,})`),
	regexp.MustCompile(environment + `["']?\s*:\s*["']([^"'\n]{4,})`),
	// A private key as PEM, which may have been cut.
	regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----([^-]+)`),
}

// environment is the end of the name of a variable that holds a secret.
const environment = `(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY)[A-Z0-9_]*`

// Text returns the text with Mark in the place of each secret: of the values of
// at least 4 bytes, also where the text begins or ends in the midst of one, and
// of what looks like a secret. To redact a text twice is to redact it once.
func Text(text string, values ...string) string {
	values = slices.DeleteFunc(slices.Clone(values), func(value string) bool { return len(value) < leastSecret })
	// What was hidden before is no place to look for secrets in.
	pieces := strings.Split(text, Mark)
	var hidden []span
	for i, piece := range pieces {
		hidden = find(hidden[:0], piece, values)
		if i == 0 {
			hidden = append(hidden, cutAtStart(piece, values))
		}
		if i == len(pieces)-1 {
			hidden = append(hidden, cutAtEnd(piece, values))
		}
		pieces[i] = hide(piece, hidden)
	}
	return strings.Join(pieces, Mark)
}

// span is a part of a text, from and up to a byte.
type span struct{ from, to int }

// find appends where the secrets are. They may overlap.
func find(spans []span, text string, values []string) []span {
	for _, value := range values {
		for from := 0; ; from++ {
			i := strings.Index(text[from:], value)
			if i < 0 {
				break
			}
			from += i
			spans = append(spans, span{from, from + len(value)})
		}
	}
	for _, form := range forms {
		for _, match := range form.FindAllStringSubmatchIndex(text, -1) {
			spans = append(spans, span{match[len(match)-2], match[len(match)-1]})
		}
	}
	return spans
}

// cutAtStart returns the longest end of a secret that the text begins with.
func cutAtStart(text string, values []string) span {
	longest := 0
	for _, value := range values {
		for n := min(len(value)-1, len(text), mostFragment); n >= leastSecret && n > longest; n-- {
			if strings.HasPrefix(text, value[len(value)-n:]) {
				longest = n
			}
		}
	}
	return span{0, longest}
}

// cutAtEnd returns the longest beginning of a secret that the text ends with.
func cutAtEnd(text string, values []string) span {
	longest := 0
	for _, value := range values {
		for n := min(len(value)-1, len(text), mostFragment); n >= leastSecret && n > longest; n-- {
			if strings.HasSuffix(text, value[:n]) {
				longest = n
			}
		}
	}
	return span{len(text) - longest, len(text)}
}

// hide puts one Mark in the place of spans that overlap or touch.
func hide(text string, spans []span) string {
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	var out strings.Builder
	shown := 0 // up to here the text is dealt with
	for _, s := range spans {
		if s.to <= s.from || s.to <= shown {
			continue
		}
		if s.from > shown || shown == 0 {
			out.WriteString(text[shown:s.from])
			out.WriteString(Mark)
		}
		shown = s.to
	}
	out.WriteString(text[shown:])
	return out.String()
}
