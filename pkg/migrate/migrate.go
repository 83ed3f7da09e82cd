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

// Package migrate turns Functions of Kyma Serverless and of Kubeless into Functions of
// Kiln.
package migrate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"knative.dev/pkg/apis"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const (
	kymaAPI     = "serverless.kyma-project.io/v1alpha2"
	kubelessAPI = "kubeless.io/v1beta1"
	// oldKubelessAPI is Kubeless' API before version 1.0, with the same fields.
	oldKubelessAPI = "k8s.io/v1"
)

// Result is an object of a manifest.
type Result struct {
	// Function is the Function, or nil if the object becomes none.
	Function *v1alpha1.Function

	// Notes are what the Function lacks and what to do about it. Without a Function, there
	// is one note at most.
	Notes []string

	// Rejected reports whether Kiln rejects the Function until it is edited.
	Rejected bool
}

// others are the kinds that are not imported, and what to do instead.
var others = map[string]string{
	"APIRule":        "set spec.visibility: public in the Function, or route to it with your own gateway",
	"Subscription":   "create a Knative Trigger whose subscriber is the Function",
	"GitRepository":  "v1alpha2 has its URL in the Function",
	"HTTPTrigger":    "set spec.visibility: public in the Function, or route to it with your own Ingress",
	"CronJobTrigger": "create a Knative PingSource whose sink is the Function",
	"KafkaTrigger":   "create a Knative KafkaSource whose sink is the Function",
	"NATSTrigger":    "create a Knative Trigger whose subscriber is the Function",
	"KinesisTrigger": "create a Knative source whose sink is the Function",
}

// From turns an object into a Function. Its error means that the object is a Function that
// cannot be read.
func From(object *unstructured.Unstructured) (Result, error) {
	api, kind := object.GetAPIVersion(), object.GetKind()
	var convert func(*draft, []byte) error
	switch {
	case kind == "Function" && api == kymaAPI:
		convert = fromKyma
	case kind == "Function" && (api == kubelessAPI || api == oldKubelessAPI):
		convert = fromKubeless
	case kind == "Function" && api == "serverless.kyma-project.io/v1alpha1":
		return Result{Notes: []string{"only v1alpha2 is. A cluster with v1alpha2 exports it as such"}}, nil
	case others[kind] != "":
		return Result{Notes: []string{others[kind]}}, nil
	default:
		return Result{}, nil
	}
	content := prune(object.Object).(map[string]any)
	data, err := json.Marshal(content["spec"])
	if err != nil {
		return Result{}, fmt.Errorf("failed to encode spec: %w", err)
	}
	d := newDraft(object)
	if err := convert(d, data); err != nil {
		return Result{}, err
	}
	d.check()
	return d.Result, nil
}

// prune removes what is null or an empty object or list: tools write those of fields that
// are not set.
func prune(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, child := range v {
			if child = prune(child); !isEmpty(child) {
				kept[key] = child
			}
		}
		return kept
	case []any:
		kept := make([]any, 0, len(v))
		for _, child := range v {
			kept = append(kept, prune(child))
		}
		return kept
	}
	return value
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// draft is a Function in the making.
type draft struct {
	Result
}

func newDraft(object *unstructured.Unstructured) *draft {
	fn := &v1alpha1.Function{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Function"},
		ObjectMeta: metav1.ObjectMeta{
			Name: object.GetName(), GenerateName: object.GetGenerateName(), Namespace: object.GetNamespace(),
			Labels: object.GetLabels(), Annotations: object.GetAnnotations(),
		},
	}
	delete(fn.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	d := &draft{Result{Function: fn}}
	if len(object.GetOwnerReferences()) > 0 {
		d.note("metadata.ownerReferences", "left out: the owner would delete the Function")
	}
	return d
}

func (d *draft) note(field, format string, args ...any) {
	d.Notes = append(d.Notes, field+": "+fmt.Sprintf(format, args...))
}

// decode reads the spec, and notes the fields that it does not know. The hints are for the
// fields that begin with their key.
func (d *draft) decode(data []byte, spec any, hints map[string]string) error {
	unknown, err := kjson.UnmarshalStrict(data, spec)
	if err != nil {
		return fmt.Errorf("failed to read spec: %w", err)
	}
	for _, problem := range unknown {
		known, ok := errors.AsType[kjson.FieldError](problem)
		if !ok {
			continue
		}
		field, hint := known.FieldPath(), "left out: Kiln has no such field"
		for prefix, words := range hints {
			if field == prefix || strings.HasPrefix(field, prefix+".") || strings.HasPrefix(field, prefix+"[") {
				hint = words
			}
		}
		d.note("spec."+field, "%s", hint)
	}
	return nil
}

// check notes what Kiln rejects, as a cluster with the shipped configuration does.
func (d *draft) check() {
	cfg := config.FromContextOrDefaults(context.Background())
	cfg.Runtimes = shipped
	ctx := apis.WithinCreate(config.ToContext(context.Background(), cfg))
	fn := d.Function.DeepCopy()
	fn.SetDefaults(ctx)
	problems := fn.Validate(ctx).Filter(apis.ErrorLevel)
	if problems == nil {
		return
	}
	d.Rejected = true
	for _, problem := range problems.WrappedErrors() {
		d.Notes = append(d.Notes, "Correct this, or Kiln rejects the Function: "+problem.Error())
	}
}

// Write returns the Function as YAML, below its notes.
func (r Result) Write() ([]byte, error) {
	content, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta     `json:"metadata"`
		Spec            v1alpha1.FunctionSpec `json:"spec"`
	}{r.Function.TypeMeta, r.Function.ObjectMeta, r.Function.Spec})
	if err != nil {
		return nil, fmt.Errorf("failed to encode Function: %w", err)
	}
	var object map[string]any
	if err := json.Unmarshal(content, &object); err != nil {
		return nil, fmt.Errorf("failed to encode Function: %w", err)
	}
	text, err := marshal(prune(object).(map[string]any))
	if err != nil {
		return nil, fmt.Errorf("failed to encode Function: %w", err)
	}
	var out bytes.Buffer
	for _, note := range r.Notes {
		out.WriteString("# " + printable(note) + "\n")
	}
	out.Write(text)
	return out.Bytes(), nil
}

// marshal returns the most readable YAML that means the same as the object.
func marshal(object map[string]any) (text []byte, err error) {
	for _, encode := range []func(map[string]any) ([]byte, error){inLines, toYAML, toJSON} {
		var again map[string]any
		if text, err = encode(object); err == nil && yaml.Unmarshal(text, &again) == nil && equality.Semantic.DeepEqual(again, object) {
			return text, nil
		}
	}
	return nil, cmp.Or(err, errors.New("the object has no YAML form"))
}

// inLines writes source and deps line by line. The library quotes a text with a blank at
// the end of a line, which nobody can edit then.
func inLines(object map[string]any) ([]byte, error) {
	spec, _ := object["spec"].(map[string]any)
	shown, blocks := maps.Clone(spec), map[string]string{}
	for _, field := range []string{"deps", "source"} {
		if text, ok := spec[field].(string); ok && strings.Contains(text, "\n") {
			shown[field], blocks[field] = "THE-"+field, text
		}
	}
	outer := maps.Clone(object)
	outer["spec"] = shown
	text, err := toYAML(outer)
	if err != nil {
		return nil, err
	}
	for field, block := range blocks {
		line := "\n  " + field + ": "
		text = bytes.Replace(text, []byte(line+"THE-"+field+"\n"), []byte(line+literal(block, 4)), 1)
	}
	return text, nil
}

func toYAML(object map[string]any) ([]byte, error) {
	text, err := toJSON(object)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(text)
}

// toJSON returns JSON that is also YAML, which forbids or folds some characters.
func toJSON(object map[string]any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, r := range string(text) {
		if r >= 0x7f && r < 0xa0 || r == '\ufeff' || r == '\ufffe' || r == '\uffff' {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	out.WriteString("\n")
	return out.Bytes(), nil
}

// literal returns a literal block of YAML whose lines begin with that many blanks.
func literal(text string, indent int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	header, rest := "|", text[len(strings.TrimRight(text, "\n")):]
	if strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\n") {
		header += "2" // The first line does not show the indentation.
	}
	switch len(rest) {
	case 0:
		header += "-"
	case 1:
	default:
		header += "+"
	}
	for i, line := range lines {
		if line != "" {
			lines[i] = strings.Repeat(" ", indent) + line
		}
	}
	return header + "\n" + strings.Join(lines, "\n") + cmp.Or(rest, "\n")
}

// printable returns text that cannot end a comment: notes quote the manifest.
func printable(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// addMetadata adds labels or annotations of pods, without those that Kiln allows only after
// a change of its configuration.
func (d *draft) addMetadata(field, setting string, allowed config.KeyPatterns, all map[string]string, to *map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !v1alpha1.AllowsOnPods(allowed, key) {
			d.note("spec."+field, "%s: %q is left out: an administrator must allow it in %s of the ConfigMap %s",
				key, all[key], setting, config.FunctionsConfigName)
			continue
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = all[key]
	}
}

func (d *draft) addPodMetadata(labels, annotations map[string]string) {
	defaults, spec := config.FromContextOrDefaults(context.Background()).Functions, &d.Function.Spec
	d.addMetadata("labels", config.AllowedLabelsKey, defaults.AllowedLabels, labels, &spec.Labels)
	d.addMetadata("annotations", config.AllowedAnnotationsKey, defaults.AllowedAnnotations, annotations, &spec.Annotations)
}

// setReplicas keeps the number of pods. Without a range, it is exactly the count, which is
// 1 by default in both projects.
func (d *draft) setReplicas(count, least, most *int32) {
	spec := &d.Function.Spec
	switch {
	case least != nil || most != nil:
		spec.MinReplicas, spec.MaxReplicas = least, most
		d.note("spec.minReplicas, spec.maxReplicas", "Knative scales by concurrent requests, not by CPU")
	case count != nil && *count == 0:
		spec.MinReplicas = new(int32(0))
		d.note("spec.minReplicas", "0 pods stopped the function. Here, a request starts a pod")
	default:
		if count == nil {
			count = new(int32(1))
		}
		spec.MinReplicas, spec.MaxReplicas = new(*count), new(*count)
		d.note("spec.minReplicas, spec.maxReplicas", "the number of pods stays %d. Remove both to scale with the requests, and to 0 without any", *count)
	}
}
