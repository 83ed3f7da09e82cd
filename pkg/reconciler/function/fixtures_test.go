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
	"slices"
	"strings"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	fakeserving "knative.dev/serving/pkg/client/clientset/versioned/fake"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/job"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	functionreconciler "github.com/kiln-dev/kiln/pkg/client/injection/reconciler/serverless/v1alpha1/function"
	"github.com/kiln-dev/kiln/pkg/contents"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/pods"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
	"github.com/kiln-dev/kiln/pkg/slim"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/poll"
)

const (
	namespace = "default"
	name      = "greeter"
	key       = namespace + "/" + name
	digestA   = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB   = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	digestC   = "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
	repo      = "registry.example.com:5000/functions/default/greeter"
	sourceA   = "module.exports = { main: () => 'A' }"
	sourceB   = "module.exports = { main: () => 'B' }"
)

// noon is when everything happens.
var noon = metav1.NewTime(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))

// A keyOf a row's OtherTestData.
const (
	configKey   = "config"
	logKey      = "log"
	registryKey = "registry"
	// secretKey holds the Secret with credentials of the namespace, or the error
	// of getting it there.
	secretKey = "secret"
	// queueKey holds the queue of builds; without one, all may run at once.
	queueKey = "queue"
	// followKey holds what was found of the branch, or nothing.
	followKey = "follow"
	// contentsKey holds what was found in Secrets and ConfigMaps, or nothing.
	contentsKey = "contents"
	// withoutTekton is set if the cluster lacks the API of TaskRuns.
	withoutTekton = "without-tekton"
	// serversKey holds a func(Server) Servers, which gets the server of Knative Services.
	serversKey = "servers"
	// formerServerKey holds a former config.Server of config-functions.
	formerServerKey = "former-server"
)

// openedQueue returns a queue that wakes nobody.
func openedQueue(limits queue.Limits) *queue.Queue {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	q := queue.New(ctx, limits, func(types.NamespacedName) {})
	if err := q.Open(nil, func() ([]queue.Build, error) { return nil, nil }); err != nil {
		panic(err)
	}
	return q
}

// knowingQueue returns one that knows of these builds, whatever the cache shows.
func knowingQueue(running ...*pipelinev1.TaskRun) *queue.Queue {
	q := openedQueue(queue.Limits{})
	for _, tr := range running {
		q.See(tekton.QueuedBuild(tr))
	}
	return q
}

func testConfig(edits ...func(*config.Config)) *config.Config {
	functions, err := config.NewFunctionsFromMap(nil)
	if err != nil {
		panic(err)
	}
	build, err := config.NewBuildFromMap(map[string]string{"kaniko-image": "registry.example.com:5000/kaniko", "compose-image": "registry.example.com:5000/compose"})
	if err != nil {
		panic(err)
	}
	registry, err := config.NewRegistryFromMap(map[string]string{"push": "registry.example.com:5000", "prefix": "functions"})
	if err != nil {
		panic(err)
	}
	cfg := &config.Config{
		Functions: functions,
		Build:     build,
		Registry:  registry,
		Runtimes: config.Runtimes{
			"nodejs22": {BaseImage: "node:22", Language: "nodejs"},
			"nodejs24": {BaseImage: "node:24", Language: "nodejs"},
		},
	}
	for _, edit := range edits {
		edit(cfg)
	}
	return cfg
}

type fixedStore struct{ *config.Config }

func (s fixedStore) ToContext(ctx context.Context) context.Context {
	return config.ToContext(ctx, s.Config)
}

// fakeLogs is a log, or the error of reading it. Reading a blank log fails the test,
// because the row did not expect it.
type fakeLogs string

func (l fakeLogs) Tail(_ context.Context, _, pod, container string) (string, error) {
	if reason, ok := strings.CutPrefix(string(l), "error:"); ok {
		return "", errors.New(reason)
	}
	if l == "reading:" {
		return "", pods.ErrReading
	}
	if l == "gone:" {
		return "", apierrs.NewNotFound(corev1.Resource("pods"), pod)
	}
	if l == "" || pod == "" || container == "" {
		panic("unexpected read of the log of container " + container + " of pod " + pod)
	}
	return string(l), nil
}

// fakeSecrets is the Secret with the credentials of registries, or an error. Callers must get
// it by the configured name.
type fakeSecrets struct{ what any }

func (s fakeSecrets) Ensure(_ context.Context, name, inNamespace string) (*corev1.Secret, error) {
	secret, _ := s.what.(*corev1.Secret)
	err, _ := s.what.(error)
	if secret != nil && (name != secret.Name || inNamespace != secret.Namespace) {
		panic("unexpected use of Secret " + inNamespace + "/" + name)
	}
	return secret, err
}

func (fakeSecrets) Version(secret *corev1.Secret) string { return secret.ResourceVersion }

// Names returns the name of an earlier configuration.
func (fakeSecrets) Names() []string { return []string{"former-credentials"} }

// fakePolls returns the same result for each branch.
type fakePolls struct{ what any }

func (fakePolls) Ask(types.NamespacedName, poll.Branch)     {}
func (fakePolls) Acknowledge(types.NamespacedName)          {}
func (fakePolls) Forget(types.NamespacedName)               {}
func (fakePolls) ForgetAll(func(types.NamespacedName) bool) {}

func (f fakePolls) Answer(types.NamespacedName, poll.Branch, bool) (poll.Found, bool) {
	found, ok := f.what.(poll.Found)
	return found, ok
}

// fakeContents finds the same in all Secrets and ConfigMaps.
type fakeContents struct {
	fakePolls
	what any
}

func (fakeContents) Ask(types.NamespacedName, contents.Request) {}
func (fakeContents) Hurry(types.NamespacedName)                 {}

func (f fakeContents) Answer(types.NamespacedName, contents.Request, bool) (contents.Found, bool) {
	found, ok := f.what.(contents.Found)
	return found, ok
}

// fakeRegistry answers at once, unless it is slow. By itself it holds no image,
// and tags none.
type fakeRegistry struct {
	slow         bool
	digest       string
	base         string
	dependencies string
	tagged       string
	lost         string
}

// fakeLookups answers what was asked for last, and nothing else.
type fakeLookups struct {
	fakeRegistry
	asked map[types.NamespacedName]images.Lookup
}

func newFakeLookups(registry fakeRegistry) *fakeLookups {
	return &fakeLookups{fakeRegistry: registry, asked: map[types.NamespacedName]images.Lookup{}}
}

func (f *fakeLookups) Ask(key types.NamespacedName, request images.Lookup) { f.asked[key] = request }
func (f *fakeLookups) Acknowledge(key types.NamespacedName)                { delete(f.asked, key) }
func (f *fakeLookups) Forget(key types.NamespacedName)                     { delete(f.asked, key) }
func (f *fakeLookups) ForgetAll(func(types.NamespacedName) bool)           { clear(f.asked) }

func (f *fakeLookups) Answer(key types.NamespacedName, request images.Lookup, _ bool) (images.Found, bool) {
	if asked, ok := f.asked[key]; !ok || asked != request {
		return images.Found{}, false
	}
	found := images.Found{Base: f.base}
	if request.Image.Digest == f.digest {
		found.Image = f.digest
	}
	if request.Installed.Digest == f.dependencies {
		found.Dependencies = f.dependencies
	}
	return found, !f.slow
}

// fakeChecks finds the image of that digest lost.
type fakeChecks struct {
	fakePolls
	lost string
}

func (fakeChecks) Ask(types.NamespacedName, images.Check) {}

func (f fakeChecks) Answer(_ types.NamespacedName, check images.Check, _ bool) (images.Checked, bool) {
	return images.Checked{Lost: f.lost != "" && check.Digest == f.lost}, true
}

type fakeTaggings struct{ fakeRegistry }

func (fakeTaggings) Ask(types.NamespacedName, images.Tagging)  {}
func (fakeTaggings) Acknowledge(types.NamespacedName)          {}
func (fakeTaggings) Forget(types.NamespacedName)               {}
func (fakeTaggings) ForgetAll(func(types.NamespacedName) bool) {}

func (f fakeTaggings) Answer(_ types.NamespacedName, request images.Tagging, _ bool) (struct{}, bool) {
	return struct{}{}, f.tagged == request.Tag
}

func factory() rtesting.Factory {
	return ktesting.Factory(controllerRoles(), func(ctx context.Context, w *ktesting.World) controller.Reconciler {
		cfg, ok := w.Row.OtherTestData[configKey].(*config.Config)
		if !ok {
			cfg = testConfig()
		}
		log, _ := w.Row.OtherTestData[logKey].(string)
		registry, _ := w.Row.OtherTestData[registryKey].(fakeRegistry)
		serving := w.Serving.(*fakeserving.Clientset)
		serving.PrependReactor("create", "services", store(serving.Tracker().Create))
		serving.PrependReactor("update", "services", store(serving.Tracker().Update))
		turns, ok := w.Row.OtherTestData[queueKey].(*queue.Queue)
		if !ok {
			turns = openedQueue(queue.Limits{})
		}
		podLister := ktesting.TransformedPods{PodLister: w.PodLister, Transform: pods.Slim(knative.RevisionLabelKey)}
		var taskRuns Builder = &tekton.Builder{
			Client: w.Tekton, TaskRuns: ktesting.TransformedTaskRuns{TaskRunLister: w.TaskRunLister, Transform: tekton.Slim},
			Pods: podLister, MountEvents: w.EventLister, Logs: fakeLogs(log),
		}
		if w.Row.OtherTestData[withoutTekton] != nil {
			taskRuns = Absent(taskRuns)
		}
		r := &Reconciler{
			queue: turns,
			kiln:  w.Kiln, kube: w.Kube,
			configMapLister: ktesting.TransformedConfigMaps{ConfigMapLister: w.ConfigMapLister, Transform: slim.ConfigMap},
			builders: Builders{taskRuns, &job.Builder{
				Client: w.Kube, Jobs: ktesting.TransformedJobs{JobLister: w.JobLister, Transform: job.Slim},
				Pods: podLister, MountEvents: w.EventLister, CreateEvents: w.EventLister, Logs: fakeLogs(log),
			}},
			secrets:  fakeSecrets{w.Row.OtherTestData[secretKey]},
			lookups:  newFakeLookups(registry),
			taggings: fakeTaggings{registry},
			polls:    fakePolls{w.Row.OtherTestData[followKey]},
			checks:   fakeChecks{lost: registry.lost},
			contents: fakeContents{what: w.Row.OtherTestData[contentsKey]},
		}
		services := &knative.Server{
			Client: w.Serving, Networking: w.Networking, Services: ktesting.TransformedServices{ServiceLister: w.ServiceLister, Transform: knative.Slim},
			Pods: podLister, MountEvents: w.EventLister, CheckCurrent: r.checkCurrent,
		}
		r.servers = Servers{services}
		if servers, ok := w.Row.OtherTestData[serversKey].(func(Server) Servers); ok {
			r.servers = servers(services)
		}
		if former, ok := w.Row.OtherTestData[formerServerKey].(config.Server); ok {
			r.choices.see(former)
		}
		return functionreconciler.NewReconciler(ctx, logging.FromContext(ctx), w.Kiln,
			ktesting.TransformedFunctions{FunctionLister: w.FunctionLister, Transform: slim.Function}, edgeRecorder{w.Recorder}, r,
			controller.Options{ConfigStore: fixedStore{cfg}, SkipStatusUpdates: true})
	})
}

// store answers a write as the API server does: a changed object has a new version, and
// Serving has added defaults.
func store[Options any](write func(schema.GroupVersionResource, runtime.Object, string, ...Options) error) clientgotesting.ReactionFunc {
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		svc := action.(clientgotesting.CreateAction).GetObject().(*servingv1.Service).DeepCopy()
		svc.SetDefaults(apis.WithinCreate(context.Background()))
		svc.ResourceVersion += "1"
		return true, svc, write(action.GetResource(), svc, action.GetNamespace())
	}
}

// The Function and its options.

type functionOption func(*v1alpha1.Function)

// function returns a Function of generation 1 that no reconciler has seen.
func function(options ...functionOption) *v1alpha1.Function {
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: "uid-1", Generation: 1},
		Spec:       v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: sourceA},
	}
	fn.SetDefaults(config.ToContext(context.Background(), testConfig()))
	for _, option := range options {
		option(fn)
	}
	return fn
}

func withSource(source string) functionOption {
	return func(fn *v1alpha1.Function) { fn.Spec.Source = source }
}

func withRuntime(runtime string) functionOption {
	return func(fn *v1alpha1.Function) { fn.Spec.Runtime = runtime }
}

func withEnv(name, value string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Spec.Env = append(fn.Spec.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

func withMount(path v1alpha1.MountPath) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: "secret", MountPath: path}}
	}
}

func withLabels(labels map[string]string) functionOption {
	return func(fn *v1alpha1.Function) { fn.Labels = labels }
}

func withRebuild(value string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Annotations = map[string]string{serverless.RebuildAnnotationKey: value}
	}
}

func withTraffic(targets ...v1alpha1.TrafficTarget) functionOption {
	return func(fn *v1alpha1.Function) { fn.Spec.Traffic = targets }
}

func withMinReplicas(n int32) functionOption {
	return func(fn *v1alpha1.Function) { fn.Spec.MinReplicas = &n }
}

func withUID(uid types.UID) functionOption {
	return func(fn *v1alpha1.Function) { fn.UID = uid }
}

func deleting(fn *v1alpha1.Function) {
	fn.DeletionTimestamp = &noon
	fn.Finalizers = []string{"example.com/other"}
}

// The states of a Function, each of which includes the one before it.

// observed is how a reconcile begins and ends.
func observed(options ...functionOption) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.InitializeConditions()
		if fn.Status.ObservedGeneration != fn.Generation {
			fn.Status.ResetConditions()
		}
		for _, option := range options {
			option(fn)
		}
		fn.Status.ObservedGeneration = fn.Generation
		switch fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady).GetReason() {
		case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonRuntimeUnknown:
		default:
			fn.Status.AcceptedGeneration = fn.Generation
		}
		fn.Status.UpdatePhase()
	}
}

func configured(fn *v1alpha1.Function) {
	fn.Status.MarkConfigurationReady(v1alpha1.ReasonConfigMapCreated, "ConfigMap %s holds the build context.", configMap(fn).Name)
}

func reconfigured(fn *v1alpha1.Function) {
	fn.Status.MarkConfigurationReady(v1alpha1.ReasonConfigMapUpdated, "ConfigMap %s holds the build context.", configMap(fn).Name)
}

// buildCreated describes the build of the TaskRun, which has not begun.
func buildCreated(tr *pipelinev1.TaskRun) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = buildStatus(fn, tr)
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunCreated, "TaskRun %s is about to run.", tr.Name)
	}
}

func buildRunning(tr *pipelinev1.TaskRun) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = buildStatus(fn, tr)
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s runs.", tr.Name)
	}
}

// buildPlanned describes a build that waits for earlier TaskRuns to be gone.
func buildPlanned(reason string, earlier ...*pipelinev1.TaskRun) functionOption {
	return func(fn *v1alpha1.Function) {
		want := request(fn)
		fn.Status.Build = &v1alpha1.BuildStatus{
			Reason: reason, Generation: want.Generation, ImageTag: want.Tag, Inputs: want.Fingerprint, Rebuild: want.Rebuild,
		}
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunsDeleted, "The build starts when earlier ones are gone: %s.", namesOf(buildsOf(fn, runsOf(earlier...))))
	}
}

// built describes a build that has pushed the image.
func built(tr *pipelinev1.TaskRun, digest string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = buildStatus(fn, tr)
		fn.Status.ImageTag = tr.Labels[serverless.ImageTagLabelKey]
		fn.Status.Image = repo + "@" + digest
		if isReusable(fn) {
			recordedBuild(digest)(fn)
		}
		fn.Status.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "TaskRun %s built %s.", tr.Name, fn.Status.Image)
	}
}

// recordedBuild records the image of that digest as the newest of the Function's.
func recordedBuild(digest string) functionOption {
	return func(fn *v1alpha1.Function) {
		image := v1alpha1.BuiltImage{Tag: fn.Status.ImageTag, Digest: digest}
		if fn.Status.ImageTag == "" {
			image.Tag = request(fn).Tag
		}
		earlier := slices.DeleteFunc(slices.Clone(fn.Status.BuiltImages), func(b v1alpha1.BuiltImage) bool { return b.Tag == image.Tag })
		fn.Status.BuiltImages = append([]v1alpha1.BuiltImage{image}, earlier...)
	}
}

func buildFailed(tr *pipelinev1.TaskRun, failure v1alpha1.BuildFailure) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = buildStatus(fn, tr)
		fn.Status.Build.Failure = &failure
		fn.Status.MarkBuildFailed(failure.Reason, "%s", failure.Message)
	}
}

// buildRetrying describes a build that is started again that long after it has
// failed.
func buildRetrying(tr *pipelinev1.TaskRun, failure v1alpha1.BuildFailure, delay time.Duration) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = buildStatus(fn, tr)
		fn.Status.Build.Failure = &failure
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonBuildRetrying, "%s", retryMessage(tr, failure, delay))
	}
}

func retryMessage(tr *pipelinev1.TaskRun, failure v1alpha1.BuildFailure, delay time.Duration) string {
	return fmt.Sprintf("Attempt %s of 7 failed, the next starts at %s: %s: %s", tr.Annotations[serverless.BuildAttemptAnnotationKey],
		buildStatus(function(), tr).CompletionTime.Add(delay).UTC().Format("15:04:05 UTC"), failure.Reason, failure.Message)
}

// buildNotCreated describes a build whose TaskRun could not be created.
func buildNotCreated(tr *pipelinev1.TaskRun) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunNotCreated,
			"TaskRun %s cannot be created. Kiln keeps retrying: inducing failure for create taskruns", tr.Name)
	}
}

func serviceCreated(fn *v1alpha1.Function) {
	deployed(fn)
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceCreated, "Service greeter was created.")
}

func serviceUpdated(fn *v1alpha1.Function) {
	deployed(fn)
	knative.PropagateStatus(fn, service(fn, serviceReady))
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceUpdated, "Service greeter was updated.")
}

// deployed remembers what the Service was made to run.
func deployed(fn *v1alpha1.Function) {
	fn.Status.TemplateHash = knative.Remember(service(fn))
}

func running(fn *v1alpha1.Function) {
	deployed(fn)
	knative.PropagateStatus(fn, service(fn, serviceReady))
	fn.Status.MarkRunning()
}

// stillServing reports that a Service answers, independent of the next image.
func stillServing(fn *v1alpha1.Function) {
	knative.PropagateStatus(fn, service(fn, serviceReady))
}

func marked(mark func(*v1alpha1.FunctionStatus)) functionOption {
	return func(fn *v1alpha1.Function) { mark(&fn.Status) }
}

// The children.

func planOf(fn *v1alpha1.Function) plan {
	fn = fn.DeepCopy()
	fn.Status = v1alpha1.FunctionStatus{BuiltImages: fn.Status.BuiltImages, DependencyImages: fn.Status.DependencyImages}
	want, ok := makePlan(config.ToContext(context.Background(), testConfig()), fn)
	if !ok {
		panic(fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady).Message)
	}
	return want
}

func request(fn *v1alpha1.Function) builds.Request {
	return planOf(fn).request
}

func configMap(fn *v1alpha1.Function, options ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	cm := configMapOf(planOf(fn), fn)
	for _, option := range options {
		option(cm)
	}
	return cm
}

// configMapOf returns the ConfigMap of the plan. The Function must have its texts.
func configMapOf(want plan, fn *v1alpha1.Function) *corev1.ConfigMap {
	files, err := want.buildContext(fn)
	if err != nil {
		panic(err)
	}
	return MakeConfigMap(fn, want.request.Tag, files)
}

type taskRunOption func(*pipelinev1.TaskRun)

// taskRun returns the first attempt at the build that the Function asks for.
func taskRun(fn *v1alpha1.Function, reason string, options ...taskRunOption) *pipelinev1.TaskRun {
	return attempt(fn, reason, 1, options...)
}

// attempt returns the n-th attempt at that build.
func attempt(fn *v1alpha1.Function, reason string, n int32, options ...taskRunOption) *pipelinev1.TaskRun {
	want := planOf(fn)
	tr := tekton.MakeTaskRun(fn, testConfig(), builds.Spec{Request: want.request, Reason: reason, Attempt: n, BaseImage: want.lookup.Base, Files: want.files, InstallFiles: want.installFiles, Runtime: want.runtime})
	for _, option := range options {
		option(tr)
	}
	return tr
}

func succeededCondition(status corev1.ConditionStatus, reason, message string) taskRunOption {
	return func(tr *pipelinev1.TaskRun) {
		tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: status, Reason: reason, Message: message})
		tr.CreationTimestamp, tr.Status.StartTime = noon, &noon
		tr.Status.PodName = tr.Name + "-pod"
		if status != corev1.ConditionUnknown {
			tr.Status.CompletionTime = &noon
		}
	}
}

var taskRunRunning = succeededCondition(corev1.ConditionUnknown, "Running", "Not all Steps in the Task have finished executing")

func taskRunSucceeded(digest string) taskRunOption {
	return func(tr *pipelinev1.TaskRun) {
		succeededCondition(corev1.ConditionTrue, "Succeeded", "All Steps have completed executing")(tr)
		tr.Status.Results = []pipelinev1.TaskRunResult{
			{Name: steps.ImageURLResult, Value: *pipelinev1.NewStructuredValues(repo)},
			{Name: steps.ImageDigestResult, Value: *pipelinev1.NewStructuredValues(digest)},
		}
	}
}

func taskRunFailed(reason, message string) taskRunOption {
	return func(tr *pipelinev1.TaskRun) {
		succeededCondition(corev1.ConditionFalse, reason, message)(tr)
	}
}

// withFailedStep reports that the sidecar that installs dependencies has failed.
func withFailedStep(tr *pipelinev1.TaskRun) {
	tr.Status.Steps = []pipelinev1.StepState{{
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: sources.ExitNotInstalled}},
		Name:           steps.Push,
		Container:      tekton.StepContainerPrefix + steps.Push,
	}}
	tr.Status.Sidecars = []pipelinev1.SidecarState{{
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		Name:           steps.Install,
		Container:      tekton.SidecarContainerPrefix + steps.Install,
	}}
}

func taskRunDeleting(tr *pipelinev1.TaskRun) {
	tr.DeletionTimestamp = &noon
	tr.Finalizers = []string{"chains.tekton.dev"}
}

type serviceOption func(*servingv1.Service)

// service returns the Service that runs the Function's image as Serving has
// completed it.
func service(fn *v1alpha1.Function, options ...serviceOption) *servingv1.Service {
	svc := knative.MakeService(fn, fn.Status.Image)
	svc.UID, svc.Generation = "uid-4", 1
	svc.Status.ObservedGeneration = 1
	svc.Annotations["serving.knative.dev/creator"] = "system:serviceaccount:kiln-system:controller"
	svc.SetDefaults(apis.WithinCreate(context.Background()))
	for _, option := range options {
		option(svc)
	}
	return svc
}

func serviceReady(svc *servingv1.Service) {
	serviceStatus(corev1.ConditionTrue, "", "", "greeter-00001", "greeter-00001")(svc)
}

// serviceStatus returns Serving's status of a Service with that configuration.
func serviceStatus(status corev1.ConditionStatus, reason, message, created, ready string) serviceOption {
	return func(svc *servingv1.Service) {
		svc.Status.SetConditions(apis.Conditions{
			{Type: servingv1.ServiceConditionConfigurationsReady, Status: status, Reason: reason, Message: message},
			{Type: servingv1.ServiceConditionReady, Status: status, Reason: reason, Message: message},
		})
		svc.Status.LatestCreatedRevisionName = created
		svc.Status.LatestReadyRevisionName = ready
		url := &apis.URL{Scheme: "http", Host: "greeter.default.svc.cluster.local"}
		svc.Status.URL = url
		svc.Status.Address = &duckv1.Addressable{URL: url}
		if ready != "" {
			svc.Status.Traffic = []servingv1.TrafficTarget{{RevisionName: ready, LatestRevision: new(true), Percent: new(int64(100))}}
		}
	}
}

// routeFailed makes the route the reason why the Service is not ready.
func routeFailed(reason, message string) serviceOption {
	return func(svc *servingv1.Service) {
		svc.Status.SetConditions(apis.Conditions{
			{Type: servingv1.ServiceConditionConfigurationsReady, Status: corev1.ConditionUnknown},
			{Type: servingv1.ServiceConditionRoutesReady, Status: corev1.ConditionFalse, Reason: reason, Message: message},
			{Type: servingv1.ServiceConditionReady, Status: corev1.ConditionFalse, Reason: reason, Message: message},
		})
	}
}

// Expectations.

// statusUpdate is sent without the texts, which the cache lacks.
func statusUpdate(fn *v1alpha1.Function) []clientgotesting.UpdateActionImpl {
	return []clientgotesting.UpdateActionImpl{{
		ActionImpl: clientgotesting.ActionImpl{Verb: "update", Resource: v1alpha1.SchemeGroupVersion.WithResource("functions"), Subresource: "status"},
		Object:     cached(fn, slim.Function),
	}}
}

func update(obj runtime.Object) []clientgotesting.UpdateActionImpl {
	return []clientgotesting.UpdateActionImpl{{Object: obj}}
}

func deletion(resource string, obj metav1.Object) clientgotesting.DeleteActionImpl {
	action := clientgotesting.DeleteActionImpl{Name: obj.GetName()}
	action.Resource.Resource = resource
	action.Namespace = namespace
	return action
}

// runsOf returns the builds of the TaskRuns, as the builder lists them.
func runsOf(taskRuns ...*pipelinev1.TaskRun) []builds.Run {
	listed := make([]builds.Run, 0, len(taskRuns))
	for _, tr := range taskRuns {
		listed = append(listed, tekton.RunOf(tr))
	}
	return listed
}

// buildStatus returns the status that describes the build of the TaskRun.
func buildStatus(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) *v1alpha1.BuildStatus {
	return statusOf(fn, new(tekton.RunOf(tr)))
}
