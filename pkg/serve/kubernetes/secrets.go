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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
)

// FindSecret returns a Deployment or a ReplicaSet of a Function in the namespace that gives
// the Secret to its pods, or nil. It reads past the cache.
func (s *Server) FindSecret(ctx context.Context, secret, namespace string) (*corev1.ObjectReference, error) {
	deployments := pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return s.Client.AppsV1().Deployments(namespace).List(ctx, opts)
	})
	found, err := children.FindLive(ctx, deployments, deploymentKind, serverless.ServerLabelKey, func(deployment *appsv1.Deployment) bool {
		return pods.NamesSecret(&deployment.Spec.Template.Spec, secret)
	})
	if found != nil || err != nil {
		return found, err
	}
	sets := pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return s.Client.AppsV1().ReplicaSets(namespace).List(ctx, opts)
	})
	return children.FindLive(ctx, sets, "ReplicaSet", serverless.ServerLabelKey, func(set *appsv1.ReplicaSet) bool {
		return pods.NamesSecret(&set.Spec.Template.Spec, secret)
	})
}
