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

package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"knative.dev/pkg/apis"
	cm "knative.dev/pkg/configmap/parser"
	"sigs.k8s.io/yaml"
)

func parse(configMap string, data map[string]string, parsers ...cm.ParseFunc) error {
	if err := cm.Parse(data, parsers...); err != nil {
		return inConfigMap(configMap, err)
	}
	return nil
}

func inConfigMap(configMap string, err error) error {
	return fmt.Errorf("ConfigMap %s: %w", configMap, err)
}

func asInt32(key string, target *int32, most int32) cm.ParseFunc {
	return cm.AsFunc(key, target, func(s string) (int32, error) {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number between 0 and %d", s, most)
		}
		if n < 0 || n > int64(most) {
			return 0, fmt.Errorf("%q is not between 0 and %d", s, most)
		}
		return int32(n), nil
	})
}

// asLimit parses a whole number up to most. 0 or a blank value means no limit.
func asLimit(key string, target *int32, most int32) cm.ParseFunc {
	return func(data map[string]string) error {
		if raw, ok := data[key]; ok && strings.TrimSpace(raw) == "" {
			*target = 0
			return nil
		}
		return asInt32(key, target, most)(data)
	}
}

func asCount(key string, target *int64, most int64) cm.ParseFunc {
	return cm.AsFunc(key, target, func(s string) (int64, error) {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("%q is not a whole number between 1 and %d", s, most)
		}
		return n, nil
	})
}

func asYAML[T any](key string, target *T, validate func(T) *apis.FieldError) cm.ParseFunc {
	return cm.AsFunc(key, target, func(s string) (value T, err error) {
		if err := yaml.UnmarshalStrict([]byte(s), &value); err != nil {
			return value, err
		}
		if err := validate(value); err != nil {
			return value, err
		}
		return value, nil
	})
}

func asBytes(key string, target *int64, least, most int64) cm.ParseFunc {
	return cm.AsFunc(key, target, func(s string) (int64, error) {
		q, err := parseQuantity(s)
		if err != nil {
			return 0, err
		}
		if q.Value() < least || q.Value() > most {
			return 0, fmt.Errorf("%q is not between %s and %s", s,
				resource.NewQuantity(least, resource.BinarySI), resource.NewQuantity(most, resource.BinarySI))
		}
		return q.Value(), nil
	})
}

func asDuration(key string, target *time.Duration, least, most time.Duration) cm.ParseFunc {
	return cm.AsFunc(key, target, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(strings.TrimSpace(s))
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as 15m or 1h30m", s)
		}
		if d < least || d > most {
			return 0, fmt.Errorf("%q is not between %s and %s", s, least, most)
		}
		return d, nil
	})
}

// asInterval parses a duration between least and most. 0 or a blank value means never.
func asInterval(key string, target *time.Duration, least, most time.Duration) cm.ParseFunc {
	return func(data map[string]string) error {
		if raw, ok := data[key]; ok && slices.Contains([]string{"", "0", "0s"}, strings.TrimSpace(raw)) {
			*target = 0
			return nil
		}
		return asDuration(key, target, least, most)(data)
	}
}

func asSeconds(key string, target *time.Duration, least, most time.Duration) cm.ParseFunc {
	return func(data map[string]string) error {
		if err := asDuration(key, target, least, most)(data); err != nil {
			return err
		}
		if *target%time.Second != 0 {
			return fmt.Errorf("failed to parse %q: %q is not a whole number of seconds", key, data[key])
		}
		return nil
	}
}

// asResource parses the quantity of one resource into the list. A blank value removes the
// resource's default.
func asResource(key string, list corev1.ResourceList, resourceName corev1.ResourceName) cm.ParseFunc {
	return func(data map[string]string) error {
		raw, ok := data[key]
		if !ok {
			return nil
		}
		if strings.TrimSpace(raw) == "" {
			delete(list, resourceName)
			return nil
		}
		q, err := parseQuantity(raw)
		if err != nil {
			return fmt.Errorf("failed to parse %q: %w", key, err)
		}
		if q.Sign() <= 0 {
			return fmt.Errorf("failed to parse %q: %q is not more than zero", key, raw)
		}
		list[resourceName] = q
		return nil
	}
}

// asResources parses <prefix>{cpu,memory,ephemeral-storage}-{request,limit} and checks
// that no request is above its limit.
func asResources(prefix string, target *corev1.ResourceRequirements) cm.ParseFunc {
	return func(data map[string]string) error {
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			request, limit := prefix+string(r)+"-request", prefix+string(r)+"-limit"
			if err := cm.Parse(data,
				asResource(request, target.Requests, r),
				asResource(limit, target.Limits, r),
			); err != nil {
				return err
			}
			have, isRequested := target.Requests[r]
			most, isLimited := target.Limits[r]
			if isRequested && isLimited && have.Cmp(most) > 0 {
				return fmt.Errorf("%q is %s, more than %q, which is %s", request, have.String(), limit, most.String())
			}
		}
		return nil
	}
}

func asSecretName(key string, target *string) cm.ParseFunc {
	return asObjectName(key, "Secret", target)
}

func asObjectName(key, kind string, target *string) cm.ParseFunc {
	return cm.AsFunc(key, target, func(s string) (string, error) {
		s = strings.TrimSpace(s)
		if s == "" {
			return "", nil
		}
		if problems := validation.IsDNS1123Subdomain(s); len(problems) > 0 {
			return "", fmt.Errorf("%q is not the name of a %s: %s", s, kind, strings.Join(problems, "; "))
		}
		return s, nil
	})
}

func asImage(key string, target *string) cm.ParseFunc {
	return cm.AsFunc(key, target, parseImage)
}

func parseImage(s string) (string, error) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return "", errors.New("an image reference is required")
	case strings.HasPrefix(s, "ko://"):
		return "", fmt.Errorf("%q is not resolved: install Kiln with ko, or from a release", s)
	}
	if _, err := name.ParseReference(s); err != nil {
		return "", fmt.Errorf("%q is not an image reference: %w", s, err)
	}
	return s, nil
}

func parseQuantity(s string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(strings.TrimSpace(s))
	if err != nil {
		return q, fmt.Errorf("%q is not a quantity such as 100m, 0.5 or 256Mi", s)
	}
	return q, nil
}
