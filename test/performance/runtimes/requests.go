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

package main

import (
	"fmt"
	"strings"
)

var (
	// get is the simplest request.
	get = []byte("GET / HTTP/1.1\r\nHost: function\r\n\r\n")

	// cloudEvent is one in binary mode with 1 KiB of JSON.
	cloudEvent = newCloudEvent()
)

func newCloudEvent() []byte {
	body := fmt.Sprintf(`{"name": "kiln", "text": %q, "numbers": [%s0]}`, strings.Repeat("text ", 120), strings.Repeat("12345, ", 53))
	return fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: function\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Ce-Specversion: 1.0\r\nCe-Id: 1\r\nCe-Type: com.example.greeting\r\nCe-Source: /bench\r\n\r\n%s", len(body), body)
}
