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

// Package dockerconfig reads credentials of registries in the format of docker login.
// Secrets of type kubernetes.io/dockerconfigjson have the same format.
package dockerconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// Keychain maps registries and repositories to credentials. It runs no credential
// helpers.
type Keychain map[string]authn.AuthConfig

// Resolve implements authn.Keychain.
func (k Keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	for _, key := range []string{target.String(), target.RegistryStr()} {
		if config, ok := k[key]; ok {
			return authn.FromConfig(config), nil
		}
	}
	return authn.Anonymous, nil
}

// Parse reads credentials. Its errors follow the name of the input in a sentence and
// contain no credentials.
func Parse(data []byte) (Keychain, error) {
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("must be JSON: %w", err)
		}
		return nil, fmt.Errorf("must be in the format of docker login: %w", err)
	}
	auths := make(Keychain, len(config.Auths))
	for host, auth := range config.Auths {
		auths[normalize(host)] = auth
	}
	return auths, nil
}

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
