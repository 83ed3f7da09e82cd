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

package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// calledName is the Function that is called all the time and never edited. bareName is a
// Service with the same image that Kiln does not manage.
const calledName, bareName = "called", "bare"

// traffic counts the requests of one step of a run.
type traffic struct {
	// Calls are the requests to the called Function, and Failed those without a good
	// answer. BareCalls and BareFailed are those of the unmanaged Service.
	Calls      int `json:"calls"`
	Failed     int `json:"failed"`
	BareCalls  int `json:"bare_calls"`
	BareFailed int `json:"bare_failed"`
	// Failure is the first failed request to the Function.
	Failure string `json:"failure,omitempty"`
}

// verdict returns an error if requests to the Function failed more than twice as often as
// those to the Service.
func (t traffic) verdict() error {
	if t.Failed <= 2*t.BareFailed {
		return nil
	}
	return fmt.Errorf("%d of %d requests to a Function failed, and %d of %d to a Service beside it: %s", t.Failed, t.Calls, t.BareFailed, t.BareCalls, t.Failure)
}

// String describes the failures.
func (t traffic) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d of %d requests failed, %d of %d to the Service beside it %s", t.Failed, t.Calls, t.BareFailed, t.BareCalls, t.Failure))
}

// newCalled returns the Function that is called all the time.
func newCalled(namespace string) *v1alpha1.Function {
	called := newFunction(namespace, calledName, 0)
	called.Spec.MinReplicas = new(int32(1))
	return called
}

// probers call the Function and the Service, by name.
type probers map[string]*test.Prober

// probe starts to call the Function and the Service.
func probe(ctx context.Context, relay *test.Relay, namespace string) (probers, error) {
	started := probers{}
	for _, name := range []string{calledName, bareName} {
		found, err := relay.Probe(ctx, api.Request{Method: http.MethodGet, URL: "http://" + name + "." + namespace + ".svc.cluster.local"})
		if err != nil {
			return nil, err
		}
		started[name] = found
	}
	return started, nil
}

// read stops the probers and returns their results.
func (p probers) read(ctx context.Context) (t traffic, err error) {
	err = patiently(ctx, func() error {
		for name, prober := range p {
			found, err := prober.Stop(ctx)
			if err != nil {
				return err
			}
			delete(p, name)
			if name == bareName {
				t.BareCalls, t.BareFailed = found.Requests, found.Failed
				continue
			}
			t.Calls, t.Failed = found.Requests, found.Failed
			if found.Failed > 0 {
				first := found.Failures[0]
				t.Failure = strings.TrimSpace(fmt.Sprintf("%d %s %s", first.Answer.Status, first.Answer.Error, first.Answer.Body))
			}
		}
		return nil
	})
	return t, err
}
