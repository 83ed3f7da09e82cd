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
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// TestSourceArrivesAsItIs uses 900 KiB of source with a byte order mark, DOS line ends and
// non-ASCII letters. The function returns the hash of its own source.
func TestSourceArrivesAsItIs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const comment = "// größer, 大, 🚀: what a comment of a usual file might say, on a line of usual length.\r\n"
	const code = "\ufeff'use strict';\r\n" +
		"const { createHash } = require('node:crypto');\r\n" +
		"const hash = createHash('sha256').update(require('node:fs').readFileSync(__filename)).digest('hex');\r\n" +
		"module.exports = { main: () => `${hash} ${require('ms')('1h')}` };\r\n"
	large := function(code + strings.Repeat(comment, (900<<10-len(code))/len(comment)))
	large.Spec.Deps = "\ufeff{\r\n  \"description\": \"größer, 大, 🚀\",\r\n  \"dependencies\": {\"ms\": \"2.1.3\"}\r\n}\r\n"
	blank := function(answering("no dependencies"))
	blank.Name, blank.Spec.Deps = "blank", "\ufeff \r\n"

	large, blank = e.create(large), e.create(blank)
	sum := sha256.Sum256([]byte(large.Spec.Source))
	e.wantAnswer(e.until(large, test.Ready), "{}", hex.EncodeToString(sum[:])+" 3600000")
	e.wantAnswer(e.until(blank, test.Ready), "{}", "no dependencies")
}

// TestWhoDenies checks that each validating part of the API server denies what it must,
// with a message that says what to do.
func TestWhoDenies(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	tests := map[string]struct {
		edit func(*v1alpha1.FunctionSpec)
		want string
	}{
		"too large": {
			func(fs *v1alpha1.FunctionSpec) {
				fs.Source, fs.Deps = strings.Repeat("x", 936<<10-1), "{}"
			},
			"source and deps together are 958465 bytes, more than the limit of 958464",
		},
		"too large in bytes": {
			func(fs *v1alpha1.FunctionSpec) { fs.Source = strings.Repeat("<", 300<<10) },
			"bytes of JSON, more than the limit of 1228800",
		},
		"unknown runtime": {
			func(fs *v1alpha1.FunctionSpec) { fs.Runtime = "cobol" },
			`unknown runtime "cobol": choose one of dockerfile, nodejs22, nodejs24`,
		},
		"deps in deps without end": {
			func(fs *v1alpha1.FunctionSpec) { fs.Deps = lists(100_000) },
			"exceeded max depth",
		},
		"mount in the way": {
			func(fs *v1alpha1.FunctionSpec) {
				fs.SecretMounts = []v1alpha1.SecretMount{{SecretName: "a", MountPath: "/function/node_modules"}}
			},
			"must not overlap",
		},
		"mount on another": {
			func(fs *v1alpha1.FunctionSpec) {
				fs.ConfigMapMounts = []v1alpha1.ConfigMapMount{{ConfigMapName: "a", MountPath: "/a"}}
				fs.EmptyDirMounts = []v1alpha1.EmptyDirMount{{MountPath: "/a/b"}}
			},
			"must not overlap",
		},
		"folder too large": {
			func(fs *v1alpha1.FunctionSpec) {
				fs.EmptyDirMounts = []v1alpha1.EmptyDirMount{{MountPath: "/a", SizeLimit: new(resource.MustParse("5Gi"))}}
			},
			"more than the limit of 4Gi",
		},
		"annotation": {
			func(fs *v1alpha1.FunctionSpec) {
				fs.Annotations = map[string]string{"autoscaling.knative.dev/window": "1s"}
			},
			"it must be a duration from 6s to 1h0m0s",
		},
		"traffic": {
			func(fs *v1alpha1.FunctionSpec) {
				fs.Traffic = []v1alpha1.TrafficTarget{{LatestRevision: new(true), Percent: new(int64(99))}}
			},
			"100",
		},
	}
	for name, tc := range tests {
		fn := function(answering("never"))
		tc.edit(&fn.Spec)
		if _, err := e.tryCreate(fn); err == nil {
			e.Errorf("%s: not denied", name)
		} else if !strings.Contains(err.Error(), tc.want) {
			e.Errorf("%s: %v\nwant %q in it", name, err, tc.want)
		}
	}
}

// lists returns the JSON of an empty list that is nested to a depth.
func lists(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

// TestHostileBytes sends requests that no regular client sends. Deeply nested lists in
// place of text are denied. Text that is not UTF-8 is corrected.
func TestHostileBytes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	send := func(replace, by string) (*v1alpha1.Function, error) {
		fn := function(answering("here"))
		fn.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Function"}
		setEnv("HERE", "here")(fn)
		body, err := json.Marshal(fn)
		if err != nil {
			e.Fatal(err)
		}
		body = bytes.ReplaceAll(body, []byte(replace), []byte(by))
		err = clients.Kiln.ServerlessV1alpha1().RESTClient().Post().Namespace(e.namespace).Resource("functions").
			SetHeader("Content-Type", "application/json").Body(body).Do(e.ctx).Into(fn)
		return fn, err
	}
	for depth, want := range map[int]string{100_000: "exceeded max depth", 9_000: "spec.env"} {
		if _, err := send(`[{"name":"HERE","value":"here"}]`, lists(depth)); err == nil {
			e.Errorf("%d lists: not denied", depth)
		} else if !strings.Contains(err.Error(), want) {
			e.Errorf("%d lists: %v\nwant %q in it", depth, err, want)
		}
	}
	fn, err := send("here", "\xff")
	if err != nil {
		e.Fatal(err)
	}
	if got := fn.Spec.Env[0].Value; got != "\ufffd" {
		e.Errorf("the byte was replaced by %q", got)
	}
	e.wantAnswer(e.until(fn, test.Ready), "{}", "\ufffd")
}

// TestDefaults checks that the stored Function has the default values.
func TestDefaults(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn, err := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace).Create(e.ctx, &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "fn-"},
		Spec:       v1alpha1.FunctionSpec{Source: answering("never")},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		e.Fatal(err)
	}
	fs := fn.Spec
	if fs.Runtime == "" || fs.MinReplicas == nil || fs.MaxReplicas == nil || fs.TimeoutSeconds == nil ||
		fs.Visibility != v1alpha1.VisibilityClusterLocal || fs.Resources.Requests.Memory().IsZero() {
		e.Errorf("a default is missing: %+v", fs)
	}
}
