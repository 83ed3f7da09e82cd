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
	"errors"
	"testing"
	"time"

	"knative.dev/pkg/controller"
)

func TestEither(t *testing.T) {
	transient, later := errors.New("no answer"), errors.New("no room")
	permanent := controller.NewPermanentError(errors.New("never"))
	skipped := controller.NewSkipKey("leaving")
	due := controller.NewRequeueAfter(time.Minute)
	tests := map[string]struct {
		first, second error
		want          []error
		// permanent and skipped errors are not retried; others are, when they are due.
		permanent, skipped, due bool
	}{
		"neither":                         {},
		"the first":                       {first: transient, want: []error{transient}},
		"the second":                      {second: transient, want: []error{transient}},
		"both":                            {first: transient, second: later, want: []error{transient, later}},
		"the first is permanent":          {first: permanent, second: transient, want: []error{transient}},
		"the second is permanent":         {first: transient, second: permanent, want: []error{transient}},
		"only the first, and permanent":   {first: permanent, want: []error{permanent}, permanent: true},
		"both are permanent":              {first: permanent, second: permanent, want: []error{permanent}, permanent: true},
		"the namespace is being deleted":  {first: skipped, second: transient, want: []error{skipped}, skipped: true},
		"the first is due later":          {first: due, want: []error{due}, due: true},
		"the second cannot wait":          {first: due, second: transient, want: []error{transient}},
		"the second is useless":           {first: due, second: permanent, want: []error{due}, due: true},
		"the namespace is deleted by now": {first: permanent, second: skipped, want: []error{skipped}, skipped: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := either(tc.first, tc.second)
			isDue, _ := controller.IsRequeueKey(got)
			if (got == nil) != (len(tc.want) == 0) || isDue != tc.due || controller.IsPermanentError(got) != tc.permanent || controller.IsSkipKey(got) != tc.skipped {
				t.Errorf("either() = %#v", got)
			}
			for _, err := range tc.want {
				if !errors.Is(got, err) {
					t.Errorf("either() = %#v, which lacks %#v", got, err)
				}
			}
		})
	}
}
