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
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	fakepipelineclient "github.com/tektoncd/pipeline/pkg/client/injection/client/fake"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"knative.dev/pkg/apis"
	fakekubeclient "knative.dev/pkg/client/injection/kube/client/fake"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/logging/logkey"
	pkgreconciler "knative.dev/pkg/reconciler"
	rtesting "knative.dev/pkg/reconciler/testing"
	"knative.dev/pkg/system"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	fakeservingclient "knative.dev/serving/pkg/client/injection/client/fake"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	fakekilnclient "github.com/kiln-dev/kiln/pkg/client/injection/client/fake"
	functioninformer "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

const (
	// teams is the number of namespaces with Functions when a controller starts. The Functions
	// of the first have their own runtime.
	teams = 100
	// teamSize is how many Functions are in each.
	teamSize = 10
	// maxEventsSeen is more than a controller emits in a test.
	maxEventsSeen = 100 * teams * teamSize
)

// systemConfig is the configuration to begin with.
var systemConfig = map[string]map[string]string{
	config.FunctionsConfigName: {},
	config.RuntimesConfigName: {
		"nodejs20": "{baseImage: node:20, language: nodejs}",
		"nodejs22": "{baseImage: node:22, language: nodejs}",
		"nodejs24": "{baseImage: node:24, language: nodejs}",
	},
	config.BuildConfigName: {"kaniko-image": "registry.example.com/kaniko", "compose-image": "registry.example.com/compose"},
	// Without periodic checks, a restart asks the registry nothing.
	config.RegistryConfigName: {"push": "registry.example.com:5000", "prefix": "functions", "check-interval": "0"},
}

// changed returns a ConfigMap with one value that is not as it was.
func changed(configMap, key, value string) *corev1.ConfigMap {
	data := maps.Clone(systemConfig[configMap])
	data[key] = value
	return systemConfigMap(configMap, data)
}

// TestRestart checks a promise of docs/upgrading.md: a start of the controller, or a
// configuration change without effect, writes nothing for Ready Functions.
func TestRestart(t *testing.T) {
	registry := startRegistry(t)
	before := startWorld(t, zap.NewNop(), nil, buildAndServe)
	before.populate()
	before.settle()
	registry.requests.Store(0)
	w := startWorld(t, zap.NewNop(), before.objects(), storeNothing)
	w.untilAllSeen()
	w.wantWritesIn("the controller has started")

	w.change(systemConfigMap(config.BuildConfigName, systemConfig[config.BuildConfigName]))
	w.untilAllSeen()
	w.wantWritesIn("a ConfigMap was written as it was")

	w.change(
		// The changes: a longer timeout of builds, another default, another image of an unused
		// runtime, and a deprecated runtime that many use.
		changed(config.BuildConfigName, "timeout", "30m"),
		changed(config.FunctionsConfigName, "default-min-replicas", "2"),
		changed(config.RuntimesConfigName, "nodejs20", "{baseImage: node:20.1, language: nodejs}"),
		changed(config.RuntimesConfigName, "nodejs24", "{baseImage: node:24, language: nodejs, deprecated: true}"),
	)
	w.untilAllSeen()
	w.wantWritesIn("the configuration has changed in what concerns nobody")

	w.change(changed(config.FunctionsConfigName, "serving", string(config.KubernetesServer)))
	w.untilAllSeen()
	w.wantWritesIn("new Functions are served by Deployments")
	if got := registry.requests.Load(); got > 0 {
		t.Errorf("The registry was asked %d times, for nothing", got)
	}

	// This also shows that writes are seen.
	w.change(changed(config.RuntimesConfigName, "nodejs22", "{baseImage: node:22.1, language: nodejs}"))
	w.untilAllSeen()
	w.wantWritesIn("a runtime has changed", team(0))
}

// TestLogs checks that each log line of a reconcile names its Function.
func TestLogs(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	fn := function(observed(configured, buildRunning(firstRun)))
	failed := taskRun(fn, builds.ReasonFirstBuild, taskRunFailed("Failed", "exit code 1"), withFailedStep)
	// Its log cannot be read, and its status cannot be written.
	w := startWorld(t, zap.New(core), []runtime.Object{fn, configMap(fn), failed}, func(action clientgotesting.Action) (bool, runtime.Object, error) {
		return isWrite(action), nil, errors.New("no connection")
	})
	w.until("a reconcile has failed", func() bool { return logs.FilterMessage("Reconcile error").Len() > 0 })
	for _, entry := range logs.All() {
		switch entry.Message {
		case "Starting controller and workers", "Started workers", "Shutting down workers":
			continue
		}
		if got := entry.ContextMap()[logkey.Key]; got != key {
			t.Errorf("%s of %q: %q, want %q", logkey.Key, entry.Message, got, key)
		}
	}
}

func team(i int) string { return fmt.Sprintf("team-%d", i) }

// world is a running controller in a cluster of fakes.
type world struct {
	*testing.T
	ctx     context.Context
	watcher *configmap.ManualWatcher
	impl    *controller.Impl
	// waiting has the keys that wait for their turn.
	waiting *fairqueue.Queue
	events  chan string
	seen    *seen
}

// seen remembers which keys a reconciler has worked on.
type seen struct {
	controller.Reconciler
	pkgreconciler.LeaderAware

	mu   sync.Mutex
	keys sets.Set[string]
	busy int
}

// Reconcile implements controller.Reconciler.
func (s *seen) Reconcile(ctx context.Context, key string) error {
	s.mu.Lock()
	s.busy++
	s.mu.Unlock()
	err := s.Reconciler.Reconcile(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.keys.Insert(key)
	return err
}

// startWorld starts a controller as its process does, in a cluster with those objects and
// reactions to writes.
func startWorld(t *testing.T, logger *zap.Logger, objects []runtime.Object, react clientgotesting.ReactionFunc) *world {
	t.Helper()
	ctx, cancel, informers := fakeContext(t)
	w := &world{T: t, watcher: &configmap.ManualWatcher{Namespace: system.Namespace()}, events: make(chan string, maxEventsSeen)}
	w.ctx = logging.WithLogger(ctx, logger.Sugar())
	w.ctx = controller.WithEventRecorder(w.ctx, &record.FakeRecorder{Events: w.events})
	w.store(objects)
	kiln := fakekilnclient.Get(w.ctx)
	kiln.PrependReactor("update", "functions", ktesting.StatusOnly(kiln.Tracker()))
	for _, fake := range w.fakes() {
		fake.PrependReactor("*", "*", react)
	}

	w.impl = NewController(w.ctx, w.watcher)
	w.waiting = w.impl.Reconciler.(*fairqueue.Queue)
	w.seen = &seen{Reconciler: w.impl.Reconciler, LeaderAware: w.impl.Reconciler.(pkgreconciler.LeaderAware), keys: sets.New[string]()}
	w.impl.Reconciler = w.seen
	for name, data := range systemConfig {
		w.watcher.OnChange(systemConfigMap(name, data))
	}
	wait, err := rtesting.RunAndSyncInformers(w.ctx, informers...)
	if err != nil {
		cancel()
		t.Fatal("Failed to start the informers:", err)
	}
	done := make(chan error)
	go func() { done <- w.impl.Run(w.ctx) }()
	t.Cleanup(func() {
		cancel()
		wait()
		if err := <-done; err != nil {
			t.Error("The controller has failed:", err)
		}
	})
	return w
}

// registryOfAll is a registry that holds what builds push: the same image.
type registryOfAll struct {
	requests atomic.Int64
}

const (
	everyManifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}`
	everyDigest   = "sha256:b22c7289dd3b4785a3795c90e15d16bd66bd29b444b8974fe29ed0443ce50405"
)

// startRegistry starts the registry that the configuration names.
func startRegistry(t *testing.T) *registryOfAll {
	t.Helper()
	registry := &registryOfAll{}
	server := httptest.NewServer(registry)
	t.Cleanup(server.Close)
	systemConfig[config.RegistryConfigName]["push"] = server.Listener.Addr().String()
	return registry
}

// ServeHTTP implements http.Handler.
func (r *registryOfAll) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.requests.Add(1)
	switch {
	case req.URL.Path == "/v2/":
	case req.Method == http.MethodPut:
		w.WriteHeader(http.StatusCreated)
	case path.Base(req.URL.Path) == everyDigest:
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		fmt.Fprint(w, everyManifest)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// buildAndServe ends each build, and makes each Service ready, when it is created.
func buildAndServe(action clientgotesting.Action) (bool, runtime.Object, error) {
	if create, ok := action.(clientgotesting.CreateAction); ok {
		switch obj := create.GetObject().(type) {
		case *pipelinev1.TaskRun:
			taskRunSucceeded(everyDigest)(obj)
		case *servingv1.Service:
			obj.SetDefaults(apis.WithinCreate(context.Background()))
			serviceReady(obj)
		}
	}
	return false, nil, nil
}

// storeNothing lets writes succeed without effect: a wrong one could cause the next, without
// end.
func storeNothing(action clientgotesting.Action) (bool, runtime.Object, error) {
	if !isWrite(action) {
		return false, nil, nil
	}
	if write, ok := action.(clientgotesting.CreateAction); ok {
		return true, write.GetObject(), nil
	}
	return true, nil, nil
}

// populate creates Functions and waits until they are Ready and the registry has the tags of
// their images.
func (w *world) populate() {
	w.Helper()
	for i := range teams {
		for j := range teamSize {
			fn := function(func(fn *v1alpha1.Function) {
				fn.Namespace, fn.Name = team(i), fmt.Sprintf("fn-%d", j)
				fn.UID = types.UID(fn.Namespace + fn.Name)
				if i == 0 {
					fn.Spec.Runtime = "nodejs22"
				}
			})
			if _, err := fakekilnclient.Get(w.ctx).ServerlessV1alpha1().Functions(fn.Namespace).Create(w.ctx, fn, metav1.CreateOptions{}); err != nil {
				w.Fatal("Failed to create Function:", err)
			}
		}
	}
	w.until("all Functions are ready", func() bool {
		all, err := functioninformer.Get(w.ctx).Lister().List(labels.Everything())
		return err == nil && len(all) == teams*teamSize && !slices.ContainsFunc(all, func(fn *v1alpha1.Function) bool {
			return !fn.IsReady() || fn.Status.VersionTag != versionTag(fn)
		})
	})
}

// settle waits until the controller reconciles all Functions without a write. Background
// lookups may take many rounds on a busy machine.
func (w *world) settle() {
	w.Helper()
	for range 200 {
		w.change(systemConfigMap(config.BuildConfigName, systemConfig[config.BuildConfigName]))
		w.untilAllSeen()
		if len(w.writes()) == 0 {
			return
		}
	}
	w.Fatal("The controller keeps writing:", w.writes())
}

func (w *world) objects() (all []runtime.Object) {
	w.Helper()
	functions, err1 := fakekilnclient.Get(w.ctx).ServerlessV1alpha1().Functions("").List(w.ctx, metav1.ListOptions{})
	configMaps, err2 := fakekubeclient.Get(w.ctx).CoreV1().ConfigMaps("").List(w.ctx, metav1.ListOptions{})
	taskRuns, err3 := fakepipelineclient.Get(w.ctx).TektonV1().TaskRuns("").List(w.ctx, metav1.ListOptions{})
	services, err4 := fakeservingclient.Get(w.ctx).ServingV1().Services("").List(w.ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		w.Fatal("Failed to list:", err)
	}
	for _, list := range []runtime.Object{functions, configMaps, taskRuns, services} {
		items, err := meta.ExtractList(list)
		if err != nil {
			w.Fatal("Failed to read a list:", err)
		}
		if len(items) != teams*teamSize {
			w.Fatalf("There are %d of %T, want %d", len(items), list, teams*teamSize)
		}
		all = append(all, items...)
	}
	return all
}

// store adds the objects to the cluster.
func (w *world) store(objects []runtime.Object) {
	w.Helper()
	for _, object := range objects {
		var tracker clientgotesting.ObjectTracker
		switch object.(type) {
		case *v1alpha1.Function:
			tracker = fakekilnclient.Get(w.ctx).Tracker()
		case *pipelinev1.TaskRun:
			tracker = fakepipelineclient.Get(w.ctx).Tracker()
		case *servingv1.Service:
			tracker = fakeservingclient.Get(w.ctx).Tracker()
		default:
			tracker = fakekubeclient.Get(w.ctx).Tracker()
		}
		if err := tracker.Add(object); err != nil {
			w.Fatal("Failed to store:", err)
		}
	}
}

func isWrite(action clientgotesting.Action) bool {
	return !slices.Contains([]string{"get", "list", "watch"}, action.GetVerb())
}

// change changes the configuration, and forgets all earlier writes first.
func (w *world) change(configMaps ...*corev1.ConfigMap) {
	for _, fake := range w.fakes() {
		fake.ClearActions()
	}
	w.seen.mu.Lock()
	w.seen.keys.Clear()
	w.seen.mu.Unlock()
	for _, cm := range configMaps {
		w.watcher.OnChange(cm)
	}
}

func (w *world) fakes() []*clientgotesting.Fake {
	return []*clientgotesting.Fake{
		&fakekilnclient.Get(w.ctx).Fake, &fakekubeclient.Get(w.ctx).Fake,
		&fakepipelineclient.Get(w.ctx).Fake, &fakeservingclient.Get(w.ctx).Fake,
	}
}

// untilAllSeen waits until the controller has reconciled each Function.
func (w *world) untilAllSeen() {
	w.Helper()
	w.until("all Functions were reconciled", func() bool {
		w.seen.mu.Lock()
		defer w.seen.mu.Unlock()
		return len(w.seen.keys) == teams*teamSize && w.seen.busy == 0 && w.waiting.Len() == 0 && w.impl.WorkQueue().Len() == 0
	})
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	if err := wait.PollUntilContextTimeout(w.ctx, time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		return is(), nil
	}); err != nil {
		w.Fatalf("It did not come that %s: %v", what, err)
	}
}

// writes returns what was written, by namespace.
func (w *world) writes() map[string][]string {
	found := map[string][]string{}
	for _, fake := range w.fakes() {
		for _, action := range fake.Actions() {
			if isWrite(action) {
				found[action.GetNamespace()] = append(found[action.GetNamespace()], action.GetVerb()+" "+action.GetResource().Resource)
			}
		}
	}
	return found
}

// wantWritesIn checks that there were writes in these namespaces, and in no others.
// Events are writes, too.
func (w *world) wantWritesIn(since string, want ...string) {
	w.Helper()
	got := w.writes()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		w.Errorf("Since %s, there were writes in namespaces (-want +got):\n%s\nthe writes: %v", since, diff, got)
	}
	if len(want) == 0 && len(w.events) > 0 {
		w.Errorf("Since %s, there were %d events, such as %q", since, len(w.events), <-w.events)
	}
}
