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

package job

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
)

// FindSecret returns a Job of the namespace that can give the Secret to code of an author,
// or nil. It reads past the cache.
func (b *Builder) FindSecret(ctx context.Context, secret, namespace string) (*corev1.ObjectReference, error) {
	list := pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return b.Client.BatchV1().Jobs(namespace).List(ctx, opts)
	})
	return children.FindLive(ctx, list, Kind, children.LabelSelector, func(job *batchv1.Job) bool {
		return !build{Job: job}.isFinished() && pods.NamesSecret(&job.Spec.Template.Spec, secret)
	})
}
