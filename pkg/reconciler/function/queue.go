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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/images"
)

// isTurn reports whether a slot is free for the build. If not, the status reports its
// place in the queue.
func (r *Reconciler) isTurn(fn *v1alpha1.Function, want plan, decision builds.Decision) bool {
	place := r.queue.Ask(children.KeyOf(fn), ticketOf(fn, decision))
	if !place.Granted {
		markQueued(fn, specOf(fn, want, decision, images.Found{}), place)
	}
	return place.Granted
}

// ticketOf returns the Function's ticket for the queue. A build that no edit of the
// Function caused yields to others: a new base image, for example, can cause very many.
func ticketOf(fn *v1alpha1.Function, decision builds.Decision) queue.Ticket {
	ticket := queue.Ticket{UID: fn.UID, Yields: isTagged(fn) && builds.IsAutomatic(decision.Reason)}
	if b := fn.Status.Build; b != nil && b.QueuedTime != nil {
		ticket.Since = b.QueuedTime.Time
	}
	return ticket
}

func markQueued(fn *v1alpha1.Function, spec builds.Spec, place queue.Place) {
	remember(fn, spec)
	fn.Status.Build.QueuedTime = new(metav1.NewMicroTime(place.Since.Truncate(time.Microsecond)))
	where := "number %d"
	if !place.IsExact() {
		where = "among the first %d"
	}
	why := "All build slots are in use."
	if place.Stuck {
		why = "The pods of other builds of this namespace do not start, and hold its build slots. Correct or delete their Functions."
	}
	fn.Status.MarkBuildUnknown(v1alpha1.ReasonBuildQueued, why+" This build is "+where+" in the queue.", place.Number)
}

func isQueued(fn *v1alpha1.Function) bool {
	return fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).GetReason() == v1alpha1.ReasonBuildQueued
}

func limitsOf(cfg *config.Build) queue.Limits {
	return queue.Limits{Cluster: cfg.MaxConcurrent, Namespace: cfg.MaxConcurrentPerNamespace}
}

func setLimits(q *queue.Queue) func(string, any) {
	return func(_ string, value any) {
		if cfg, ok := value.(*config.Build); ok {
			q.SetLimits(limitsOf(cfg))
		}
	}
}
