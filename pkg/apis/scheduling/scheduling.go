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

// Package scheduling validates node selectors and tolerations as Kubernetes does.
package scheduling

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"knative.dev/pkg/apis"
)

// ValidateNodeSelector validates a node selector of pods.
func ValidateNodeSelector(selector map[string]string) (errs *apis.FieldError) {
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		errs = errs.Also(ValidateLabel(key, selector[key]))
	}
	return errs
}

// ValidateLabel validates a label.
func ValidateLabel(key, value string) (errs *apis.FieldError) {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField, problems...))
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		errs = errs.Also(apis.ErrInvalidValue(value, apis.CurrentField, problems...).ViaKey(key))
	}
	return errs
}

// ValidateTolerations validates the tolerations of pods.
func ValidateTolerations(tolerations []corev1.Toleration) (errs *apis.FieldError) {
	for i, toleration := range tolerations {
		errs = errs.Also(validateToleration(toleration).ViaIndex(i))
	}
	return errs
}

func validateToleration(t corev1.Toleration) (errs *apis.FieldError) {
	if t.Key != "" {
		if problems := validation.IsQualifiedName(t.Key); len(problems) > 0 {
			errs = errs.Also(apis.ErrInvalidValue(t.Key, "key", problems...))
		}
	} else if t.Operator != corev1.TolerationOpExists {
		errs = errs.Also(apis.ErrInvalidValue(t.Operator, "operator", "it must be Exists where there is no key"))
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if problems := validation.IsValidLabelValue(t.Value); len(problems) > 0 {
			errs = errs.Also(apis.ErrInvalidValue(t.Value, "value", problems...))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = errs.Also(apis.ErrInvalidValue(t.Value, "value", "it must be empty where the operator is Exists"))
		}
	default:
		errs = errs.Also(apis.ErrInvalidValue(t.Operator, "operator", "use Equal or Exists"))
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		errs = errs.Also(apis.ErrInvalidValue(t.Effect, "effect", "use NoSchedule, PreferNoSchedule or NoExecute"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = errs.Also(apis.ErrInvalidValue(t.Effect, "effect", "it must be NoExecute where there are tolerationSeconds"))
	}
	return errs
}
