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
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// serverKind is what serves the Functions of the tests.
type serverKind struct {
	name config.Server
	// ready and failed are the reasons of Running for a revision that serves, and for one
	// that does not start.
	ready, failed string
	// record starts to record the revisions of a namespace.
	record func(ctx context.Context, namespace string) revisions
	// pods returns the pods that serve a Function.
	pods func(e *env, fn *v1alpha1.Function) corev1.PodSpec
	// changes are manual changes of the objects that serve a Function.
	changes []change
	// readyTime returns when a revision became ready, in whole seconds.
	readyTime func(e *env, revision string) time.Time
}

// revisions returns the metadata of every revision that was ever created.
type revisions func() ([]metav1.ObjectMeta, error)

var (
	knative = &serverKind{
		name:   config.KnativeServer,
		ready:  v1alpha1.ReasonServiceReady,
		failed: v1alpha1.ReasonServiceFailed,
		record: func(ctx context.Context, namespace string) revisions {
			history := test.Record[*servingv1.Revision](ctx, clients.Serving.ServingV1().Revisions(namespace), metav1.ListOptions{})
			return func() ([]metav1.ObjectMeta, error) {
				seen, err := history.Seen()
				return metasOf(seen, func(r *servingv1.Revision) metav1.ObjectMeta { return r.ObjectMeta }), err
			}
		},
		pods: func(e *env, fn *v1alpha1.Function) corev1.PodSpec { return e.service(fn).Spec.Template.Spec.PodSpec },
		changes: []change{
			{"Service edited", editService},
			{"Service stripped", stripService},
			{"Service made public", publishService},
			{"Service deleted", deleteService},
		},
		readyTime: readyTimeOfRevision,
	}
	deployments = &serverKind{
		name:   config.KubernetesServer,
		ready:  v1alpha1.ReasonDeploymentReady,
		failed: v1alpha1.ReasonDeploymentFailed,
		record: func(ctx context.Context, namespace string) revisions {
			history := test.Record[*appsv1.ReplicaSet](ctx, clients.Kube.AppsV1().ReplicaSets(namespace), metav1.ListOptions{LabelSelector: serverless.RevisionLabelKey})
			return func() ([]metav1.ObjectMeta, error) {
				seen, err := history.Seen()
				return metasOf(seen, func(r *appsv1.ReplicaSet) metav1.ObjectMeta { return r.ObjectMeta }), err
			}
		},
		pods: func(e *env, fn *v1alpha1.Function) corev1.PodSpec {
			found, err := clients.Kube.AppsV1().Deployments(e.namespace).Get(e.ctx, fn.Name, metav1.GetOptions{})
			if err != nil {
				e.Fatal(err)
			}
			return found.Spec.Template.Spec
		},
		changes: []change{
			{"Deployment edited", editDeployment},
			{"Deployment stripped", stripDeployment},
			{"Deployment scaled to zero", scaleDeployment},
			{"Deployment deleted", deleteDeployment},
			{"Service edited", editClusterIP},
			{"Service deleted", deleteClusterIP},
		},
		readyTime: readyTimeOfPods,
	}
	// servers are the servers by the values of the flag -server.
	servers = map[config.Server]*serverKind{knative.name: knative, deployments.name: deployments}
)

func metasOf[T any](objects []T, meta func(T) metav1.ObjectMeta) []metav1.ObjectMeta {
	metas := make([]metav1.ObjectMeta, 0, len(objects))
	for _, object := range objects {
		metas = append(metas, meta(object))
	}
	return metas
}

func readyTimeOfRevision(e *env, revision string) time.Time {
	e.Helper()
	found, err := clients.Serving.ServingV1().Revisions(e.namespace).Get(e.ctx, revision, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return found.Status.GetCondition(servingv1.RevisionConditionReady).LastTransitionTime.Inner.Time
}

// readyTimeOfPods returns when the first of the revision's pods became ready.
func readyTimeOfPods(e *env, revision string) (ready time.Time) {
	e.Helper()
	list, err := clients.Kube.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: serverless.RevisionLabelKey + "=" + revision})
	if err != nil {
		e.Fatal(err)
	}
	for _, pod := range list.Items {
		for _, c := range pod.Status.Conditions {
			if at := c.LastTransitionTime.Time; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && (ready.IsZero() || at.Before(ready)) {
				ready = at
			}
		}
	}
	if ready.IsZero() {
		e.Fatalf("no pod of revision %s is ready", revision)
	}
	return ready
}

// revisionFailed returns the condition of a Function whose newest revision does not start.
func revisionFailed() apis.Condition {
	return apis.Condition{Type: v1alpha1.FunctionConditionRunning, Status: corev1.ConditionFalse, Reason: server.failed}
}
