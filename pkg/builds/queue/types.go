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

package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Limits bound how many builds run at once. 0 is no limit.
type Limits struct {
	// Cluster bounds all builds that run. See Queue for the builds beyond it.
	Cluster int32

	// Namespace bounds the builds of each namespace, also those that are stalled. One more
	// may start if all are stalled.
	Namespace int32
}

func (l Limits) hasRoom(total int32) bool { return l.Cluster == 0 || total < l.Cluster }

func (l Limits) perNamespace() int32 {
	if l.Namespace == 0 || l.Cluster != 0 && l.Cluster < l.Namespace {
		return l.Cluster
	}
	return l.Namespace
}

// Ticket determines the place of a Function.
type Ticket struct {
	// Since is when the build was first requested. Zero is now.
	Since time.Time

	// Yields reports whether all other builds go first, in all namespaces, for an hour.
	Yields bool

	// UID is the UID of the Function.
	UID types.UID
}

// Build is a build that runs.
type Build struct {
	// Name is the name of the build.
	Name types.NamespacedName

	// Function is the name of its Function.
	Function types.NamespacedName

	// UID is the UID of its Function. A build may outlive a deleted Function, and meet
	// another Function of the same name.
	UID types.UID

	// Pending is when the build was created, while none of its containers has run. It is
	// zero once one runs.
	Pending time.Time
}

// Place is the place of a Function in the queue.
type Place struct {
	// Granted reports whether the Function may start a build.
	Granted bool

	// Number counts from 1. From 5 on it is rounded up to a power of two. It does not
	// grow when others come who go first.
	Number int

	// Since is when the build was first requested.
	Since time.Time

	// Stuck reports whether the Function is the first of its namespace and waits only for
	// stalled builds of the namespace.
	Stuck bool
}

const exact = 4

func round(number int) int {
	if number <= exact {
		return number
	}
	rounded := 2 * exact
	for rounded < number {
		rounded *= 2
	}
	return rounded
}

// IsExact reports whether Number is not rounded.
func (p Place) IsExact() bool { return p.Number <= exact }
