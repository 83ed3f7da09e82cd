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

// Package api is the API of the relay: JSON over HTTP.
package api

import "time"

const (
	// Port is the port of the relay.
	Port = 8080
	// HealthPath is the path of the health check.
	HealthPath = "/healthz"
	// CallPath takes a Request by POST and returns its Answer.
	CallPath = "/call"
	// ProbesPath takes a Request by POST, sends it repeatedly, and returns a Probe.
	// GET of the ID below it returns the Report, and DELETE also ends the probe. With
	// ?until=BODY, GET waits until the last answer has that body.
	ProbesPath = "/probes"
	// FloodPath takes a Flood by POST and returns the Flooded when its time is over.
	FloodPath = "/flood"
	// KillPath takes a Kill by POST and returns the Killed.
	KillPath = "/kill"
)

// Request is a request for the relay to send.
type Request struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// Host is the header Host. It defaults to the host of the URL.
	Host        string            `json:"host,omitempty"`
	ContentType string            `json:"contentType,omitempty"`
	Accept      string            `json:"accept,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Body        []byte            `json:"body,omitempty"`
	// Chunked omits the length of the body.
	Chunked bool `json:"chunked,omitempty"`
}

// Answer is the result of a Request.
type Answer struct {
	Status      int    `json:"status,omitempty"`
	ContentType string `json:"contentType,omitempty"`
	// Headers has names in lower case.
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	// Error is the reason if there was no answer.
	Error string        `json:"error,omitempty"`
	Took  time.Duration `json:"took"`
}

// Probe is a Request that is sent repeatedly.
type Probe struct {
	ID string `json:"id"`
}

// Report has the results of a Probe so far.
type Report struct {
	Requests int `json:"requests"`
	// Runs has the answers of status 200. Equal answers in a row make one Run.
	Runs []Run `json:"runs"`
	// Failed counts the requests without an answer of status 200.
	Failed int `json:"failed"`
	// Failures has the first of these requests.
	Failures []Failure `json:"failures,omitempty"`
}

// Run is a sequence of equal answers.
type Run struct {
	Body  string    `json:"body"`
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Failure is a request without an answer of status 200.
type Failure struct {
	At     time.Time `json:"at"`
	Answer Answer    `json:"answer"`
}

// Flood asks for requests over TLS that never end. The relay replaces those that the server
// ends.
type Flood struct {
	// Address is the host and port of the server.
	Address string `json:"address"`
	// Path is the path of the requests.
	Path string `json:"path"`
	// Connections is the number of requests at a time.
	Connections int `json:"connections"`
	// Bytes is how much of its body each request sends.
	Bytes int `json:"bytes"`
	// Time is how long the flood lasts.
	Time time.Duration `json:"time"`
}

// Flooded counts the requests of a Flood.
type Flooded struct {
	// Sent counts the requests that sent all their bytes, and Refused the others.
	Sent    int `json:"sent"`
	Refused int `json:"refused"`
}

// Kill asks for SIGKILL to all processes of a container, or of a program, on the relay's
// node.
type Kill struct {
	// ContainerID is the container's ID, without the runtime's prefix.
	ContainerID string `json:"containerID,omitempty"`

	// Program is the path of the program on the node.
	Program string `json:"program,omitempty"`
}

// Killed has the IDs of the killed processes.
type Killed struct {
	PIDs []int `json:"pids"`
}
