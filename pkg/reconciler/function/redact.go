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
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/redact"
)

// secretsOf returns the values in the Function that logs and messages must not show.
// Values that its pods read from Secrets are unknown to the controller.
func secretsOf(fn *v1alpha1.Function) []string {
	var secrets []string
	for _, variable := range fn.Spec.Env {
		if redact.IsSecret(variable.Name, variable.Value) {
			secrets = append(secrets, variable.Value)
		}
	}
	if fn.Spec.Build == nil {
		return secrets
	}
	for _, variable := range fn.Spec.Build.Env {
		if redact.IsSecret(variable.Name, variable.Value) {
			secrets = append(secrets, variable.Value)
		}
	}
	return secrets
}

// hideSecrets redacts the messages of conditions, because a function that crashes may
// print its environment. The message of a True condition holds only Kiln's own words.
func hideSecrets(fn *v1alpha1.Function) {
	secrets := secretsOf(fn)
	for i := range fn.Status.Conditions {
		if condition := &fn.Status.Conditions[i]; !condition.IsTrue() {
			condition.Message = redact.Text(condition.Message, secrets...)
		}
	}
}

// hideSecretsIn redacts an error before it is logged: a webhook that rejects an object
// may quote it.
func hideSecretsIn(err error, fn *v1alpha1.Function) error {
	if err == nil {
		return nil
	}
	text := redact.Text(err.Error(), secretsOf(fn)...)
	if text == err.Error() {
		return err
	}
	return redactedError{error: err, text: text}
}

type redactedError struct {
	error
	text string
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.error }
