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

package fetch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kiln-dev/kiln/pkg/dockerconfig"
	"github.com/kiln-dev/kiln/pkg/sources"
)

const (
	// DockerConfigKey is the key of registry credentials in Secrets of Kubernetes' type.
	DockerConfigKey = ".dockerconfigjson"

	// dockerConfigName is the file name of docker login.
	dockerConfigName = "config.json"

	// maxManifest is the usual limit of registries. A manifest is read into memory.
	maxManifest = 4 << 20
)

// openArtifact requests the only layer of an artifact from a registry. Its first bytes
// determine its format; the media type does not matter.
func (a Archive) openArtifact(ctx context.Context) (content io.ReadCloser, size int64, err error) {
	ref, err := a.reference()
	if err != nil {
		return nil, 0, sources.Refuse("its URL must be oci://, a registry, a repository, and a tag or a digest: %w", err)
	}
	keychain, err := a.keychain()
	if err != nil {
		return nil, 0, err
	}
	client, err := a.Credentials.client()
	if err != nil {
		return nil, 0, err
	}
	answers := &bounded{RoundTripper: client.Transport, secure: !a.isPlain(ref.Context().Registry)}
	puller, err := remote.NewPuller(remote.WithAuthFromKeychain(keychain), remote.WithTransport(answers))
	if err != nil {
		return nil, 0, err
	}
	artifact, err := puller.Get(ctx, ref)
	if err != nil {
		return nil, 0, a.judgeRegistry(err)
	}
	layer, err := onlyLayer(artifact)
	if err != nil {
		return nil, 0, err
	}
	if err := a.checkHash(layer.Digest.Hex); err != nil {
		return nil, 0, err
	}
	answers.trusted.Store(true)
	blob, err := puller.Layer(ctx, ref.Context().Digest(layer.Digest.String()))
	if err != nil {
		return nil, 0, a.judgeRegistry(err)
	}
	if content, err = blob.Compressed(); err != nil {
		return nil, 0, a.judgeRegistry(err)
	}
	return content, layer.Size, nil
}

func (a Archive) reference() (name.Reference, error) {
	text := strings.TrimPrefix(a.URL, sources.OCIScheme)
	ref, err := name.ParseReference(text)
	if err == nil && slices.Contains(a.Insecure, ref.Context().RegistryStr()) {
		return name.ParseReference(text, name.Insecure)
	}
	return ref, err
}

// isPlain reports whether the registry may be accessed by plain HTTP: if it is configured,
// or on this machine. The library would allow all private addresses.
func (a Archive) isPlain(registry name.Registry) bool {
	host, _, err := net.SplitHostPort(registry.RegistryStr())
	if err != nil {
		host = registry.RegistryStr()
	}
	return slices.Contains(a.Insecure, registry.RegistryStr()) || host == "localhost" || net.ParseIP(host).IsLoopback()
}

func onlyLayer(artifact *remote.Descriptor) (*v1.Descriptor, error) {
	if artifact.MediaType.IsIndex() {
		return nil, sources.Refuse("it is an index of artifacts, not one artifact: name one of them by its digest")
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(artifact.Manifest))
	if err != nil {
		return nil, sources.Refuse("its manifest is damaged: %w", err)
	}
	if len(manifest.Layers) != 1 {
		return nil, sources.Refuse("it has %d layers, and must have one, which is the archive", len(manifest.Layers))
	}
	return &manifest.Layers[0], nil
}

func (a Archive) keychain() (authn.Keychain, error) {
	config, err := a.Credentials.Get(DockerConfigKey)
	if err != nil {
		return nil, err
	}
	if config != "" {
		keychain, err := dockerconfig.Parse([]byte(config))
		if err != nil {
			return nil, sources.Refuse("%s of the Secret with its credentials %w", DockerConfigKey, err)
		}
		return keychain, nil
	}
	username, password, token, err := a.Credentials.three(loginKeys)
	if err != nil {
		return nil, err
	}
	if username != "" || password != "" || token != "" {
		return anywhere{Username: username, Password: password, RegistryToken: token}, nil
	}
	if config, err = a.RegistryCredentials.Get(dockerConfigName); err != nil || config == "" {
		return dockerconfig.Keychain{}, err
	}
	keychain, err := dockerconfig.Parse([]byte(config))
	if err != nil {
		return nil, sources.Refuse("the registry's credentials %w", err)
	}
	return keychain, nil
}

type anywhere authn.AuthConfig

func (a anywhere) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig(a)), nil
}

// bounded limits the responses that are read into memory: all but the archive. It also
// rejects redirects from https to http.
type bounded struct {
	http.RoundTripper
	secure  bool
	trusted atomic.Bool
}

func (b *bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	if b.secure && request.URL.Scheme != "https" {
		return nil, sources.Refuse("its registry redirects from https to %s", request.URL.Scheme)
	}
	response, err := b.RoundTripper.RoundTrip(request)
	if err != nil || b.trusted.Load() {
		return response, err
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: maxManifest}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, sources.Refuse("its manifest is more than %s", sources.InWords(maxManifest))
	}
	return n, err
}

func (a Archive) judgeRegistry(err error) error {
	if failed, ok := errors.AsType[*transport.Error](err); ok {
		if err := judge(failed.StatusCode, a.Credentials != ""); err != nil {
			return err
		}
	}
	return unreached(err)
}
