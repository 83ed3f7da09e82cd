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

package children_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/kmeta"
	servingconfig "knative.dev/serving/pkg/apis/config"
	autoscalerconfig "knative.dev/serving/pkg/autoscaler/config"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/reconciler/function"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

const (
	tag   = "0123456789abcdef0123456789abcdef"
	image = "pull.example.com/fn/default/greeter@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// dice makes Functions of values that are likely to be right, or wrong at a
// boundary. Few of the fields are set at a time, so that many are valid.
type dice struct{ *rand.Rand }

func pick[T any](d dice, from ...T) T { return from[d.Intn(len(from))] }

// mostly picks one of the right values, and once in a while a wrong one.
func mostly[T any](d dice, right []T, wrong ...T) T {
	if d.Intn(12) == 0 {
		return pick(d, wrong...)
	}
	return pick(d, right...)
}

// some returns none to three of what one returns.
func some[T any](d dice, one func() T) (list []T) {
	for range d.Intn(4) {
		list = append(list, one())
	}
	return list
}

func (d dice) text() string {
	return mostly(d, []string{
		"", "x", "größer 大 🚀", "\ufeffx\r\n", "$(params.x)", "$(context.taskRun.name)", "$(results.IMAGE_DIGEST.path)",
		"$(workspaces.a.path)", "$(VAR)", "$$(VAR)", "'\"`\\", "a\nb", strings.Repeat("'", 9000),
	}, "\x00")
}

func (d dice) objectName() string {
	return mostly(d, []string{"secret", "my.secret-1", "1", strings.Repeat("a", 253)}, strings.Repeat("a", 254), "A", "a_b", "")
}

func (d dice) quantity() resource.Quantity {
	return resource.MustParse(mostly(d, []string{"0", "1", "2", "100m", "1e1", "64Mi", "1Gi", "1500m", "1n"}, "-1"))
}

func (d dice) list() corev1.ResourceList {
	list := corev1.ResourceList{}
	for range d.Intn(3) {
		list[mostly(d, []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"}, "hugepages-2Mi")] = d.quantity()
	}
	return list
}

func (d dice) labels() map[string]string {
	labels := map[string]string{}
	for range d.Intn(4) {
		labels[mostly(d, []string{"a", "app", "example.com/b", "A.b_c-d", "pod-template-hash"}, "serving.knative.dev/x", "a b", strings.Repeat("a", 64))] =
			mostly(d, []string{"", "x", "X.y_z-1", strings.Repeat("a", 63)}, "a b")
	}
	return labels
}

// annotations has all that Serving reads of a revision.
func (d dice) annotations() map[string]string {
	annotations := map[string]string{}
	for range 1 + d.Intn(2) {
		key := pick(d, "example.com/a", "A/b", "sidecar.istio.io/inject", "features.knative.dev/http-full-duplex", "serving.knative.dev/progress-deadline",
			"networking.knative.dev/ingress-class", "kubernetes.io/config.source", "a b",
			"queue.sidecar.serving.knative.dev/"+pick(d, "cpu-resource-request", "memory-resource-limit", "ephemeral-storage-resource-limit",
				"resource-percentage", "cpuResourceRequest"),
			"autoscaling.knative.dev/"+pick(d, "class", "initial-scale", "initialScale", "scale-down-delay", "scaleDownDelay", "metric", "target",
				"scale-to-zero-pod-retention-period", "scaleToZeroPodRetentionPeriod", "metric-aggregation-algorithm", "metricAggregationAlgorithm",
				"window", "target-utilization-percentage", "targetUtilizationPercentage", "target-burst-capacity", "targetBurstCapacity",
				"panic-window-percentage", "panicWindowPercentage", "panic-threshold-percentage", "panicThresholdPercentage",
				"activation-scale", "min-scale", "maxScale", "unknown"))
		annotations[key] = pick(d, "", "0", "1", "-1", "-2", "2", "5", "0.01", "75", "100", "101", "110", "1000", "1001", "NaN", "Inf", "1e3", "0x1p4",
			"5s", "6s", "6500ms", "1h", "2h", "0", "-1s", "100m", "64Mi", "linear", "weightedExponential", "cpu", "rps", "concurrency",
			"kpa.autoscaling.knative.dev", "hpa.autoscaling.knative.dev", "x.knative.dev", "example.com", "99999999999", "true")
	}
	return annotations
}

func (d dice) envVar() corev1.EnvVar {
	variable := corev1.EnvVar{Name: mostly(d, []string{"A", "B", "c.d-e", "K_SINK", "NODE_OPTIONS", "HOME"}, "K_REVISION", "PORT", "FUNC_NAME", "1A", "")}
	name := corev1.LocalObjectReference{Name: d.objectName()}
	switch d.Intn(4) {
	case 0:
		variable.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name, Key: mostly(d, []string{"k", ".npmrc"}, "a/b", "")}}
	case 1:
		variable.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name, Key: "k", Optional: new(true)}}
	default:
		variable.Value = d.text()
	}
	return variable
}

func (d dice) envFrom() corev1.EnvFromSource {
	source := corev1.EnvFromSource{Prefix: mostly(d, []string{"", "DB_", "a.b-"}, "1", "=")}
	name := corev1.LocalObjectReference{Name: d.objectName()}
	if d.Intn(4) > 0 {
		source.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: name, Optional: new(d.Intn(2) == 0)}
	}
	if source.SecretRef == nil || d.Intn(8) == 0 {
		source.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: name}
	}
	return source
}

func (d dice) mountPath() v1alpha1.MountPath {
	return mostly(d, []v1alpha1.MountPath{"/a", "/a/b", "/c", "/etc/tls", "/var/run/secrets/db", "/..a/.b", "/größer", v1alpha1.MountPath("/" + strings.Repeat("x", 1023))},
		"/dev/log", "/", "//", "/a/", "/a:b", "a", "/tmp", "/function", "/etc", "")
}

func (d dice) mount() v1alpha1.SecretMount {
	return v1alpha1.SecretMount{SecretName: d.objectName(), MountPath: d.mountPath()}
}

func (d dice) configMapMount() v1alpha1.ConfigMapMount {
	return v1alpha1.ConfigMapMount{ConfigMapName: d.objectName(), MountPath: d.mountPath()}
}

func (d dice) emptyDirMount() v1alpha1.EmptyDirMount {
	mount := v1alpha1.EmptyDirMount{MountPath: d.mountPath()}
	if d.Intn(2) == 0 {
		mount.SizeLimit = new(d.quantity())
	}
	return mount
}

func (d dice) claimMount() v1alpha1.PersistentVolumeClaimMount {
	return v1alpha1.PersistentVolumeClaimMount{ClaimName: d.objectName(), MountPath: d.mountPath(), ReadOnly: d.Intn(2) == 0}
}

func (d dice) toleration() corev1.Toleration {
	t := corev1.Toleration{
		Key: mostly(d, []string{"a", "example.com/b"}, "", "a b"), Operator: mostly(d, []corev1.TolerationOperator{"", "Equal", "Exists"}, "Lt"),
		Value: mostly(d, []string{"", "", "x"}, "a b"), Effect: mostly(d, []corev1.TaintEffect{"", "NoSchedule", "NoExecute"}, "Never"),
	}
	if d.Intn(4) == 0 {
		t.TolerationSeconds = new(pick[int64](d, -1, 0, 300))
	}
	return t
}

func (d dice) traffic(name string) (targets []v1alpha1.TrafficTarget) {
	left := int64(100)
	for i := range d.Intn(4) {
		target := v1alpha1.TrafficTarget{Tag: mostly(d, []string{"", fmt.Sprintf("t-%d", i)}, "v1.2", "-", strings.Repeat("t", 50))}
		if d.Intn(2) == 0 {
			target.LatestRevision = new(true)
		} else {
			target.RevisionName = mostly(d, []string{kmeta.ChildName(name, "-00001"), kmeta.ChildName(name, "-00012")}, "other-00001", "")
		}
		if d.Intn(4) > 0 {
			share := pick(d, 0, 1, left/2, left)
			target.Percent, left = &share, left-share
		}
		targets = append(targets, target)
	}
	if targets != nil && left > 0 && d.Intn(8) > 0 {
		targets = append(targets, v1alpha1.TrafficTarget{LatestRevision: new(true), Percent: &left})
	}
	return targets
}

func (d dice) build() *v1alpha1.BuildSpec {
	b := &v1alpha1.BuildSpec{SecretName: pick(d, "", d.objectName())}
	if d.Intn(3) == 0 {
		b.Resources = corev1.ResourceRequirements{Requests: d.list(), Limits: d.list()}
	}
	if d.Intn(3) == 0 {
		b.Timeout = &metav1.Duration{Duration: mostly(d, []time.Duration{10 * time.Second, 90*time.Second + time.Nanosecond, time.Hour}, 0, -time.Second, 25*time.Hour)}
	}
	b.Env = some(d, func() v1alpha1.BuildEnvVar {
		return v1alpha1.BuildEnvVar{Name: mostly(d, []string{"A", "HTTPS_PROXY", "npm_config_registry", "_"}, "PATH", "A-B", "LD_PRELOAD", ""), Value: d.text()}
	})
	return b
}

// archive says little that is wrong: the source goes when there is one.
func (d dice) archive() *v1alpha1.ArchiveSource {
	archive := &v1alpha1.ArchiveSource{
		URL: mostly(d, []string{
			"https://example.com/a.zip", "http://store.default.svc:9000/b/c.tar.gz?X-Signature=a%24b&x=(y)", "https://[::1]:8443/größer%20大", "https://h/" + strings.Repeat("x", 2038),
			"oci://registry.example.com:5000/functions/default/a:1", "oci://10.0.0.1/a@sha256:" + strings.Repeat("0f", 32), "s3://bucket/größer/a.zip", "s3://a.b-c/key",
		}, "", "ftp://example.com/a", "https://user@example.com/a", "https://example.com", "https://example.com/$(params.x)", "https://h/"+strings.Repeat("x", 2039), "https://h/%zz", "https://h/a b",
			"oci://registry.example.com/a", "s3://bucket"),
		SHA256:     mostly(d, []string{"", strings.Repeat("0f", 32)}, "abc", strings.Repeat("0F", 32)),
		SecretName: pick(d, "", d.objectName()),
	}
	if strings.HasPrefix(archive.URL, "s3:") && d.Intn(2) == 0 {
		archive.S3 = &v1alpha1.S3Store{
			Endpoint:  mostly(d, []string{"", "https://minio.example.com:9000", "http://[::1]:9000"}, "https://h/a", "$(params.x)"),
			Region:    mostly(d, []string{"", "eu-central-1"}, "EU"),
			PathStyle: pick(d, nil, new(true), new(false)),
		}
	}
	return archive
}

// git says little that is wrong, as well.
func (d dice) git() *v1alpha1.GitSource {
	return &v1alpha1.GitSource{
		URL: mostly(d, []string{"https://example.com/a.git", "git@example.com:a/b", "ssh://git@[::1]:22/a", "http://store.default.svc/größer%20大"},
			"", "git://a/b", "file:///a", "https://a:b@c/d", "https://a/$(params.x)", "ext::sh -c x", "-x@a:b$"),
		Revision:   mostly(d, []string{"", "main", "feature/x", strings.Repeat("0f", 20)}, "$(params.x)", "-x", "a b"),
		ContextDir: mostly(d, []string{"", "a", "a/b.c/..d"}, "..", "a/..", "/a", "a//b", "$(params.x)"),
		SecretName: pick(d, "", d.objectName()),
	}
}

// stored has what the API server gives a Function.
func stored(name string) *v1alpha1.Function {
	return &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: "0b8f2f0c-8d1c-4a55-8b8f-2f0c8d1c4a55", Generation: 1,
	}}
}

// function sets each field once in a while.
func (d dice) function() *v1alpha1.Function {
	fn := stored(mostly(d, []string{"greeter", "a", "a" + strings.Repeat("-b", 31)}, "1st"))
	fs := &fn.Spec
	fs.Source = mostly(d, []string{"x", "\ufeffexports.main = () => '<&>';\r\n", d.text() + "x"}, d.text(), strings.Repeat("x", 900<<10))
	for _, set := range []func(){
		func() {
			fs.Deps = mostly(d, []string{`{"dependencies": {"ms": "2"}}`, "\ufeff{}", "\r\n"}, "null", "[]")
		},
		func() {
			fs.Archive = d.archive()
			if d.Intn(12) > 0 {
				fs.Source, fs.Deps = "", ""
			}
		},
		func() {
			fs.Git = d.git()
			if d.Intn(12) > 0 {
				fs.Source, fs.Deps, fs.Archive = "", "", nil
			}
		},
		func() { fs.Runtime = mostly(d, []string{"nodejs22", "python313", "dockerfile"}, "cobol") },
		func() { fs.Env = some(d, d.envVar) },
		func() { fs.EnvFrom = some(d, d.envFrom) },
		func() { fs.SecretMounts = some(d, d.mount) },
		func() { fs.ConfigMapMounts = some(d, d.configMapMount) },
		func() { fs.EmptyDirMounts = some(d, d.emptyDirMount) },
		func() { fs.PersistentVolumeClaimMounts = some(d, d.claimMount) },
		func() { fs.ServiceAccountName = d.objectName() },
		func() { fs.NodeSelector = d.labels() },
		func() { fs.Tolerations = some(d, d.toleration) },
		func() { fs.MinReplicas = new(mostly(d, []int32{0, 1, 2, 1000}, -1)) },
		func() { fs.MaxReplicas = new(mostly(d, []int32{0, 1, 3, 1000}, -1)) },
		func() { fs.Concurrency = new(mostly(d, []int64{0, 1, 1000}, -1, 1001)) },
		func() { fs.TimeoutSeconds = new(mostly(d, []int64{1, 600, 86400}, 0, 86401)) },
		func() { fs.Resources = corev1.ResourceRequirements{Requests: d.list(), Limits: d.list()} },
		func() { fs.Labels = d.labels() },
		func() { fs.Annotations = d.annotations() },
		func() { fs.Visibility = mostly(d, []v1alpha1.Visibility{"cluster-local", "public"}, "x") },
		func() { fs.Traffic = d.traffic(fn.Name) },
		func() { fs.Build = d.build() },
	} {
		if d.Intn(5) == 0 {
			set()
		}
	}
	return fn
}

// servingContext has all of the features on that Kiln uses, and the limits of
// an administrator who leaves the choice to the authors of functions.
func servingContext(t testing.TB) context.Context {
	t.Helper()
	features, err := servingconfig.NewFeaturesConfigFromMap(map[string]string{
		"kubernetes.podspec-nodeselector": "enabled", "kubernetes.podspec-tolerations": "enabled",
		"kubernetes.podspec-persistent-volume-claim": "enabled", "kubernetes.podspec-persistent-volume-write": "enabled",
	})
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := servingconfig.NewDefaultsConfigFromMap(map[string]string{"max-revision-timeout-seconds": "86400"})
	if err != nil {
		t.Fatal(err)
	}
	autoscaler, err := autoscalerconfig.NewConfigFromMap(map[string]string{"allow-zero-initial-scale": "true"})
	if err != nil {
		t.Fatal(err)
	}
	return servingconfig.ToContext(t.Context(), &servingconfig.Config{Features: features, Defaults: defaults, Autoscaler: autoscaler})
}

func fuzzConfig(t testing.TB) *config.Config {
	t.Helper()
	cfg := config.FromContextOrDefaults(t.Context())
	build, err := config.NewBuildFromMap(map[string]string{
		"kaniko-image": "registry.example.com/kaniko", "compose-image": "registry.example.com/compose",
	})
	if err == nil {
		cfg.Registry, err = config.NewRegistryFromMap(map[string]string{"push": "registry.example.com:5000", "prefix": "functions"})
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.Build = build
	cfg.Runtimes = config.Runtimes{
		"nodejs22": {BaseImage: "node:22", Language: "nodejs"}, "nodejs24": {BaseImage: "node:24", Language: "nodejs"},
		"python313": {BaseImage: "python:3.13", Language: "python"}, "dockerfile": {Language: "dockerfile"},
	}
	return cfg
}

// seeds is how many Functions a run of the tests makes.
const seeds = 1000

// FuzzChildren checks that Kubernetes, Serving and Tekton accept the children of every
// valid Function.
func FuzzChildren(f *testing.F) {
	for seed := range int64(50) {
		fn := dice{rand.New(rand.NewSource(seed))}.function()
		spec, err := json.Marshal(fn.Spec)
		if err != nil {
			f.Fatal(err)
		}
		// Large specs are slow to mutate. TestChildren covers them.
		if len(spec) < 64<<10 {
			f.Add(fn.Name, spec)
		}
	}
	cfg := fuzzConfig(f)
	f.Fuzz(func(t *testing.T, name string, spec []byte) {
		// The API server stores no object without a name.
		if fn := stored(name); name != "" && json.Unmarshal(spec, &fn.Spec) == nil {
			checkChildren(t, cfg, fn)
		}
	})
}

// TestChildren is FuzzChildren for many seeds, of which enough must be valid.
func TestChildren(t *testing.T) {
	cfg, valid := fuzzConfig(t), 0
	for seed := range int64(seeds) {
		fn := dice{rand.New(rand.NewSource(seed))}.function()
		if checkChildren(t, cfg, fn) {
			valid++
		}
		if t.Failed() {
			fn.Spec.Source = ""
			text, _ := json.MarshalIndent(fn, "", " ")
			t.Fatalf("seed %d: %s", seed, text)
		}
	}
	t.Logf("%d of %d are valid", valid, seeds)
	if valid < seeds/5 {
		t.Errorf("only %d of %d are valid", valid, seeds)
	}
}

// checkChildren makes the children of the Function, if it is valid.
func checkChildren(t testing.TB, cfg *config.Config, fn *v1alpha1.Function) bool {
	t.Helper()
	ctx := config.ToContext(t.Context(), cfg)
	fn.SetDefaults(apis.WithinCreate(ctx))
	once := fn.DeepCopy()
	fn.SetDefaults(apis.WithinUpdate(ctx, once))
	if !equality.Semantic.DeepEqual(once, fn) {
		t.Errorf("defaulting twice differs (-once +twice):\n%s", cmp.Diff(once, fn))
	}
	if fn.Validate(apis.WithinCreate(ctx)).Filter(apis.ErrorLevel) != nil {
		return false
	}
	checkRoundTrip(t, fn)

	runtime, _ := cfg.Runtimes[fn.Spec.Runtime].Find()
	files, err := runtime.BuildContext(runtimes.Function{
		BaseImage: "node:24", Source: fn.Spec.Source, Dependencies: fn.Spec.Deps, Fetched: fn.Spec.IsFetched(),
	})
	if err != nil {
		t.Errorf("BuildContext: %v", err)
	}
	checkConfigMap(t, function.MakeConfigMap(fn, tag, files))

	build := builds.Spec{
		Request: builds.Request{Tag: tag, Fingerprint: "source=1", Generation: 1},
		Reason:  builds.ReasonFirstBuild, Attempt: 1, BaseImage: "node:24", Files: files, InstallFiles: files, Runtime: runtime,
	}
	taskRun := tekton.MakeTaskRun(fn, cfg, build)
	checkCommands(t, fn, cfg, build)
	checkMeta(t, "TaskRun", &taskRun.ObjectMeta)
	checkAdmission(apis.WithinCreate(t.Context()), t, "TaskRun", taskRun)

	service := knative.MakeService(fn, image)
	checkMeta(t, "Service", &service.ObjectMeta)
	checkMeta(t, "template", &metav1.ObjectMeta{
		Name: "x", Namespace: "default", Labels: service.Spec.Template.Labels, Annotations: service.Spec.Template.Annotations,
	})
	checkAdmission(apis.WithinCreate(servingContext(t)), t, "Service", service)
	return true
}

// checkCommands checks that no text of an author becomes an instruction of the Dockerfile
// or a flag of a step. Both equal those of a minimal function of the same name and
// runtime. Each field of the source's address is the value of one flag.
func checkCommands(t testing.TB, fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) {
	t.Helper()
	commands := func(fn *v1alpha1.Function) (commands [][]string) {
		for _, step := range tekton.MakeTaskRun(fn, cfg, build).Spec.TaskSpec.Steps {
			if step.Script != "" {
				t.Errorf("step %s runs a script", step.Name)
			}
			commands = append(commands, slices.Concat(step.Command, step.Args))
		}
		return commands
	}
	plain := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: fn.Name, Namespace: fn.Namespace, UID: fn.UID}}
	plain.Spec = v1alpha1.FunctionSpec{Runtime: fn.Spec.Runtime, Source: fn.Spec.Source, Git: fn.Spec.Git, Archive: fn.Spec.Archive}
	if diff := cmp.Diff(commands(plain), commands(fn)); diff != "" {
		t.Errorf("the commands of the steps (-of a plain function, +got):\n%s", diff)
	}
	for _, command := range commands(fn) {
		for _, arg := range command[1:] {
			if flag, _, ok := strings.Cut(arg, "="); arg != "fetch" && (!ok || !strings.HasPrefix(flag, "--") || strings.ContainsAny(flag, " \n$")) {
				t.Errorf("%s is run with %q", command[0], arg)
			}
		}
	}
	dependencies := map[string]string{"nodejs": `{"dependencies":{"a":"1"}}`, "python": "a"}[build.Runtime.Language]
	files, err := build.Runtime.BuildContext(runtimes.Function{
		BaseImage: build.BaseImage, Source: "x", Dependencies: dependencies, Fetched: fn.Spec.IsFetched(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := build.Files[runtimes.DockerfileName]; ok && got != files[runtimes.DockerfileName] {
		t.Errorf("the Dockerfile (-of a plain function, +got):\n%s", cmp.Diff(files[runtimes.DockerfileName], got))
	}
}

func checkRoundTrip(t testing.TB, fn *v1alpha1.Function) {
	t.Helper()
	text, err := json.Marshal(fn)
	if err != nil {
		t.Fatal(err)
	}
	back := &v1alpha1.Function{}
	if err := json.Unmarshal(text, back); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(fn, back) {
		t.Errorf("JSON and back differs:\n%s", cmp.Diff(fn, back))
	}
}

func checkAdmission(ctx context.Context, t testing.TB, kind string, object interface {
	apis.Defaultable
	apis.Validatable
},
) {
	t.Helper()
	object.SetDefaults(ctx)
	if err := object.Validate(ctx).Filter(apis.ErrorLevel); err != nil {
		t.Errorf("%s: %v", kind, err)
	}
}

// checkMeta checks what the API server checks of every object.
func checkMeta(t testing.TB, kind string, meta *metav1.ObjectMeta) {
	t.Helper()
	errs := metavalidation.ValidateLabels(meta.Labels, field.NewPath("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(meta.Annotations, field.NewPath("annotations"))...)
	if problems := validation.IsDNS1035Label(meta.Name); len(problems) > 0 {
		t.Errorf("%s: name %q: %v", kind, meta.Name, problems)
	}
	if len(errs) > 0 {
		t.Errorf("%s: %v", kind, errs.ToAggregate())
	}
}

func checkConfigMap(t testing.TB, configMap *corev1.ConfigMap) {
	t.Helper()
	checkMeta(t, "ConfigMap", &configMap.ObjectMeta)
	size := 0
	for key, value := range configMap.Data {
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			t.Errorf("ConfigMap: key %q: %v", key, problems)
		}
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		t.Errorf("ConfigMap: %d bytes", size)
	}
}
