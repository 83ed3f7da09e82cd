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

package controlplane

import (
	"os"
	"strings"
	"testing"
)

func TestParseUsage(t *testing.T) {
	got, err := parseUsage("7 (a (b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0", "900 300 200 1 0 100 0", "Name:\ta\nVmPeak:\t   2000 kB\nVmHWM:\t    1200 kB\nVmRSS:\t    1100 kB\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Usage{CPU: 3, Resident: 300 * float64(os.Getpagesize()), Peak: 1200 << 10}
	if got != want {
		t.Errorf("parseUsage() = %+v, want %+v", got, want)
	}
	for _, stat := range []string{"", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 x 50 0"} {
		if got, err := parseUsage(stat, "900 300", "\nVmHWM:\t1 kB"); err == nil {
			t.Errorf("parseUsage(%q) = %+v, want an error", stat, got)
		}
	}
}

// TestAdapted checks Kiln's manifests as they are.
func TestAdapted(t *testing.T) {
	t.Chdir("../..")
	objects, environment, limits, err := adapted("127.0.0.1:5000", "8443", map[string]map[string]string{"config-functions": {"default-timeout": "123s"}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(objects)
	for _, want := range []string{
		"push: 127.0.0.1:5000", "insecure: 127.0.0.1:5000", "baseImage: 127.0.0.1:5000/base:1", "externalName: localhost",
		"port: 8443", `max-concurrent-builds: "0"`, "default-timeout: 123s", "kaniko-image: 127.0.0.1:5000/kaniko-image:1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the manifests lack %q", want)
		}
	}
	for _, unwanted := range []string{"kind: Deployment", "kind: PodDisruptionBudget", "\n  kaniko-image: ko://", "baseImage: node:24-bookworm-slim\n    language: nodejs\n  _"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the manifests have %q", unwanted)
		}
	}
	if len(environment["controller"]) == 0 {
		t.Error("the controller's environment is not found")
	}
	if limits["controller"] < 64<<20 {
		t.Errorf("the controller's memory limit is %v", limits["controller"])
	}
}
