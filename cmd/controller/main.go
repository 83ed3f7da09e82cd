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

// The controller builds Functions and runs them.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"strconv"

	pipelinefiltered "github.com/tektoncd/pipeline/pkg/client/injection/informers/factory/filtered"

	"k8s.io/client-go/discovery"
	kubefiltered "knative.dev/pkg/client/injection/kube/informers/factory/filtered"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/injection/sharedmain"
	"knative.dev/pkg/signals"
	servingfiltered "knative.dev/serving/pkg/client/injection/informers/factory/filtered"

	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/platform"
	"github.com/kiln-dev/kiln/pkg/reconciler/credentials"
	"github.com/kiln-dev/kiln/pkg/reconciler/function"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

func main() {
	ctx, cancel := context.WithCancel(signals.NewContext())
	defer cancel()
	setThreads()
	disableHA := flag.Bool("disable-ha", false, "Work without leader election. Tests start a second controller so.")
	cfg := injection.ParseAndGetRESTConfigOrDie()
	if *disableHA {
		ctx = sharedmain.WithHADisabled(ctx)
	}

	cluster := discovery.NewDiscoveryClientForConfigOrDie(cfg)
	apis, err := platform.Await(ctx, cluster, tekton.API, knative.API)
	if err != nil {
		log.Fatalf("Failed to discover the APIs of the cluster: %v", err)
	}
	ctx = platform.With(ctx, apis)
	ctx = kubefiltered.WithSelectors(ctx, children.LabelSelector)
	// Without a selector there is no informer, which an absent API would keep from
	// synchronizing.
	ctx = pipelinefiltered.WithSelectors(ctx)
	if apis[tekton.API] {
		ctx = pipelinefiltered.WithSelectors(ctx, children.LabelSelector)
	}
	ctx = servingfiltered.WithSelectors(ctx)
	if apis[knative.API] {
		ctx = servingfiltered.WithSelectors(ctx, children.LabelSelector)
	}
	go apis.Watch(ctx, cluster, cancel)

	sharedmain.MainWithConfig(ctx, "controller", cfg, function.NewController, credentials.NewController)
}

// setThreads sets the number of workers of each controller. It and the flag are as in
// sharedmain.MainWithContext, which cannot be used: it parses the flags itself.
func setThreads() {
	value, ok := os.LookupEnv("K_THREADS_PER_CONTROLLER")
	if !ok {
		return
	}
	threads, err := strconv.Atoi(value)
	if err != nil {
		log.Fatalf("K_THREADS_PER_CONTROLLER is %q, and must be a number", value)
	}
	controller.DefaultThreadsPerController = threads
}
