//go:build e2e

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
package e2e

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// manifests are what users of Kyma and Kubeless have, in the languages of both.
const manifests = `
apiVersion: serverless.kyma-project.io/v1alpha2
kind: Function
metadata:
  name: prices
  labels: {app: prices, serverless.kyma-project.io/function-resources-preset: S}
spec:
  runtime: nodejs20
  source:
    inline:
      source: |
        module.exports = { main: function (event, context) {
          return process.env.GREETING + ' ' + event.extensions.request.query.name + ' at ' + context['function-name'];
        } };
  env:
  - {name: GREETING, value: hello}
  - {name: FUNC_TIMEOUT, value: "30"}
  resourceConfiguration: {function: {profile: XS}}
  scaleConfig: {minReplicas: 1, maxReplicas: 2}
---
apiVersion: kubeless.io/v1beta1
kind: Function
metadata: {name: words}
spec:
  runtime: python3.7
  handler: handler.count
  function-content-type: text
  function: |
    def count(event, context):
        return {'words': len(event['data']['text'].split()), 'name': event['extensions']['request'].query.get('name')}
  deps: ""
  timeout: "60"
---
apiVersion: serverless.kyma-project.io/v1alpha2
kind: GitRepository
metadata: {name: ignored}
spec: {url: https://git.example.com/a.git}
`

// TestImport applies what kubectl fn import makes of Functions of Kyma and Kubeless, and
// calls them.
func TestImport(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	term := newTerminal(e)
	term.write("old.yaml", manifests)
	written := term.run([]string{"# spec.runtime: nodejs22 instead of nodejs20", "GitRepository"}, "import", "-f", "old.yaml")
	e.kubectlIn(written, "apply", "--server-side", "--filename=-")
	for _, tc := range []struct {
		name, want string
		call       []string
	}{
		{"prices", "hello Ada at prices", []string{"--query=name=Ada"}},
		{"words", `{"words":3,"name":"Ada"}`, []string{"--query=name=Ada", "-d", `{"text": "well begun indeed"}`}},
	} {
		fn := e.until(&v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: tc.name}}, test.Ready)
		term.run([]string{tc.want}, append([]string{"invoke", fn.Name}, tc.call...)...)
	}
}
