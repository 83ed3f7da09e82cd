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
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// Environment variables that Kiln sets, beside those that Knative does.
var kilnEnv = []string{runtimes.EnvFunctionName, runtimes.EnvFunctionNamespace, runtimes.EnvFunctionRuntime}

// Validate returns what is wrong with the Function, or nil. What depends on
// configuration is checked against the config in the context. It implements
// apis.Validatable.
func (fn *Function) Validate(ctx context.Context) *apis.FieldError {
	if apis.IsInStatusUpdate(ctx) || fn.DeletionTimestamp != nil {
		return nil
	}
	// Configuration may have become stricter since the spec was accepted. That
	// must not stand in the way of an edit of labels, annotations or finalizers.
	if base := baseline(ctx); base != nil && equality.Semantic.DeepEqual(base.Spec, fn.Spec) {
		return nil
	}
	return validateName(fn.Name).ViaField("metadata").
		Also(fn.Spec.Validate(ctx).ViaField("spec"))
}

// Validate returns what is wrong with the spec, or nil.
func (fs *FunctionSpec) Validate(ctx context.Context) *apis.FieldError {
	cfg := config.FromContextOrDefaults(ctx)
	return fs.validateRuntime(ctx, cfg.Runtimes).
		Also(fs.validateSource(cfg.Functions.MaxSourceBytes)).
		Also(fs.validateDeps(cfg.Runtimes)).
		Also(fs.validateReplicas()).
		Also(validateEnv(fs.Env).ViaField("env")).
		Also(validateResources(fs.Resources).ViaField("resources")).
		Also(validateLabels(fs.Labels).ViaField("labels"))
}

// validateName checks that Services can have the Function's name. Objects with
// longer names than that shorten them.
func validateName(name string) *apis.FieldError {
	if name == "" {
		return nil // generateName, which the API server checks
	}
	if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
		return apis.ErrInvalidValue(name, "name", problems...)
	}
	return nil
}

// validateRuntime takes every runtime where none are known, as in a client.
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
		// A warning is for people who apply, not for the reconciler.
		return apis.ErrGeneric(fmt.Sprintf("runtime %q is deprecated", fs.Runtime), "runtime").At(apis.WarningLevel)
	}
	return nil
}

func (fs *FunctionSpec) validateSource(most int64) *apis.FieldError {
	if strings.TrimSpace(fs.Source) == "" {
		return apis.ErrGeneric("must not be blank", "source")
	}
	if size := int64(len(fs.Source)) + int64(len(fs.Deps)); size > most {
		return apis.ErrGeneric(fmt.Sprintf("source and deps together are %d bytes, more than the limit of %d", size, most),
			"source", "deps")
	}
	return nil
}

// validateDeps takes everything where the runtime's language is not known.
func (fs *FunctionSpec) validateDeps(known config.Runtimes) *apis.FieldError {
	language, ok := runtimes.For(known[fs.Runtime].Language)
	if !ok {
		return nil
	}
	if err := language.CheckDependencies(fs.Deps); err != nil {
		return apis.ErrGeneric(err.Error(), "deps")
	}
	return nil
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

func validateEnv(env []corev1.EnvVar) (errs *apis.FieldError) {
	seen := make(map[string]struct{}, len(env))
	for i, variable := range env {
		if _, ok := seen[variable.Name]; ok {
			errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("duplicate name %q", variable.Name), "name").ViaIndex(i))
		}
		seen[variable.Name] = struct{}{}
		errs = errs.Also(validateEnvName(variable.Name).ViaIndex(i)).
			Also(validateEnvSource(variable).ViaIndex(i))
	}
	return errs
}

func validateEnvName(name string) *apis.FieldError {
	if name == "" {
		return apis.ErrMissingField("name")
	}
	if problems := validation.IsEnvVarName(name); len(problems) > 0 {
		return apis.ErrInvalidValue(name, "name", problems...)
	}
	if name == "PORT" || strings.HasPrefix(name, "K_") {
		return apis.ErrInvalidValue(name, "name", "Knative sets this variable")
	}
	if slices.Contains(kilnEnv, name) {
		return apis.ErrInvalidValue(name, "name", "Kiln sets this variable")
	}
	return nil
}

// validateEnvSource takes the sources that Serving takes unless a feature flag
// is set.
func validateEnvSource(variable corev1.EnvVar) *apis.FieldError {
	source := variable.ValueFrom
	if source == nil {
		return nil
	}
	if variable.Value != "" {
		return apis.ErrMultipleOneOf("value", "valueFrom")
	}
	var errs *apis.FieldError
	if source.FieldRef != nil {
		errs = errs.Also(apis.ErrDisallowedFields("fieldRef"))
	}
	if source.ResourceFieldRef != nil {
		errs = errs.Also(apis.ErrDisallowedFields("resourceFieldRef"))
	}
	if source.FileKeyRef != nil {
		errs = errs.Also(apis.ErrDisallowedFields("fileKeyRef"))
	}
	switch secret, configMap := source.SecretKeyRef, source.ConfigMapKeyRef; {
	case secret != nil && configMap != nil:
		errs = errs.Also(apis.ErrMultipleOneOf("secretKeyRef", "configMapKeyRef"))
	case secret != nil:
		errs = errs.Also(validateKeyRef(secret.Name, secret.Key).ViaField("secretKeyRef"))
	case configMap != nil:
		errs = errs.Also(validateKeyRef(configMap.Name, configMap.Key).ViaField("configMapKeyRef"))
	case errs == nil:
		errs = apis.ErrMissingOneOf("secretKeyRef", "configMapKeyRef")
	}
	return errs.ViaField("valueFrom")
}

func validateKeyRef(name, key string) (errs *apis.FieldError) {
	if name == "" {
		errs = errs.Also(apis.ErrMissingField("name"))
	} else if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		errs = errs.Also(apis.ErrInvalidValue(name, "name", problems...))
	}
	if key == "" {
		errs = errs.Also(apis.ErrMissingField("key"))
	} else if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
		errs = errs.Also(apis.ErrInvalidValue(key, "key", problems...))
	}
	return errs
}

func validateResources(resources corev1.ResourceRequirements) (errs *apis.FieldError) {
	if len(resources.Claims) > 0 {
		errs = errs.Also(apis.ErrDisallowedFields("claims"))
	}
	errs = errs.Also(validateResourceList(resources.Requests).ViaField("requests")).
		Also(validateResourceList(resources.Limits).ViaField("limits"))
	for _, name := range slices.Sorted(maps.Keys(resources.Requests)) {
		request := resources.Requests[name]
		limit, ok := resources.Limits[name]
		key := string(name)
		switch {
		case ok && request.Cmp(limit) > 0:
			errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("the request of %s is more than the limit, which is %s",
				request.String(), limit.String()), apis.CurrentField).ViaFieldKey("requests", key))
		case isExtended(name) && (!ok || request.Cmp(limit) != 0):
			errs = errs.Also(apis.ErrGeneric("the request must equal the limit, since this resource cannot be shared", apis.CurrentField).
				ViaFieldKey("requests", key))
		}
	}
	return errs
}

func validateResourceList(list corev1.ResourceList) (errs *apis.FieldError) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		key, quantity := string(name), list[name]
		if !isStandard(name) && !isExtended(name) {
			errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField,
				"use cpu, memory, ephemeral-storage, or a resource with a domain such as nvidia.com/gpu"))
		}
		if quantity.Sign() < 0 {
			errs = errs.Also(apis.ErrInvalidValue(quantity.String(), apis.CurrentField, "it must not be negative").ViaKey(key))
		}
		if isExtended(name) && quantity.MilliValue()%1000 != 0 {
			errs = errs.Also(apis.ErrInvalidValue(quantity.String(), apis.CurrentField, "it must be a whole number").ViaKey(key))
		}
	}
	return errs
}

func isStandard(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// isExtended tells the resources of devices, such as GPUs.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && len(validation.IsQualifiedName(string(name))) == 0
}

func validateLabels(labels map[string]string) (errs *apis.FieldError) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField, problems...))
		} else if owner := labelOwner(key); owner != "" {
			errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField, owner+" sets labels of this prefix"))
		}
		if problems := validation.IsValidLabelValue(labels[key]); len(problems) > 0 {
			errs = errs.Also(apis.ErrInvalidValue(labels[key], apis.CurrentField, problems...).ViaKey(key))
		}
	}
	return errs
}

// labelOwner says who alone may set labels of the key's prefix, or nothing.
func labelOwner(key string) string {
	prefix, _, ok := strings.Cut(key, "/")
	switch {
	case !ok:
		return ""
	case prefix == serverless.GroupName || strings.HasSuffix(prefix, "."+serverless.GroupName):
		return "Kiln"
	case prefix == "knative.dev" || strings.HasSuffix(prefix, ".knative.dev"):
		return "Knative"
	}
	return ""
}
