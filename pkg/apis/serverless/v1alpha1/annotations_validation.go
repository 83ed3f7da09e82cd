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
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
)

const (
	autoscalingGroup = "autoscaling.knative.dev"
	sidecarGroup     = "queue.sidecar.serving.knative.dev"
	featuresGroup    = "features.knative.dev"
	networkingGroup  = "networking.knative.dev"

	progressDeadline = "serving.knative.dev/progress-deadline"

	kpaClass = "kpa." + autoscalingGroup
	hpaClass = "hpa." + autoscalingGroup

	// maxAnnotationBytes leaves room for the annotations that Serving adds;
	// Kubernetes takes 256 KiB.
	maxAnnotationBytes = 128 << 10
)

var otherFields = map[string]string{
	autoscalingGroup + "/min-scale": "minReplicas",
	autoscalingGroup + "/minScale":  "minReplicas",
	autoscalingGroup + "/max-scale": "maxReplicas",
	autoscalingGroup + "/maxScale":  "maxReplicas",
}

var annotationChecks = map[string]func(string) error{
	autoscalingGroup + "/class":                              checkClass,
	autoscalingGroup + "/initial-scale":                      checkWhole(0, config.MaxReplicasLimit),
	autoscalingGroup + "/initialScale":                       checkWhole(0, config.MaxReplicasLimit),
	autoscalingGroup + "/panic-threshold-percentage":         checkNumber(110, 1000),
	autoscalingGroup + "/panicThresholdPercentage":           checkNumber(110, 1000),
	autoscalingGroup + "/panic-window-percentage":            checkNumber(1, 100),
	autoscalingGroup + "/panicWindowPercentage":              checkNumber(1, 100),
	autoscalingGroup + "/scale-down-delay":                   checkSeconds(0, time.Hour),
	autoscalingGroup + "/scaleDownDelay":                     checkSeconds(0, time.Hour),
	autoscalingGroup + "/scale-to-zero-pod-retention-period": checkDuration(0, time.Hour),
	autoscalingGroup + "/scaleToZeroPodRetentionPeriod":      checkDuration(0, time.Hour),
	autoscalingGroup + "/target":                             checkNumber(0.01, math.MaxInt32),
	autoscalingGroup + "/target-burst-capacity":              checkBurst,
	autoscalingGroup + "/targetBurstCapacity":                checkBurst,
	autoscalingGroup + "/target-utilization-percentage":      checkNumber(1, 100),
	autoscalingGroup + "/targetUtilizationPercentage":        checkNumber(1, 100),
	autoscalingGroup + "/window":                             checkSeconds(6*time.Second, time.Hour),

	// Kubernetes rejects a deadline of 0.
	progressDeadline: checkSeconds(time.Second, config.MaxTimeout),

	sidecarGroup + "/cpu-resource-request":               checkQuantity,
	sidecarGroup + "/cpu-resource-limit":                 checkQuantity,
	sidecarGroup + "/memory-resource-request":            checkQuantity,
	sidecarGroup + "/memory-resource-limit":              checkQuantity,
	sidecarGroup + "/ephemeral-storage-resource-request": checkQuantity,
	sidecarGroup + "/ephemeral-storage-resource-limit":   checkQuantity,
}

// validateAnnotations rejects annotations that are reserved or not allowed, and values that
// Serving or Kubernetes would reject.
func (fs *FunctionSpec) validateAnnotations(allowed config.KeyPatterns) (errs *apis.FieldError) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(fs.Annotations)) {
		value := fs.Annotations[key]
		size += len(key) + len(value)
		if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
			errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField, problems...))
			continue
		}
		if reason := whyReserved(key); reason != "" {
			errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField, reason))
			continue
		}
		if !AllowsOnPods(allowed, key) {
			errs = errs.Also(apis.ErrInvalidKeyName(key, apis.CurrentField, notAllowed("annotations", config.AllowedAnnotationsKey)))
			continue
		}
		if check, ok := annotationChecks[key]; ok {
			if err := check(value); err != nil {
				errs = errs.Also(apis.ErrInvalidValue(value, apis.CurrentField, err.Error()).ViaKey(key))
			}
		}
	}
	if size > maxAnnotationBytes {
		errs = errs.Also(apis.ErrGeneric(fmt.Sprintf("they are %d bytes, more than the limit of %d", size, maxAnnotationBytes), apis.CurrentField))
	}
	return errs.Also(fs.validateMetric()).Also(fs.validateActivationScale())
}

func whyReserved(key string) string {
	if field, ok := otherFields[key]; ok {
		return "use the field " + field
	}
	prefix, name, _ := strings.Cut(key, "/")
	switch {
	case prefix == autoscalingGroup, prefix == featuresGroup:
		return ""
	case key == progressDeadline, prefix == sidecarGroup && annotationChecks[key] != nil:
		return ""
	case strings.HasSuffix(prefix, ".alpha.kubernetes.io"), strings.HasSuffix(prefix, ".beta.kubernetes.io"),
		prefix == "kubernetes.io" && strings.HasPrefix(name, "config."):
		return "Kubernetes reads more than an annotation out of it"
	case strings.HasPrefix(key, networkingGroup):
		// Serving looks at how the key begins, and not where its prefix ends.
		return "Knative sets annotations that begin with " + networkingGroup
	}
	if owner := prefixOwner(key); owner != "" {
		return owner + " sets annotations of this prefix"
	}
	return ""
}

// validateMetric checks values that depend on the class of the autoscaler. The default
// class is KPA.
func (fs *FunctionSpec) validateMetric() (errs *apis.FieldError) {
	class, ok := fs.Annotations[autoscalingGroup+"/class"]
	isKPA := !ok || class == kpaClass
	const metricKey = autoscalingGroup + "/metric"
	if metric, ok := fs.Annotations[metricKey]; ok {
		if isKPA && metric != "concurrency" && metric != "rps" {
			errs = errs.Also(apis.ErrInvalidValue(metric, apis.CurrentField,
				"use concurrency or rps, or set "+autoscalingGroup+"/class: "+hpaClass).ViaKey(metricKey))
		} else if metric == "" {
			errs = errs.Also(apis.ErrInvalidValue(metric, apis.CurrentField, "it must not be empty").ViaKey(metricKey))
		}
	}
	for _, key := range []string{autoscalingGroup + "/metric-aggregation-algorithm", autoscalingGroup + "/metricAggregationAlgorithm"} {
		switch algorithm := fs.Annotations[key]; algorithm {
		case "", "linear", "weighted-exponential", "weightedExponential":
		default:
			if isKPA {
				errs = errs.Also(apis.ErrInvalidValue(algorithm, apis.CurrentField, "use linear or weighted-exponential").ViaKey(key))
			}
		}
	}
	return errs
}

func (fs *FunctionSpec) validateActivationScale() *apis.FieldError {
	const key = autoscalingGroup + "/activation-scale"
	value, ok := fs.Annotations[key]
	if !ok {
		return nil
	}
	least, most := int64(2), int64(config.MaxReplicasLimit)
	if fs.MinReplicas != nil {
		least = max(least, int64(*fs.MinReplicas))
	}
	if fs.MaxReplicas != nil && *fs.MaxReplicas > 0 {
		most = int64(*fs.MaxReplicas)
	}
	if err := checkWhole(least, most)(value); err != nil {
		return apis.ErrInvalidValue(value, apis.CurrentField, err.Error()).ViaKey(key)
	}
	return nil
}

func checkClass(value string) error {
	if value == "" || strings.HasSuffix(value, ".knative.dev") && value != kpaClass && value != hpaClass {
		return fmt.Errorf("use %s, %s, or a class of your own", kpaClass, hpaClass)
	}
	return nil
}

func checkWhole(least, most int64) func(string) error {
	return func(value string) error {
		if n, err := strconv.ParseInt(value, 10, 32); err != nil || n < least || n > most {
			return fmt.Errorf("it must be a whole number from %d to %d", least, most)
		}
		return nil
	}
}

func checkNumber(least, most float64) func(string) error {
	return func(value string) error {
		// Comparisons with NaN are false.
		if x, err := strconv.ParseFloat(value, 64); err != nil || !(x >= least && x <= most) {
			return fmt.Errorf("it must be a number from %g to %g", least, most)
		}
		return nil
	}
}

func checkBurst(value string) error {
	if value != "-1" && checkNumber(0, math.MaxInt32)(value) != nil {
		return fmt.Errorf("it must be -1, or a number from 0 to %d", math.MaxInt32)
	}
	return nil
}

func checkDuration(least, most time.Duration) func(string) error {
	return func(value string) error {
		if d, err := time.ParseDuration(value); err != nil || d < least || d > most {
			return fmt.Errorf("it must be a duration from %s to %s", least, most)
		}
		return nil
	}
}

func checkSeconds(least, most time.Duration) func(string) error {
	return func(value string) error {
		if err := checkDuration(least, most)(value); err != nil {
			return err
		}
		if d, _ := time.ParseDuration(value); d%time.Second != 0 {
			return errors.New("it must be a whole number of seconds")
		}
		return nil
	}
}

func checkQuantity(value string) error {
	if q, err := resource.ParseQuantity(value); err != nil || q.Sign() < 0 {
		return errors.New("it must be a quantity such as 100m or 64Mi")
	}
	return nil
}
