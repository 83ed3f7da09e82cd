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

package testing

import (
	"slices"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

// Caches are the informer caches of one process for an APIServer. Each cache can lag by
// any number of changes.
type Caches struct {
	Functions  *Cache
	ConfigMaps *Cache
	TaskRuns   *Cache
	Jobs       *Cache
	Services   *Cache
	Pods       *Cache
	Events     *Cache
	Secrets    *Cache

	// Deployments and those below are of Functions that Deployments serve.
	Deployments  *Cache
	KubeServices *Cache
	Scalers      *Cache
	Budgets      *Cache
	Ingresses    *Cache
}

// NewCaches returns caches with the objects after the first changes.
func NewCaches(server *APIServer, selector labels.Selector, changes int) *Caches {
	newCache := func(kind Object, selector labels.Selector) *Cache {
		c := &Cache{
			Indexer:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
			server:   server,
			kind:     server.RefOf(kind),
			selector: selector,
		}
		for c.position < changes {
			c.next()
		}
		return c
	}
	served, err := labels.Parse(serverless.ServerLabelKey)
	must(err)
	return &Caches{
		Functions:  newCache(&v1alpha1.Function{}, labels.Everything()),
		ConfigMaps: newCache(&corev1.ConfigMap{}, selector),
		TaskRuns:   newCache(&pipelinev1.TaskRun{}, selector),
		Jobs:       newCache(&batchv1.Job{}, selector),
		Services:   newCache(&servingv1.Service{}, selector),
		Pods:       newCache(&corev1.Pod{}, selector),
		Events:     newCache(&corev1.Event{}, labels.Everything()),
		Secrets:    newCache(&corev1.Secret{}, labels.Everything()),

		Deployments:  newCache(&appsv1.Deployment{}, served),
		KubeServices: newCache(&corev1.Service{}, served),
		Scalers:      newCache(&autoscalingv2.HorizontalPodAutoscaler{}, served),
		Budgets:      newCache(&policyv1.PodDisruptionBudget{}, served),
		Ingresses:    newCache(&networkingv1.Ingress{}, served),
	}
}

// CloneFor returns a copy that follows another APIServer, which must be a clone of the
// first.
func (c *Caches) CloneFor(server *APIServer) *Caches {
	clone := &Caches{}
	all := clone.pointers()
	for i, original := range c.pointers() {
		copied := **original
		copied.server = server
		copied.Indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		must(copied.Replace((*original).List(), ""))
		*all[i] = &copied
	}
	return clone
}

func (c *Caches) pointers() []**Cache {
	return []**Cache{
		&c.Functions, &c.ConfigMaps, &c.TaskRuns, &c.Jobs, &c.Services, &c.Pods, &c.Events, &c.Secrets,
		&c.Deployments, &c.KubeServices, &c.Scalers, &c.Budgets, &c.Ingresses,
	}
}

// All returns the caches, always in the same order.
func (c *Caches) All() []*Cache {
	var all []*Cache
	for _, p := range c.pointers() {
		all = append(all, *p)
	}
	return all
}

// Objects returns the objects of all caches, always in the same order.
func (c *Caches) Objects() []Object {
	var all []Object
	for _, one := range c.All() {
		for _, name := range slices.Sorted(slices.Values(one.ListKeys())) {
			obj, _, err := one.GetByKey(name)
			must(err)
			all = append(all, obj.(Object))
		}
	}
	return all
}

// FunctionLister lists the cached Functions.
func (c *Caches) FunctionLister() listers.FunctionLister {
	return listers.NewFunctionLister(c.Functions)
}

// ConfigMapLister lists the cached ConfigMaps.
func (c *Caches) ConfigMapLister() corev1listers.ConfigMapLister {
	return corev1listers.NewConfigMapLister(c.ConfigMaps)
}

// TaskRunLister lists the cached TaskRuns.
func (c *Caches) TaskRunLister() pipelinelisters.TaskRunLister {
	return pipelinelisters.NewTaskRunLister(c.TaskRuns)
}

// JobLister lists the cached Jobs.
func (c *Caches) JobLister() batchv1listers.JobLister {
	return batchv1listers.NewJobLister(c.Jobs)
}

// ServiceLister lists the cached Services.
func (c *Caches) ServiceLister() servinglisters.ServiceLister {
	return servinglisters.NewServiceLister(c.Services)
}

// PodLister lists the cached Pods.
func (c *Caches) PodLister() corev1listers.PodLister {
	return corev1listers.NewPodLister(c.Pods)
}

// EventLister lists the cached Events.
func (c *Caches) EventLister() corev1listers.EventLister {
	return corev1listers.NewEventLister(c.Events)
}

// SecretLister lists the cached Secrets.
func (c *Caches) SecretLister() corev1listers.SecretLister {
	return corev1listers.NewSecretLister(c.Secrets)
}

// Cache is the cache of one informer.
type Cache struct {
	cache.Indexer

	server   *APIServer
	kind     Ref
	selector labels.Selector

	position int
}

// Deliver sends the next relevant change to the cache and returns it as the cache sees it.
// It reports whether there was one.
func (c *Cache) Deliver() (Change, bool) {
	for c.position < len(c.server.changes) {
		if change, ok := c.next(); ok {
			return change, true
		}
	}
	return Change{}, false
}

func (c *Cache) next() (Change, bool) {
	change := c.server.changes[c.position]
	c.position++
	if change.GroupResource != c.kind.GroupResource {
		return change, false
	}
	if !c.selects(change.Old) {
		change.Old = nil
	}
	switch {
	case c.selects(change.New):
		change.New = change.New.DeepCopyObject().(Object)
		must(c.Update(change.New))
	case change.Old != nil:
		change.New = nil
		must(c.Delete(change.Old))
	default:
		return change, false
	}
	return change, true
}

func (c *Cache) selects(obj Object) bool {
	return obj != nil && c.selector.Matches(labels.Set(obj.GetLabels()))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
