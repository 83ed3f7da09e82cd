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

package function

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// credentialSecrets brings the credentials of registries to namespaces.
type credentialSecrets interface {
	// Ensure returns the Secret of that name that the namespace is to use, or nil.
	Ensure(ctx context.Context, name, namespace string) (*corev1.Secret, error)

	// Version tells two contents of a Secret apart.
	Version(*corev1.Secret) string
}

// pullSecrets returns the names of the Secrets that nodes pull images with. They
// are the same whether there is such a Secret or not: no pod needs be replaced
// when there is one.
func pullSecrets(ctx context.Context) []string {
	if name := config.FromContextOrDefaults(ctx).Registry.Credentials; name != "" {
		return []string{name}
	}
	return nil
}

// provideCredentials sees to it that the namespace has the credentials of
// registries before a build, or a pod, needs them.
func (r *Reconciler) provideCredentials(ctx context.Context, fn *v1alpha1.Function, want *plan) (err error) {
	name := config.FromContextOrDefaults(ctx).Registry.Credentials
	want.credentials, err = r.secrets.Ensure(ctx, name, fn.Namespace)
	if err != nil && isRejected(err) && !fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).IsTrue() {
		fn.Status.MarkBuildFailed(v1alpha1.ReasonCredentialsFailed,
			"The credentials in Secret %s cannot be brought to the namespace: %v", name, err)
	}
	if want.credentials != nil {
		want.request.CredentialsVersion = r.secrets.Version(want.credentials)
	}
	return retry(err)
}
