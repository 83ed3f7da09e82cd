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

package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/dockerconfig"
)

// servePush adds POST /push?to=REFERENCE&name=NAME. It pushes archives as one artifact
// and returns its digest. Tests and pods may use different
// addresses of a registry. The body has credentials in the format of docker login, or is empty.
func servePush(mux *http.ServeMux, archives map[string][]byte) {
	mux.HandleFunc("POST /push", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		digest, err := push(r, query.Get("to"), query["name"], archives)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		send(w, map[string][]byte{"": []byte(digest)}, "")
	})
}

func push(r *http.Request, to string, names []string, archives map[string][]byte) (digest string, err error) {
	config, err := io.ReadAll(r.Body)
	if err != nil {
		return "", fmt.Errorf("failed to read credentials: %w", err)
	}
	keychain := dockerconfig.Keychain{}
	if len(config) > 0 {
		if keychain, err = dockerconfig.Parse(config); err != nil {
			return "", fmt.Errorf("the credentials %w", err)
		}
	}
	ref, err := name.ParseReference(to, name.Insecure)
	if err != nil {
		return "", fmt.Errorf("failed to parse reference: %w", err)
	}
	artifact := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, archive := range names {
		if artifact, err = mutate.AppendLayers(artifact, static.NewLayer(archives[archive], "application/octet-stream")); err != nil {
			return "", fmt.Errorf("failed to add layer to artifact: %w", err)
		}
	}
	if err := remote.Write(ref, artifact, remote.WithContext(r.Context()), remote.WithAuthFromKeychain(keychain)); err != nil {
		return "", fmt.Errorf("failed to push artifact: %w", err)
	}
	hash, err := artifact.Digest()
	return hash.String(), err
}
