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
