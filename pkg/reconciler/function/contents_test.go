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
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/contents"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

func withRolloutOnChange(value string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Annotations = map[string]string{serverless.RolloutOnChangeAnnotationKey: value}
	}
}

// ofContent remembers the hash, as the template does afterwards.
func ofContent(hash string) functionOption {
	return marked(func(fs *v1alpha1.FunctionStatus) { fs.ContentHash = hash })
}

func TestReconcileContents(t *testing.T) {
	prefix := contents.Of(function(withMount("/s"))).Prefix()
	a, b := prefix+"a", prefix+"b"
	reading := marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkContentFollowed("A change of these causes a new revision: Secret secret.")
	})
	unread := marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkContentNotFollowed("Changes cause no new revision, and Kiln keeps retrying: Secret secret does not exist.")
	})
	tr := taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	fnOf := func(value string, options ...functionOption) *v1alpha1.Function {
		return function(withMount("/s"), withRolloutOnChange(value), observed(append([]functionOption{configured, built(tr, digestA)}, options...)...))
	}
	// runs has the hash and runs with it.
	runs := func(hash string, options ...functionOption) *v1alpha1.Function {
		return fnOf("true", append([]functionOption{ofContent(hash), running}, options...)...)
	}
	cm := configMap(function())
	serving := func(hash string) *servingv1.Service { return service(runs(hash), serviceReady) }
	found := func(what contents.Found) map[string]any { return map[string]any{contentsKey: what} }
	const readEvent = "Normal ContentRead A change of these causes a new revision: Secret secret."

	rtesting.TableTest{{
		Name:          "nobody asks: what the Secret holds does not count",
		Key:           key,
		OtherTestData: found(contents.Found{Hash: b}),
		Objects:       []runtime.Object{fnOf("false", running), cm, tr, serving("")},
	}, {
		Name:    "the first look is not done: the deployment waits",
		Key:     key,
		Objects: []runtime.Object{fnOf("true"), cm, tr},
	}, {
		Name:              "the first look: the status has the hash before the Service",
		Key:               key,
		OtherTestData:     found(contents.Found{Hash: a}),
		Objects:           []runtime.Object{fnOf("true"), cm, tr},
		WantStatusUpdates: statusUpdate(fnOf("true", ofContent(a), reading)),
		WantEvents:        []string{readEvent},
	}, {
		Name:              "the status has the hash: one Service is created, with it",
		Key:               key,
		OtherTestData:     found(contents.Found{Hash: a}),
		Objects:           []runtime.Object{fnOf("true", ofContent(a), reading), cm, tr},
		WantCreates:       []runtime.Object{knative.MakeService(runs(a), runs(a).Status.Image)},
		WantStatusUpdates: statusUpdate(fnOf("true", ofContent(a), reading, serviceCreated)),
		WantEvents:        []string{"Normal ServiceCreated Service greeter was created."},
	}, {
		Name:          "steady state",
		Key:           key,
		OtherTestData: found(contents.Found{Hash: a}),
		Objects:       []runtime.Object{runs(a, reading), cm, tr, serving(a)},
	}, {
		Name:    "steady state: a new controller has not looked yet",
		Key:     key,
		Objects: []runtime.Object{runs(a, reading), cm, tr, serving(a)},
	}, {
		Name:              "the Secret has changed: the status tells first",
		Key:               key,
		OtherTestData:     found(contents.Found{Hash: b}),
		Objects:           []runtime.Object{runs(a, reading), cm, tr, serving(a)},
		WantStatusUpdates: statusUpdate(runs(a, reading, ofContent(b))),
	}, {
		Name:              "the status has told: a new revision, also after a crash",
		Key:               key,
		Objects:           []runtime.Object{runs(a, reading, ofContent(b)), cm, tr, serving(a)},
		WantUpdates:       update(merged(runs(b), serving(a))),
		WantStatusUpdates: statusUpdate(runs(a, reading, ofContent(b), serviceUpdated)),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}, {
		Name:              "the Secret cannot be read: what serves stays",
		Key:               key,
		OtherTestData:     found(contents.Found{Failure: "Secret secret does not exist."}),
		Objects:           []runtime.Object{runs(a, reading), cm, tr, serving(a)},
		WantStatusUpdates: statusUpdate(runs(a, unread)),
		WantEvents:        []string{"Warning ContentNotRead Changes cause no new revision, and Kiln keeps retrying: Secret secret does not exist."},
	}, {
		Name:          "steady state: the Secret cannot be read, and that was told",
		Key:           key,
		OtherTestData: found(contents.Found{Failure: "Secret secret does not exist."}),
		Objects:       []runtime.Object{runs(a, unread), cm, tr, serving(a)},
	}, {
		Name:          "the API server does not answer: the last look still counts",
		Key:           key,
		OtherTestData: found(contents.Found{Failure: "Secret secret could not be read: Timeout.", Unanswered: true}),
		Objects:       []runtime.Object{runs(a, reading), cm, tr, serving(a)},
	}, {
		Name:              "the Secret can be read again, and is as before: no revision",
		Key:               key,
		OtherTestData:     found(contents.Found{Hash: a}),
		Objects:           []runtime.Object{runs(a, unread), cm, tr, serving(a)},
		WantStatusUpdates: statusUpdate(runs(a, reading)),
		WantEvents:        []string{readEvent},
	}, {
		Name:              "the Secret cannot be read at first: the Function is deployed all the same",
		Key:               key,
		OtherTestData:     found(contents.Found{Failure: "Secret secret does not exist."}),
		Objects:           []runtime.Object{fnOf("true"), cm, tr},
		WantCreates:       []runtime.Object{knative.MakeService(runs(""), runs("").Status.Image)},
		WantStatusUpdates: statusUpdate(fnOf("true", unread, serviceCreated)),
		WantEvents: []string{
			"Warning ContentNotRead Changes cause no new revision, and Kiln keeps retrying: Secret secret does not exist.",
			"Normal ServiceCreated Service greeter was created.",
		},
	}, {
		Name:    "other names: a new revision waits for the first look at them",
		Key:     key,
		Objects: []runtime.Object{runs("1234abcd.a", reading), cm, tr, service(runs("1234abcd.a", withMount("/t")), serviceReady)},
	}, {
		Name:              "nobody asks any more: the last revision keeps its hash",
		Key:               key,
		OtherTestData:     found(contents.Found{Hash: b}),
		Objects:           []runtime.Object{fnOf("false", ofContent(a), running, reading), cm, tr, serving(a)},
		WantStatusUpdates: statusUpdate(fnOf("false", ofContent(a), running)),
	}}.Test(t, factory())
}

// TestFollowContents checks which objects are read, and when the first look is hurried.
func TestFollowContents(t *testing.T) {
	names := contents.Of(function(withMount("/s")))
	for name, tc := range map[string]struct {
		fn     *v1alpha1.Function
		asked  bool
		hurry  bool
		reason string
	}{
		"asked":               {function(withMount("/s"), withRolloutOnChange("true")), true, true, ""},
		"asked, known before": {function(withMount("/s"), withRolloutOnChange("true"), ofContent(names.Prefix()+"a")), true, false, ""},
		"another value":       {function(withMount("/s"), withRolloutOnChange("yes")), false, false, ""},
		"not asked":           {function(withMount("/s")), false, false, ""},
		"no objects":          {function(withRolloutOnChange("true")), false, false, ""},
		"too many objects": {function(withRolloutOnChange("true"), func(fn *v1alpha1.Function) {
			for i := range contents.MaxObjects + 1 {
				fn.Spec.ConfigMapMounts = append(fn.Spec.ConfigMapMounts, v1alpha1.ConfigMapMount{ConfigMapName: fmt.Sprint("c", i)})
			}
		}), false, false, v1alpha1.ReasonContentNotRead},
	} {
		t.Run(name, func(t *testing.T) {
			reads := &hurried{recorder: recorder[contents.Request, contents.Found]{asked: &contents.Request{}}}
			r := &Reconciler{contents: reads}
			if waits := r.followContents(tc.fn); waits != tc.hurry || reads.hurry != tc.hurry {
				t.Errorf("waits %t, hurries %t, want %t", waits, reads.hurry, tc.hurry)
			}
			if asked := reads.asked != nil; asked != tc.asked || asked && *reads.asked != names {
				t.Errorf("asked for %v, want %t", reads.asked, tc.asked)
			}
			if reason := tc.fn.Status.GetCondition(v1alpha1.FunctionConditionContentFollowed).GetReason(); reason != tc.reason {
				t.Errorf("the reason is %q, want %q", reason, tc.reason)
			}
		})
	}
}

type hurried struct {
	recorder[contents.Request, contents.Found]
	hurry bool
}

func (h *hurried) Hurry(types.NamespacedName) { h.hurry = true }
