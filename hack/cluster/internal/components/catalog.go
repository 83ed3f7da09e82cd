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

import "github.com/kiln-dev/kiln/hack/cluster/internal/baseimages"

// ingressClass is the class of the ingresses that Traefik's Knative provider serves.
const ingressClass = "traefik.ingress.networking.knative.dev"

// tekton runs builds. Its resolvers are left out: they need git in their
// image, and Kiln's TaskRuns refer to nothing that is to be resolved.
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

// serving runs functions. The definitions of what it shares with its
// neighbours are symbolic links, which modules cannot hold; they come from the
// neighbours themselves.
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
			// Upstream's 25m would let the requests of twenty functions use up the node.
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
