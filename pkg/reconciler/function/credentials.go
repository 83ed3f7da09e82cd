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

	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/reconciler/credentials"
)

// acceptSecrets reports whether the Function names no Secret with registry credentials.
// Its generation may have been accepted before the name was reserved, so it loses its
// acceptance.
func (r *Reconciler) acceptSecrets(ctx context.Context, fn *v1alpha1.Function) bool {
	reserved := append(r.secrets.Names(), config.FromContextOrDefaults(ctx).Registry.ReservedSecrets()...)
	err := fn.Spec.ValidateSecrets(reserved)
	if err == nil {
		return true
	}
	fn.Status.AcceptedGeneration = 0
	fn.Status.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "%s", err.ViaField("spec").Error())
	return false
}

// provideCredentials copies the registry credentials to the namespace, before a build or a
// pod needs them. It returns the plan with them. If the namespace must not have them, no
// build starts. The Function is still served, because a new revision may replace the one
// that names the Secret.
func (r *Reconciler) provideCredentials(ctx context.Context, fn *v1alpha1.Function, want plan) (plan, error) {
	name := config.FromContextOrDefaults(ctx).Registry.Credentials
	secret, err := r.secrets.Ensure(ctx, name, fn.Namespace)
	if referenced := credentials.IsReferenced(err); referenced != nil {
		want.withheld = referenced
		return want, nil
	}
	if err != nil && children.IsRejected(err) && !fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).IsTrue() {
		fn.Status.MarkBuildFailed(v1alpha1.ReasonCredentialsFailed,
			"The registry credentials cannot be copied to Secret %s of the namespace: %v", name, err)
	}
	if secret == nil {
		return want, children.RetryError(err)
	}
	return want.withCredentials(secret, r.secrets.Version(secret)), children.RetryError(err)
}

func markWithheld(fn *v1alpha1.Function, withheld error) error {
	fn.Status.MarkBuildFailed(v1alpha1.ReasonCredentialsFailed, "%v", withheld)
	return controller.NewRequeueAfter(credentials.RecheckPeriod)
}
