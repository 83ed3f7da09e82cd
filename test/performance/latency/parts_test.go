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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func at(seconds float64) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

func TestReadBuildLog(t *testing.T) {
	const install = `2026-01-02T03:04:01.0Z INFO[0000] Retrieving image manifest registry:5000/base/node:24
2026-01-02T03:04:01.5Z INFO[0000] Unpacking rootfs as cmd COPY package.json ./ requires it.
2026-01-02T03:04:04.5Z INFO[0003] Initializing snapshotter ...
2026-01-02T03:04:04.6Z INFO[0003] RUN npm install
2026-01-02T03:04:06.0Z INFO[0005] Taking snapshot of full filesystem...
`
	const push = `2026-01-02T03:04:07.0Z Building on registry:5000/base/node:24
2026-01-02T03:04:07.5Z Pushed registry:5000/ns/fn@sha256:0
`
	for name, tc := range map[string]struct {
		install, push string
		want          buildLog
	}{
		"dependencies": {
			install: install, push: push,
			want: buildLog{begun: at(1), fetched: at(1.5), unpacked: at(4.5), ran: at(6), ended: at(7.5)},
		},
		"no dependencies": {push: push, want: buildLog{begun: at(7), ended: at(7.5)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := buildLog{}
			if err := got.readInstall(strings.NewReader(tc.install)); err != nil {
				t.Fatal(err)
			}
			if err := got.readPush(strings.NewReader(tc.push)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(buildLog{})); diff != "" {
				t.Error("unexpected times (-want, +got):", diff)
			}
		})
	}
	if err := new(buildLog).readPush(strings.NewReader("INFO[0000] Retrieving\n")); err == nil {
		t.Error("a line without its time was read")
	}
}

func TestSplit(t *testing.T) {
	for name, tc := range map[string]struct {
		marks marks
		want  map[string]float64
	}{
		"built": {
			marks: marks{
				start: at(0), written: at(0.1), build: at(0.3), pod: at(0.4),
				log:   buildLog{begun: at(3), fetched: at(3.5), unpacked: at(6), ran: at(7), ended: at(7.5)},
				image: at(8), revision: at(10), ready: at(10.5),
			},
			want: map[string]float64{
				admission: 0.1, configure: 0.2, queue: 0.1, podStart: 2.6,
				fetch: 0.5, unpack: 2.5, run: 1, push: 0.5, finish: 0.5, revision: 2, route: 0.5,
			},
		},
		"without a build": {
			marks: marks{start: at(0), written: at(0.1), image: at(0.2), revision: at(2), ready: at(2.5)},
			want:  map[string]float64{admission: 0.1, finish: 0.1, revision: 1.8, route: 0.5},
		},
		"seen before the write was answered": {
			marks: marks{start: at(0), written: at(0.3), build: at(0.2), pod: at(0.5)},
			want:  map[string]float64{admission: 0.3, configure: 0, queue: 0.2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.marks.split()
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
				t.Error("unexpected parts (-want, +got):", diff)
			}
		})
	}
}

func TestConclude(t *testing.T) {
	samples := map[string][]float64{rowFloor: {5, 7, 6}, rowEnvEdit: {4, 2, 3}, rowSourceEdit: {9, 12, 30}}
	split := map[string][]map[string]float64{rowFloor: {{service: 2}, {service: 1.5}, {service: 4}}}
	got := conclude(samples, split)
	for name, want := range map[string]struct {
		baseline string
		ratio    float64
	}{
		rowFloor:      {rowFloor, 1},
		rowSourceEdit: {rowFloor, 2},
		rowEnvEdit:    {"floor.service", 1.5},
	} {
		if row := got.Row(name); row.Baseline != want.baseline || row.Ratio != want.ratio {
			t.Errorf("row %s is %v of %s, want %v of %s", name, row.Ratio, row.Baseline, want.ratio, want.baseline)
		}
	}
}
