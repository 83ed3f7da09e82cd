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

package credentials

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/dockerconfig"
)

// Keychain returns the credentials of the builds of a namespace: those of the Secret of
// that name. Without the Secret, or where the namespace must not have it, it is anonymous.
func (s *Secrets) Keychain(ctx context.Context, secretName, namespace string) (authn.Keychain, error) {
	secret, err := s.Ensure(ctx, secretName, namespace)
	if err != nil && IsReferenced(err) == nil {
		return nil, err
	}
	if secret == nil {
		return dockerconfig.Keychain{}, nil
	}
	auths, err := parse(secret)
	if err != nil {
		return nil, fmt.Errorf("failed to read Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return auths, nil
}

// Check returns an error if a Secret does not hold registry credentials. The error does
// not contain the content of the Secret.
func Check(secret *corev1.Secret) error {
	_, err := parse(secret)
	return err
}

func parse(secret *corev1.Secret) (dockerconfig.Keychain, error) {
	if secret.Type != corev1.SecretTypeDockerConfigJson {
		return nil, fmt.Errorf("its type must be %s: it is %s", corev1.SecretTypeDockerConfigJson, secret.Type)
	}
	auths, err := dockerconfig.Parse(secret.Data[corev1.DockerConfigJsonKey])
	if err != nil {
		return nil, fmt.Errorf("%s %w", corev1.DockerConfigJsonKey, err)
	}
	return auths, nil
}
