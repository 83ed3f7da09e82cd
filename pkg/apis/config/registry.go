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

package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cm "knative.dev/pkg/configmap/parser"
)

// RegistryConfigName is the name of the ConfigMap that configures the registry.
const RegistryConfigName = "config-registry"

const (
	// LeastCheckInterval is the shortest interval of checks of a deployed image.
	LeastCheckInterval = 10 * time.Second

	mostCheckInterval = 7 * 24 * time.Hour
)

// Registry is the registry of functions' images.
type Registry struct {
	// Push is the host[:port] that builds push to. It is blank until somebody configures
	// the registry.
	Push string

	// Pull is the host[:port] of the same registry for nodes. It defaults to Push.
	Pull string

	// Prefix is the path of all images in the registry.
	Prefix string

	// Insecure are the hosts that use plain HTTP.
	Insecure []string

	// Credentials is the name of the Secret, of type kubernetes.io/dockerconfigjson, with
	// the registry credentials. Kiln copies it from its namespace to the namespaces of
	// Functions without one. The Secret is optional. "" means no credentials.
	Credentials string

	// CheckInterval is the time between two checks that the registry still holds the
	// deployed image of a Function. 0 means no checks.
	CheckInterval time.Duration
}

// DefaultCredentials is the name of the Secret with registry credentials that Kiln's role
// covers.
const DefaultCredentials = "kiln-registry-credentials"

// ReservedSecrets returns the names of Secrets that no Function may name.
// DefaultCredentials is always one of them, because a reference could wait for the Secret
// to appear.
func (r *Registry) ReservedSecrets() []string {
	if r.Credentials == "" || r.Credentials == DefaultCredentials {
		return []string{DefaultCredentials}
	}
	return []string{DefaultCredentials, r.Credentials}
}

// Configured reports whether there is a registry to push to.
func (r *Registry) Configured() bool {
	return r.Push != ""
}

// PushRepository returns the repository that the builds of a function push to.
func (r *Registry) PushRepository(namespace, function string) string {
	return r.repository(r.Push, namespace, function)
}

// PushInsecure reports whether the host that builds push to uses plain HTTP.
func (r *Registry) PushInsecure() bool {
	return slices.Contains(r.Insecure, r.Push)
}

// IsInsecure reports whether the host of an image uses plain HTTP.
func (r *Registry) IsInsecure(image string) bool {
	ref, err := name.ParseReference(image)
	return err == nil && slices.Contains(r.Insecure, ref.Context().RegistryStr())
}

// PushImage returns the reference by tag that the build of a function pushes.
func (r *Registry) PushImage(namespace, function, tag string) string {
	return r.PushRepository(namespace, function) + ":" + tag
}

// PullImage returns the reference by digest that nodes pull to run a function.
func (r *Registry) PullImage(namespace, function, digest string) string {
	return r.repository(r.Pull, namespace, function) + "@" + digest
}

func (r *Registry) repository(host, namespace, function string) string {
	return path.Join(host, r.Prefix, namespace, function)
}

// NewRegistryFromMap parses the data of config-registry. A registry that is not
// configured is not an error; the reconciler says so on each Function.
func NewRegistryFromMap(data map[string]string) (*Registry, error) {
	r := &Registry{CheckInterval: 10 * time.Minute}
	if err := parse(RegistryConfigName, data,
		cm.AsFunc("push", &r.Push, parseHost),
		cm.AsFunc("pull", &r.Pull, parseHost),
		cm.AsFunc("prefix", &r.Prefix, parsePrefix),
		cm.AsFunc("insecure", &r.Insecure, parseHosts),
		asSecretName("credentials", &r.Credentials),
		asInterval("check-interval", &r.CheckInterval, LeastCheckInterval, mostCheckInterval),
	); err != nil {
		return nil, err
	}
	if r.Pull != "" && r.Push == "" {
		return nil, inConfigMap(RegistryConfigName, errors.New(`"push" is required where "pull" is set`))
	}
	if r.Pull == "" {
		r.Pull = r.Push
	}
	return r, nil
}

// NewRegistryFromConfigMap parses the ConfigMap config-registry.
func NewRegistryFromConfigMap(configMap *corev1.ConfigMap) (*Registry, error) {
	return NewRegistryFromMap(configMap.Data)
}

func parseHost(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", nil
	}
	if strings.Contains(s, "/") {
		return "", fmt.Errorf("%q is not a host[:port]: leave out the scheme, and set the path in %q", s, "prefix")
	}
	registry, err := name.NewRegistry(s)
	if err != nil {
		return "", fmt.Errorf("%q is not a host[:port]: %w", s, err)
	}
	// A first part without a dot or a port would mean a repository on Docker Hub.
	repository, err := name.NewRepository(s + "/namespace/function")
	if err != nil || repository.RegistryStr() != registry.RegistryStr() {
		return "", fmt.Errorf("%q is not the name of a registry: it needs a dot or a port, as in %s:5000", s, s)
	}
	return s, nil
}

func parseHosts(s string) ([]string, error) {
	var hosts []string
	for entry := range strings.SplitSeq(s, ",") {
		host, err := parseHost(entry)
		if err != nil {
			return nil, err
		}
		if host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts, nil
}

// parsePrefix parses the path of the images. It must leave room for the longest namespace
// and the longest name of a function.
func parsePrefix(s string) (string, error) {
	prefix := strings.Trim(strings.TrimSpace(s), "/")
	if prefix == "" {
		return "", nil
	}
	for element := range strings.SplitSeq(prefix, "/") {
		if element == "" || strings.Trim(element, "._-") != element {
			return "", fmt.Errorf("%q is not the path of a repository: %q must begin and end with a letter or digit", s, element)
		}
	}
	longest := strings.Repeat("x", validation.DNS1123LabelMaxLength)
	if _, err := name.NewRepository(path.Join("registry.invalid", prefix, longest, longest)); err != nil {
		return "", fmt.Errorf("%q is not the path of a repository: %w", s, err)
	}
	return prefix, nil
}
