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
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/scheduling"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// Environment variables that authors cannot set.
var (
	knativeEnv = []string{"PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION"}
	kilnEnv    = []string{runtimes.EnvFunctionName, runtimes.EnvFunctionNamespace, runtimes.EnvFunctionRuntime,
		runtimes.EnvFunctionTimeout, runtimes.EnvFunctionMemoryLimit}
)

func validateEnv(env []corev1.EnvVar) (errs *apis.FieldError) {
	seen := make(map[string]struct{}, len(env))
	for i, variable := range env {
		if _, ok := seen[variable.Name]; ok {
			errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("duplicate name %q", variable.Name), "name").ViaIndex(i))
		}
		seen[variable.Name] = struct{}{}
		errs = errs.Also(validateEnvName(variable.Name).ViaIndex(i)).
			Also(validateEnvSource(variable).ViaIndex(i))
		if strings.ContainsRune(variable.Value, 0) {
			errs = errs.Also(apis.ErrInvalidValue(variable.Value, "value", "it contains a NUL character").ViaIndex(i))
		}
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
	if slices.Contains(knativeEnv, name) {
		return apis.ErrInvalidValue(name, "name", "Knative sets this variable")
	}
	if slices.Contains(kilnEnv, name) {
		return apis.ErrInvalidValue(name, "name", "Kiln sets this variable")
	}
	return nil
}

// validateEnvSource accepts the sources that Serving accepts without a feature flag.
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
	errs = requireObjectName(name, "name")
	if key == "" {
		errs = errs.Also(apis.ErrMissingField("key"))
	} else if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
		errs = errs.Also(apis.ErrInvalidValue(key, "key", problems...))
	}
	return errs
}

func requireObjectName(name, field string) *apis.FieldError {
	if name == "" {
		return apis.ErrMissingField(field)
	}
	return validateObjectName(name, field)
}

// validateObjectName is requireObjectName for an optional name.
func validateObjectName(name, field string) *apis.FieldError {
	if name == "" {
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return apis.ErrInvalidValue(name, field, problems...)
	}
	return nil
}

func validateEnvFrom(sources []corev1.EnvFromSource) (errs *apis.FieldError) {
	for i, source := range sources {
		if source.Prefix != "" {
			if problems := validation.IsEnvVarName(source.Prefix); len(problems) > 0 {
				errs = errs.Also(apis.ErrInvalidValue(source.Prefix, "prefix", problems...).ViaIndex(i))
			}
		}
		switch configMap, secret := source.ConfigMapRef, source.SecretRef; {
		case configMap != nil && secret != nil:
			errs = errs.Also(apis.ErrMultipleOneOf("configMapRef", "secretRef").ViaIndex(i))
		case configMap != nil:
			errs = errs.Also(requireObjectName(configMap.Name, "configMapRef.name").ViaIndex(i))
		case secret != nil:
			errs = errs.Also(requireObjectName(secret.Name, "secretRef.name").ViaIndex(i))
		default:
			errs = errs.Also(apis.ErrMissingOneOf("configMapRef", "secretRef").ViaIndex(i))
		}
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

func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && len(validation.IsQualifiedName(string(name))) == 0
}

func validateLabels(labels map[string]string, allowed config.KeyPatterns) (errs *apis.FieldError) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if owner := prefixOwner(key); owner != "" {
			errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField, owner+" sets labels of this prefix"))
		} else if !allowed.Allow(key) {
			errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField, notAllowed("labels", config.AllowedLabelsKey)))
		}
		errs = errs.Also(scheduling.ValidateLabel(key, labels[key]))
	}
	return errs
}

func prefixOwner(key string) string {
	prefix, _, ok := strings.Cut(key, "/")
	switch {
	case !ok:
		return ""
	case isDomain(prefix, serverless.GroupName):
		return "Kiln"
	case isDomain(prefix, "knative.dev"):
		return "Knative"
	}
	return ""
}

func isDomain(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}
