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

package v1alpha1

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/scheduling"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

const (
	maxConcurrency = 1000

	// maxBuildEnvBytes limits a build's environment. Quoted in an annotation, it is up to
	// four times as large, and Kubernetes allows 256 KiB.
	maxBuildEnvBytes = 32 << 10

	maxTextBytes = 1 << 20

	// maxSpecBytes limits the JSON of a spec. The API server stores at most 1.5 MiB with
	// metadata and status.
	maxSpecBytes = 1200 << 10

	// maxOtherBytes limits the JSON of a spec without source and deps. The controller
	// holds it in memory.
	maxOtherBytes = 256 << 10
)

// Validate implements apis.Validatable. It uses the config in the context.
func (fn *Function) Validate(ctx context.Context) *apis.FieldError {
	if apis.IsInStatusUpdate(ctx) || fn.DeletionTimestamp != nil {
		return nil
	}
	// Configuration may have become stricter since the spec was accepted. Edits of labels,
	// annotations or finalizers must still work.
	base := baseline(ctx)
	errs := fn.validateRolloutOnChange(base)
	if base != nil && equality.Semantic.DeepEqual(base.Spec, fn.Spec) {
		return errs
	}
	return errs.Also(validateName(fn.Name).ViaField("metadata")).
		Also(fn.Spec.Validate(apis.WithinParent(ctx, fn.ObjectMeta)).ViaField("spec")).
		Also(fn.warnOfConcurrency(ctx))
}

// validateRolloutOnChange rejects a new value that would have no effect. base is the Function
// before an update, or nil.
func (fn *Function) validateRolloutOnChange(base *Function) *apis.FieldError {
	const key = serverless.RolloutOnChangeAnnotationKey
	value, ok := fn.Annotations[key]
	if !ok || value == "true" || value == "false" || base != nil && base.Annotations[key] == value {
		return nil
	}
	return apis.ErrInvalidValue(value, apis.CurrentField, "use true or false").ViaKey(key).ViaField("annotations").ViaField("metadata")
}

// warnOfConcurrency warns that Deployments do not limit concurrent requests.
func (fn *Function) warnOfConcurrency(ctx context.Context) *apis.FieldError {
	if fn.Spec.Concurrency == nil || *fn.Spec.Concurrency == 0 || !fn.isForDeployment(ctx) {
		return nil
	}
	return apis.ErrGeneric("a Deployment serves this Function, and does not limit concurrent requests", "spec.concurrency").At(apis.WarningLevel)
}

// isForDeployment reports whether a Deployment serves the Function, or will serve it for
// sure.
func (fn *Function) isForDeployment(ctx context.Context) bool {
	server := config.Server(fn.Status.Serving)
	if server == "" && !fn.Status.IsDeployed() {
		server = config.FromContextOrDefaults(ctx).Functions.Server
	}
	return server == config.KubernetesServer
}

// Validate returns what is wrong with the spec, or nil. The parent in the context has the
// Function's name.
func (fs *FunctionSpec) Validate(ctx context.Context) *apis.FieldError {
	cfg := config.FromContextOrDefaults(ctx)
	if errs := fs.validateCounts(); errs != nil {
		return errs
	}
	return fs.validateRuntime(ctx, cfg.Runtimes).
		Also(fs.validateSource(cfg.Functions.MaxSourceBytes)).
		Also(fs.validateInline(cfg.Runtimes)).
		Also(validateEnv(fs.Env).ViaField("env")).
		Also(validateEnvFrom(fs.EnvFrom).ViaField("envFrom")).
		Also(fs.validateMounts(cfg.Functions)).
		Also(fs.ValidateSecrets(cfg.Registry.ReservedSecrets())).
		Also(validateObjectName(fs.ServiceAccountName, "serviceAccountName")).
		Also(scheduling.ValidateNodeSelector(fs.NodeSelector).ViaField("nodeSelector")).
		Also(scheduling.ValidateTolerations(fs.Tolerations).ViaField("tolerations")).
		Also(fs.validateReplicas()).
		Also(fs.validateLimits()).
		Also(validateResources(fs.Resources).ViaField("resources")).
		Also(validateLabels(fs.Labels, cfg.Functions.AllowedLabels).ViaField("labels")).
		Also(fs.validateAnnotations(cfg.Functions.AllowedAnnotations).ViaField("annotations")).
		Also(fs.validateVisibility()).
		Also(validateTraffic(fs.Traffic, apis.ParentMeta(ctx).Name).ViaField("traffic")).
		Also(fs.Build.validate(cfg.Build).ViaField("build")).
		Also(fs.validateSize())
}

// validateCounts checks the numbers of entries, and the sizes of texts that are parsed.
// The CRD has the same limits. A request to the webhook need not come from an API server
// that knows the CRD, and the time of the other checks grows faster than these numbers.
func (fs *FunctionSpec) validateCounts() (errs *apis.FieldError) {
	build := fs.Build
	if build == nil {
		build = &BuildSpec{}
	}
	for _, list := range []struct {
		field       string
		count, most int
	}{
		{"env", len(fs.Env), 256},
		{"envFrom", len(fs.EnvFrom), 64},
		{"secretMounts", len(fs.SecretMounts), 32},
		{"configMapMounts", len(fs.ConfigMapMounts), 32},
		{"emptyDirMounts", len(fs.EmptyDirMounts), 8},
		{"persistentVolumeClaimMounts", len(fs.PersistentVolumeClaimMounts), 8},
		{"nodeSelector", len(fs.NodeSelector), 64},
		{"tolerations", len(fs.Tolerations), 64},
		{"labels", len(fs.Labels), 64},
		{"annotations", len(fs.Annotations), 64},
		{"traffic", len(fs.Traffic), 64},
		{"resources.requests", len(fs.Resources.Requests), 64},
		{"resources.limits", len(fs.Resources.Limits), 64},
		{"build.env", len(build.Env), 64},
		{"build.resources.requests", len(build.Resources.Requests), 64},
		{"build.resources.limits", len(build.Resources.Limits), 64},
	} {
		if list.count > list.most {
			errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("it has %d entries, more than the limit of %d", list.count, list.most), list.field))
		}
	}
	for field, text := range map[string]string{"source": fs.Source, "deps": fs.Deps} {
		if len(text) > maxTextBytes {
			errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("it is %d bytes, more than the limit of %d", len(text), maxTextBytes), field))
		}
	}
	return errs
}

func validateName(name string) *apis.FieldError {
	if name == "" {
		return nil // generateName, which the API server checks
	}
	if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
		return apis.ErrInvalidValue(name, "name", problems...)
	}
	return nil
}

// validateRuntime accepts every runtime if none are known, as in a client.
func (fs *FunctionSpec) validateRuntime(ctx context.Context, known config.Runtimes) *apis.FieldError {
	if fs.Runtime == "" {
		return apis.ErrMissingField("runtime")
	}
	if known == nil {
		return nil
	}
	runtime, ok := known[fs.Runtime]
	switch {
	case !ok && len(known) == 0:
		return apis.ErrGeneric(fmt.Sprintf("unknown runtime %q: no runtime is configured", fs.Runtime), "runtime")
	case !ok:
		return apis.ErrGeneric(fmt.Sprintf("unknown runtime %q: choose one of %s",
			fs.Runtime, strings.Join(known.Names(), ", ")), "runtime")
	case runtime.Deprecated && (apis.IsInCreate(ctx) || apis.IsInUpdate(ctx)):
		// Only users need the warning, not the reconciler.
		return apis.ErrGeneric(fmt.Sprintf("runtime %q is deprecated", fs.Runtime), "runtime").At(apis.WarningLevel)
	}
	return nil
}

func (fs *FunctionSpec) validateSource(most int64) *apis.FieldError {
	if fs.IsFetched() {
		return fs.validateFetched().Also(fs.Git.validate().ViaField("git")).Also(fs.Archive.validate().ViaField("archive"))
	}
	if fs.Source == "" {
		return apis.ErrMissingOneOf("source", "git", "archive")
	}
	if strings.TrimFunc(fs.Source, isBlank) == "" {
		return apis.ErrGeneric("must not be blank", "source")
	}
	if size := int64(len(fs.Source)) + int64(len(fs.Deps)); size > most {
		return apis.ErrGeneric(fmt.Sprintf("source and deps together are %d bytes, more than the limit of %d", size, most),
			"source", "deps")
	}
	return nil
}

func (fs *FunctionSpec) validateFetched() (errs *apis.FieldError) {
	var said []string
	for name, is := range map[string]bool{"source": fs.Source != "", "git": fs.Git != nil, "archive": fs.Archive != nil} {
		if is {
			said = append(said, name)
		}
	}
	if len(said) > 1 {
		errs = errs.Also(apis.ErrMultipleOneOf(said...))
	}
	if fs.Deps != "" {
		errs = errs.Also(apis.ErrGeneric("deps must not be set without source: a repository or an archive contains its dependency file", "deps"))
	}
	return errs
}

const (
	maxURL        = 2048
	maxS3Endpoint = 255
)

var (
	// archiveURL has no $, with which variables of Tekton and Kubernetes begin.
	archiveURL = regexp.MustCompile(`^(https?://[^/?#@$\\\s\x00-\x1f\x7f]+/[^#$\\\s\x00-\x1f\x7f]*|` +
		`oci://([0-9A-Za-z-]+(\.[0-9A-Za-z-]+)+(:[0-9]+)?|[0-9A-Za-z-]+:[0-9]+)(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})|` +
		`s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^?#%$\\\s\x00-\x1f\x7f]+)$`)
	s3Endpoint = regexp.MustCompile(`^https?://[^/?#@$\\\s\x00-\x1f\x7f]+$`)
	s3Region   = regexp.MustCompile(`^[0-9a-z-]+$`)
	gitURL     = regexp.MustCompile(`^(https?://[^/?#@$\\\s\x00-\x1f\x7f]+/|ssh://([0-9A-Za-z_.-]+@)?[^/?#@$\\\s\x00-\x1f\x7f]+/|[0-9A-Za-z_.-]+@[0-9A-Za-z.-]+:)[^?#$\\\s\x00-\x1f\x7f]+$`)
	revision   = regexp.MustCompile(`^[0-9A-Za-z_][0-9A-Za-z_./+@#=,-]*$`)
	contextDir = regexp.MustCompile(`^[0-9A-Za-z_.@+-]+(/[0-9A-Za-z_.@+-]+)*$`)
	sha256Hash = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

const maxRevision = 255

func (g *GitSource) validate() (errs *apis.FieldError) {
	if g == nil {
		return nil
	}
	switch {
	case g.URL == "":
		errs = errs.Also(apis.ErrMissingField("url"))
	case len(g.URL) > maxURL:
		errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("it is %d characters, more than the limit of %d", len(g.URL), maxURL), "url"))
	case !gitURL.MatchString(g.URL):
		// The message does not quote the URL, because it may contain a password.
		errs = errs.Also(apis.ErrGeneric("use a URL such as https://example.com/a/b.git or git@example.com:a/b.git, without a password", "url"))
	}
	if g.Revision != "" && (!revision.MatchString(g.Revision) || len(g.Revision) > maxRevision) {
		errs = errs.Also(apis.ErrInvalidValue(g.Revision, "revision", "use the name of a branch or a tag, or the 40 digits of a commit"))
	}
	parts := strings.Split(g.ContextDir, "/")
	if g.ContextDir != "" && (!contextDir.MatchString(g.ContextDir) || len(g.ContextDir) > maxRevision || slices.Contains(parts, ".") || slices.Contains(parts, "..")) {
		errs = errs.Also(apis.ErrInvalidValue(g.ContextDir, "contextDir", "use a folder of the repository such as functions/greeter"))
	}
	return errs.Also(validateObjectName(g.SecretName, "secretName"))
}

func (a *ArchiveSource) validate() (errs *apis.FieldError) {
	if a == nil {
		return nil
	}
	switch _, err := url.Parse(a.URL); {
	case a.URL == "":
		errs = errs.Also(apis.ErrMissingField("url"))
	case len(a.URL) > maxURL:
		errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("it is %d characters, more than the limit of %d", len(a.URL), maxURL), "url"))
	case !archiveURL.MatchString(a.URL), err != nil:
		// The message does not quote the URL, because it may contain a password.
		errs = errs.Also(apis.ErrGeneric("use a URL such as https://example.com/code.zip, without a user, and with %24 for $, or oci://registry.example.com/code:1, with a tag or a digest, or s3://bucket/key, without %", "url"))
	}
	if a.SHA256 != "" && !sha256Hash.MatchString(a.SHA256) {
		errs = errs.Also(apis.ErrInvalidValue(a.SHA256, "sha256", "use 64 of 0-9 and a-f, as sha256sum prints them"))
	}
	if a.S3 != nil && !strings.HasPrefix(a.URL, "s3://") {
		errs = errs.Also(apis.ErrGeneric("s3 must not be set unless url is such as s3://bucket/key", "s3", "url"))
	}
	return errs.Also(validateObjectName(a.SecretName, "secretName")).Also(a.S3.validate().ViaField("s3"))
}

func (s *S3Store) validate() (errs *apis.FieldError) {
	if s == nil {
		return nil
	}
	if _, err := url.Parse(s.Endpoint); s.Endpoint != "" && (!s3Endpoint.MatchString(s.Endpoint) || len(s.Endpoint) > maxS3Endpoint || err != nil) {
		// The message does not quote the URL, because it may contain a password.
		errs = errs.Also(apis.ErrGeneric("use a URL such as https://minio.example.com:9000, without a user or a path", "endpoint"))
	}
	if s.Region != "" && (!s3Region.MatchString(s.Region) || len(s.Region) > validation.DNS1123LabelMaxLength) {
		errs = errs.Also(apis.ErrInvalidValue(s.Region, "region", "use the name of a region such as eu-central-1"))
	}
	return errs
}

// isBlank counts a byte order mark as white space, as JavaScript does.
func isBlank(r rune) bool {
	return unicode.IsSpace(r) || r == '\ufeff'
}

// validateInline checks the source and the deps for the runtime. It accepts all for an
// unknown language.
func (fs *FunctionSpec) validateInline(known config.Runtimes) (errs *apis.FieldError) {
	runtime, ok := known[fs.Runtime].Find()
	if !ok {
		return nil
	}
	if err := runtime.CheckSource(fs.Source); err != nil {
		errs = errs.Also(apis.ErrGeneric(err.Error(), "source"))
	}
	if err := runtime.CheckDependencies(fs.Deps); err != nil {
		errs = errs.Also(apis.ErrGeneric(err.Error(), "deps"))
	}
	return errs
}

func (fs *FunctionSpec) validateReplicas() *apis.FieldError {
	errs := validateReplicaCount(fs.MinReplicas, "minReplicas").
		Also(validateReplicaCount(fs.MaxReplicas, "maxReplicas"))
	if errs != nil || fs.MinReplicas == nil || fs.MaxReplicas == nil {
		return errs
	}
	if *fs.MaxReplicas > 0 && *fs.MinReplicas > *fs.MaxReplicas {
		return apis.ErrGeneric(fmt.Sprintf("minReplicas is %d, more than maxReplicas, which is %d",
			*fs.MinReplicas, *fs.MaxReplicas), "minReplicas", "maxReplicas")
	}
	return nil
}

func validateReplicaCount(count *int32, field string) *apis.FieldError {
	if count != nil && (*count < 0 || *count > config.MaxReplicasLimit) {
		return apis.ErrOutOfBoundsValue(*count, 0, config.MaxReplicasLimit, field)
	}
	return nil
}

// validateLimits checks what Serving's configuration may limit further.
func (fs *FunctionSpec) validateLimits() (errs *apis.FieldError) {
	if n := fs.Concurrency; n != nil && (*n < 0 || *n > maxConcurrency) {
		errs = errs.Also(apis.ErrOutOfBoundsValue(*n, 0, maxConcurrency, "concurrency"))
	}
	if n, most := fs.TimeoutSeconds, int64(config.MaxTimeout/time.Second); n != nil && (*n < 1 || *n > most) {
		errs = errs.Also(apis.ErrOutOfBoundsValue(*n, 1, most, "timeoutSeconds"))
	}
	return errs
}

func (fs *FunctionSpec) validateVisibility() *apis.FieldError {
	switch fs.Visibility {
	case "", VisibilityClusterLocal, VisibilityPublic:
		return nil
	}
	return apis.ErrInvalidValue(fs.Visibility, "visibility",
		fmt.Sprintf("use %s or %s", VisibilityClusterLocal, VisibilityPublic))
}

// validateSize reserves space for the status, and bounds the controller's memory.
func (fs *FunctionSpec) validateSize() *apis.FieldError {
	text, err := json.Marshal(fs)
	if err != nil {
		return apis.ErrGeneric(fmt.Sprintf("it has no JSON form: %v", err), apis.CurrentField)
	}
	if len(text) > maxSpecBytes {
		return apis.ErrGeneric(fmt.Sprintf("it is %d bytes of JSON, more than the limit of %d; "+
			"a quote or a line break takes 2 bytes there, and each <, > and & takes 6", len(text), maxSpecBytes), apis.CurrentField)
	}
	other := *fs
	other.Source, other.Deps = "", ""
	if text, err = json.Marshal(&other); err == nil && len(text) > maxOtherBytes {
		return apis.ErrGeneric(fmt.Sprintf("without source and deps it is %d bytes of JSON, more than the limit of %d: "+
			"put large values of env into a ConfigMap or a Secret", len(text), maxOtherBytes), apis.CurrentField)
	}
	return nil
}

func validateTraffic(traffic []TrafficTarget, function string) (errs *apis.FieldError) {
	if len(traffic) == 0 {
		return nil
	}
	var sum int64
	seen := map[string]struct{}{}
	for i, target := range traffic {
		errs = errs.Also(target.validate(function).ViaIndex(i))
		if target.Percent != nil {
			sum += *target.Percent
		}
		if target.Tag == "" {
			continue
		}
		if _, ok := seen[target.Tag]; ok {
			errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("duplicate tag %q", target.Tag), "tag").ViaIndex(i))
		}
		seen[target.Tag] = struct{}{}
	}
	if sum != 100 {
		errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("the percentages add up to %d, not to 100", sum), apis.CurrentField))
	}
	return errs
}

func (t *TrafficTarget) validate(function string) (errs *apis.FieldError) {
	latest := t.LatestRevision != nil && *t.LatestRevision
	switch {
	case t.RevisionName != "" && latest:
		errs = errs.Also(apis.ErrMultipleOneOf("revisionName", "latestRevision"))
	case t.RevisionName == "" && !latest:
		errs = errs.Also(apis.ErrGeneric("expected a revisionName, or latestRevision: true", "revisionName", "latestRevision"))
	case t.RevisionName != "" && !isRevisionOf(t.RevisionName, function):
		errs = errs.Also(apis.ErrInvalidValue(t.RevisionName, "revisionName",
			"the names of the function's revisions are like "+kmeta.ChildName(function, "-00001")))
	}
	if t.Percent != nil && (*t.Percent < 0 || *t.Percent > 100) {
		errs = errs.Also(apis.ErrOutOfBoundsValue(*t.Percent, 0, 100, "percent"))
	}
	if t.Tag == "" {
		if t.Percent == nil {
			errs = errs.Also(apis.ErrGeneric("expected a percent, a tag, or both", "percent", "tag"))
		}
		return errs
	}
	if problems := validation.IsDNS1035Label(t.Tag); len(problems) > 0 {
		errs = errs.Also(apis.ErrInvalidValue(t.Tag, "tag", problems...))
	} else if host := t.Tag + "-" + function; len(host) > validation.DNS1035LabelMaxLength {
		errs = errs.Also(apis.ErrInvalidValue(t.Tag, "tag", fmt.Sprintf("its URL begins with %s, which is %d characters, more than the limit of %d",
			host, len(host), validation.DNS1035LabelMaxLength)))
	}
	return errs
}

var revisionSuffix = regexp.MustCompile(`-[0-9]{5,10}$`)

// isRevisionOf reports whether the name is that of a revision of the function. Without a
// function it accepts all names of revisions.
func isRevisionOf(revision, function string) bool {
	suffix := revisionSuffix.FindString(revision)
	if suffix == "" || len(validation.IsDNS1035Label(revision)) > 0 {
		return false
	}
	return function == "" || revision == kmeta.ChildName(function, suffix)
}

func (b *BuildSpec) validate(limits *config.Build) *apis.FieldError {
	if b == nil {
		return nil
	}
	return validateResources(b.Resources).ViaField("resources").
		Also(validateCeiling(b.Resources.Requests, limits.MaxResources).ViaField("resources.requests")).
		Also(validateCeiling(b.Resources.Limits, limits.MaxResources).ViaField("resources.limits")).
		Also(b.validateTimeout(limits.MaxTimeout)).
		Also(validateBuildEnv(b.Env).ViaField("env")).
		Also(validateObjectName(b.SecretName, "secretName"))
}

func (b *BuildSpec) validateTimeout(most time.Duration) *apis.FieldError {
	if b.Timeout == nil {
		return nil
	}
	if t := b.Timeout.Duration; t < config.LeastBuildTimeout || t > most {
		return apis.ErrOutOfBoundsValue(t, config.LeastBuildTimeout, most, "timeout")
	}
	return nil
}

func validateCeiling(list, most corev1.ResourceList) (errs *apis.FieldError) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		have := list[name]
		if limit, ok := most[name]; ok && have.Cmp(limit) > 0 {
			errs = errs.Also(apis.ErrInvalidValue(have.String(), apis.CurrentField,
				"builds may have at most "+limit.String()).ViaKey(string(name)))
		}
	}
	return errs
}

// Variables that the build's own tools use.
var (
	buildEnv         = []string{"PATH", "HOME", "PWD", "SHELL", "USER", "TMPDIR", "IFS", "ENV", "BASH_ENV", "DOCKER_CONFIG", "SSL_CERT_DIR", "SSL_CERT_FILE"}
	buildEnvPrefixes = []string{"LD_", "KANIKO_", "TEKTON_"}
)

func validateBuildEnv(env []BuildEnvVar) (errs *apis.FieldError) {
	size := 0
	seen := make(map[string]struct{}, len(env))
	for i, variable := range env {
		if _, ok := seen[variable.Name]; ok {
			errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("duplicate name %q", variable.Name), "name").ViaIndex(i))
		}
		seen[variable.Name] = struct{}{}
		size += len(variable.Name) + len(variable.Value)
		errs = errs.Also(variable.validate().ViaIndex(i))
	}
	if size > maxBuildEnvBytes {
		errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("names and values are %d bytes, more than the limit of %d", size, maxBuildEnvBytes), apis.CurrentField))
	}
	return errs
}

func (v BuildEnvVar) validate() *apis.FieldError {
	if v.Name == "" {
		return apis.ErrMissingField("name")
	}
	// Shells allow no dots and dashes.
	if problems := validation.IsCIdentifier(v.Name); len(problems) > 0 {
		return apis.ErrInvalidValue(v.Name, "name", problems...)
	}
	hasPrefix := func(prefix string) bool { return strings.HasPrefix(v.Name, prefix) }
	if slices.Contains(buildEnv, v.Name) || slices.ContainsFunc(buildEnvPrefixes, hasPrefix) {
		return apis.ErrInvalidValue(v.Name, "name", "this variable must not be set: the build's own tools need it as it is")
	}
	if strings.ContainsRune(v.Value, 0) {
		return apis.ErrInvalidValue(v.Value, "value", "it contains a NUL character")
	}
	return nil
}
