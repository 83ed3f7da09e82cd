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
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"pgregory.net/rapid"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	pkgreconciler "knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// modelSources are what Functions of a model are made of.
var modelSources = []string{sourceA, sourceB, brokenSource, crashingSource, slowSource, stuckSource, unpulledSource}

// players are the Functions of a model that the actions affect: two in a namespace that may
// run one build at a time, and one in another.
var players = []types.NamespacedName{
	{Namespace: namespace, Name: "ape"}, {Namespace: namespace, Name: "bee"}, {Namespace: "other", Name: "cat"},
}

// bystander is the Function that nobody touches.
var bystander = types.NamespacedName{Namespace: "calm", Name: "owl"}

// mostHarm is how often builds are deleted at most. Kiln starts a build more often than that,
// so each build that can succeed does.
const mostHarm = 3

// model is a simulation in which anything happens.
type model struct {
	*simulation
	// armed is the call to be disturbed, counted from now.
	armed  int
	how    func(what string, call ktesting.Call) (runtime.Object, error)
	harmed int
	// calm has the newest version of each object of the bystander.
	calm    int
	rebuild int
}

// TestModel applies random actions of users, other clients and faults to three Functions,
// with each builder, and with both where the builder changes.
// It checks the rules of the oracle, and that an unrelated Function does not change. A
// failing story is shrunk and printed with its seed. The short run always has the same 15
// stories with each builder, the long run 2,000 new ones.
func TestModel(t *testing.T) {
	checks, seed := "15", "1"
	if *long {
		checks, seed = "2000", "0"
	}
	setUnset(t, "rapid.checks", checks)
	setUnset(t, "rapid.seed", seed)
	setUnset(t, "rapid.nofailfile", "true")
	for _, mode := range modes {
		t.Run(mode.name, rapid.MakeCheck(func(t *rapid.T) {
			rapid.SyncTest(t, func(t *rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				m := newModel(ctx, mode.builder, mode.server)
				m.mixed = mode.mixed
				m.judge(t)
				t.Repeat(m.actions())
				m.end(t)
			})
		}))
	}
}

// setUnset sets a flag that the command line does not set.
func setUnset(t *testing.T, name, value string) {
	t.Helper()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	if set {
		return
	}
	before := flag.Lookup(name).Value.String()
	if err := flag.Lookup(name).Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Lookup(name).Value.Set(before) })
}

func newModel(ctx context.Context, builder config.Builder, server config.Server) *model {
	s := newSimulation(builder, server)
	s.ctx, s.clocked = ctx, true
	s.server.Now = time.Now()
	s.limits = queue.Limits{Cluster: 1, Namespace: 1}
	s.setPassword("other", "right")
	s.setPassword(bystander.Namespace, "right")
	m := &model{simulation: s}
	s.restart = func() *process { return s.start(0) }
	s.process = s.start(0)
	s.createFunction(bystander)
	s.run(nil)
	s.disturb = m.intercept
	return m
}

// intercept disturbs the chosen call.
func (m *model) intercept(what string, call ktesting.Call) (runtime.Object, error) {
	if m.armed == 0 || m.how == nil {
		return call()
	}
	if m.armed--; m.armed > 0 {
		return call()
	}
	how := m.how
	m.how = nil
	return how(what, call)
}

// judge ends the story where something has gone wrong.
func (m *model) judge(t *rapid.T) {
	calm := 0
	for _, obj := range m.server.Objects() {
		if obj.GetNamespace() != bystander.Namespace {
			continue
		}
		version, err := strconv.Atoi(obj.GetResourceVersion())
		must(nil, err)
		calm = max(calm, version)
	}
	if m.calm == 0 {
		m.calm = calm
	}
	if calm != m.calm {
		m.wrongf("something of %s has changed, which nobody has touched", bystander)
	}
	if len(m.wrong) > 0 {
		t.Fatalf("%s\nWhat happened:\n%s", strings.Join(m.wrong, "\n"), strings.Join(m.trace, "\n"))
	}
}

// end waits until nothing changes any more, and then deletes all Functions.
func (m *model) end(t *rapid.T) {
	m.how = nil
	m.run(nil)
	m.wantEnd()
	m.wantQuiet()
	m.judge(t)
	for _, key := range players {
		if m.functionOf(key) != nil {
			m.deleteFunction(key)
		}
	}
	m.run(nil)
	m.wantEnd()
	m.judge(t)
}

// actions are all that can happen.
func (m *model) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){
		"":          m.judge,
		"edit":      m.user,
		"delete":    m.deleteOrNot,
		"goOn":      m.goOn,
		"goOnAlso":  m.goOn,
		"rest":      func(*rapid.T) { m.run(nil) },
		"others":    m.others,
		"fault":     m.fault,
		"weather":   m.weather,
		"restart":   m.startAnew,
		"lead":      m.changeLeader,
		"wake":      func(t *rapid.T) { m.process.wake(m.player(t)) },
		"password":  m.password,
		"takeBuild": m.takeBuild,
		"takeChild": m.takeChild,
		"editChild": m.editChild,
	}
	if m.hasDeployments() {
		maps.Copy(actions, m.servingActions())
	}
	if m.mixed {
		actions["backends"] = func(*rapid.T) { m.changeBackends() }
	}
	if m.config.Build.Builder == config.JobBuilder {
		actions["pull"] = m.pull
	}
	return actions
}

func (m *model) player(t *rapid.T) types.NamespacedName {
	return rapid.SampledFrom(players).Draw(t, "function")
}

// user creates a Function, or edits it.
func (m *model) user(t *rapid.T) { m.act(t, m.player(t)) }

func (m *model) act(t *rapid.T, key types.NamespacedName) {
	source := withSource(rapid.SampledFrom(modelSources).Draw(t, "source"))
	if m.functionOf(key) == nil {
		m.createFunction(key, source)
		return
	}
	edits := []string{"source", "env", "deps", "rebuild", "traffic", "latest", "visibility"}
	if m.hasDeployments() {
		edits = append(edits, "pin", "least", "replicas")
	}
	switch edit := rapid.SampledFrom(edits).Draw(t, "edit"); edit {
	case "source":
		m.editFunction(key, source)
	case "env":
		value := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")
		m.editFunction(key, func(fn *v1alpha1.Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A", Value: value}} })
	case "deps":
		deps := rapid.SampledFrom([]string{"", `{"dependencies": {"ms": "2"}}`}).Draw(t, "deps")
		m.editFunction(key, func(fn *v1alpha1.Function) { fn.Spec.Deps = deps })
	case "rebuild":
		m.rebuild++
		m.editFunction(key, withRebuild(strconv.Itoa(m.rebuild)))
	case "traffic":
		revision := fmt.Sprintf("%s-%05d", key.Name, rapid.IntRange(1, 3).Draw(t, "revision"))
		m.editFunction(key, withTraffic(
			v1alpha1.TrafficTarget{RevisionName: revision, Percent: new(int64(50))},
			v1alpha1.TrafficTarget{LatestRevision: new(true), Percent: new(int64(50))}))
	case "latest":
		m.editFunction(key, withTraffic())
	case "visibility":
		visibility := rapid.SampledFrom([]v1alpha1.Visibility{v1alpha1.VisibilityPublic, v1alpha1.VisibilityClusterLocal}).Draw(t, "visibility")
		m.editFunction(key, func(fn *v1alpha1.Function) { fn.Spec.Visibility = visibility })
	default:
		if m.functionOf(key).Status.Serving == "" {
			t.Skip("Serving's pods are not simulated")
		}
		m.editFunction(key, m.servingEdit(t, key, edit))
	}
}

// deleteOrNot deletes a Function, and may create it again at once.
func (m *model) deleteOrNot(t *rapid.T) {
	key := m.player(t)
	if m.functionOf(key) == nil {
		t.Skip("there is nothing to delete")
	}
	m.deleteFunction(key)
	if rapid.Bool().Draw(t, "again") {
		m.createFunction(key, withSource(rapid.SampledFrom(modelSources).Draw(t, "source")))
	}
}

func (m *model) goOn(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		m.step()
	}
}

// others lets some actions of others happen before the controller observes them.
func (m *model) others(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		m.standIns()
	}
}

// fault makes a later call fail.
func (m *model) fault(t *rapid.T) {
	faults := map[string]func(string, ktesting.Call) (runtime.Object, error){
		"dies before": func(string, ktesting.Call) (runtime.Object, error) { panic(death{}) },
		"conflict": func(string, ktesting.Call) (runtime.Object, error) {
			return nil, apierrs.NewConflict(schema.GroupResource{}, "it", errors.New("the object has been modified"))
		},
		"too many": func(string, ktesting.Call) (runtime.Object, error) {
			return nil, apierrs.NewTooManyRequests("slow down", 1)
		},
		"unreachable": func(string, ktesting.Call) (runtime.Object, error) { return nil, errTimeout },
	}
	for _, d := range disturbances {
		faults[d.name] = func(_ string, call ktesting.Call) (runtime.Object, error) { return d.do(m.simulation, call) }
	}
	key := m.player(t)
	faults["edited before"] = func(_ string, call ktesting.Call) (runtime.Object, error) {
		m.act(t, key)
		return call()
	}
	what := rapid.SampledFrom(slices.Sorted(maps.Keys(faults))).Draw(t, "fault")
	ago := rapid.IntRange(0, 12).Draw(t, "ago")
	m.armed = rapid.IntRange(1, 8).Draw(t, "call")
	m.restart = func() *process { return m.startBehind(ago) }
	m.how = func(called string, call ktesting.Call) (runtime.Object, error) {
		m.tracef("  %d: %s: %s", m.calls, called, what)
		return faults[what](called, call)
	}
}

// weather changes how late the caches are.
func (m *model) weather(t *rapid.T) {
	m.process.late = rapid.SampledFrom([]lateness{0, childrenLate, allLate}).Draw(t, "late")
	m.process.slow = rapid.Bool().Draw(t, "slow")
}

// startBehind starts a controller whose caches are that many changes old, except for the
// Function that no action affects.
func (m *model) startBehind(ago int) *process {
	return m.start(min(ago, len(m.server.Changes())-m.calm))
}

func (m *model) startAnew(t *rapid.T) {
	m.tracef("the controller restarts")
	m.process = m.startBehind(rapid.IntRange(0, 12).Draw(t, "ago"))
	m.weather(t)
}

// changeLeader lets another replica lead for a while. The caches of this one stay current.
func (m *model) changeLeader(t *rapid.T) {
	old := m.process
	m.tracef("another leads")
	old.reconciler.(fairqueue.Leader).Demote(pkgreconciler.UniversalBucket())
	clear(old.woken)
	clear(old.failed)
	clear(old.asleep)
	m.startAnew(t)
	m.goOn(t)
	m.tracef("the first leads again")
	m.process = old
	m.starting = true
	err := old.reconciler.(fairqueue.Leader).Promote(pkgreconciler.UniversalBucket(), func(pkgreconciler.Bucket, types.NamespacedName) {})
	m.starting = false
	must(nil, err)
	clear(m.memory.doubted)
	old.wakeAll("")
}

func (m *model) password(t *rapid.T) {
	m.setPassword(m.player(t).Namespace, rapid.SampledFrom([]string{"right", "wrong"}).Draw(t, "password"))
}

// takeBuild deletes the object of a build, or takes its pod away.
func (m *model) takeBuild(t *rapid.T) {
	all := slices.DeleteFunc(m.builds(), func(b build) bool {
		return b.GetNamespace() == bystander.Namespace || b.GetDeletionTimestamp() != nil
	})
	if len(all) == 0 || m.harmed == mostHarm {
		t.Skip("there is no build to take away")
	}
	b := rapid.SampledFrom(all).Draw(t, "build")
	if rapid.Bool().Draw(t, "evict") {
		m.takePod(t, b)
		return
	}
	m.harmed++
	policy := rapid.SampledFrom([]metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}).Draw(t, "policy")
	m.tracef("somebody deletes %s, %s", m.server.RefOf(b.Object), policy)
	must(nil, m.server.Delete(m.server.RefOf(b.Object), metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// takePod evicts the pod of a build, deletes it, or loses its node.
func (m *model) takePod(t *rapid.T, b build) {
	if !b.isLive() || b.podName() == "" {
		t.Skip("it does not run")
	}
	if tr, ok := b.Object.(*pipelinev1.TaskRun); ok {
		m.harmed++
		m.updateTaskRun(tr, taskRunFailed(string(pipelinev1.TaskRunReasonPodEvicted), "the node was low on memory"))
		return
	}
	if b.pod.DeletionTimestamp != nil || b.pod.Status.Phase == corev1.PodFailed {
		t.Skip("its pod ends")
	}
	m.harmed++
	how := rapid.SampledFrom([]string{"evicts", "deletes", "loses the node of"}).Draw(t, "how")
	m.tracef("somebody %s pod %s", how, b.podName())
	pod := b.pod.DeepCopy()
	switch how {
	case "evicts":
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
		must(m.server.UpdateStatus(pod))
		return
	case "loses the node of":
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: lostNode, Message: "the node does not respond", LastTransitionTime: m.ended(),
		})
		must(m.server.UpdateStatus(pod))
	}
	must(nil, m.server.Delete(m.server.RefOf(pod), metav1.DeleteOptions{}))
}

// pull has an image be pulled after all, which could not be before.
func (m *model) pull(t *rapid.T) {
	unpulled := slices.DeleteFunc(m.builds(), func(b build) bool {
		return m.verdicts[b.GetUID()] != isUnpulled || b.pod == nil || b.pod.DeletionTimestamp != nil || b.GetDeletionTimestamp() != nil
	})
	if len(unpulled) == 0 {
		t.Skip("all images are there")
	}
	b := rapid.SampledFrom(unpulled).Draw(t, "build")
	m.verdicts[b.GetUID()] = succeeds
	m.updatePod(b.pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

// children returns the ConfigMaps and the objects that serve Functions, as far as actions may
// change them.
func (m *model) children(t *rapid.T) ktesting.Object {
	var found []ktesting.Object
	for _, obj := range m.server.Objects() {
		if _, ok := obj.(*corev1.ConfigMap); (ok || isServing(obj)) && obj.GetNamespace() != bystander.Namespace {
			found = append(found, obj)
		}
	}
	if len(found) == 0 {
		t.Skip("there are none")
	}
	return rapid.SampledFrom(found).Draw(t, "child")
}

func (m *model) takeChild(t *rapid.T) {
	child := m.children(t)
	m.tracef("somebody deletes %s", m.server.RefOf(child))
	must(nil, m.server.Delete(m.server.RefOf(child), metav1.DeleteOptions{}))
}

// isAlive reports whether the owning Function exists.
func (m *model) isAlive(owner *metav1.OwnerReference) bool {
	return owner != nil && slices.ContainsFunc(objects[*v1alpha1.Function](m.simulation), func(fn *v1alpha1.Function) bool {
		return fn.UID == owner.UID
	})
}

// editChild changes fields of a child that Kiln owns.
func (m *model) editChild(t *rapid.T) {
	// A superfluous object without its label, or an object of a deleted Function without
	// its owner, looks like somebody else's.
	m.how = nil
	m.run(nil)
	child := m.children(t).DeepCopyObject().(ktesting.Object)
	edits := []string{"labels", "owner", "image"}
	if child.GetLabels()[serverless.ServerLabelKey] != "" {
		edits = append(edits, "server", "spec")
	}
	what := rapid.SampledFrom(edits).Draw(t, "what")
	if what == "owner" && !m.isAlive(metav1.GetControllerOf(child)) {
		t.Skip("it is about to go")
	}
	if what != "image" && (metav1.GetControllerOf(child) == nil || child.GetLabels()[serverless.FunctionUIDLabelKey] == "") {
		t.Skip("what has lost both is not the Function's any more")
	}
	image := imageOf(child)
	switch {
	case what == "labels":
		labels := maps.Clone(child.GetLabels())
		delete(labels, serverless.FunctionUIDLabelKey)
		child.SetLabels(labels)
	case what == "owner":
		child.SetOwnerReferences(nil)
	case what == "server":
		labels := maps.Clone(child.GetLabels())
		delete(labels, serverless.ServerLabelKey)
		child.SetLabels(labels)
	case what == "spec":
		spoil(t, child)
	case image != nil:
		*image = "registry.example.com/evil"
	default:
		t.Skip("it has no image")
	}
	m.tracef("somebody edits %s: %s", m.server.RefOf(child), what)
	must(m.server.Update(child))
	m.run(nil)
}
