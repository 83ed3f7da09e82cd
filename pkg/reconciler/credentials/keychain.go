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
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	corev1 "k8s.io/api/core/v1"
)

// Keychain returns the credentials that the builds of a namespace use: those of
// the Secret of that name. Where there is none, it is anonymous.
func (s *Secrets) Keychain(ctx context.Context, secretName, namespace string) (authn.Keychain, error) {
	secret, err := s.Ensure(ctx, secretName, namespace)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return keychain{}, nil
	}
	auths, err := parse(secret)
	if err != nil {
		return nil, fmt.Errorf("failed to read Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return auths, nil
}

// Check says why a Secret does not hold the credentials of registries. It does
// not tell what is in it.
func Check(secret *corev1.Secret) error {
	_, err := parse(secret)
	return err
}

// keychain holds credentials by registry, or by repository.
type keychain map[string]authn.AuthConfig

// Resolve implements authn.Keychain.
func (k keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	for _, key := range []string{target.String(), target.RegistryStr()} {
		if config, ok := k[key]; ok {
			return authn.FromConfig(config), nil
		}
	}
	return authn.Anonymous, nil
}

func parse(secret *corev1.Secret) (keychain, error) {
	if secret.Type != corev1.SecretTypeDockerConfigJson {
		return nil, fmt.Errorf("its type must be %s: it is %s", corev1.SecretTypeDockerConfigJson, secret.Type)
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("%s must be JSON: %w", corev1.DockerConfigJsonKey, err)
		}
		return nil, fmt.Errorf("%s must be as docker login writes it: %w", corev1.DockerConfigJsonKey, err)
	}
	auths := make(keychain, len(config.Auths))
	for host, auth := range config.Auths {
		auths[normalize(host)] = auth
	}
	return auths, nil
}

// normalize turns the address of a registry, as docker login may write it, into
// the name of the registry.
func normalize(address string) string {
	address = strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
	address = strings.TrimSuffix(address, "/")
	for _, version := range []string{"/v1", "/v2"} {
		address = strings.TrimSuffix(address, version)
	}
	if address == "docker.io" {
		return name.DefaultRegistry
	}
	return address
}
