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
			Rate: d.rate, Killed: d.killed, SettledS: d.worst.Seconds(), Faults: d.tally.faults,
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

What becomes of Functions when what Kiln stands upon fails. This page is written by ` + "`make test-faults`" + `
and ` + "`make test-kills LONG=1`" + `, each its chapter; the figures of the last run are in ` + "`build/reliability`" + `, too. The search for faults in the
reconciler itself, call by call, is in [test/README.md](../test/README.md#the-search-for-faults).
`

// These are the chapters of the page, in order.
const (
	weatherTitle = "Bad weather"
	killsTitle   = "On a cluster"
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

const weatherIntro = `Real are etcd and the API server, of the versions that the local cluster has, the garbage collector, and Kiln's controller and
webhook, as processes with the roles and the configuration of its manifests. Between Kiln and the API server there is a proxy
that does to requests what networks and busy API servers do; nobody else goes through it. In place of Tekton and Serving
there is a stand-in that takes up to a second for each build and each roll-out. Up to 6 builds run at once, 4 of each
namespace.

What happens to a request is one of these, each as often as the others: a conflict (409; not to reads), too many requests (429,
to be tried again after a second), an internal error (500), a connection that breaks before the API server has the request,
or before it is answered, no answer for 40 s, or one that takes up to 3 s. Watches are told that what they know is too old
(410), too, and are dropped at any moment: each with half the probability of the column *bad* in each second.

On each day all Functions are created, edited, rebuilt, deleted and created again by users who wait up to 2.5 s
between what they do; some cannot be built, or not at first. In the end each must be what its user has last asked for: its
status of the current generation, one ConfigMap, no TaskRun that runs, and a Service with an image of the current source, or
what fails told; nothing may be left of those that are deleted, and nothing may be asked for any more while the weather goes on.
At no time may a Function have two TaskRuns that run.

`

const killsIntro = `Functions are built and edited on the local cluster, with all that is real there, while a part of it is killed: the process
gets SIGKILL, and the kubelet, systemd or Docker starts it again. About each kill all Functions are edited: some get another source,
and are built, the others another variable, and are rolled out. Half of that comes before the kill, which is when a build runs, the
other half at once after it; who is refused tries again each second. All must become Ready as they are then.

Another Function, which nobody edits, is called all the time by a pod, every 50 ms, and so is a Service beside it of the
same image that Kiln knows nothing of: what fails for both is not Kiln's doing. Figures are of one kill each. Their seconds are
mostly those of the builds and the roll-outs, which share the cores of one machine with all else: see the row of *nothing*.

`

// write saves the result and updates its chapter of the page. The other chapter stays.
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
	for _, title := range []string{weatherTitle, killsTitle} {
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
	fmt.Fprintf(b, "%d Functions, with `-seed=%d`, on %d cores. At most %d TaskRuns ran at once.\n\n", w.Functions, w.Seed, w.Cores, w.BuildsAtOnce)
	b.WriteString("| bad | all as they are to be, after the last edit | requests of Functions | Events | of one at most | of what it may | in its busiest second | goroutines after it | MiB in use |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for _, d := range w.Days {
		killed := ""
		if d.Killed {
			killed = ", and controller and webhook killed"
		}
		fmt.Fprintf(b, "| %g %%%s | %.1f s | %d | %d | %d | %.0f %% | %d | %d | %.1f |\n", 100*d.Rate, killed, d.SettledS, d.Requests, d.Events,
			d.Most, 100*d.MostOfAllowed, d.Busiest, d.Goroutines, d.HeapMiB)
	}
	fmt.Fprintf(b, "\nWhat a Function may ask for is %d requests for each thing that its user does, with the builds and roll-outs that follow, "+
		"%d for each fault that happens to one of its own requests, since it is then looked at again, and %d for each minute, since a controller whose "+
		"watches are dropped does not know what it has done already. In no second may it ask for more than %d: what fails is tried again after 5 ms, "+
		"and ever more seldom. Goroutines and memory are those of the controller when the day is over and the weather is fine: the last before it is killed may "+
		"have %d goroutines, and %.0f %% of memory, more than the first, and one on a fine day that follows a fine day %.0f %% and 2 KiB for each Event, of which client-go remembers the last 4,096.\n", perStep, perFault, perMinute, perSecond, moreGoroutines, 100*(moreHeap-1), 100*(moreOnNextFineDay-1))
	b.WriteString("\n| bad | what happened |\n|---|---|\n")
	for _, d := range w.Days {
		if len(d.Faults) > 0 {
			fmt.Fprintf(b, "| %g %% | %s |\n", 100*d.Rate, listed(d.Faults))
		}
	}
	for _, wrong := range w.Wrong {
		fmt.Fprintf(b, "\n**Wrong:** %s\n", wrong)
	}
}

// write implements chapter. Victims that were not killed this time keep their rows.
func (k *killsReport) write(b *strings.Builder, earlier string) {
	rows := map[string]string{}
	for line := range strings.SplitSeq(earlier, "\n") {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			rows[name] = line
		}
	}
	for _, r := range k.Kills {
		name := r.Victim
		if r.Skipped != "" {
			name += " (not killed: " + r.Skipped + ")"
		}
		builds := strconv.Itoa(r.Builds)
		if r.FailedBuilds > 0 {
			builds += fmt.Sprintf(", %d tried again", r.FailedBuilds)
		}
		rows[r.Victim] = fmt.Sprintf("| %s | %d, %d | %.1f s | %.1f s | %s | %d of %d | %d of %d |", name, r.Functions, r.Built, r.ReadyS, r.RefusedS,
			builds, r.Failed, r.Calls, r.BareFailed, r.BareCalls)
	}
	b.WriteString(killsIntro)
	b.WriteString("| killed | Functions edited, and built of them | all Ready after | edits refused for | builds | failed requests | of the Service beside it |\n|---|---|---|---|---|---|---|\n")
	for _, v := range victims {
		if row, ok := rows[v.name]; ok {
			fmt.Fprintln(b, row)
		}
	}
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
