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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	containerregistry "github.com/google/go-containerregistry/pkg/v1"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineinformers "github.com/tektoncd/pipeline/pkg/client/informers/externalversions"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

// prefix is the path below which the registry has the images of functions.
const prefix = "functions"

// images is a registry in memory, which holds manifests and nothing that they
// refer to: nobody pulls.
type images struct {
	address string
	handler http.Handler
	server  *http.Server
}

// startImages starts the registry, with the base image.
func startImages() (*images, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("failed to start registry: %w", err)
	}
	i := &images{address: listener.Addr().String(), handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	i.server = &http.Server{Handler: i.handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = i.server.Serve(listener) }()
	_, err = i.push("base", "1")
	return i, err
}

func (i *images) stop() { _ = i.server.Close() }

// push puts an image into the registry, and returns its digest.
func (i *images) push(repository, tag string) (string, error) {
	manifest, err := json.Marshal(containerregistry.Manifest{
		SchemaVersion: 2, MediaType: "application/vnd.oci.image.manifest.v1+json",
		Config:      containerregistry.Descriptor{MediaType: "application/vnd.oci.image.config.v1+json"},
		Annotations: map[string]string{"tag": tag},
	})
	if err != nil {
		return "", fmt.Errorf("failed to encode image: %w", err)
	}
	request := httptest.NewRequest(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, bytes.NewReader(manifest))
	request.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	answer := httptest.NewRecorder()
	i.handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusCreated {
		return "", fmt.Errorf("failed to push image: %d %s", answer.Code, answer.Body)
	}
	return answer.Header().Get("Docker-Content-Digest"), nil
}

// standInWorkers is how many objects the stand-in completes at a time: more than
// Kiln's workers can have on the way.
const standInWorkers = 16

// standIn stands for Tekton, Serving and all that they run: each TaskRun has
// succeeded, and each Service is ready, with the one write that says so, as soon as
// a watch tells of it. So what is measured is Kiln, and the API server.
type standIn struct {
	clients *clients
	images  *images
	failed  chan error
}

// run does the work until ctx ends. It returns when it watches.
func (s *standIn) run(ctx context.Context) {
	taskRuns := pipelineinformers.NewSharedInformerFactory(s.clients.pipeline, 0)
	services := servinginformers.NewSharedInformerFactory(s.clients.serving, 0)
	runs, svcs := taskRuns.Tekton().V1().TaskRuns(), services.Serving().V1().Services()
	work(ctx, runs.Informer(), s.report, func(namespace, name string) error {
		tr, err := runs.Lister().TaskRuns(namespace).Get(name)
		if err != nil || tr.IsDone() {
			return ignoreNotFound(err)
		}
		return s.succeed(ctx, tr.DeepCopy())
	})
	work(ctx, svcs.Informer(), s.report, func(namespace, name string) error {
		svc, err := svcs.Lister().Services(namespace).Get(name)
		if err != nil || svc.Status.ObservedGeneration == svc.Generation {
			return ignoreNotFound(err)
		}
		return s.serve(ctx, svc.DeepCopy())
	})
	taskRuns.Start(ctx.Done())
	services.Start(ctx.Done())
	taskRuns.WaitForCacheSync(ctx.Done())
	services.WaitForCacheSync(ctx.Done())
}

// report tells of what the stand-in cannot do.
func (s *standIn) report(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

func ignoreNotFound(err error) error {
	if apierrs.IsNotFound(err) {
		return nil
	}
	return err
}

// work calls do with the name of each object that the informer tells of.
func work(ctx context.Context, informer cache.SharedIndexInformer, report func(error), do func(namespace, name string) error) {
	queue := workqueue.NewTyped[cache.ObjectName]()
	context.AfterFunc(ctx, queue.ShutDown)
	enqueue := func(obj any) {
		if object, ok := obj.(metav1.Object); ok {
			queue.Add(cache.MetaObjectToName(object))
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }})
	if err != nil {
		report(err)
	}
	for range standInWorkers {
		go func() {
			for {
				name, shutdown := queue.Get()
				if shutdown {
					return
				}
				// Whoever has changed it meanwhile has woken us.
				if err := do(name.Namespace, name.Name); err != nil && !apierrs.IsConflict(err) && ctx.Err() == nil {
					report(err)
				}
				queue.Done(name)
			}
		}()
	}
}

// succeed does what Tekton would.
func (s *standIn) succeed(ctx context.Context, tr *pipelinev1.TaskRun) error {
	repository := prefix + "/" + tr.Namespace + "/" + tr.Labels[serverless.FunctionNameLabelKey]
	digest, err := s.images.push(repository, tr.Labels[serverless.ImageTagLabelKey])
	if err != nil {
		return err
	}
	now := metav1.Now()
	tr.Status.StartTime, tr.Status.CompletionTime = &now, &now
	tr.Status.Results = []pipelinev1.TaskRunResult{
		{Name: resources.ImageURLResult, Type: pipelinev1.ResultsTypeString, Value: *pipelinev1.NewStructuredValues(s.images.address + "/" + repository)},
		{Name: resources.ImageDigestResult, Type: pipelinev1.ResultsTypeString, Value: *pipelinev1.NewStructuredValues(digest)},
	}
	tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionTrue, Reason: "Succeeded"})
	if _, err := s.clients.pipeline.TektonV1().TaskRuns(tr.Namespace).UpdateStatus(ctx, tr, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to complete TaskRun: %w", err)
	}
	return nil
}

// serve does what Serving would.
func (s *standIn) serve(ctx context.Context, svc *servingv1.Service) error {
	revision := fmt.Sprintf("%s-%05d", svc.Name, svc.Generation)
	host := svc.Name + "." + svc.Namespace + ".svc.cluster.local"
	svc.Status.ObservedGeneration = svc.Generation
	svc.Status.LatestCreatedRevisionName, svc.Status.LatestReadyRevisionName = revision, revision
	svc.Status.URL = apis.HTTP(host)
	svc.Status.Address = &duckv1.Addressable{URL: apis.HTTP(host)}
	svc.Status.Traffic = []servingv1.TrafficTarget{{RevisionName: revision, LatestRevision: new(true), Percent: new(int64(100))}}
	svc.Status.Conditions = nil
	for _, t := range []apis.ConditionType{servingv1.ServiceConditionConfigurationsReady, servingv1.ServiceConditionReady, servingv1.ServiceConditionRoutesReady} {
		svc.Status.Conditions = append(svc.Status.Conditions, apis.Condition{
			Type: t, Status: corev1.ConditionTrue, LastTransitionTime: apis.VolatileTime{Inner: metav1.Now()},
		})
	}
	if _, err := s.clients.serving.ServingV1().Services(svc.Namespace).UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to complete Service: %w", err)
	}
	return nil
}
