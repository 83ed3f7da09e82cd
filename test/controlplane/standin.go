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

package controlplane

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
	"strings"
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
	"knative.dev/pkg/kmap"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/test"
)

// prefix is the path below which the registry has the images of functions.
const prefix = "functions"

// Images is a registry in memory, which holds manifests and nothing that they
// refer to: nobody pulls.
type Images struct {
	// Address is where it is, over HTTP.
	Address string

	handler http.Handler
	server  *http.Server
}

// startImages starts the registry, with the base image.
func startImages() (*Images, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("failed to start registry: %w", err)
	}
	i := &Images{Address: listener.Addr().String(), handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	i.server = &http.Server{Handler: i.handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = i.server.Serve(listener) }()
	_, err = i.push("base", "1", nil)
	return i, err
}

func (i *Images) stop() { _ = i.server.Close() }

// push puts an image with annotations into the registry, and returns its digest.
func (i *Images) push(repository, tag string, annotations map[string]string) (string, error) {
	annotations = kmap.Union(annotations, map[string]string{"tag": tag})
	manifest, err := json.Marshal(containerregistry.Manifest{
		SchemaVersion: 2, MediaType: "application/vnd.oci.image.manifest.v1+json",
		Config:      containerregistry.Descriptor{MediaType: "application/vnd.oci.image.config.v1+json"},
		Annotations: annotations,
	})
	if err != nil {
		return "", fmt.Errorf("failed to encode image: %w", err)
	}
	request := httptest.NewRequestWithContext(context.Background(), http.MethodPut, "/v2/"+repository+"/manifests/"+tag, bytes.NewReader(manifest))
	request.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	answer := httptest.NewRecorder()
	i.handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusCreated {
		return "", fmt.Errorf("failed to push image: %d %s", answer.Code, answer.Body)
	}
	return answer.Header().Get("Docker-Content-Digest"), nil
}

// Tagged returns an error unless the registry has the image, which is named by digest, under
// the tag.
func (i *Images) Tagged(image, tag string) error {
	name, digest, _ := strings.Cut(strings.TrimPrefix(image, i.Address+"/"), "@")
	answer := httptest.NewRecorder()
	i.handler.ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), http.MethodHead, "/v2/"+name+"/manifests/"+tag, http.NoBody))
	if got := answer.Header().Get("Docker-Content-Digest"); got != digest {
		return fmt.Errorf("tag %q of %s is %q (status %d), want %s", tag, name, got, answer.Code, digest)
	}
	return nil
}

// Annotations returns the annotations of an image, which is named by digest.
func (i *Images) Annotations(image string) (map[string]string, error) {
	name, digest, _ := strings.Cut(strings.TrimPrefix(image, i.Address+"/"), "@")
	answer := httptest.NewRecorder()
	i.handler.ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/v2/"+name+"/manifests/"+digest, http.NoBody))
	if answer.Code != http.StatusOK {
		return nil, fmt.Errorf("failed to get image %s: %d %s", image, answer.Code, answer.Body)
	}
	// A manifest from ko without a push has no digests, so only this part is parsed.
	var manifest struct{ Annotations map[string]string }
	if err := json.NewDecoder(answer.Body).Decode(&manifest); err != nil {
		return nil, fmt.Errorf("failed to decode image %s: %w", image, err)
	}
	return manifest.Annotations, nil
}

// standInWorkers is how many objects the stand-in completes at a time: more than
// Kiln's workers can have on the way.
const standInWorkers = 16

// StandIn replaces Tekton, Serving, the kubelet and the controller of Deployments. With one
// write, it marks each TaskRun and each pod of a Job as succeeded, and each Service and
// Deployment as ready, as soon as a watch delivers the object. So benchmarks measure only Kiln and the API server.
type StandIn struct {
	// Build, where it is set, returns the result of a build, and takes its time. Its object
	// is a TaskRun, or the Pod of a Job, and mounts the volumes.
	Build func(ctx context.Context, object metav1.Object, volumes []corev1.Volume) (Built, error)

	// Serve, where it is set, is called before a Service or a Deployment is ready, and takes
	// its time.
	Serve func(context.Context, metav1.Object)

	clients *test.Clients
	images  *Images
	report  func(error)
}

// Built is the result of a build.
type Built struct {
	// Annotations are those of the image.
	Annotations map[string]string

	// OutOfMemory reports that the installation of dependencies was killed.
	OutOfMemory bool

	// Runs reports that the build does not end.
	Runs bool
}

// run does the work until ctx ends. It returns when it watches.
func (s *StandIn) run(ctx context.Context) {
	services := servinginformers.NewSharedInformerFactory(s.clients.Serving, 0)
	svcs := services.Serving().V1().Services()
	work(ctx, svcs.Informer(), s.report, func(namespace, name string) error {
		svc, err := svcs.Lister().Services(namespace).Get(name)
		if err != nil || svc.Status.ObservedGeneration == svc.Generation {
			return ignoreNotFound(err)
		}
		return s.serve(ctx, svc.DeepCopy())
	})
	services.Start(ctx.Done())
	services.WaitForCacheSync(ctx.Done())
	s.runPods(ctx)
}

// runTaskRuns completes TaskRuns until ctx ends. It returns when it watches.
func (s *StandIn) runTaskRuns(ctx context.Context) {
	taskRuns := pipelineinformers.NewSharedInformerFactory(s.clients.Pipeline, 0)
	runs := taskRuns.Tekton().V1().TaskRuns()
	work(ctx, runs.Informer(), s.report, func(namespace, name string) error {
		tr, err := runs.Lister().TaskRuns(namespace).Get(name)
		if err != nil || tr.IsDone() {
			return ignoreNotFound(err)
		}
		return s.succeed(ctx, tr.DeepCopy())
	})
	taskRuns.Start(ctx.Done())
	taskRuns.WaitForCacheSync(ctx.Done())
}

func ignoreNotFound(err error) error {
	if apierrs.IsNotFound(err) {
		return nil
	}
	return err
}

// work calls do with the name of each object that the informer delivers.
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
				// A concurrent change causes another event, and a deleted object needs no
				// write.
				if err := do(name.Namespace, name.Name); err != nil && !apierrs.IsConflict(err) && !apierrs.IsNotFound(err) && ctx.Err() == nil {
					report(err)
				}
				queue.Done(name)
			}
		}()
	}
}

// succeed does what Tekton would.
func (s *StandIn) succeed(ctx context.Context, tr *pipelinev1.TaskRun) error {
	built, err := s.build(ctx, tr, tr.Spec.TaskSpec.Volumes)
	switch {
	case err != nil, built.Runs:
		return err
	case built.OutOfMemory:
		return s.fail(ctx, tr, pipelinev1.TaskRunReasonStepOOM)
	}
	repository, digest, err := s.push(tr, built)
	if err != nil {
		return err
	}
	now := metav1.Now()
	tr.Status.StartTime, tr.Status.CompletionTime = &now, &now
	tr.Status.Results = []pipelinev1.TaskRunResult{
		{Name: steps.ImageURLResult, Type: pipelinev1.ResultsTypeString, Value: *pipelinev1.NewStructuredValues(s.images.Address + "/" + repository)},
		{Name: steps.ImageDigestResult, Type: pipelinev1.ResultsTypeString, Value: *pipelinev1.NewStructuredValues(digest)},
	}
	tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionTrue, Reason: "Succeeded"})
	if _, err := s.clients.Pipeline.TektonV1().TaskRuns(tr.Namespace).UpdateStatus(ctx, tr, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to complete TaskRun: %w", err)
	}
	return nil
}

// build returns the result of a build.
func (s *StandIn) build(ctx context.Context, object metav1.Object, volumes []corev1.Volume) (Built, error) {
	if s.Build == nil {
		return Built{}, nil
	}
	return s.Build(ctx, object, volumes)
}

// push puts the image of a build into the registry.
func (s *StandIn) push(object metav1.Object, built Built) (repository, digest string, err error) {
	labels := object.GetLabels()
	repository = prefix + "/" + object.GetNamespace() + "/" + labels[serverless.FunctionNameLabelKey]
	digest, err = s.images.push(repository, labels[serverless.ImageTagLabelKey], built.Annotations)
	return repository, digest, err
}

// fail ends a TaskRun as Tekton does when the sidecar that installs dependencies has failed.
func (s *StandIn) fail(ctx context.Context, tr *pipelinev1.TaskRun, reason pipelinev1.TaskRunReason) error {
	now := metav1.Now()
	tr.Status.StartTime, tr.Status.CompletionTime = &now, &now
	tr.Status.Steps = []pipelinev1.StepState{{
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: sources.ExitNotInstalled}},
		Name:           steps.Push, Container: tekton.StepContainerPrefix + steps.Push,
	}}
	tr.Status.Sidecars = []pipelinev1.SidecarState{{
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		Name:           steps.Install, Container: tekton.SidecarContainerPrefix + steps.Install,
	}}
	tr.Status.SetCondition(&apis.Condition{
		Type: apis.ConditionSucceeded, Status: corev1.ConditionFalse, Reason: string(reason), Message: "a step has failed",
	})
	if _, err := s.clients.Pipeline.TektonV1().TaskRuns(tr.Namespace).UpdateStatus(ctx, tr, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to fail TaskRun: %w", err)
	}
	return nil
}

// serve does what Serving would.
func (s *StandIn) serve(ctx context.Context, svc *servingv1.Service) error {
	if s.Serve != nil {
		s.Serve(ctx, svc)
	}
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
	if _, err := s.clients.Serving.ServingV1().Services(svc.Namespace).UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to complete Service: %w", err)
	}
	return nil
}
