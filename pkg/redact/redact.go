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

// Package redact removes secrets from logs and error messages. It finds the values that
// its caller passes, and common forms in which programs print secrets. It cannot find all.
package redact

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	// Mark replaces a secret.
	Mark = "[redacted]"

	// leastSecret is the length in bytes from which values are redacted. Shorter values
	// occur by chance.
	leastSecret = 4

	// mostFragment bounds the part of a secret, in bytes, that is searched for at the
	// start and the end of a text.
	mostFragment = 1 << 10
)

// secretWord matches a word in the name of a variable that holds a secret. Most also match
// the end of longer words, such as PGPASSWORD and APIKEY.
var secretWord = regexp.MustCompile(`^(?:.*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(?:VALUE)?|.*KEYS?|.*AUTH|AUTHORIZATION|PASS|PWD)[0-9]*$`)

// otherWord matches words that secretWord matches by mistake.
var otherWord = regexp.MustCompile(`^(?:MONKEY|DONKEY|TURKEY|HOCKEY|JOCKEY|WHISKEY|HOTKEY)S?$`)

// aboutSecret matches the last word of names such as AUTH_ENABLED and TOKEN_TTL, which hold
// no secret.
var aboutSecret = regexp.MustCompile(`^(?:ENABLED|DISABLED|REQUIRED|TYPE|MODE|METHOD|TTL|TIMEOUT|EXPIRY|LENGTH|FILE|PATH|DIR)$`)

// wordEnd matches the end of a word in camel case, as in clientSecret.
var wordEnd = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// IsSecret reports whether the name of a variable suggests that its value is a secret. A
// boolean value is not a secret.
func IsSecret(name, value string) bool {
	if _, err := strconv.ParseBool(value); err == nil {
		return false
	}
	words := strings.FieldsFunc(strings.ToUpper(wordEnd.ReplaceAllString(name, "${1}_${2}")), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	// PWD alone is the working directory.
	if len(words) == 0 || name == "PWD" || aboutSecret.MatchString(words[len(words)-1]) {
		return false
	}
	return slices.ContainsFunc(words, func(word string) bool { return secretWord.MatchString(word) && !otherWord.MatchString(word) })
}

// forms match printed secrets. The last group is the secret. No form looks beyond its
// match, so a redaction never makes another form match.
var forms = []*regexp.Regexp{
	// https://user:password@host, and https://token@host.
	regexp.MustCompile(`://[^\s/:@]*:([^\s/]+)@`),
	regexp.MustCompile(`(?i)https?://([^\s/:@]{8,})@`),
	// Authorization: Bearer …, in any spelling, and its value alone.
	regexp.MustCompile(`(?i)authorization["']?\s*[:=]\s*["']?(?:basic|bearer|digest|token)\s+([^\s"',]+)`),
	regexp.MustCompile(`(?i)(?:basic|bearer)\s+([\w.~+/-]{16,}=*)`),
	// .npmrc: //registry.example.com/:_authToken=…
	regexp.MustCompile(`(?i)_(?:auth|authToken|password)["']?\s*[:=]\s*["']?([^\s"']+)`),
	// A printed environment: by a shell, as JSON, or by node's inspect.
	regexp.MustCompile(environment + `["']?\s*=\s*["']?([^\s"']{4,})`),
	regexp.MustCompile(environment + `["']?\s*:\s*["']([^"'\n]{4,})`),
	// A private key as PEM, also if it was cut.
	regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----([^-]+)`),
}

// environment matches the end of the name of a variable that holds a secret.
const environment = `(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY)[A-Z0-9_]*`

// Text replaces each secret in the text by Mark: values of at least 4 bytes, also if the
// text starts or ends inside one, and text that looks like a secret. Redacting twice has
// the same result.
func Text(text string, values ...string) string {
	values = slices.DeleteFunc(slices.Clone(values), func(value string) bool { return len(value) < leastSecret })
	// A Mark in the text is never part of a secret.
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

type span struct{ from, to int }

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

// hide replaces spans by Mark, and adjoining spans by one Mark.
func hide(text string, spans []span) string {
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	var out strings.Builder
	shown := 0 // The text before it is done.
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
