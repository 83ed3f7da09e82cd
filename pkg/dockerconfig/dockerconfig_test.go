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

package dockerconfig_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/kiln-dev/kiln/pkg/dockerconfig"
)

func TestKeychain(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("user:pass:word"))
	auths := `{"auths":{
		"registry.example.com:5000": {"username": "kiln", "password": "host"},
		"registry.example.com:5000/a/b": {"username": "kiln", "password": "repository"},
		"https://index.docker.io/v1/": {"auth": "` + auth + `"},
		"https://ghcr.io": {"registrytoken": "token"}
	}}`
	for image, want := range map[string]authn.AuthConfig{
		"registry.example.com:5000/ns/fn":  {Username: "kiln", Password: "host"},
		"registry.example.com:5000/a/b":    {Username: "kiln", Password: "repository"},
		"registry.example.com:5000/a/b/fn": {Username: "kiln", Password: "host"},
		"registry.example.com/ns/fn":       {},
		"someone/fn":                       {Username: "user", Password: "pass:word"},
		"ghcr.io/someone/fn":               {RegistryToken: "token"},
	} {
		keys, err := dockerconfig.Parse([]byte(auths))
		if err != nil {
			t.Fatal(err)
		}
		repository, err := name.NewRepository(image)
		if err != nil {
			t.Fatal(err)
		}
		authenticator, err := keys.Resolve(repository)
		if err != nil {
			t.Fatal(err)
		}
		got, err := authenticator.Authorization()
		if err != nil {
			t.Fatal(err)
		}
		got.Auth = ""
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", image, diff)
		}
	}
}

// TestParseErrors checks that errors contain no credentials.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"s3cret":              "must be JSON: invalid character 's'",
		`{"auths": "s3cret"}`: "must be in the format of docker login: json: cannot unmarshal string",
	} {
		_, err := dockerconfig.Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Parse(%s) = %v, want %q", text, err, want)
		}
	}
}
