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
	pipelinefiltered "github.com/tektoncd/pipeline/pkg/client/injection/informers/factory/filtered"

	kubefiltered "knative.dev/pkg/client/injection/kube/informers/factory/filtered"
	"knative.dev/pkg/injection/sharedmain"
	"knative.dev/pkg/signals"
	servingfiltered "knative.dev/serving/pkg/client/injection/informers/factory/filtered"

	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/reconciler/credentials"
	"github.com/kiln-dev/kiln/pkg/reconciler/function"
)

func main() {
	ctx := signals.NewContext()
	ctx = kubefiltered.WithSelectors(ctx, children.LabelSelector)
	ctx = pipelinefiltered.WithSelectors(ctx, children.LabelSelector)
	ctx = servingfiltered.WithSelectors(ctx, children.LabelSelector)
	sharedmain.MainWithContext(ctx, "controller", function.NewController, credentials.NewController)
}
