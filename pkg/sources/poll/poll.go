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

// Package poll polls the branches of Git repositories in the background. A new process
// starts without results and polls again.
package poll

import (
	"context"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/background"
	"github.com/kiln-dev/kiln/pkg/sources"
)

const (
	workers = 4

	timeout = 30 * time.Second
)

// Branch is the branch of a repository that is polled for a Function.
type Branch struct {
	// URL and Revision are those of the repository. The revision may be a tag.
	URL, Revision string

	// Secret is the name of the Secret with credentials for the server, in the
	// Function's namespace. It may be empty.
	Namespace, Secret string

	// Allowed has the internal addresses that the server may have.
	Allowed sources.Addresses

	// Built is the commit that was built last. A new build makes older results void.
	Built string

	// Interval is the time between two polls. It must be positive.
	Interval time.Duration
}

// Found is the result of a poll.
type Found struct {
	// Commit is the head of the branch. It is empty if the poll failed.
	Commit string

	// Failure is why the poll failed. It is empty if the poll succeeded.
	Failure string
}

// Resolve returns the commit at the head of a branch.
type Resolve func(context.Context, Branch) (string, error)

// New returns a Worker that polls one branch for each Function. Edits of a Function add
// no polls. The Worker calls wake for a Function that awaits a result when it changes.
func New(resolve Resolve, wake func(types.NamespacedName)) *background.Worker[Branch, Found] {
	return background.New(background.Options[Branch, Found]{
		Name:    "followed-branches",
		Workers: workers,
		Do: func(ctx context.Context, branch Branch) (Found, error) {
			commit, err := resolve(ctx, branch)
			return Found{Commit: commit}, err
		},
		Timeout:  timeout,
		Interval: func(branch Branch) time.Duration { return branch.Interval },
		Failed:   func(err error) Found { return Found{Failure: steady(err.Error())} },
		Wake:     wake,
	})
}

// passing matches the parts of errors that differ each time: local ports and times.
var passing = regexp.MustCompile(`(read|write) (tcp|udp) \S+->\S+: |: current time \S+ is (before|after) \S+`)

// steady removes the parts of an error that differ each time.
func steady(text string) string {
	return passing.ReplaceAllString(text, "")
}
