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
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"knative.dev/serving/pkg/apis/autoscaling"
	"knative.dev/serving/pkg/apis/serving"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

const (
	// rowColdStart is a request to a Function of which no pod runs, up to the answer;
	// the runtime's name follows.
	rowColdStart = "cold-start-"
	// bare is the suffix of the row of a one-line program in the base image of the same
	// runtime.
	bare = "-bare"

	// wakes is the number of starts of each in a round. Starts vary more than the two
	// programs differ.
	wakes = 4
)

// greeter says hello in the language of a runtime.
type greeter struct {
	runtime, source string

	// command is the bare server. It handles SIGTERM, which process 1 of a container
	// ignores by default.
	command []string
}

var greeters = []greeter{{
	runtime: "nodejs24",
	source:  "module.exports = { main: () => 'hello' };\n",
	command: []string{"node", "-e", `
process.on('SIGTERM', () => process.exit());
require('node:http').createServer((_, res) => res.end('hello')).listen(8080);
`},
}, {
	runtime: "python313",
	source:  "def main(event, context):\n    return 'hello'\n",
	command: []string{"python3", "-c", `
import os, signal
from http.server import BaseHTTPRequestHandler, HTTPServer
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
class Hello(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")
HTTPServer(("", 8080), Hello).serve_forever()
`},
}}

// playColdStarts repeatedly wakes a Function of each language, and the bare server, from
// zero pods.
func (s *stage) playColdStarts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wakes*patience)
	defer cancel()
	relay, err := test.StartRelay(ctx, s.clients, s.namespace, s.relayImage)
	if err != nil {
		return err
	}
	defer func() {
		if err := relay.Stop(ctx); err != nil {
			fmt.Println(err)
		}
	}()
	for _, g := range greeters {
		if err := s.deploy(ctx, g); err != nil {
			return err
		}
	}
	var names []string
	for _, g := range greeters {
		names = append(names, g.runtime, g.runtime+bare)
	}
	for range wakes {
		for _, name := range names {
			if err := s.wake(ctx, relay, name); err != nil {
				return fmt.Errorf("failed to wake %s: %w", name, err)
			}
		}
		// The order may matter, so it alternates.
		slices.Reverse(names)
	}
	return nil
}

// deploy creates a Function, and a Service like the Function's that runs the command
// instead. Their names come from the runtime.
func (s *stage) deploy(ctx context.Context, g greeter) error {
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: g.runtime},
		Spec: v1alpha1.FunctionSpec{
			Runtime: g.runtime, Source: g.source, MinReplicas: new(int32(0)),
			// The shortest there is.
			Annotations: map[string]string{autoscaling.WindowAnnotationKey: autoscaling.WindowMin.String()},
		},
	}
	if _, err := s.clients.Kiln.ServerlessV1alpha1().Functions(s.namespace).Create(ctx, fn, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Function: %w", err)
	}
	if _, err := test.WaitForFunction(ctx, s.clients, s.namespace, fn.Name, test.Ready); err != nil {
		return err
	}
	base, err := s.baseImage(ctx, g.runtime)
	if err != nil {
		return err
	}
	svc, err := s.serviceLike(ctx, fn.Name, fn.Name+bare)
	if err != nil {
		return err
	}
	container := &svc.Spec.Template.Spec.Containers[0]
	container.Image, container.Command = base, g.command
	container.SecurityContext.RunAsUser = new(int64(1000))
	return s.runService(ctx, svc)
}

// baseImage returns the base image of a runtime.
func (s *stage) baseImage(ctx context.Context, runtime string) (string, error) {
	configMap, err := s.clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace).Get(ctx, config.RuntimesConfigName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to get ConfigMap: %w", err)
	}
	runtimes, err := config.NewRuntimesFromConfigMap(configMap)
	if err != nil {
		return "", err
	}
	return runtimes[runtime].BaseImage, nil
}

// wake waits until a Service has no pod, and measures the time of a request.
func (s *stage) wake(ctx context.Context, relay *test.Relay, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := metav1.ListOptions{LabelSelector: serving.ServiceLabelKey + "=" + name}
	err := test.Until(ctx, s.clients.Kube.CoreV1().Pods(s.namespace), pods, func(pods []*corev1.Pod) error {
		if len(pods) > 0 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		return nil
	})
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s.%s.svc.cluster.local", name, s.namespace)
	answer, err := relay.CallFunction(ctx, api.Request{Method: http.MethodGet, URL: url})
	if err != nil {
		return err
	}
	if answer.Status != http.StatusOK || answer.Body != "hello" {
		return fmt.Errorf("it answered %+v", answer)
	}
	s.tell(rowColdStart+name, answer.Took, nil)
	return nil
}
