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

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	servingconfig "knative.dev/serving/pkg/apis/config"
	servingapi "knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	fakeserving "knative.dev/serving/pkg/client/clientset/versioned/fake"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// This file shows what an edit of a serving Function does under Deployments and under Knative.

// effect is what an edit changes.
type effect struct {
	// Pod has the changed paths of the pod template, with their new values.
	Pod map[string]string
	// Others has the changed paths of the rest, which begin with the kind.
	Others map[string]string
	// Reason is the reason of the condition Running, if that is False.
	Reason string
	// message is the message of the condition.
	message string
}

// side serves Functions in one of the two ways.
type side func(t *testing.T, before, after *v1alpha1.Function, options options) effect

// options are the settings of the cluster.
type options struct {
	functions func(*config.Functions)
	// features are the enabled features of Serving.
	features []string
	// admitsAll is set if Serving admits invalid Services too.
	admitsAll bool
}

func (o options) apply(cfg *config.Config) {
	cfg.Functions.AllowedAnnotations = config.KeyPatterns{"example.com/*"}
	if o.functions != nil {
		o.functions(cfg.Functions)
	}
}

// underDeployments edits a Function that a Deployment serves.
func underDeployments(t *testing.T, before, after *v1alpha1.Function, o options) effect {
	t.Helper()
	w := newWorld(t)
	o.apply(w.config)
	step := func(fn *v1alpha1.Function) map[string]any {
		w.apply(fn)
		w.sync()
		w.rollOut(1000)
		if writes := w.apply(fn); writes != nil {
			t.Errorf("steady state writes %v", writes)
		}
		objects := map[string]any{}
		for kind, list := range w.lists() {
			found, err := list()
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range itemsOf(found) {
				objects[kind] = object
			}
		}
		return objects
	}
	first := step(before)
	after.Status = *before.Status.DeepCopy()
	return compare(t, first, step(after), deploymentKind, after)
}

// underKnative edits a Function that a Knative Service serves. Serving's own validation
// accepts or rejects the Service.
func underKnative(t *testing.T, before, after *v1alpha1.Function, o options) effect {
	t.Helper()
	const kind = "KnativeService"
	before.Status.Serving = ""
	cfg := config.FromContextOrDefaults(t.Context())
	o.apply(cfg)
	ctx := config.ToContext(controller.WithEventRecorder(t.Context(), &noRecorder{}), cfg)
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	client := fakeserving.NewSimpleClientset(&servingv1.Revision{ObjectMeta: metav1.ObjectMeta{
		Name: "greeter-00001", Namespace: namespace, Labels: map[string]string{servingapi.ServiceUIDLabelKey: "uid-greeter"},
	}})
	client.PrependReactor("*", "services", admit(t, o))
	server := &knative.Server{
		Client: client, Services: servinglisters.NewServiceLister(services),
		Pods:         corev1listers.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})),
		MountEvents:  corev1listers.NewEventLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})),
		CheckCurrent: func(context.Context, *v1alpha1.Function) error { return nil },
	}
	step := func(fn *v1alpha1.Function) map[string]any {
		if err := server.Apply(ctx, fn); err != nil && !apierrs.IsBadRequest(err) {
			t.Fatal(err)
		}
		svc, err := client.ServingV1().Services(namespace).Get(ctx, "greeter", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := services.Add(svc); err != nil {
			t.Fatal(err)
		}
		return map[string]any{kind: svc}
	}
	first := step(before)
	after.Status = *before.Status.DeepCopy()
	return compare(t, first, step(after), kind, after)
}

// admit does what Serving's webhooks do with Services.
func admit(t *testing.T, o options) clientgotesting.ReactionFunc {
	t.Helper()
	flags := map[string]string{}
	for _, feature := range o.features {
		flags[feature] = "enabled"
	}
	parsed, err := servingconfig.NewFeaturesConfigFromMap(flags)
	if err != nil {
		t.Fatal(err)
	}
	ctx := apis.WithinCreate(servingconfig.ToContext(t.Context(), &servingconfig.Config{Features: parsed}))
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		write, ok := action.(clientgotesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		svc := write.GetObject().(*servingv1.Service)
		svc.UID = "uid-greeter"
		svc.ResourceVersion += "1"
		svc.SetDefaults(ctx)
		if err := svc.Validate(ctx); err.Filter(apis.ErrorLevel) != nil && !o.admitsAll {
			return true, nil, apierrs.NewBadRequest("admission webhook denied the request: " + err.Error())
		}
		return false, nil, nil
	}
}

// compare compares the objects of the Function before and after an edit. The object of the
// kind has the pod template.
func compare(t *testing.T, before, after map[string]any, kind string, fn *v1alpha1.Function) effect {
	t.Helper()
	running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
	e := effect{Pod: map[string]string{}, Others: map[string]string{}, message: running.GetMessage()}
	if running.IsFalse() {
		e.Reason = running.Reason
	}
	for _, name := range keysOf(before, after) {
		switch {
		case after[name] == nil:
			e.Others[name] = "deleted"
			continue
		case before[name] == nil:
			e.Others[name] = "created"
			continue
		}
		was, is := flatten(t, before[name]), flatten(t, after[name])
		for _, path := range keysOf(was, is) {
			if was[path] == is[path] || isOfRevision(path) {
				continue
			}
			if field, ok := strings.CutPrefix(path, ".spec.template."); ok && name == kind {
				e.Pod[field] = is[path]
			} else {
				e.Others[name+path] = is[path]
			}
		}
	}
	return e
}

// keysOf returns the keys of both maps, sorted.
func keysOf[V any](a, b map[string]V) []string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}

// isOfRevision reports whether each new revision has another value at the path.
func isOfRevision(path string) bool {
	return slices.ContainsFunc([]string{
		".status", ".metadata.generation", ".metadata.managedFields", ".metadata.resourceVersion", "[" + revisionEnv + "]",
		"[" + serverless.WishHashAnnotationKey + "]", "[" + serverless.RevisionLabelKey + "]", "[" + revisionAnnotation + "]",
	}, func(part string) bool { return strings.Contains(path, part) })
}

// flatten returns the values of an object by their paths. The path of an item of a list has
// its name, so it does not depend on other items.
func flatten(t *testing.T, object any) map[string]string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var parsed any
	if err := json.Unmarshal(data, &parsed); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	var walk func(value any, path string)
	walk = func(value any, path string) {
		switch value := value.(type) {
		case map[string]any:
			for key, v := range value {
				if isMap := strings.HasSuffix(path, "abels") || strings.HasSuffix(path, "nnotations") || strings.HasSuffix(path, "elector"); isMap {
					walk(v, path+"["+key+"]")
				} else {
					walk(v, path+"."+key)
				}
			}
		case []any:
			for i, v := range value {
				walk(v, path+"["+nameOf(v, i)+"]")
			}
		default:
			values[path] = fmt.Sprint(value)
		}
	}
	walk(parsed, "")
	return values
}

func nameOf(item any, index int) string {
	if fields, ok := item.(map[string]any); ok {
		if name, ok := fields["name"].(string); ok {
			return name
		}
	}
	return strconv.Itoa(index)
}

// schema is what the test reads of the CRD's schema.
type schema struct {
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

// specSchema returns the schema of spec.
func specSchema(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile("../../../config/300-function.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}

// leaves returns the paths of all fields without fields of their own.
func (s schema) leaves(path string) (paths []string) {
	if s.Items != nil {
		return s.Items.leaves(path + "[]")
	}
	if len(s.Properties) == 0 {
		return []string{path}
	}
	for name, field := range s.Properties {
		paths = append(paths, field.leaves(strings.TrimPrefix(path+"."+name, "."))...)
	}
	slices.Sort(paths)
	return paths
}

// in returns the paths of the leaves that the value sets.
func (s schema) in(value any, path string) (paths []string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			paths = append(paths, s.Items.in(item, path+"[]")...)
		}
	case map[string]any:
		if len(s.Properties) == 0 {
			return []string{path}
		}
		for name, field := range value {
			paths = append(paths, s.Properties[name].in(field, strings.TrimPrefix(path+"."+name, "."))...)
		}
	default:
		return []string{path}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// without returns a copy of the value that lacks the field of that path.
func without(value any, path string) any {
	name, rest, isDeep := strings.Cut(path, ".")
	name, isList := strings.CutSuffix(name, "[]")
	fields := maps.Clone(value.(map[string]any))
	field, ok := fields[name]
	switch {
	case !ok:
	case !isDeep:
		delete(fields, name)
	case isList:
		items := slices.Clone(field.([]any))
		for i := range items {
			items[i] = without(items[i], rest)
		}
		fields[name] = items
	default:
		fields[name] = without(field, rest)
	}
	return fields
}

// part is a part of a spec.
type part map[string]any

func parsePart(t *testing.T, text string) part {
	t.Helper()
	var p part
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return p
}

// function returns a Function with the part, in the place of the same fields of function().
func (p part) function(t *testing.T) *v1alpha1.Function {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	fn := function(func(fn *v1alpha1.Function) {
		fn.Spec.Source = "module.exports = { main: () => 'A' }"
		for name := range p {
			switch name {
			case "git", "archive":
				fn.Spec.Source = ""
			case "resources":
				fn.Spec.Resources = corev1.ResourceRequirements{}
			}
		}
	})
	if err := json.Unmarshal(data, &fn.Spec); err != nil {
		t.Fatal(err)
	}
	return fn
}
