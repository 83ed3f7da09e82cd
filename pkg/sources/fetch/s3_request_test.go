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
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestObjectRequest checks that requests name the bucket where the store looks for it,
// and are signed for its region.
func TestObjectRequest(t *testing.T) {
	secret := t.TempDir()
	for key, value := range map[string]string{AccessKeyIDKey: "AKID", SecretAccessKeyKey: "s3cret", SessionTokenKey: "t0ken\n"} {
		if err := os.WriteFile(filepath.Join(secret, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		store     S3Store
		url       string
		host, uri string
		scope     string
	}{
		"in the path": {
			S3Store{Endpoint: "http://store.example.com:9000"}, "s3://code/a/b+c=d é.zip",
			"store.example.com:9000", "/code/a/b%2Bc%3Dd%20%C3%A9.zip", "/us-east-1/s3/aws4_request",
		},
		"in the host": {
			S3Store{Endpoint: "http://store.example.com:9000/", Region: "eu-1", PathStyle: new(false)}, "s3://code/a//b.zip",
			"code.store.example.com:9000", "/a//b.zip", "/eu-1/s3/aws4_request",
		},
		"of Amazon": {
			S3Store{Region: "eu-central-1"}, "s3://code/a.zip",
			"code.s3.eu-central-1.amazonaws.com", "/a.zip", "/eu-central-1/s3/aws4_request",
		},
		"of Amazon, with dots": {
			S3Store{}, "s3://my.code/a.zip",
			"s3.us-east-1.amazonaws.com", "/my.code/a.zip", "/us-east-1/s3/aws4_request",
		},
		"of Amazon, in the path": {
			S3Store{PathStyle: new(true)}, "s3://code/a.zip",
			"s3.us-east-1.amazonaws.com", "/code/a.zip", "/us-east-1/s3/aws4_request",
		},
	} {
		t.Run(name, func(t *testing.T) {
			request, signed, err := Archive{URL: tc.url, S3: tc.store, Credentials: Credentials(secret)}.objectRequest(t.Context())
			if err != nil || !signed {
				t.Fatalf("the request is signed: %t, %v", signed, err)
			}
			if request.URL.Host != tc.host || request.URL.EscapedPath() != tc.uri {
				t.Errorf("%s is asked for %s, want %s and %s", request.URL.Host, request.URL.EscapedPath(), tc.host, tc.uri)
			}
			authorization := request.Header.Get("Authorization")
			if !strings.Contains(authorization, "Credential=AKID/") || !strings.Contains(authorization, tc.scope) || strings.Contains(authorization, "s3cret") {
				t.Errorf("the signature is %s", authorization)
			}
			if got := request.Header.Get("X-Amz-Security-Token"); got != "t0ken" {
				t.Errorf("the session's token is %q", got)
			}
		})
	}
}
