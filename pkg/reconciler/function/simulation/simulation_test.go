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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"go.uber.org/zap"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmeta"
	"knative.dev/pkg/logging"
	pkgreconciler "knative.dev/pkg/reconciler"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/job"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/children"
	functionreconciler "github.com/kiln-dev/kiln/pkg/client/injection/reconciler/serverless/v1alpha1/function"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/reconciler/function"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
	"github.com/kiln-dev/kiln/pkg/serve/kubernetes"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// credentialsName is the name of the Secret with the credentials of the registry.
const credentialsName = "registry-credentials"

// In a source, these words decide what becomes of it.
const (
	// brokenSource cannot be built.
	brokenSource = "BROKEN"
	// slowSource takes longer to be built than anybody waits.
	slowSource = "SLOW"
	// stuckSource has a build whose pod never starts.
	stuckSource = "STUCK"
	// crashingSource is built, and ends as soon as it is started.
	crashingSource = "CRASHES"
	// unpulledSource has a first build whose image cannot be pulled.
	unpulledSource = "UNPULLED"
)

// simulation is a cluster in which nothing happens on its own. The test chooses the order of
// all events. It has Functions, their controller, and stand-ins for users, the builders,
// Serving, the registry and the garbage collector.
type simulation struct {
	server *ktesting.APIServer
	config *config.Config
	// mixed has the builder change while builds run.
	mixed bool
	// limits say how many builds may run at once.
	limits queue.Limits
	// ctx ends the passing of time for the queues.
	ctx context.Context
	// clocked reports that the test runs in a bubble of package synctest. Without it,
	// every delayed action of a build that has ended is due at once.
	clocked bool

	// pushed is what the registry holds: digests by tag.
	pushed map[string]string
	// crashing are the digests of images that crash at the start.
	crashing map[string]bool
	// verdicts are the ends of the builds that run.
	verdicts map[types.UID]verdict
	// templates counts, by Service, how many revision templates there were.
	templates map[types.UID]int
	// memory is what the oracle remembers.
	memory memory

	// process is the controller, as long as it lives.
	process *process
	// calls counts the requests of the controller to the API server, and its writes that would
	// change something.
	calls, writes int
	// starting reports that the controller has not started yet and retries.
	starting bool
	// disturb may take the place of a call of the controller's.
	disturb func(what string, call ktesting.Call) (runtime.Object, error)
	// restart starts the process that follows one that has died.
	restart func() *process

	// trace lists what happened, and wrong lists the faults.
	trace, wrong []string
}

// newSimulation returns a simulation without Functions, with that builder of new builds and
// that server of new Functions.
func newSimulation(builder config.Builder, server config.Server) *simulation {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := &simulation{
		ctx: ctx,
		config: withServer(withBuilder(testConfig(func(cfg *config.Config) {
			cfg.Registry.Credentials, cfg.Functions.PublicDomain = credentialsName, "fn.example.com"
		}), builder), server),
		limits:    queue.Limits{Cluster: 1},
		memory:    memory{tags: map[version]string{}, made: map[string]string{}, givenUp: map[types.UID]bool{}, doubted: map[types.UID]bool{}, excused: map[types.UID]bool{}},
		pushed:    map[string]string{},
		crashing:  map[string]bool{},
		verdicts:  map[types.UID]verdict{},
		templates: map[types.UID]int{},
	}
	s.server = ktesting.NewAPIServer(config.ToContext(context.Background(), s.config))
	s.server.Now = noon.Time
	s.server.OnChange = s.check
	s.setPassword(namespace, "right")
	s.process = s.start(0)
	return s
}

// clone returns a copy that goes its own way.
func (s *simulation) clone() *simulation {
	clone := *s
	clone.disturb, clone.restart = nil, nil
	clone.server = s.server.Clone()
	clone.server.OnChange = clone.check
	clone.pushed = maps.Clone(s.pushed)
	clone.crashing = maps.Clone(s.crashing)
	clone.verdicts = maps.Clone(s.verdicts)
	clone.templates = maps.Clone(s.templates)
	clone.memory = s.memory.clone()
	clone.trace = slices.Clone(s.trace)
	clone.wrong = slices.Clone(s.wrong)
	clone.process = clone.resume(s.process)
	return &clone
}

func (s *simulation) tracef(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

func (s *simulation) wrongf(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
	s.tracef("WRONG: "+format, args...)
}

// objects returns all objects of a kind. Callers must not change them.
func objects[T ktesting.Object](s *simulation) (found []T) {
	for _, obj := range s.server.Objects() {
		if o, ok := obj.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// The controller.

// process is what a controller has in memory, and what wakes it.
type process struct {
	caches     *ktesting.Caches
	reconciler controller.Reconciler
	queue      *queue.Queue
	jobs       *job.Handlers
	// servingPods hears of the pods of Functions.
	servingPods cache.ResourceEventHandler
	lookups     *asked[images.Lookup, images.Found]
	taggings    *asked[images.Tagging, struct{}]

	// woken are the Functions in the queue, failed those to retry, and asleep has the
	// times of delayed reconciles.
	woken, failed keys
	asleep        map[types.NamespacedName]time.Time

	// late caches get changes only when nothing else can happen; others get them first.
	late lateness
	// slow has them hear of one change at a time.
	slow bool
}

// keys are a set of Functions.
type keys map[types.NamespacedName]bool

// first returns the same one of them always, and whether there is any.
func first[V any](all map[types.NamespacedName]V) (key types.NamespacedName, ok bool) {
	for k := range all {
		if !ok || k.String() < key.String() {
			key, ok = k, true
		}
	}
	return key, ok
}

// lateness is which caches lag. The zero value is none.
type lateness int

const (
	_ lateness = iota
	// childrenLate says all but those of Functions.
	childrenLate
	allLate
)

// start starts a controller whose caches are that many changes old. As any new process, it
// reconciles each Function that they show.
func (s *simulation) start(ago int) *process {
	p := &process{
		caches: ktesting.NewCaches(s.server, childSelector, max(0, len(s.server.Changes())-ago)),
		woken:  keys{}, failed: keys{}, asleep: map[types.NamespacedName]time.Time{},
	}
	// A process that has lost the version of the credentials correctly starts another
	// build.
	for told := true; told; {
		_, told = p.caches.Secrets.Deliver()
	}
	s.connect(p)
	p.wakeAll("")
	return p
}

// wakeAll wakes all Functions that the caches show, of all namespaces or of one.
func (p *process) wakeAll(namespace string) {
	fns, err := p.caches.FunctionLister().Functions(namespace).List(labels.Everything())
	must(fns, err)
	for _, fn := range fns {
		p.wake(children.KeyOf(fn))
	}
}

func (p *process) wake(key types.NamespacedName) { p.woken[key] = true }

// unlogged is a context in which the controller logs nothing.
var unlogged = logging.WithLogger(context.Background(), zap.NewNop().Sugar())

var childSelector = func() labels.Selector {
	selector, err := labels.Parse(children.LabelSelector)
	if err != nil {
		panic(err)
	}
	return selector
}()

// resume returns a copy of the process, for a clone of its simulation.
func (s *simulation) resume(original *process) *process {
	p := *original
	p.woken = keys{}
	p.caches = original.caches.CloneFor(s.server)
	lookups, taggings := original.lookups, original.taggings
	s.connect(&p)
	p.woken, p.failed, p.asleep = maps.Clone(original.woken), maps.Clone(original.failed), maps.Clone(original.asleep)
	p.lookups.jobs, p.taggings.jobs = lookups.clone(), taggings.clone()
	return &p
}

// connect creates the parts of the process.
func (s *simulation) connect(p *process) {
	clients := s.server.Clients(func(action clientgotesting.Action, call ktesting.Call) (runtime.Object, error) {
		return s.call(describeAction(action), call)
	})
	p.lookups = &asked[images.Lookup, images.Found]{do: s.find, wake: p.wake}
	p.taggings = &asked[images.Tagging, struct{}]{do: s.tag, wake: p.wake}
	p.queue = queue.New(s.ctx, s.limits, p.wake)
	mountEvents := p.caches.EventLister()
	podLister := ktesting.TransformedPods{PodLister: p.caches.PodLister(), Transform: pods.Slim(knative.RevisionLabelKey, serverless.RevisionLabelKey)}
	jobs := &job.Builder{
		Client: clients.Kube,
		Jobs:   ktesting.TransformedJobs{JobLister: p.caches.JobLister(), Transform: job.Slim},
		Pods:   podLister, MountEvents: mountEvents, CreateEvents: p.caches.EventLister(), Logs: simulatedLogs{s},
	}
	p.jobs = job.NewHandlers(jobs, p.queue, p.wakeOwner)
	p.servingPods = function.NewPodHandler(p.caches.FunctionLister(), mountEvents, p.wake)
	builders := function.Builders{&tekton.Builder{
		Client:   clients.Tekton,
		TaskRuns: ktesting.TransformedTaskRuns{TaskRunLister: p.caches.TaskRunLister(), Transform: tekton.Slim},
		Pods:     podLister, MountEvents: mountEvents, Logs: simulatedLogs{s},
	}, jobs}
	r := function.New(function.Options{
		Kiln: clients.Kiln, Kube: clients.Kube,
		ConfigMaps: ktesting.TransformedConfigMaps{ConfigMapLister: p.caches.ConfigMapLister(), Transform: slim.ConfigMap},
		Builders:   builders,
		NewServers: func(checkCurrent func(context.Context, *v1alpha1.Function) error) function.Servers {
			return function.Servers{
				&knative.Server{
					Client: clients.Serving, Networking: clients.Networking,
					Services: ktesting.TransformedServices{ServiceLister: p.caches.ServiceLister(), Transform: knative.Slim},
					Pods:     podLister, MountEvents: mountEvents, CheckCurrent: checkCurrent,
				},
				&kubernetes.Server{
					Client: clients.Kube, Stores: p.stores(), Pods: podLister, MountEvents: mountEvents, CheckCurrent: checkCurrent,
				},
			}
		},
		Secrets:  simulatedSecrets{p.caches},
		Lookups:  p.lookups,
		Taggings: p.taggings,
		Polls:    noPolls{},
		Checks:   noChecks{},
		Contents: noContents{},
		Queue:    p.queue,
	})
	generated := functionreconciler.NewReconciler(unlogged, zap.NewNop().Sugar(), clients.Kiln,
		ktesting.TransformedFunctions{FunctionLister: p.caches.FunctionLister(), Transform: slim.Function},
		&record.FakeRecorder{}, r, controller.Options{ConfigStore: configStore{s}, SkipStatusUpdates: true, DemoteFunc: r.Demote})
	leader := function.NewLeader(unlogged, generated.(fairqueue.Leader), p.queue, p.caches.FunctionLister(), builders)
	s.starting = true
	defer func() { s.starting = false }()
	// A new leader lists all builds.
	clear(s.memory.doubted)
	if err := leader.Promote(pkgreconciler.UniversalBucket(), func(pkgreconciler.Bucket, types.NamespacedName) {}); err != nil {
		panic(err)
	}
	p.reconciler = leader
	// An informer reports the objects that it starts with, too.
	for _, obj := range p.caches.Objects() {
		s.hear(p, ktesting.Change{New: obj})
	}
}

// stores returns the caches of the objects of Functions that Deployments serve.
func (p *process) stores() kubernetes.Stores {
	slim := func(c *ktesting.Cache) cache.Store {
		return ktesting.TransformedStore{Store: c, Transform: kubernetes.Slim}
	}
	return kubernetes.Stores{
		Deployments: slim(p.caches.Deployments), Services: slim(p.caches.KubeServices), Scalers: slim(p.caches.Scalers),
		Budgets: slim(p.caches.Budgets), Ingresses: slim(p.caches.Ingresses),
	}
}

func describeAction(action clientgotesting.Action) string {
	what := action.GetVerb() + " " + action.GetResource().Resource
	if sub := action.GetSubresource(); sub != "" {
		what += "/" + sub
	}
	switch action := action.(type) {
	case clientgotesting.CreateActionImpl:
		what += " " + action.Object.(ktesting.Object).GetName()
	case clientgotesting.UpdateActionImpl:
		what += " " + action.Object.(ktesting.Object).GetName()
		if fn, ok := action.Object.(*v1alpha1.Function); ok {
			ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
			what += fmt.Sprintf(" (%s: %s: %s)", fn.Status.Phase, ready.GetReason(), ready.GetMessage())
		}
	case interface{ GetName() string }:
		what += " " + action.GetName()
	}
	return what
}

// call does what the controller asks for, unless it is disturbed.
func (s *simulation) call(what string, call ktesting.Call) (runtime.Object, error) {
	if s.starting {
		return call()
	}
	s.calls++
	if !strings.HasPrefix(what, "get ") && !strings.HasPrefix(what, "list ") {
		s.writes++
	}
	disturb := s.disturb
	if disturb == nil {
		disturb = func(_ string, call ktesting.Call) (runtime.Object, error) { return call() }
	}
	var created metav1.Object
	obj, err := disturb(what, func() (runtime.Object, error) {
		s.memory.acting = true
		defer func() { s.memory.acting = false }()
		obj, err := call()
		if err == nil && strings.HasPrefix(what, "create ") {
			created = obj.(metav1.Object)
		}
		return obj, err
	})
	if err != nil && created != nil {
		s.memory.doubted[created.GetUID()] = true
	}
	if err == nil {
		s.tracef("  %d: %s", s.calls, what)
	} else {
		s.tracef("  %d: %s: %v", s.calls, what, err)
	}
	return obj, err
}

// death ends a process in the middle of a call.
type death struct{}

// reconcile reconciles a Function. A new process follows if the controller crashes.
func (s *simulation) reconcile(key types.NamespacedName) {
	p := s.process
	delete(p.woken, key)
	delete(p.failed, key)
	delete(p.asleep, key)
	s.memory.begin(s.functionOf(key))
	defer func() {
		s.memory.reconciling = false
		if r := recover(); r != nil {
			if _, ok := r.(death); !ok {
				panic(r)
			}
			s.tracef("  the controller dies")
			s.process = s.restart()
		}
	}()
	s.tracef("reconcile %s", key)
	err := p.reconciler.Reconcile(unlogged, key.String())
	later, delay := controller.IsRequeueKey(err)
	switch {
	case err == nil, controller.IsSkipKey(err):
	case later:
		s.tracef("  again in %s", delay)
		p.asleep[key] = time.Now().Add(delay)
	case !controller.IsPermanentError(err):
		s.tracef("  error: %v", err)
		p.failed[key] = true
	default:
		s.tracef("  error, not to be tried again: %v", err)
	}
}

// deliver delivers one change or all changes to the late caches or to the others. It
// reports whether there was any.
func (s *simulation) deliver(late bool) bool {
	told := false
	p := s.process
	for _, c := range p.caches.All() {
		isLate := p.late == allLate || p.late == childrenLate && c != p.caches.Functions
		if c != p.caches.Secrets && isLate != late || c == p.caches.Secrets && late {
			continue
		}
		for {
			change, ok := c.Deliver()
			if !ok {
				break
			}
			told = true
			s.hear(p, change)
			if s.process.slow {
				break
			}
		}
	}
	return told
}

// wakeOwner wakes the Function that the object belongs to.
func (p *process) wakeOwner(obj any) {
	object := obj.(metav1.Object)
	if owner := metav1.GetControllerOf(object); owner != nil {
		p.wake(types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name})
	}
	if name := object.GetLabels()[serverless.FunctionNameLabelKey]; name != "" {
		p.wake(types.NamespacedName{Namespace: object.GetNamespace(), Name: name})
	}
}

// hear does what the handlers of NewController do.
func (s *simulation) hear(p *process, change ktesting.Change) {
	handler := controller.HandleAll(p.wakeOwner)
	delete(s.memory.doubted, change.Latest().GetUID())
	switch object := change.Latest().(type) {
	case *v1alpha1.Function:
		p.wake(children.KeyOf(object))
		handler = function.ReleaseDeleted(p.queue.Release)
	case *corev1.Secret:
		p.wakeAll(object.Namespace)
	case *pipelinev1.TaskRun:
		handler = tekton.Count(p.queue, p.wakeOwner)
	case *batchv1.Job:
		handler = controller.HandleAll(p.jobs.OnJob)
	case *corev1.Pod:
		handler = controller.HandleAll(p.jobs.OnPod)
		defer tell(p.servingPods, change)
	case *appsv1.Deployment, *corev1.Service, *autoscalingv2.HorizontalPodAutoscaler, *policyv1.PodDisruptionBudget, *networkingv1.Ingress:
		handler = kubernetes.WakeOnChange(p.wakeOwner)
		change.Old, change.New = slimmed(change.Old), slimmed(change.New)
	}
	tell(handler, change)
}

// slimmed returns the object as the caches of kubernetes.Server have it, or nil.
func slimmed(obj ktesting.Object) ktesting.Object {
	if obj == nil {
		return nil
	}
	kept, err := kubernetes.Slim(obj.DeepCopyObject())
	must(kept, err)
	return kept.(ktesting.Object)
}

func tell(handler cache.ResourceEventHandler, change ktesting.Change) {
	switch {
	case change.New == nil:
		handler.OnDelete(change.Old)
	case change.Old == nil:
		handler.OnAdd(change.New, false)
	default:
		handler.OnUpdate(change.Old, change.New)
	}
}

// asked is a registry whose answers the simulation delays.
type asked[Request comparable, Answer any] struct {
	do   func(Request) Answer
	wake func(types.NamespacedName)
	jobs map[types.NamespacedName]*inquiry[Request, Answer]
}

type inquiry[Request, Answer any] struct {
	request       Request
	answer        Answer
	done, awaited bool
}

func (a *asked[Request, Answer]) Ask(key types.NamespacedName, request Request) {
	if j := a.jobs[key]; j != nil && j.request == request {
		return
	}
	if a.jobs == nil {
		a.jobs = map[types.NamespacedName]*inquiry[Request, Answer]{}
	}
	a.jobs[key] = &inquiry[Request, Answer]{request: request}
}

func (a *asked[Request, Answer]) Answer(key types.NamespacedName, request Request, await bool) (answer Answer, ok bool) {
	j := a.jobs[key]
	if j == nil || j.request != request {
		return answer, false
	}
	j.awaited = j.awaited || await
	return j.answer, j.done
}

func (a *asked[Request, Answer]) Acknowledge(key types.NamespacedName) {
	if j := a.jobs[key]; j != nil && j.done {
		delete(a.jobs, key)
	}
}

func (a *asked[Request, Answer]) Forget(key types.NamespacedName) {
	delete(a.jobs, key)
}

func (a *asked[Request, Answer]) ForgetAll(isMeant func(types.NamespacedName) bool) {
	maps.DeleteFunc(a.jobs, func(key types.NamespacedName, _ *inquiry[Request, Answer]) bool { return isMeant(key) })
}

func (a *asked[Request, Answer]) clone() map[types.NamespacedName]*inquiry[Request, Answer] {
	jobs := map[types.NamespacedName]*inquiry[Request, Answer]{}
	for key, j := range a.jobs {
		jobs[key] = new(*j)
	}
	return jobs
}

// step does what was asked for, if anything was.
func (a *asked[Request, Answer]) step() bool {
	open := maps.Clone(a.jobs)
	maps.DeleteFunc(open, func(_ types.NamespacedName, j *inquiry[Request, Answer]) bool { return j.done })
	key, ok := first(open)
	if !ok {
		return false
	}
	j := open[key]
	j.answer, j.done = a.do(j.request), true
	if j.awaited {
		a.wake(key)
	}
	return true
}

func (s *simulation) find(lookup images.Lookup) images.Found {
	for tag, digest := range s.pushed {
		if digest == lookup.Image.Digest && strings.HasPrefix(tag, lookup.Name+":") {
			return images.Found{Image: digest}
		}
	}
	return images.Found{Base: digestB}
}

func (s *simulation) tag(tagging images.Tagging) struct{} {
	s.pushed[repositoryTag(tagging.Name, tagging.Tag)] = tagging.Digest
	return struct{}{}
}

func repositoryTag(repository, tag string) string { return repository + ":" + tag }

// simulatedLogs are the logs of builds that fail.
type simulatedLogs struct{ *simulation }

func (l simulatedLogs) Tail(_ context.Context, _, pod, container string) (log string, err error) {
	_, err = l.call("get pods/log "+pod, func() (runtime.Object, error) {
		if !slices.ContainsFunc(l.builds(), func(b build) bool { return b.podName() == pod }) {
			return nil, apierrs.NewNotFound(corev1.Resource("pods"), pod)
		}
		return nil, nil
	})
	if container == "step-"+steps.Push || container == steps.Push {
		return "failed to push image: UNAUTHORIZED: authentication required", err
	}
	return "npm error code E404", err
}

// simulatedSecrets shows the Secrets that the namespace has.
type simulatedSecrets struct{ *ktesting.Caches }

func (c simulatedSecrets) Ensure(_ context.Context, name, namespace string) (*corev1.Secret, error) {
	secret, err := c.SecretLister().Secrets(namespace).Get(name)
	if apierrs.IsNotFound(err) {
		return nil, nil
	}
	return secret, err
}

func (simulatedSecrets) Version(secret *corev1.Secret) string { return secret.ResourceVersion }

func (simulatedSecrets) Names() []string { return nil }

// The stand-ins. Each takes one step at a time, and reports whether there was any
// to take.

// serve stands in for Serving: it makes the next revision of a Service, finds it
// ready, or says so.
func (s *simulation) serve() bool {
	for _, svc := range objects[*servingv1.Service](s) {
		if svc.DeletionTimestamp != nil {
			continue
		}
		name := fmt.Sprintf("%s-%05d", svc.Name, s.templates[svc.UID])
		revision := get[*servingv1.Revision](s, svc.Namespace, name)
		if !isOf(svc, revision) {
			name = fmt.Sprintf("%s-%05d", svc.Name, s.templates[svc.UID]+1)
			if get[*servingv1.Revision](s, svc.Namespace, name) != nil {
				// An earlier Service of that name has left it, to be collected.
				continue
			}
			s.templates[svc.UID]++
			s.createRevision(svc, name)
			return true
		}
		state := revision.Status.GetCondition(servingv1.RevisionConditionReady)
		if s.updateService(svc, s.statusOf(svc, revision)) {
			return true
		}
		if state.IsUnknown() {
			revision = revision.DeepCopy()
			_, digest, _ := strings.Cut(revision.Spec.Containers[0].Image, "@")
			ready := apis.Condition{Type: servingv1.RevisionConditionReady, Status: corev1.ConditionTrue}
			if s.crashing[digest] {
				ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "ExitCode1", "Container failed."
			}
			revision.Status.SetConditions(apis.Conditions{ready})
			s.tracef("Revision %s: %s", revision.Name, ready.Status)
			must(s.server.UpdateStatus(revision))
			return true
		}
	}
	return false
}

// isOf reports whether the revision has the Service's current template.
func isOf(svc *servingv1.Service, revision *servingv1.Revision) bool {
	if revision == nil || !metav1.IsControlledBy(revision, svc) {
		return false
	}
	return equality.Semantic.DeepEqual(revision.Spec, svc.Spec.Template.Spec) &&
		equality.Semantic.DeepEqual(revision.Annotations, svc.Spec.Template.Annotations) &&
		containsAll(revision.Labels, svc.Spec.Template.Labels) && len(revision.Labels) == len(svc.Spec.Template.Labels)+2
}

func containsAll(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

func (s *simulation) createRevision(svc *servingv1.Service, name string) {
	revision := &servingv1.Revision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: svc.Namespace,
			OwnerReferences: []metav1.OwnerReference{*kmeta.NewControllerRef(svc)},
			Labels:          maps.Clone(svc.Spec.Template.Labels),
			Annotations:     maps.Clone(svc.Spec.Template.Annotations),
		},
		Spec: *svc.Spec.Template.Spec.DeepCopy(),
	}
	revision.Labels = cmpOrEmpty(revision.Labels)
	revision.Labels[serving.ServiceLabelKey] = svc.Name
	revision.Labels[serving.ServiceUIDLabelKey] = string(svc.UID)
	stored, err := s.server.Create(revision)
	if err != nil {
		panic(err)
	}
	revision = stored.DeepCopyObject().(*servingv1.Revision)
	revision.Status.SetConditions(apis.Conditions{{Type: servingv1.RevisionConditionReady, Status: corev1.ConditionUnknown}})
	s.tracef("Revision %s: created", name)
	must(s.server.UpdateStatus(revision))
}

// statusOf returns Serving's status of a Service with that newest revision.
func (s *simulation) statusOf(svc *servingv1.Service, revision *servingv1.Revision) servingv1.ServiceStatus {
	status := *svc.Status.DeepCopy()
	status.ObservedGeneration = svc.Generation
	status.LatestCreatedRevisionName = revision.Name
	configured := apis.Condition{Type: servingv1.ServiceConditionConfigurationsReady, Status: corev1.ConditionUnknown}
	switch state := revision.Status.GetCondition(servingv1.RevisionConditionReady); {
	case state.IsTrue():
		configured.Status = corev1.ConditionTrue
		status.LatestReadyRevisionName = revision.Name
	case state.IsFalse():
		configured.Status, configured.Reason = corev1.ConditionFalse, "RevisionFailed"
		configured.Message = fmt.Sprintf("Revision %q failed with message: %s.", revision.Name, state.Message)
	}
	host := fmt.Sprintf("%s.%s.svc.cluster.local", svc.Name, svc.Namespace)
	status.Address = &duckv1.Addressable{URL: &apis.URL{Scheme: "http", Host: host}}
	if svc.Labels[netapi.VisibilityLabelKey] != serving.VisibilityClusterLocal {
		host = fmt.Sprintf("%s.%s.example.com", svc.Name, svc.Namespace)
	}
	status.URL = &apis.URL{Scheme: "http", Host: host}
	traffic, routed := s.route(svc, status)
	if routed.IsTrue() {
		status.Traffic = traffic
	}
	ready := configured
	if configured.IsTrue() && !routed.IsTrue() {
		ready = routed
	}
	ready.Type = servingv1.ServiceConditionReady
	status.SetConditions(apis.Conditions{configured, ready, routed})
	return status
}

// route returns where requests go.
func (s *simulation) route(svc *servingv1.Service, status servingv1.ServiceStatus) ([]servingv1.TrafficTarget, apis.Condition) {
	routed := apis.Condition{Type: servingv1.ServiceConditionRoutesReady, Status: corev1.ConditionTrue}
	var traffic []servingv1.TrafficTarget
	for _, target := range svc.Spec.Traffic {
		if target.RevisionName == "" {
			target.RevisionName = status.LatestReadyRevisionName
		}
		switch {
		case target.RevisionName == "":
			routed.Status = corev1.ConditionUnknown
		case get[*servingv1.Revision](s, svc.Namespace, target.RevisionName) == nil:
			routed.Status, routed.Reason = corev1.ConditionFalse, v1alpha1.ReasonRevisionMissing
			routed.Message = fmt.Sprintf("Revision %q referenced in traffic not found.", target.RevisionName)
		}
		traffic = append(traffic, target)
	}
	return traffic, routed
}

func (s *simulation) updateService(svc *servingv1.Service, status servingv1.ServiceStatus) bool {
	if equality.Semantic.DeepEqual(withoutTimes(svc.Status), withoutTimes(status)) {
		return false
	}
	svc = svc.DeepCopy()
	svc.Status = status
	s.tracef("Service %s: %s %s", svc.Name, status.LatestCreatedRevisionName, status.GetCondition(servingv1.ServiceConditionReady).Status)
	must(s.server.UpdateStatus(svc))
	return true
}

func withoutTimes(status servingv1.ServiceStatus) servingv1.ServiceStatus {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = apis.VolatileTime{}
	}
	return status
}

func cmpOrEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// get returns the object of that name, or nil. Callers must not change it.
func get[T ktesting.Object](s *simulation, namespace, name string) (none T) {
	for _, obj := range objects[T](s) {
		if obj.GetNamespace() == namespace && obj.GetName() == name {
			return obj
		}
	}
	return none
}

// must panics at what cannot happen.
func must(_ any, err error) {
	if err != nil {
		panic(err)
	}
}

// The course of things.

// maxSteps is more than it ever takes until nothing happens any more.
const maxSteps = 1000

// standIns runs the next step of the stand-ins. It reports whether there was one.
func (s *simulation) standIns() bool {
	return s.runBuilds() || s.serve() || s.runDeployments() || s.autoscale() || s.server.CollectGarbage()
}

// step runs the next event. It reports whether there was one.
func (s *simulation) step() bool {
	p := s.process
	woken, isWoken := first(p.woken)
	failed, hasFailed := first(p.failed)
	switch {
	case s.deliver(false):
	case isWoken:
		s.reconcile(woken)
	case p.lookups.step(), p.taggings.step(), s.standIns(), s.deliver(true):
	case hasFailed:
		s.reconcile(failed)
	default:
		return s.wait()
	}
	return true
}

// wait waits until the next Function is due, or until the queue's timer wakes one. It
// reports whether there was any.
func (s *simulation) wait() bool {
	p := s.process
	next, ok := first(p.asleep)
	for key, due := range p.asleep {
		if due.Before(p.asleep[next]) {
			next = key
		}
	}
	if !s.clocked {
		if ok {
			// Only one kind of work is not due: the retry of a build whose end the controller
			// has set.
			time.Sleep(time.Until(p.asleep[next]))
			s.reconcile(next)
		}
		return ok
	}
	// The queue wakes nobody later than that.
	until := time.Now().Add(queue.Grace)
	if ok && p.asleep[next].Before(until) {
		until = p.asleep[next]
	}
	// This locks the queue, so that its timer sees what has happened so far.
	p.queue.Release(types.NamespacedName{})
	time.Sleep(time.Until(until))
	synctest.Wait()
	s.server.Now = time.Now()
	if ok && !p.asleep[next].After(until) {
		s.reconcile(next)
		return true
	}
	return ok || len(p.woken) > 0
}

// run lets things happen until the condition holds, or until nothing happens any more.
func (s *simulation) run(until func() bool) {
	for range maxSteps {
		if until != nil && until() || !s.step() {
			return
		}
	}
	s.wrongf("it does not come to rest: after %d steps something is still going on", maxSteps)
}

// The users.

// greeter is the Function of those tests that need one only.
var greeter = types.NamespacedName{Namespace: namespace, Name: name}

func (s *simulation) functionOf(key types.NamespacedName) *v1alpha1.Function {
	return get[*v1alpha1.Function](s, key.Namespace, key.Name)
}

// create creates the Function.
func (s *simulation) create(options ...functionOption) { s.createFunction(greeter, options...) }

// edit changes the Function.
func (s *simulation) edit(options ...functionOption) { s.editFunction(greeter, options...) }

// delete deletes the Function.
func (s *simulation) delete() { s.deleteFunction(greeter) }

func (s *simulation) createFunction(key types.NamespacedName, options ...functionOption) {
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace}, Spec: v1alpha1.FunctionSpec{Source: sourceA}}
	for _, option := range options {
		option(fn)
	}
	s.tracef("user: create %s", key)
	must(s.server.Create(fn))
}

func (s *simulation) editFunction(key types.NamespacedName, options ...functionOption) {
	fn := s.functionOf(key).DeepCopy()
	before := fn.DeepCopy()
	for _, option := range options {
		option(fn)
	}
	s.tracef("user: edit %s: %s", key, strings.Join(strings.Fields(cmp.Diff(before.Spec, fn.Spec)+cmp.Diff(before.Annotations, fn.Annotations)), " "))
	must(s.server.Update(fn))
}

func (s *simulation) deleteFunction(key types.NamespacedName) {
	s.tracef("user: delete %s", key)
	must(nil, s.server.Delete(s.server.RefOf(s.functionOf(key)), metav1.DeleteOptions{}))
}

// setPassword sets the password by which the builds of a namespace push.
func (s *simulation) setPassword(namespace, password string) {
	s.tracef("user: password %s", password)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: credentialsName, Namespace: namespace},
		Data:       map[string][]byte{"password": []byte(password)},
	}
	if existing := get[*corev1.Secret](s, namespace, credentialsName); existing != nil {
		must(s.server.Update(secret))
		return
	}
	must(s.server.Create(secret))
}

// The existing objects.

// settled returns the final state, without what may differ between runs.
func (s *simulation) settled() map[string]any {
	found := map[string]any{}
	for _, obj := range s.server.Objects() {
		obj := obj.DeepCopyObject().(ktesting.Object)
		obj.SetResourceVersion("")
		if _, ok := obj.(*v1alpha1.Function); !ok {
			// The garbage collector has deleted an object of a deleted Function.
			obj.SetUID("")
		}
		owners := obj.GetOwnerReferences()
		for i := range owners {
			if owners[i].Kind != "Function" {
				owners[i].UID = ""
			}
		}
		delete(obj.GetLabels(), serving.ServiceUIDLabelKey)
		switch obj := obj.(type) {
		case *v1alpha1.Function:
			for i := range obj.Status.Conditions {
				obj.Status.Conditions[i].LastTransitionTime = apis.VolatileTime{}
			}
			if obj.Status.Build != nil {
				obj.Status.Build.CredentialsVersion = ""
			}
		case *pipelinev1.TaskRun:
			obj.Status = pipelinev1.TaskRunStatus{}
			delete(obj.Annotations, serverless.BuildCredentialsAnnotationKey)
		case *batchv1.Job:
			obj.Status = batchv1.JobStatus{}
			delete(obj.Annotations, serverless.BuildCredentialsAnnotationKey)
		case *corev1.Pod:
			continue
		case *servingv1.Service:
			obj.Status = servingv1.ServiceStatus{}
		case *servingv1.Revision:
			obj.Status = servingv1.RevisionStatus{}
		case *appsv1.Deployment:
			delete(obj.Annotations, countAnnotation)
		case *appsv1.ReplicaSet:
			obj.Annotations, obj.CreationTimestamp = nil, metav1.Time{}
		}
		found[s.server.RefOf(obj).String()] = obj
	}
	return found
}

// differences lists the unexpected and the missing objects.
func differences(want, got map[string]any) string {
	if equality.Semantic.DeepEqual(want, got) {
		return ""
	}
	var told []string
	refs := slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	slices.Sort(refs)
	for _, ref := range slices.Compact(refs) {
		if want[ref] == nil || got[ref] == nil {
			told = append(told, fmt.Sprintf("%s: wanted: %t, there: %t", ref, want[ref] != nil, got[ref] != nil))
			continue
		}
		before, after := lines(want[ref]), lines(got[ref])
		for _, line := range before {
			if !slices.Contains(after, line) {
				told = append(told, fmt.Sprintf("- %s: %s", ref, line))
			}
		}
		for _, line := range after {
			if !slices.Contains(before, line) {
				told = append(told, fmt.Sprintf("+ %s: %s", ref, line))
			}
		}
	}
	return strings.Join(told, "\n")
}

func lines(value any) []string {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err)
	}
	return strings.Split(string(text), "\n")
}

var errTimeout = errors.New("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
