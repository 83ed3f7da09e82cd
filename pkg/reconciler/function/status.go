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
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// writeStatus writes a changed status, and emits an event for each condition that has
// changed. The status remembers builds, so it must not overwrite a newer status: a
// conflict is an error.
func (r *Reconciler) writeStatus(ctx context.Context, original, fn *v1alpha1.Function) error {
	if equality.Semantic.DeepEqual(original.Status, fn.Status) {
		return nil
	}
	updated := original.DeepCopy()
	updated.Status = fn.Status
	updated, err := r.kiln.ServerlessV1alpha1().Functions(fn.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	switch {
	case apierrs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("failed to update status: %w", err)
	}
	r.replaced.note(original, updated)
	emitEvents(ctx, fn, &original.Status)
	return nil
}

func emitEvents(ctx context.Context, fn *v1alpha1.Function, before *v1alpha1.FunctionStatus) {
	recorder := controller.GetEventRecorder(ctx)
	for _, t := range []apis.ConditionType{
		v1alpha1.FunctionConditionConfigurationReady,
		v1alpha1.FunctionConditionSourceFollowed,
		v1alpha1.FunctionConditionContentFollowed,
		v1alpha1.FunctionConditionBuildReady,
		v1alpha1.FunctionConditionRunning,
	} {
		now := fn.Status.GetCondition(t)
		if !isNews(before.GetCondition(t), now) {
			continue
		}
		eventType := corev1.EventTypeNormal
		if now.IsFalse() || isTemporaryFailure(now.Reason) {
			eventType = corev1.EventTypeWarning
		}
		recorder.Event(fn, eventType, now.Reason, now.Message)
	}
}

// isTemporaryFailure reports whether the reason of an Unknown condition is a failure that
// Kiln retries.
func isTemporaryFailure(reason string) bool {
	switch reason {
	case v1alpha1.ReasonBuildRetrying, v1alpha1.ReasonTaskRunNotCreated, v1alpha1.ReasonJobNotCreated:
		return true
	}
	return false
}

// isNews reports whether the change of a condition is news for the user. A wait for
// another condition, or for the registry, is not.
func isNews(before, now *apis.Condition) bool {
	switch now.GetReason() {
	case "", v1alpha1.ReasonWaitingForConfiguration, v1alpha1.ReasonCheckingRegistry, v1alpha1.ReasonWaitingForBuild:
		return false
	}
	if before.GetReason() != now.GetReason() {
		return true
	}
	return !now.IsUnknown() && before.GetMessage() != now.GetMessage()
}
