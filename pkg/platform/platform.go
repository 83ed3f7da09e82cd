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

// Package platform finds the optional APIs of a cluster, and ends the process when they
// change: informers of an API can start only with the process.
package platform

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"knative.dev/pkg/logging"
)

const (
	// retry is the delay between two tries to ask a cluster that does not answer.
	retry = time.Second

	// interval is the time between two questions whether the APIs have changed.
	interval = 10 * time.Second

	// confirmations is how often in a row the cluster must report the same change. An
	// API server that starts can miss an API for a moment.
	confirmations = 2
)

// Discovery asks a cluster for the resources of an API. An API that the cluster does not
// have is a NotFound error.
type Discovery interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// APIs has the optional APIs, and whether the cluster has each.
type APIs map[schema.GroupVersionResource]bool

type apisKey struct{}

// With returns a context that carries the APIs.
func With(ctx context.Context, apis APIs) context.Context {
	return context.WithValue(ctx, apisKey{}, apis)
}

// Has reports whether the cluster has the API. It is true for a context without APIs.
func Has(ctx context.Context, api schema.GroupVersionResource) bool {
	apis, ok := ctx.Value(apisKey{}).(APIs)
	return !ok || apis[api]
}

// Discover returns which of the APIs the cluster has. Only NotFound means that it lacks
// one. Any other error is returned.
func Discover(discovery Discovery, optional ...schema.GroupVersionResource) (APIs, error) {
	found := APIs{}
	for _, api := range optional {
		list, err := discovery.ServerResourcesForGroupVersion(api.GroupVersion().String())
		switch {
		case apierrs.IsNotFound(err):
			found[api] = false
		case err != nil:
			return nil, fmt.Errorf("failed to discover the API %s: %w", api.GroupVersion(), err)
		default:
			found[api] = slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == api.Resource })
		}
	}
	return found, nil
}

// Await is Discover that retries until the cluster answers. Its error is the context's.
func Await(ctx context.Context, discovery Discovery, optional ...schema.GroupVersionResource) (APIs, error) {
	var found APIs
	err := wait.PollUntilContextCancel(ctx, retry, true, func(ctx context.Context) (bool, error) {
		var err error
		if found, err = Discover(discovery, optional...); err != nil {
			logging.FromContext(ctx).Warnw("The cluster does not report its APIs, retrying", "error", err)
		}
		return err == nil, nil
	})
	return found, err
}

// Watch calls end once the cluster has other APIs than those, and returns. It also returns
// when the context ends. It asks the API server, because a new resource definition is
// served only some time after a watch reports it.
func (a APIs) Watch(ctx context.Context, discovery Discovery, end func()) {
	a.watch(ctx, discovery, interval, end)
}

func (a APIs) watch(ctx context.Context, discovery Discovery, interval time.Duration, end func()) {
	optional := slices.Collect(maps.Keys(a))
	differed := 0
	_ = wait.PollUntilContextCancel(ctx, interval, false, func(ctx context.Context) (bool, error) {
		now, err := Discover(discovery, optional...)
		switch {
		case err != nil:
			return false, nil
		case maps.Equal(a, now):
			differed = 0
			return false, nil
		}
		differed++
		if differed < confirmations {
			return false, nil
		}
		for api, has := range now {
			if has != a[api] {
				logging.FromContext(ctx).Infow("An optional API has appeared or gone. The process ends, to start with it or without", "api", api.String(), "served", has)
			}
		}
		end()
		return true, nil
	})
}
