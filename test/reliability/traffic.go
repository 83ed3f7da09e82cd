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
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

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

// serveBare creates the unmanaged Service with the image of the called Function, which is
// Ready.
func serveBare(ctx context.Context, clients *test.Clients, namespace string) error {
	services := clients.Serving.ServingV1().Services(namespace)
	of, err := services.Get(ctx, calledName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to get Service: %w", err)
	}
	svc := &servingv1.Service{ObjectMeta: metav1.ObjectMeta{Name: bareName, Labels: map[string]string{netapi.VisibilityLabelKey: serving.VisibilityClusterLocal}}}
	svc.Spec = *of.Spec.DeepCopy()
	svc.Spec.Template.Labels = nil
	if _, err := services.Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Service: %w", err)
	}
	return test.Until(ctx, services, test.Named(bareName), func(found []*servingv1.Service) error {
		if len(found) == 0 || !found[0].IsReady() {
			return errors.New("the Service is not ready")
		}
		return nil
	})
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
