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

package simulation

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// long has the tests that search for faults search for long.
var long = flag.Bool("long", false, "search for faults for long")

// chapter is a part of the life of a Function.
type chapter struct {
	name string
	// only is the server whose Functions have the chapter, or "".
	only config.Server
	// does is what a user does.
	does func(*simulation)
	// until is the condition that starts the next chapter. With nil, it starts once nothing
	// happens any more.
	until func(*simulation) bool
}

// life is all that is done to a Function.
var life = []chapter{
	{name: "create", does: func(s *simulation) { s.create() }},
	{name: "edit the source", does: func(s *simulation) { s.edit(withSource(sourceB)) }},
	{name: "edit the source again", does: func(s *simulation) { s.edit(withSource(slowSource)) }, until: isBuilding},
	{name: "edit while that is built", does: func(s *simulation) { s.edit(withSource("module.exports = { main: () => 'D' }")) }},
	{name: "edit back: the image is there", does: func(s *simulation) { s.edit(withSource(sourceB)) }},
	{name: "rebuild", does: func(s *simulation) { s.edit(withRebuild("1")) }},
	{name: "break the source", does: func(s *simulation) { s.edit(withSource(brokenSource)) }},
	{name: "an image of the build itself cannot be pulled", does: func(s *simulation) { s.edit(withSource(unpulledSource)) }, until: isRetrying},
	{name: "fix it", does: func(s *simulation) { s.edit(withSource("module.exports = { main: () => 'E' }")) }},
	{name: "crash as soon as it runs", does: func(s *simulation) { s.edit(withSource(crashingSource)) }},
	{name: "fix that, and the environment", does: func(s *simulation) { s.edit(withSource(sourceA), withEnv("A", "1")) }},
	{name: "edit the environment", does: func(s *simulation) { s.edit(withEnv("B", "2")) }},
	{name: "roll back to the first revision", only: config.KubernetesServer, does: func(s *simulation) {
		s.edit(withTraffic(v1alpha1.TrafficTarget{RevisionName: "greeter-00001", Percent: new(int64(100))}))
	}},
	{name: "send half of the requests to the first revision", does: func(s *simulation) {
		s.edit(withTraffic(
			v1alpha1.TrafficTarget{RevisionName: "greeter-00001", Percent: new(int64(50))},
			v1alpha1.TrafficTarget{LatestRevision: new(true), Percent: new(int64(50))}))
	}},
	{name: "name a revision that there is not", does: func(s *simulation) {
		s.edit(withTraffic(v1alpha1.TrafficTarget{RevisionName: "greeter-00099", Percent: new(int64(100))}))
	}},
	{name: "to the newest again, and to everybody", does: func(s *simulation) {
		s.edit(withTraffic(), func(fn *v1alpha1.Function) { fn.Spec.Visibility = v1alpha1.VisibilityPublic })
	}},
	{name: "always two pods", only: config.KubernetesServer, does: func(s *simulation) { s.edit(withMinReplicas(2)) }},
	{name: "the registry refuses a build", does: func(s *simulation) {
		s.setPassword(namespace, "wrong")
		s.edit(withSource("module.exports = { main: () => 'F' }"), withMinReplicas(0))
	}},
	{name: "the credentials are corrected", does: func(s *simulation) { s.setPassword(namespace, "right") }},
	{name: "edit, to delete while that is built", does: func(s *simulation) { s.edit(withSource(slowSource + " again")) }, until: isBuilding},
	{name: "delete", does: func(s *simulation) { s.delete() }},
	{name: "create the same again", does: func(s *simulation) { s.create() }},
	{name: "delete it, and create another at once", does: func(s *simulation) { s.delete(); s.create(withSource(sourceB), withEnv("A", "1")) }},
}

func isBuilding(s *simulation) bool {
	return slices.ContainsFunc(s.builds(), func(b build) bool { return b.isLive() && b.podName() != "" })
}

// isRetrying reports whether the last build has failed and another attempt is due.
func isRetrying(s *simulation) bool {
	fn := s.functionOf(greeter)
	return fn != nil && fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).GetReason() == v1alpha1.ReasonBuildRetrying
}

// disturbances are the ways in which a call of the controller can go wrong. After each, the
// end must be the same as without.
var disturbances = []struct {
	name string
	do   func(s *simulation, call ktesting.Call) (runtime.Object, error)
}{{
	name: "the controller dies after it",
	do: func(_ *simulation, call ktesting.Call) (runtime.Object, error) {
		_, _ = call()
		panic(death{})
	},
}, {
	name: "its answer is lost",
	do: func(_ *simulation, call ktesting.Call) (runtime.Object, error) {
		if _, err := call(); err != nil {
			return nil, err
		}
		return nil, errTimeout
	},
}, {
	name: "it fails",
	do: func(*simulation, ktesting.Call) (runtime.Object, error) {
		return nil, apierrs.NewInternalError(errors.New("etcdserver: leader changed"))
	},
}, {
	name: "all others act first",
	do: func(s *simulation, call ktesting.Call) (runtime.Object, error) {
		for s.standIns() {
		}
		return call()
	},
}}

// views are how the caches of the controller are after a disturbance.
var views = []struct {
	name string
	// ago is how many changes they miss after a restart of the controller.
	ago int
	// late and slow are those of process.
	late lateness
	slow bool
}{
	{name: "fresh caches"},
	{name: "caches one change behind", ago: 1, slow: true},
	{name: "caches two changes behind", ago: 2, slow: true},
	{name: "caches five changes behind", ago: 5, slow: true},
	{name: "caches twelve changes behind", ago: 12, slow: true},
	{name: "late caches", late: allLate, slow: true},
	{name: "late caches one change behind", ago: 1, late: allLate, slow: true},
	{name: "late caches three changes behind", ago: 3, late: allLate, slow: true},
	{name: "late caches eight changes behind", ago: 8, late: allLate, slow: true},
	{name: "late caches that hear of all at once", ago: 4, late: allLate},
	{name: "late caches of children", ago: 1, late: childrenLate, slow: true},
	{name: "late caches of children three changes behind", ago: 3, late: childrenLate, slow: true},
}

// TestCrash disturbs single calls of the controller in the life of a Function, and checks that
// the end is the same as without. The short run disturbs each second call of the pairs of
// builder and server that matter most, and each sixteenth of the others, in one way. The long
// run disturbs each call in all ways.
func TestCrash(t *testing.T) {
	ways := len(disturbances) * len(views)
	for _, mode := range modes {
		if mode.mixed {
			continue
		}
		story := tellLife(t, mode.builder, mode.server)
		for i := range disturbances {
			for j := range views {
				t.Run(mode.name+": "+disturbances[i].name+", "+views[j].name, func(t *testing.T) {
					t.Parallel()
					isChosen := func(call int) bool {
						return call%mode.crashes == mode.first%mode.crashes && call/mode.crashes%ways == i*len(views)+j
					}
					story.forEach(t, isChosen, func(t *testing.T, s *simulation, n, chapter int) {
						s.disturbCall(n, i, j)
						story.goOn(t, s, chapter)
					})
				})
			}
		}
	}
}

// forEach calls do for each call of the controller in the story, or for the chosen ones in the
// short run, until the test has failed. do gets the simulation at the start of the chapter,
// and the number of the call.
func (story story) forEach(t *testing.T, isChosen func(call int) bool, do func(t *testing.T, s *simulation, n, chapter int)) {
	t.Helper()
	for k, chapter := range story {
		for n := 1; n <= chapter.calls; n++ {
			if !*long && !isChosen(chapter.begins.calls+n) {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				s := chapter.begins.clone()
				do(t, s, s.calls+n, k)
			})
			if t.Failed() {
				return
			}
		}
	}
}

// interruptions are what a user does to a Function during a reconcile.
var interruptions = []struct {
	name string
	do   func(*simulation)
}{
	{"edits the source", func(s *simulation) { s.edit(withSource("module.exports = { main: () => 'X' }")) }},
	{"edits the source, and back", func(s *simulation) {
		source := s.functionOf(greeter).Spec.Source
		s.edit(withSource(crashingSource))
		s.edit(withSource(source))
	}},
	{"edits the environment", func(s *simulation) { s.edit(withEnv("X", "1")) }},
	{"asks for a rebuild", func(s *simulation) { s.edit(withRebuild("X")) }},
	{"deletes it", func(s *simulation) { s.delete() }},
	{"deletes it, and creates the same again", func(s *simulation) {
		same := s.functionOf(greeter).Spec
		s.delete()
		s.create(func(fn *v1alpha1.Function) { same.DeepCopyInto(&fn.Spec) })
	}},
	{"deletes it, and creates another", func(s *simulation) { s.delete(); s.create(withSource(sourceB)) }},
}

// TestEditedMeanwhile edits or deletes the Function just before single calls of the
// controller. There is no undisturbed end to compare with, so the oracle judges, also after
// one more edit and after the deletion. In one mode, the builder changes with each edit. The
// short run does one thing before each sixth call in the modes that matter most, the long run
// each thing before each call.
func TestEditedMeanwhile(t *testing.T) {
	ways := len(interruptions) * len(views)
	for _, mode := range modes {
		story := tellLife(t, mode.builder, mode.server)
		for i := range interruptions {
			for j := range views {
				t.Run(mode.name+": the user "+interruptions[i].name+", "+views[j].name, func(t *testing.T) {
					t.Parallel()
					isChosen := func(call int) bool {
						return call%mode.edits == 2*mode.first && call/mode.edits%ways == i*len(views)+j
					}
					story.forEach(t, isChosen, func(t *testing.T, s *simulation, n, chapter int) {
						s.mixed = mode.mixed
						s.interruptCall(n, i, j)
						s.play(story[chapter].chapter)
						s.run(nil)
						s.goOnAfter(t, len(story[chapter].begins.trace))
					})
				})
			}
		}
	}
}

// modes are which builders and servers a search uses.
var modes = []struct {
	name    string
	builder config.Builder
	server  config.Server
	// mixed changes the builder, and the server of new Functions, while builds run.
	mixed bool
	// A short run of TestCrash disturbs one of that many calls, and one of TestEditedMeanwhile
	// interrupts one of that many. The first call differs between modes.
	crashes, edits, first int
}{
	{name: "tekton", builder: config.TektonBuilder, server: config.KnativeServer, crashes: 2, edits: 6, first: 0},
	{name: "job", builder: config.JobBuilder, server: config.KnativeServer, crashes: 16, edits: 48, first: 1},
	{name: "mixed", builder: config.JobBuilder, server: config.KnativeServer, mixed: true, edits: 6, first: 2},
	{name: "kubernetes", builder: config.JobBuilder, server: config.KubernetesServer, crashes: 2, edits: 6, first: 1},
	{name: "tekton, kubernetes", builder: config.TektonBuilder, server: config.KubernetesServer, crashes: 16, edits: 48, first: 2},
}

// interruptCall interrupts that call of the controller, and changes its caches then.
func (s *simulation) interruptCall(n, interruption, view int) {
	v := views[view]
	s.disturb = func(what string, call ktesting.Call) (runtime.Object, error) {
		if s.calls == n && s.functionOf(greeter) != nil {
			s.tracef("  %d: %s: before it the user %s", s.calls, what, interruptions[interruption].name)
			s.process.late, s.process.slow = v.late, v.slow
			if s.mixed {
				s.changeBackends()
			}
			interruptions[interruption].do(s)
		}
		return call()
	}
}

// goOnAfter checks the end of the chapter, of the next one and of the last one.
func (s *simulation) goOnAfter(t *testing.T, begun int) {
	t.Helper()
	judge := func(what string) {
		s.wantEnd()
		s.wantQuiet()
		if len(s.wrong) > 0 && !t.Failed() {
			t.Errorf("%s: %s\nWhat happened:\n%s", what, strings.Join(s.wrong, "\n"), strings.Join(s.trace[begun:], "\n"))
		}
	}
	judge("in the end")
	if s.functionOf(greeter) != nil {
		if s.mixed {
			s.changeBackends()
		}
		s.edit(withSource("module.exports = { main: () => 'Y' }"), withEnv("Y", "2"))
		s.run(nil)
		judge("after one more edit")
		s.delete()
		s.run(nil)
	}
	judge("after it was deleted")
}

// disturbCall disturbs that call of the controller, and changes its caches then.
func (s *simulation) disturbCall(n, disturbance, view int) {
	d, v := disturbances[disturbance], views[view]
	s.disturb = func(what string, call ktesting.Call) (runtime.Object, error) {
		if s.calls != n {
			return call()
		}
		s.tracef("  %d: %s: %s", s.calls, what, d.name)
		s.process.late, s.process.slow = v.late, v.slow
		return d.do(s, call)
	}
	s.restart = func() *process {
		p := s.start(v.ago)
		p.late, p.slow = v.late, v.slow
		return p
	}
}

// story is the life of a Function without faults.
type story []*told

// told is the result of a chapter.
type told struct {
	chapter
	// begins is what there is in the beginning.
	begins *simulation
	// calls counts what the controller asks the API server for.
	calls int
	// ends is what there is in the end, if nothing happens any more then.
	ends map[string]any
}

// stories are those told so far. Nobody changes them.
var stories = map[[2]string]story{}

// tellLife plays the whole life with that builder and server, and returns its story.
func tellLife(t *testing.T, builder config.Builder, server config.Server) story {
	t.Helper()
	pair := [2]string{string(builder), string(server)}
	if stories[pair] != nil {
		return stories[pair]
	}
	var story story
	s := newSimulation(builder, server)
	for _, chapter := range life {
		if chapter.only != "" && chapter.only != server {
			continue
		}
		now := &told{chapter: chapter, begins: s.clone()}
		s.play(chapter)
		now.calls = s.calls - now.begins.calls
		if chapter.until == nil {
			now.ends = s.settled()
			s.wantEnd()
			s.wantQuiet()
		}
		if len(s.wrong) > 0 {
			t.Fatalf("Undisturbed, chapter %q goes wrong:\n%s\n%s", chapter.name,
				strings.Join(s.wrong, "\n"), strings.Join(s.trace[len(now.begins.trace):], "\n"))
		}
		story = append(story, now)
	}
	stories[pair] = story
	return story
}

// play plays a chapter.
func (s *simulation) play(chapter chapter) {
	s.tracef("# %s", chapter.name)
	chapter.does(s)
	var until func() bool
	if chapter.until != nil {
		until = func() bool { return chapter.until(s) }
	}
	s.run(until)
}

// goOn plays the chapter, and later ones until two ends have been compared with the story.
func (story story) goOn(t *testing.T, s *simulation, i int) {
	t.Helper()
	begun := len(s.trace)
	for ends := 0; i < len(story) && ends < 2; i++ {
		s.play(story[i].chapter)
		diff := ""
		if want := story[i].ends; want != nil {
			ends++
			diff = differences(want, s.settled())
			s.wantEnd()
			s.wantQuiet()
		}
		if diff != "" || len(s.wrong) > 0 {
			t.Errorf("chapter %q goes wrong: %s\nThe end (-want +got):\n%s\nWhat happened:\n%s", story[i].name,
				strings.Join(s.wrong, "\n"), diff, strings.Join(s.trace[begun:], "\n"))
			return
		}
	}
}

// wantQuiet checks that the controller writes nothing more, also after a restart.
func (s *simulation) wantQuiet() {
	for _, when := range []string{"woken", "started"} {
		s.tracef("## nothing may be written when the controller is %s", when)
		if when == "started" {
			s.process = s.start(0)
		}
		s.process.wakeAll("")
		writes := s.writes
		s.run(nil)
		if s.writes != writes {
			s.wrongf("there was something to write for a controller that was %s", when)
		}
	}
}
