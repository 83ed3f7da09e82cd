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
	"strings"
	"testing"
)

func TestKillsVerdict(t *testing.T) {
	for _, test := range []struct {
		name string
		kill killReport
		all  bool
		want string
	}{
		{name: "nothing failed", kill: killReport{Built: 8, Builds: 8}, all: true},
		{name: "what failed was built again", kill: killReport{Built: 8, Builds: 8, FailedBuilds: 1}},
		{name: "as many requests failed to both", kill: killReport{traffic: traffic{Failed: 4, BareFailed: 4}}},
		{name: "a request failed to the Function alone", kill: killReport{traffic: traffic{Calls: 9, Failed: 1, Failure: "502"}}, want: "1 of 9 requests to a Function failed, and 0 of 0 to a Service beside it: 502"},
		{name: "many failed, and one of the other", kill: killReport{traffic: traffic{Calls: 9, Failed: 5, BareCalls: 9, BareFailed: 1}}, want: "5 of 9 requests"},
		{name: "built twice", kill: killReport{Built: 8, Builds: 9}, want: "9 builds have succeeded, and 8 Functions got another source"},
		{name: "not built", kill: killReport{Built: 8, Builds: 7}, want: "7 builds"},
		{name: "not killed, where that may be", kill: killReport{Skipped: "not here"}},
		{name: "not killed, where all can be", kill: killReport{Victim: "the registry", Skipped: "not here"}, all: true, want: "the registry was not killed: not here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := (&killsReport{Kills: []killReport{test.kill}}).verdict(test.all)
			if test.want == "" {
				if err != nil {
					t.Errorf("verdict = %v, want nothing wrong", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("verdict = %v, want %q", err, test.want)
			}
		})
	}
}
