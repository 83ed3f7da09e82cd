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

package test

import (
	"context"
	"fmt"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// WaitForFunction waits until check returns nil for the Function, and returns the Function.
func WaitForFunction(ctx context.Context, c *Clients, namespace, name string, check func(*v1alpha1.Function) error) (*v1alpha1.Function, error) {
	var fn *v1alpha1.Function
	functions := c.Kiln.ServerlessV1alpha1().Functions(namespace)
	err := Until(ctx, functions, Named(name), func(found []*v1alpha1.Function) error {
		if len(found) == 0 {
			return GiveUp(fmt.Errorf("there is no Function %s", name))
		}
		fn = found[0]
		return check(fn)
	})
	if err != nil {
		return fn, fmt.Errorf("failed to wait for Function %s: %w", name, err)
	}
	return fn, nil
}

// Ready returns nil for a Function whose current generation is ready. It gives up on a
// Function that has failed.
func Ready(fn *v1alpha1.Function) error {
	switch {
	case fn.IsReady():
		return nil
	case fn.IsFailed():
		return GiveUp(notReady(fn))
	default:
		return notReady(fn)
	}
}

// Healed returns nil for a Function whose current generation is ready. Unlike Ready, it
// also waits for a Function that has failed.
func Healed(fn *v1alpha1.Function) error {
	if fn.IsReady() {
		return nil
	}
	return notReady(fn)
}

func notReady(fn *v1alpha1.Function) error {
	condition := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
	return fmt.Errorf("generation %d (observed %d) is %s: Ready is %s, %s: %s", fn.Generation, fn.Status.ObservedGeneration,
		fn.Status.Phase, status(condition), condition.GetReason(), condition.GetMessage())
}

// HasCondition returns nil for a Function whose current generation has a condition with
// that status and reason.
func HasCondition(want apis.Condition) func(*v1alpha1.Function) error {
	return func(fn *v1alpha1.Function) error {
		got := fn.Status.GetCondition(want.Type)
		if fn.Generation == fn.Status.ObservedGeneration && got != nil && got.Status == want.Status && got.Reason == want.Reason {
			return nil
		}
		return fmt.Errorf("generation %d (observed %d): %s is %s, %s: %s; want %s, %s", fn.Generation, fn.Status.ObservedGeneration,
			want.Type, status(got), got.GetReason(), got.GetMessage(), want.Status, want.Reason)
	}
}

func status(c *apis.Condition) string {
	if c == nil {
		return "absent"
	}
	return string(c.Status)
}
