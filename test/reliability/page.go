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
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-dev/kiln/test"
)

// weatherReport is the result of a run with faults.
type weatherReport struct {
	Seed         uint64      `json:"seed"`
	Functions    int         `json:"functions"`
	Cores        int         `json:"cores"`
	BuildsAtOnce int         `json:"builds_at_once"`
	Days         []dayReport `json:"days"`
	// Wrong lists the errors.
	Wrong []string `json:"wrong,omitempty"`
}

// dayReport is the result of one day.
type dayReport struct {
	Rate   float64 `json:"rate"`
	Killed bool    `json:"killed,omitempty"`
	// Builder and Server are the kinds of the objects that built and served.
	Builder string `json:"builder"`
	Server  string `json:"server"`
	// SettledS is the time from the last edit until all Functions had their final state, in
	// seconds.
	SettledS float64        `json:"settled_s"`
	Faults   map[string]int `json:"faults"`
	// Requests are those for Functions, Events those of Events, and All all requests.
	Requests int `json:"requests"`
	Events   int `json:"events"`
	All      int `json:"all"`
	// Most is the largest number of requests for one Function. MostOfAllowed is the largest
	// share of the allowed requests, and Busiest the largest number within a second.
	Most          int     `json:"most"`
	MostOfAllowed float64 `json:"most_of_allowed"`
	Busiest       int     `json:"busiest"`
	Goroutines    int     `json:"goroutines"`
	HeapMiB       float64 `json:"heap_mib"`
	ResidentMiB   float64 `json:"resident_mib"`
	// Starts and WebhookStarts count the restarts of the controller and the webhook.
	Starts        int `json:"starts"`
	WebhookStarts int `json:"webhook_starts"`
}

// report returns the result of the run.
func (w *weather) report() *weatherReport {
	r := &weatherReport{Seed: w.seed, Functions: w.functions, Cores: runtime.NumCPU(), BuildsAtOnce: w.judge.most, Wrong: w.judge.wrong}
	for _, d := range w.rounds {
		_, most := d.tally.most(func(s *share) int { return s.requests })
		_, busiest := d.tally.most(func(s *share) int { return s.busiest })
		day := dayReport{
			Rate: d.rate, Killed: d.killed, Builder: d.builder(), Server: d.server(), SettledS: d.worst.Seconds(), Faults: d.tally.faults,
			Requests: d.tally.work, Events: d.tally.events, All: d.tally.all, Most: most, Busiest: busiest,
			Goroutines: d.after.goroutines, HeapMiB: d.after.heap / (1 << 20), ResidentMiB: d.after.resident / (1 << 20), Starts: d.starts, WebhookStarts: d.webhookStarts,
		}
		for _, s := range storiesOf(w.functions, w.seed) {
			if found := d.tally.by[key(s.key)]; found != nil {
				day.MostOfAllowed = max(day.MostOfAllowed, float64(found.requests)/float64(allowed(s, found, d)))
			}
		}
		r.Days = append(r.Days, day)
	}
	return r
}

const pageIntro = `# Reliability

This page shows what happens to Functions when the systems below Kiln fail, and when other tenants are hostile.
` + "`make test-faults`, `make test-kills LONG=1` and `make test-neighbours LONG=1`" + ` each write one chapter.
` + "`build/reliability`" + ` has the figures of the last run.
[test/README.md](../test/README.md#the-search-for-faults) describes the search for faults in the reconciler itself.
`

// These are the chapters of the page, in order.
const (
	weatherTitle    = "Bad weather"
	killsTitle      = "On a cluster"
	neighboursTitle = "Noisy neighbours"
)

// chapter is the result of one kind of run.
type chapter interface {
	// title returns the heading.
	title() string
	// write writes the text below the heading. earlier is the present text.
	write(b *strings.Builder, earlier string)
}

func (*weatherReport) title() string { return weatherTitle }

func (*killsReport) title() string { return killsTitle }

const weatherIntro = `etcd, the API server and the garbage collector are real, in the versions of the local cluster. So are Kiln's controller and
webhook: they run as processes with the roles and the configuration of their manifests. A proxy between Kiln and the API
server disturbs requests as networks and busy API servers do. Only Kiln's requests pass through it. A stand-in replaces
Tekton and Serving; it takes up to a second for each build and each roll-out. Up to 6 builds run at once, 4 of each namespace, and one more for each creation whose answer is lost.

The proxy chooses one of these faults, all with the same probability:

- a conflict (409), for writes only
- too many requests (429), to retry after a second
- an internal error (500)
- a connection that breaks before the API server gets the request
- a connection that breaks before the response
- no response for 40 s
- a response that takes up to 3 s

It also tells watches that their version is too old (410), and drops them at any moment. In each second, each of these two
happens with half the probability of the column *bad*.

On each day, users create, edit, rebuild, delete and create all Functions again. They wait up to 2.5 s between two steps.
Some Functions cannot be built, or not at first. In the end, the last edit of each user must be in effect:

- the status is of the current generation
- there is one ConfigMap and no running build
- the Service has an image of the current source, or the status reports the failure
- nothing is left of deleted Functions
- the controller sends no more requests, although the faults continue

At no time may a Function have two running builds.

`

const killsIntro = `Functions are built and edited on the local cluster, where everything is real, while a part of it is killed. The process gets
SIGKILL, and the kubelet, systemd or Docker restarts it. All Functions are edited around each kill. Some get another source
and are built. The others get another variable and are rolled out. Half of the edits come before the kill, so that builds
run, and half directly after it. A user retries a refused edit every second. In the end all must be Ready as last edited.

Every 50 ms, a pod calls another Function, which nobody edits. It also calls a Service of the same image that Kiln does not
manage. A failure of both has another cause than Kiln. The figures are from one kill each. The seconds are mostly those of builds
and roll-outs, which share one machine with everything else: compare the row *nothing*.

`

// write saves the result and updates its chapter of the page. The other chapters stay.
func write(folder, docs, name string, found chapter) error {
	if err := test.WriteJSON(folder, name, found); err != nil {
		return err
	}
	file := filepath.Join(docs, "reliability.md")
	earlier, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("failed to read page: %w", err)
	}
	if err := os.MkdirAll(docs, 0o755); err != nil {
		return fmt.Errorf("failed to create folder: %w", err)
	}
	if err := os.WriteFile(file, []byte(page(string(earlier), found)), 0o644); err != nil {
		return fmt.Errorf("failed to write page: %w", err)
	}
	return nil
}

// page returns docs/reliability.md with the new chapter.
func page(earlier string, found chapter) string {
	var b strings.Builder
	b.WriteString(pageIntro)
	for _, title := range []string{weatherTitle, killsTitle, neighboursTitle} {
		text := chapterOf(earlier, title)
		if title != found.title() && text == "" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		if title == found.title() {
			found.write(&b, text)
		} else {
			b.WriteString(text)
		}
	}
	return b.String()
}

// chapterOf returns the text below a heading of a page.
func chapterOf(page, title string) string {
	_, text, _ := strings.Cut(page, "\n## "+title+"\n\n")
	text, _, _ = strings.Cut(text, "\n\n## ")
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return text + "\n"
}

// write implements chapter.
func (w *weatherReport) write(b *strings.Builder, _ string) {
	b.WriteString(weatherIntro)
	fmt.Fprintf(b, "%d Functions, with `-seed=%d`, on %d cores. At most %d builds ran at once.\n\n", w.Functions, w.Seed, w.Cores, w.BuildsAtOnce)
	b.WriteString("| bad | built and served by | all correct, after the last edit | requests for Functions | Events | most for one Function | share of the allowed | in its busiest second | goroutines after it | MiB in use |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n")
	for _, d := range w.Days {
		killed := ""
		if d.Killed {
			killed = ", and controller and webhook killed"
		}
		fmt.Fprintf(b, "| %g %%%s | %s, %s | %.1f s | %d | %d | %d | %.0f %% | %d | %d | %.1f |\n", 100*d.Rate, killed, d.Builder, d.Server, d.SettledS, d.Requests, d.Events,
			d.Most, 100*d.MostOfAllowed, d.Busiest, d.Goroutines, d.HeapMiB)
	}
	fmt.Fprintf(b, "\nKiln may send %d requests for each step of a Function's user, with the builds and roll-outs that follow. It may send %d more for each fault that "+
		"hits one of them, which causes another reconcile, and %d for each minute, because dropped watches lose state. The limit is %d for one Function in any second: "+
		"Kiln retries after 5 ms and then backs off. Goroutines and memory are those of the controller after the day, without faults. The last day before a kill may "+
		"have %d goroutines and %.0f %% of memory more than the first. A day without faults that follows another one may have %.0f %% and 2 KiB for each Event more: client-go remembers the last 4,096 Events.\n", perStep, perFault, perMinute, perSecond, moreGoroutines, 100*(moreHeap-1), 100*(moreOnNextFineDay-1))
	b.WriteString("\n| bad | what happened |\n|---|---|\n")
	for _, d := range w.Days {
		if len(d.Faults) > 0 {
			fmt.Fprintf(b, "| %g %%, %s, %s | %s |\n", 100*d.Rate, d.Builder, d.Server, listed(d.Faults))
		}
	}
	for _, wrong := range w.Wrong {
		fmt.Fprintf(b, "\n**Wrong:** %s\n", wrong)
	}
}

// write implements chapter. Victims that were not killed this time keep their rows.
func (k *killsReport) write(b *strings.Builder, earlier string) {
	rows := tableRows(earlier)
	for _, r := range k.Kills {
		name := r.Victim
		if r.Skipped != "" {
			name += " (not killed: " + r.Skipped + ")"
		}
		builds := strconv.Itoa(r.Builds)
		if r.FailedBuilds > 0 {
			builds += fmt.Sprintf(", %d retried", r.FailedBuilds)
		}
		rows[r.Victim] = fmt.Sprintf("| %s | %d, %d | %.1f s | %.1f s | %s | %d of %d | %d of %d |", name, r.Functions, r.Built, r.ReadyS, r.RefusedS,
			builds, r.Failed, r.Calls, r.BareFailed, r.BareCalls)
	}
	b.WriteString(killsIntro)
	b.WriteString("| killed | Functions edited, and of these built | all Ready after | edits refused for | builds | failed requests | of the unmanaged Service |\n|---|---|---|---|---|---|---|\n")
	for _, v := range victims {
		if row, ok := rows[v.name]; ok {
			fmt.Fprintln(b, row)
		}
	}
}

// tableRows returns the rows of the tables in a text by their first column.
func tableRows(text string) map[string]string {
	rows := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			rows[name] = line
		}
	}
	return rows
}

// listed lists the counts, the largest first.
func listed(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(counts[y]-counts[x], strings.Compare(x, y))
	})
	words := make([]string, 0, len(names))
	for _, name := range names {
		words = append(words, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(words, ", ")
}
