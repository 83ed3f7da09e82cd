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
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/builds/queue"
)

// limits bound the time from an edit to Ready beside a neighbour, as multiples of the
// median without it. The slowest edit may take slotWait more. A median of 0 is no limit.
type limits struct{ median, worst float64 }

// slotWait is how long an edit may wait for a slot of a build, as docs/builds.md has it: the
// grace of the queue, and once more for each namespace that runs no build and waits already.
const slotWait = (1 + stuckNamespaces) * queue.Grace

var (
	// longLimits are for many edits beside each neighbour. The hostile builds within the
	// limits use the same cores as the tenant's: up to clusterBuilds and one beyond.
	longLimits = limits{median: clusterBuilds + 1, worst: 2 * (clusterBuilds + 1)}
	// shortLimits are for so few edits that one which waits for a slot moves their median.
	shortLimits = limits{worst: 2 * (clusterBuilds + 1)}
)

// most returns the bound of the slowest edit, in seconds.
func (l limits) most(alone float64) float64 { return l.worst*alone + slotWait.Seconds() }

// mostRefusedS is how long edits may be refused beside a neighbour, in seconds: one retry
// after a request that a busy API server has dropped.
const mostRefusedS = 2

// neighboursReport is the result of a run.
type neighboursReport struct {
	Cores int `json:"cores"`
	// FillMiB is what each build of the neighbour with full disks writes.
	FillMiB int               `json:"fill_mib"`
	Rows    []neighbourReport `json:"rows"`
}

// neighbourReport is the result of the edits beside one neighbour.
type neighbourReport struct {
	Neighbour string `json:"neighbour"`
	// EditsS has the time from each edit to Ready, in seconds. AloneS has those of the edits
	// directly before and after the neighbour.
	EditsS []float64 `json:"edits_s"`
	AloneS []float64 `json:"alone_s,omitempty"`
	// Starved is the reason if the last edit did not become Ready in time.
	Starved string `json:"starved,omitempty"`
	// RefusedEdits counts the refused attempts to edit. RefusedS is the longest time until
	// an edit was accepted after them.
	RefusedEdits int     `json:"refused_edits"`
	RefusedS     float64 `json:"refused_s"`
	// Made and Refused count the requests of the neighbour. Builds are its TaskRuns in the
	// end.
	Made    int    `json:"made"`
	Refused int    `json:"refused"`
	Builds  string `json:"builds"`
	// Ended lists the containers and pods of Kiln that ended.
	Ended []string `json:"ended,omitempty"`
	traffic
}

// median returns the median, which is 0 without values.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// worst returns the longest time of an edit.
func (r *neighbourReport) worst() float64 {
	if len(r.EditsS) == 0 {
		return 0
	}
	return slices.Max(r.EditsS)
}

// alone returns the median time of an edit without the neighbour.
func (r *neighbourReport) alone() float64 {
	if r.Neighbour == nobody {
		return median(r.EditsS)
	}
	return median(r.AloneS)
}

// add adds the result of more edits without a neighbour.
func (r *neighbourReport) add(more neighbourReport) {
	r.EditsS = append(slices.Clone(r.EditsS), more.EditsS...)
	r.Starved = cmp.Or(r.Starved, more.Starved)
	r.RefusedEdits += more.RefusedEdits
	r.RefusedS = max(r.RefusedS, more.RefusedS)
	r.Ended = append(r.Ended, more.Ended...)
	r.Calls, r.Failed = r.Calls+more.Calls, r.Failed+more.Failed
	r.BareCalls, r.BareFailed = r.BareCalls+more.BareCalls, r.BareFailed+more.BareFailed
	r.Failure = cmp.Or(r.Failure, more.Failure)
}

// String describes the result.
func (r *neighbourReport) String() string {
	text := fmt.Sprintf("%s: %d edits, Ready after %.1f s, at worst %.1f s; %d attempts to edit refused, for up to %.1f s; %s",
		r.Neighbour, len(r.EditsS), median(r.EditsS), r.worst(), r.RefusedEdits, r.RefusedS, r.traffic)
	if r.Neighbour != nobody {
		text += fmt.Sprintf("; the neighbour made %d requests, and %d were refused; its builds: %s", r.Made, r.Refused, r.Builds)
	}
	return strings.Join(append([]string{text}, r.Ended...), "; ")
}

// verdict returns an error if a neighbour delayed the tenant by more than the limits, or
// did any other harm. It also returns one if a neighbour did nothing.
func (n *neighboursReport) verdict(l limits) error {
	var wrong []error
	for _, r := range n.Rows {
		if r.alone() == 0 {
			wrong = append(wrong, fmt.Errorf("there is no edit without a neighbour to compare those beside %s with", r.Neighbour))
			continue
		}
		for _, err := range r.wrong(l) {
			wrong = append(wrong, fmt.Errorf("beside %s, %w", r.Neighbour, err))
		}
	}
	if len(n.Rows) == 0 {
		wrong = append(wrong, errors.New("the tenant edited nothing"))
	}
	return errors.Join(wrong...)
}

// wrong returns what is wrong with the result.
func (r *neighbourReport) wrong(l limits) (wrong []error) {
	alone := r.alone()
	add := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	add(r.Starved != "", "an edit was not Ready after %.1f s: %s", r.worst(), r.Starved)
	if r.Neighbour != nobody {
		add(l.median > 0 && median(r.EditsS) > l.median*alone, "an edit took %.1f s, more than %g times the %.1f s without a neighbour", median(r.EditsS), l.median, alone)
		add(r.worst() > l.most(alone), "the slowest edit took %.1f s, more than %g times the %.1f s without a neighbour and %g s for a slot", r.worst(), l.worst, alone, slotWait.Seconds())
		add(r.Made == 0, "the neighbour did nothing, and %d of its requests were refused", r.Refused)
	}
	add(r.RefusedS > mostRefusedS, "edits were refused %d times, for %.1f s", r.RefusedEdits, r.RefusedS)
	add(len(r.Ended) > 0, "%s", strings.Join(r.Ended, ", "))
	if err := r.verdict(); err != nil {
		wrong = append(wrong, err)
	}
	return wrong
}

// ended returns which pods and containers have ended between two lists of pods.
func ended(before, after []corev1.Pod) (all []string) {
	now := map[types.UID]corev1.Pod{}
	for _, pod := range after {
		now[pod.UID] = pod
	}
	for _, pod := range before {
		later, ok := now[pod.UID]
		if !ok {
			all = append(all, fmt.Sprintf("pod %s was deleted", pod.Name))
			continue
		}
		restarts := map[string]int32{}
		for _, status := range pod.Status.ContainerStatuses {
			restarts[status.Name] = status.RestartCount
		}
		for _, status := range later.Status.ContainerStatuses {
			more := status.RestartCount - restarts[status.Name]
			last := status.LastTerminationState.Terminated
			if status.State.Terminated != nil {
				// It has ended and is not restarted yet.
				more, last = more+1, status.State.Terminated
			}
			if more == 0 {
				continue
			}
			reason := "unknown"
			if last != nil {
				reason = last.Reason
			}
			all = append(all, fmt.Sprintf("%s of pod %s ended %d times, last as %s", status.Name, pod.Name, more, reason))
		}
	}
	return all
}

const neighboursIntro = `On the local cluster, a tenant edits the source of a Function, waits until it is Ready, and edits it again. The tenant does
that alone, and while another tenant is hostile. Every 50 ms, a pod calls another Function of the tenant, and a Service
of the same image that Kiln does not manage. ` + "`config-build`" + ` allows 4 builds at once, 2 of them in each namespace. These are
the neighbours:

- **stuck builds**: two namespaces with 5 Functions each, whose pods wait for a Secret that does not exist, with a timeout of 1 hour
- **large sources**: 4 Functions with 936 KiB of source, one of which is edited every 4 s
- **full disks**: builds whose install scripts fill the disk of the node, two at a time
- **a webhook flood**: a pod that holds 64 requests to the webhook open, each with 3 MB of body that never ends
- **a build storm**: 10 Functions with install scripts that keep a core busy for 30 s, created at once; half of them are edited
  at once every 20 s

`

// title implements chapter.
func (*neighboursReport) title() string { return neighboursTitle }

// write implements chapter. Neighbours that did not act this time keep their rows.
func (n *neighboursReport) write(b *strings.Builder, earlier string) {
	rows := tableRows(earlier)
	for _, r := range n.Rows {
		most := ""
		if r.Starved != "" {
			most = "not Ready after "
		}
		rows[r.Neighbour] = fmt.Sprintf("| %s | %d | %.1f s | %.1f s, %.1f × | %s%.1f s, %.1f × | %d, %.1f s | %d of %d | %d of %d | %d |", r.Neighbour, len(r.EditsS),
			r.alone(), median(r.EditsS), median(r.EditsS)/r.alone(), most, r.worst(), r.worst()/r.alone(), r.RefusedEdits, r.RefusedS, r.Failed, r.Calls, r.BareFailed, r.BareCalls, len(r.Ended))
	}
	b.WriteString(neighboursIntro)
	fmt.Fprintf(b, "On %d cores; each build with a full disk wrote %d MiB. The factors compare with the median of the edits alone, directly before and "+
		"after the neighbour.\n\n", n.Cores, n.FillMiB)
	b.WriteString("| neighbour | edits | alone | median until Ready | slowest | refused attempts to edit, for up to | failed requests | of the unmanaged Service | restarts of Kiln |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range neighbourNames() {
		if row, ok := rows[name]; ok {
			fmt.Fprintln(b, row)
		}
	}
	fmt.Fprintf(b, "\nThe run fails if the median is above %g ×, because hostile builds within their limits use the same cores. The slowest edit may take %g × "+
		"and the %g s of [waiting for a slot](builds.md#how-many-builds-run-at-once). The run also fails if an edit is refused for longer than %d s, if Kiln's controller "+
		"or webhook ends, or if more requests fail than of the Service. The short run in `make test` has two edits beside each, and no limit of their median.\n",
		longLimits.median, longLimits.worst, slotWait.Seconds(), mostRefusedS)
}

// neighbourNames are the rows of the page.
func neighbourNames() []string {
	names := []string{nobody}
	for _, h := range hostiles {
		names = append(names, h.name)
	}
	return append(names, everybody)
}
