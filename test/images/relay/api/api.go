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

// Package api is what the relay understands: JSON over HTTP.
package api

import "time"

const (
	// Port is where the relay listens.
	Port = 8080
	// HealthPath answers when the relay is there.
	HealthPath = "/healthz"
	// CallPath takes a Request by POST and answers with its Answer.
	CallPath = "/call"
	// ProbesPath takes a Request by POST, sends it over and over, and answers
	// with a Probe. Below it, the probe's ID answers with its Report to GET;
	// with ?until=BODY only when the last answer had that body. DELETE ends it.
	ProbesPath = "/probes"
	// KillPath takes a Kill by POST and answers with the Killed.
	KillPath = "/kill"
)

// Request is a request that the relay is to send.
type Request struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// Host is the name that the request is sent to, where it is not the URL's.
	Host        string `json:"host,omitempty"`
	ContentType string `json:"contentType,omitempty"`
	Accept      string `json:"accept,omitempty"`
	// Headers are further headers.
	Headers map[string]string `json:"headers,omitempty"`
	// Body need not be text.
	Body []byte `json:"body,omitempty"`
	// Chunked says that the length of the body is not told beforehand.
	Chunked bool `json:"chunked,omitempty"`
}

// Answer is what came of a Request.
type Answer struct {
	Status      int    `json:"status,omitempty"`
	ContentType string `json:"contentType,omitempty"`
	// Headers are all headers, by their names in lower case.
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	// Error tells why there was no answer.
	Error string        `json:"error,omitempty"`
	Took  time.Duration `json:"took"`
}

// Probe is a Request that is sent over and over.
type Probe struct {
	ID string `json:"id"`
}

// Report is what came of a Probe so far.
type Report struct {
	Requests int `json:"requests"`
	// Runs are the answers of status 200. Equal ones in a row make one Run.
	Runs []Run `json:"runs"`
	// Failed counts the requests that had no answer, or one of another status.
	Failed int `json:"failed"`
	// Failures are the first of the failed.
	Failures []Failure `json:"failures,omitempty"`
}

// Run is a row of equal answers.
type Run struct {
	Body  string    `json:"body"`
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Failure is a request that had no good answer.
type Failure struct {
	At     time.Time `json:"at"`
	Answer Answer    `json:"answer"`
}

// Kill asks for SIGKILL to processes of the relay's node: to all of a container, or
// to all of a program.
type Kill struct {
	// ContainerID is the container's ID, without the runtime's prefix.
	ContainerID string `json:"containerID,omitempty"`

	// Program is the path of a program's file, as the node has it.
	Program string `json:"program,omitempty"`
}

// Killed names the processes that were sent SIGKILL.
type Killed struct {
	PIDs []int `json:"pids"`
}
