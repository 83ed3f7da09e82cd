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
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// serveStore adds POST /store?endpoint=URL&bucket=BUCKET&name=NAME. It creates the bucket
// and writes an archive to it. The form has the keys, access and secret.
func serveStore(mux *http.ServeMux, archives map[string][]byte) {
	mux.HandleFunc("POST /store", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		bucket := query.Get("endpoint") + "/" + query.Get("bucket")
		// The bucket may exist. The second request fails if it cannot be used.
		_, _ = put(r, bucket, nil)
		status, err := put(r, bucket+"/"+query.Get("name"), archives[query.Get("name")])
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(status)
	})
}

// put sends a PUT request that is signed with the keys in the form of r.
func put(r *http.Request, address string, content []byte) (status int, err error) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPut, address, bytes.NewReader(content))
	if err != nil {
		return 0, fmt.Errorf("failed to create request: %w", err)
	}
	sum := sha256.Sum256(content)
	payload := hex.EncodeToString(sum[:])
	request.Header.Set("X-Amz-Content-Sha256", payload)
	keys := aws.Credentials{AccessKeyID: r.FormValue("access"), SecretAccessKey: r.FormValue("secret")}
	if err := signer.NewSigner().SignHTTP(r.Context(), keys, request, payload, "s3", "us-east-1", time.Now()); err != nil {
		return 0, fmt.Errorf("failed to sign request: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("failed to put object: %w", err)
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}
