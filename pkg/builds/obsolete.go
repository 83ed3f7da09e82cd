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

package builds

import (
	"cmp"
	"slices"
)

// Obsolete returns the builds to delete. It keeps the build to follow and the newest ended
// builds, together history builds. It also keeps builds for a newer generation, because
// then the request is out of date.
func Obsolete(want Request, existing []Build, decision Decision, history int) []Build {
	var obsolete, ended []Build
	for _, b := range existing {
		switch {
		case b.Generation > want.Generation || decision.Action == Follow && b.Name == decision.Build:
		case b.State.Ended() && !b.Unfinished && !b.Deleting && !b.answers(want):
			ended = append(ended, b)
		default:
			obsolete = append(obsolete, b)
		}
	}
	slices.SortFunc(ended, func(a, b Build) int {
		return cmp.Or(b.Ended.Compare(a.Ended), cmp.Compare(b.Name, a.Name))
	})
	return append(obsolete, ended[min(max(history-1, 0), len(ended)):]...)
}
