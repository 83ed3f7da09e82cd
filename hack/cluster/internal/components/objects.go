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
	"bytes"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object as it is decoded.
type object map[string]any

func (o object) kind() string { return text(o, "kind") }

func (o object) name() string { return text(o, "metadata", "name") }

// text returns the string at a path, or "".
func text(o map[string]any, path ...string) string {
	s, _ := at(o, path...).(string)
	return s
}

// at returns the value at a path, or nil.
func at(o map[string]any, path ...string) any {
	var value any = o
	for _, key := range path {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[key]
	}
	return value
}

// set puts a value at a path and makes the maps that lead there.
func set(o map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := o[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			o[key] = next
		}
		o = next
	}
	o[path[len(path)-1]] = value
}

// containers returns the containers of a Deployment.
func (o object) containers() []map[string]any {
	list, _ := at(o, "spec", "template", "spec", "containers").([]any)
	var out []map[string]any
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// decode returns the objects in a stream of YAML documents.
func decode(data []byte) ([]object, error) {
	var out []object
	for doc := range bytes.SplitSeq(append([]byte("\n"), data...), []byte("\n---")) {
		var o object
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return nil, fmt.Errorf("failed to decode manifest: %w", err)
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out, nil
}

// encode returns the objects as a stream of YAML documents.
func encode(objects []object) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		doc, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("failed to encode manifest: %w", err)
		}
		out.WriteString("---\n")
		out.Write(doc)
	}
	return out.Bytes(), nil
}

// The stages in which objects are applied. Each needs the ones before it.
const (
	namespaces = iota
	definitions
	afterDefinitions
	// Pods would restart if they did not find their ConfigMaps.
	deployments
)

// stage returns the stage of an object.
func stage(o object) int {
	switch o.kind() {
	case "Namespace":
		return namespaces
	case "CustomResourceDefinition":
		return definitions
	case "Deployment":
		return deployments
	default:
		return afterDefinitions
	}
}

// inOrder sorts objects by stage and leaves them in their order otherwise.
func inOrder(objects []object) []object {
	out := slices.Clone(objects)
	slices.SortStableFunc(out, func(a, b object) int { return stage(a) - stage(b) })
	return out
}

// unwanted reports whether an object is of no use on a cluster with one node and without
// a metrics server.
func unwanted(o object) bool {
	return o.kind() == "HorizontalPodAutoscaler" || o.kind() == "PodDisruptionBudget"
}

// slim makes a Deployment start fast and leave the node's cores to builds and functions.
func slim(o object) {
	if o.kind() != "Deployment" {
		return
	}
	for _, c := range o.containers() {
		// This share suffices while builds use both cores.
		set(c, map[string]any{"cpu": "50m", "memory": "32Mi"}, "resources", "requests")
		if limits, ok := at(c, "resources", "limits").(map[string]any); ok {
			delete(limits, "cpu")
		}
		readiness, ok := c["readinessProbe"].(map[string]any)
		if !ok || c["startupProbe"] != nil {
			continue
		}
		delete(readiness, "initialDelaySeconds")
		startup := map[string]any{"periodSeconds": 1, "failureThreshold": 300}
		for _, handler := range []string{"httpGet", "tcpSocket", "exec", "grpc"} {
			if h, ok := readiness[handler]; ok {
				startup[handler] = h
			}
		}
		c["startupProbe"] = startup
	}
}

// setData sets keys of a ConfigMap.
func setData(o object, data map[string]string) {
	for key, value := range data {
		set(o, value, "data", key)
	}
}

// addArg adds an argument to each container.
func addArg(o object, arg string) {
	for _, c := range o.containers() {
		args, _ := c["args"].([]any)
		c["args"] = append(args, arg)
	}
}

// setArg sets a flag whose value is a separate argument.
func setArg(o object, flag, value string) {
	for _, c := range o.containers() {
		args, _ := c["args"].([]any)
		for i, arg := range args[:max(0, len(args)-1)] {
			if s, ok := arg.(string); ok && strings.TrimLeft(s, "-") == flag {
				args[i+1] = value
			}
		}
	}
}
