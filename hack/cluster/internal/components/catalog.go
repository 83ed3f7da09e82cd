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

package components

import (
	"github.com/kiln-dev/kiln/hack/cluster/internal/baseimages"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// of lists the components of a platform. The slowest to compile is the last, because by
// then its shared packages are compiled.
func of(platform env.Platform) []component {
	if platform == env.Plain {
		return []component{metricsServer}
	}
	return []component{tekton, serving, traefik}
}

// ingressClass is the class of the ingresses that Traefik's Knative provider serves.
const ingressClass = "traefik.ingress.networking.knative.dev"

// tekton runs builds. It lacks the resolvers, which Kiln's TaskRuns do not use and whose
// image needs git.
var tekton = component{
	name:      "Tekton",
	module:    "tekton",
	namespace: "tekton-pipelines",
	sources: []source{
		{module: "github.com/tektoncd/pipeline", dirs: []string{"config", "config/100-namespace", "config/300-crds"}},
	},
	edit: func(o object, images *baseimages.Set) {
		if o.kind() == "Deployment" {
			setArg(o, "shell-image", images.Debian)
		}
	},
	sample: `{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: sample, namespace: default}, spec: {taskSpec: {steps: [{name: sample, image: sample}]}}}`,
}

// serving runs functions. Modules cannot contain symbolic links, so the definitions that
// it shares with other projects come from those projects.
var serving = component{
	name:      "Knative Serving",
	module:    "serving",
	namespace: "knative-serving",
	sources: []source{
		{module: "knative.dev/serving", dirs: []string{"config/core"}, deep: true},
		{module: "knative.dev/networking", dirs: []string{"config"}},
		{module: "knative.dev/caching", dirs: []string{"config"}},
	},
	edit: func(o object, _ *baseimages.Set) {
		if o.kind() != "ConfigMap" {
			return
		}
		switch o.name() {
		case "config-network":
			setData(o, map[string]string{"ingress-class": ingressClass})
		case "config-deployment":
			// With upstream's 25m, the requests of twenty functions would fill the node.
			setData(o, map[string]string{"queue-sidecar-cpu-request": "10m"})
		}
	},
	sample: `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: sample, namespace: default}, spec: {template: {spec: {containers: [{image: sample}]}}}}`,
}

// traefik routes requests to functions. Upstream has no manifests.
var traefik = component{
	name:      "Traefik",
	module:    "traefik",
	namespace: "traefik",
	sources:   []source{{dirs: []string{"config"}}},
	edit:      func(object, *baseimages.Set) {},
}

// metricsServer tells HorizontalPodAutoscalers how much CPU the pods use.
var metricsServer = component{
	name:      "metrics-server",
	module:    "metrics-server",
	namespace: "kube-system",
	sources:   []source{{module: "sigs.k8s.io/metrics-server", dirs: []string{"manifests/base"}}},
	prepare:   selectMetricsServer,
	edit: func(o object, _ *baseimages.Set) {
		if o.kind() == "Deployment" {
			// kind's kubelets sign their own certificates.
			addArg(o, "--kubelet-insecure-tls")
		}
	},
}

// selectMetricsServer does what upstream leaves to kustomize and its releases: the label
// by which the Deployment and the Service find the pods, and the image.
func selectMetricsServer(o object) {
	labels := map[string]any{"k8s-app": "metrics-server"}
	switch o.kind() {
	case "Service":
		set(o, labels, "spec", "selector")
	case "Deployment":
		set(o, labels, "spec", "selector", "matchLabels")
		set(o, labels, "spec", "template", "metadata", "labels")
		for _, c := range o.containers() {
			c["image"] = "ko://sigs.k8s.io/metrics-server/cmd/metrics-server"
		}
	}
}
