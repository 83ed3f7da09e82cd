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

// Package contents reads the Secrets and ConfigMaps that Functions name, in the background, to
// notice when they change. It keeps only hashes of them.
package contents

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/background"
)

const (
	// MaxObjects is the maximum number of Secrets and ConfigMaps of a Function.
	MaxObjects = 32

	workers = 2

	// timeout is much longer than the requests for MaxObjects take at the pace of the Reader.
	timeout = time.Minute

	// interval is about as long as a kubelet takes to update mounted files.
	interval = time.Minute
)

// The kinds of the objects.
const (
	secretKind    = "Secret"
	configMapKind = "ConfigMap"
)

// object is a Secret or a ConfigMap that a Function names.
type object struct {
	kind, name string

	// optional objects need not exist.
	optional bool
}

const optionalMark = " (optional)"

func (o object) String() string {
	if o.optional {
		return o.kind + " " + o.name + optionalMark
	}
	return o.kind + " " + o.name
}

// Request names the Secrets and ConfigMaps of a Function.
type Request struct {
	Namespace string

	// Objects are the objects, in words. It is empty if the Function names none.
	Objects string
}

const separator = ", "

// Of returns the Request of a Function.
func Of(fn *v1alpha1.Function) Request {
	var names []string
	for _, o := range objectsOf(&fn.Spec) {
		names = append(names, o.String())
	}
	return Request{Namespace: fn.Namespace, Objects: strings.Join(names, separator)}
}

// Count returns the number of objects.
func (r Request) Count() int { return len(r.objects()) }

func (r Request) objects() (all []object) {
	if r.Objects == "" {
		return nil
	}
	for text := range strings.SplitSeq(r.Objects, separator) {
		text, optional := strings.CutSuffix(text, optionalMark)
		kind, name, _ := strings.Cut(text, " ")
		all = append(all, object{kind, name, optional})
	}
	return all
}

// objectsOf returns each object once, sorted. An object is optional if all references to it
// are.
func objectsOf(fs *v1alpha1.FunctionSpec) []object {
	optional := map[object]bool{}
	add := func(kind, name string, isOptional *bool) {
		o := object{kind: kind, name: name}
		others, seen := optional[o]
		optional[o] = (others || !seen) && isOptional != nil && *isOptional
	}
	for i := range fs.Env {
		if from := fs.Env[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
			add(secretKind, from.SecretKeyRef.Name, from.SecretKeyRef.Optional)
		} else if from != nil && from.ConfigMapKeyRef != nil {
			add(configMapKind, from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Optional)
		}
	}
	for i := range fs.EnvFrom {
		if from := fs.EnvFrom[i].SecretRef; from != nil {
			add(secretKind, from.Name, from.Optional)
		} else if from := fs.EnvFrom[i].ConfigMapRef; from != nil {
			add(configMapKind, from.Name, from.Optional)
		}
	}
	for _, mount := range fs.SecretMounts {
		add(secretKind, mount.SecretName, nil)
	}
	for _, mount := range fs.ConfigMapMounts {
		add(configMapKind, mount.ConfigMapName, nil)
	}
	all := slices.SortedFunc(maps.Keys(optional), func(a, b object) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	for i := range all {
		all[i].optional = optional[all[i]]
	}
	return all
}

// Found is the result of reading the objects of a Function.
type Found struct {
	// Hash changes with the names and the contents of the objects. It is empty if one of them
	// could not be read.
	Hash string

	// Failure is why one of them could not be read. It is empty otherwise.
	Failure string

	// Unanswered reports whether the failure says nothing about the object: the API server
	// did not answer, or asks for patience.
	Unanswered bool
}

// Read reads the objects of a Function.
type Read func(context.Context, Request) Found

// New returns a Worker that reads the objects of each Function once in a minute. It calls wake
// for a Function that awaits a result when it changes.
func New(read Read, wake func(types.NamespacedName)) *background.Worker[Request, Found] {
	return background.New(background.Options[Request, Found]{
		Name:    "followed-contents",
		Workers: workers,
		// A failure must not delay the next request: an author may have just created a Role.
		Do:       func(ctx context.Context, request Request) (Found, error) { return read(ctx, request), nil },
		Timeout:  timeout,
		Interval: func(Request) time.Duration { return interval },
		Failed:   func(err error) Found { return Found{Failure: err.Error(), Unanswered: true} },
		Wake:     wake,
	})
}
