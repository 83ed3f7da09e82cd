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

package cli

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestList(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"), crashing("fn-00002", "b"), buildPod())
	w.want(`
NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL
fn     True         True    True      nodejs24   2         60m   1/2    4m          http://fn.default.svc.cluster.local
`, "list")
	w.want(`
NAMESPACE   NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL
default     fn     True         True    True      nodejs24   2         60m   1/2    4m          http://fn.default.svc.cluster.local
`, "get", "--all-namespaces")
	w.want("function.serverless.kiln.dev/fn\n", "get", "fn", "-o", "name")
	w.want("http://fn.default.svc.cluster.local", "get", "fn", "-o", "jsonpath={.status.url}")
	got, err := w.run("list", "-o", "yaml")
	var list v1alpha1.FunctionList
	if err := yaml.UnmarshalStrict([]byte(got), &list); err != nil || list.Kind != "FunctionList" || len(list.Items) != 1 {
		t.Errorf("kubectl fn list -o yaml is no list of one Function: %v\n%s", err, got)
	}
	if err != nil {
		t.Error(err)
	}
	w.wantError("names cannot be combined with -A or -l", "kubectl fn list --help", "list", "fn", "-A")

	w = newWorld(t, newFunction("fn", buildFailed))
	w.want(`
NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL      PHASE    REASON          IMAGE
fn     True         False   Unknown   nodejs24   2         60m   0/0    <none>      <none>   Failed   TaskRunFailed   <none>
`, "list", "-o", "wide")
	w = newWorld(t)
	w.want("", "list")
	if got := w.errOut.String(); !strings.HasPrefix(got, "There are no Functions in default.") {
		t.Errorf("kubectl fn list without any says %q", got)
	}
}
