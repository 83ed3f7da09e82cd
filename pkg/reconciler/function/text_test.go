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

package function

import (
	"errors"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

// The cache has no texts of Functions. These tests check when Kiln reads them.

// reads counts the reads of the live Function, and answers them with its result unless
// that is nil.
type reads struct {
	count  int
	answer func() (runtime.Object, error)
}

func (r *reads) react(action clientgotesting.Action) (bool, runtime.Object, error) {
	if !action.Matches("get", "functions") {
		return false, nil, nil
	}
	r.count++
	if r.answer == nil {
		return false, nil, nil
	}
	live, err := r.answer()
	return true, live, err
}

// reading returns a row that expects this number of reads of the live Function.
func reading(want int, live *reads, row rtesting.TableRow) rtesting.TableRow {
	row.Key = key
	row.WithReactors = append(row.WithReactors, live.react)
	row.PostConditions = append(row.PostConditions, func(t *testing.T, _ *rtesting.TableRow) {
		if live.count != want {
			t.Errorf("the live Function was read %d times, want %d", live.count, want)
		}
	})
	return row
}

func TestTextReads(t *testing.T) {
	fn := edited(withSource(sourceB))
	next := taskRun(fn, builds.ReasonSourceChanged, taskRunRunning)
	building := edited(withSource(sourceB), observed(reconfigured, buildRunning(next), stillServing))
	planned := edited(withSource(sourceB), observed(reconfigured, buildPlanned(builds.ReasonSourceChanged, tr1), stillServing))
	withDeps := function(func(fn *v1alpha1.Function) { fn.Spec.Deps = "[]" })
	invalid := function(func(fn *v1alpha1.Function) {
		fn.Spec.Deps = "[]"
		observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "package.json must be a JSON object: it is of type array: spec.deps")
		}))(fn)
	})
	acceptedOnce := invalid.DeepCopy()
	acceptedOnce.Status.AcceptedGeneration = acceptedOnce.Generation
	acceptedOnce.Status.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "package.json must be a JSON object: it is of type array")
	deployed := edited(withEnv("A", "1"))

	rtesting.TableTest{
		reading(0, &reads{}, rtesting.TableRow{
			Name:    "steady state",
			Objects: []runtime.Object{running1, configMap(running1), tr1, svc1},
		}),
		reading(0, &reads{}, rtesting.TableRow{
			Name:    "a build runs",
			Objects: []runtime.Object{building, configMap(fn), next, svc1},
		}),
		reading(1, &reads{}, rtesting.TableRow{
			Name:        "an edit: the read for its texts also checks that the cache is not stale",
			Objects:     []runtime.Object{fn, configMap(running1), tr1, svc1},
			WantCreates: []runtime.Object{configMap(fn)},
			WantDeletes: []clientgotesting.DeleteActionImpl{
				deletion("configmaps", configMap(running1)), deletion("taskruns", tr1),
			},
			WantStatusUpdates: statusUpdate(planned),
			WantEvents: []string{
				"Normal ConfigMapUpdated ConfigMap " + configMap(fn).Name + " holds the build context.",
				"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + tr1.Name + ".",
			},
		}),
		reading(1, &reads{}, rtesting.TableRow{
			Name:              "the build of a written ConfigMap starts: one read checks that the cache is not stale",
			Objects:           []runtime.Object{function(observed(configured)), configMap(function())},
			WantCreates:       []runtime.Object{firstRun},
			WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
			WantEvents:        []string{"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run."},
		}),
		reading(1, &reads{}, rtesting.TableRow{
			Name:        "somebody has deleted the ConfigMap: it is written again",
			Objects:     []runtime.Object{running1, tr1, svc1},
			WantCreates: []runtime.Object{configMap(running1)},
		}),
		reading(1, &reads{}, rtesting.TableRow{
			Name:              "an edit that needs no build: the read for the validation also checks that the cache is not stale",
			Objects:           []runtime.Object{deployed, configMap(running1), tr1, svc1},
			WantUpdates:       update(merged(deployed, svc1)),
			WantStatusUpdates: statusUpdate(edited(withEnv("A", "1"), observed(configured, built(tr1, digestA), serviceUpdated))),
			WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
		}),
		reading(1, &reads{}, rtesting.TableRow{
			Name:              "invalid dependencies",
			Objects:           []runtime.Object{withDeps},
			WantStatusUpdates: statusUpdate(invalid),
			WantEvents:        []string{"Warning InvalidSpec package.json must be a JSON object: it is of type array: spec.deps"},
		}),
		reading(0, &reads{}, rtesting.TableRow{
			Name:    "dependencies that the runtime no longer accepts",
			Objects: []runtime.Object{acceptedOnce},
		}),
	}.Test(t, factory())
}

// TestTextIsOfTheCachedSpec checks that Kiln writes nothing if the texts are of another
// version than the cached Function. The watch delivers that version.
func TestTextIsOfTheCachedSpec(t *testing.T) {
	answer := func(change functionOption) *reads {
		return &reads{answer: func() (runtime.Object, error) { return edited(withSource(sourceB), change), nil }}
	}
	for name, test := range map[string]struct {
		live    *reads
		wantErr bool
	}{
		"edited meanwhile":            {live: answer(func(fn *v1alpha1.Function) { fn.Generation = 3; fn.Spec.Source = sourceA })},
		"another one of its name":     {live: answer(withUID("uid-2"))},
		"being deleted":               {live: answer(deleting)},
		"deleted":                     {live: &reads{answer: func() (runtime.Object, error) { return nil, apierrs.NewNotFound(v1alpha1.Resource("functions"), name) }}},
		"no answer":                   {live: &reads{answer: func() (runtime.Object, error) { return nil, errors.New("no answer") }}, wantErr: true},
		"other text of the same spec": {live: answer(withSource("module.exports = { main: () => 'forged' }")), wantErr: true},
	} {
		// Its ConfigMap is missing, and its spec was accepted.
		fn := edited(withSource(sourceB), observed(reconfigured, buildPlanned(builds.ReasonSourceChanged, tr1), stillServing))
		rtesting.TableTest{reading(1, test.live, rtesting.TableRow{
			Name: name, Objects: []runtime.Object{fn, tr1, svc1}, WantErr: test.wantErr,
		})}.Test(t, factory())
	}
}

// TestTextReadOfAnEdit checks the same for a spec that is not validated yet.
func TestTextReadOfAnEdit(t *testing.T) {
	newer := func() (runtime.Object, error) {
		return edited(func(fn *v1alpha1.Function) { fn.Generation = 3; fn.Spec.Source = " " }), nil
	}
	fn := edited(withSource(sourceB))
	rtesting.TableTest{
		reading(1, &reads{answer: newer}, rtesting.TableRow{
			Name: "edited meanwhile", Objects: []runtime.Object{fn, configMap(running1), tr1, svc1},
		}),
		reading(1, &reads{answer: func() (runtime.Object, error) { return nil, errors.New("no answer") }}, rtesting.TableRow{
			Name: "no answer", Objects: []runtime.Object{fn, configMap(running1), tr1, svc1}, WantErr: true,
		}),
	}.Test(t, factory())
}
