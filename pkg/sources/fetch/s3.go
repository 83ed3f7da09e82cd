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
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"

	"github.com/kiln-dev/kiln/pkg/sources"
)

// S3Scheme begins the URL of an object in a bucket. Its key is not escaped.
const S3Scheme = "s3://"

// The keys of the Secret for an S3 store.
const (
	AccessKeyIDKey     = "accessKeyId"
	SecretAccessKeyKey = "secretAccessKey"
	SessionTokenKey    = "sessionToken"
)

const (
	defaultRegion = "us-east-1"

	maxComplaint = 64 << 10
)

// S3Store is a store with the API of S3.
type S3Store struct {
	// Endpoint is its URL, without a path. "" is Amazon's in the region.
	Endpoint string

	// Region is the region in signatures. "" is us-east-1.
	Region string

	// PathStyle reports whether the bucket is named in the path, and not in the host. nil
	// means the host for Amazon, and the path for other stores.
	PathStyle *bool
}

func (s S3Store) object(bucket, key string) (*url.URL, error) {
	endpoint := cmp.Or(s.Endpoint, "https://s3."+s.region()+".amazonaws.com")
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	// Wildcard certificates do not cover bucket names with dots.
	inPath := s.Endpoint != "" || strings.Contains(bucket, ".")
	if s.PathStyle != nil {
		inPath = *s.PathStyle
	}
	u.Path = "/" + key
	if inPath {
		u.Path = "/" + bucket + u.Path
	} else {
		u.Host = bucket + "." + u.Host
	}
	// Signatures are of a fully escaped path.
	u.RawPath = httpbinding.EscapePath(u.Path, false)
	return u, nil
}

func (s S3Store) region() string { return cmp.Or(s.Region, defaultRegion) }

func (a Archive) objectRequest(ctx context.Context) (request *http.Request, signed bool, err error) {
	bucket, key, ok := strings.Cut(strings.TrimPrefix(a.URL, S3Scheme), "/")
	if !ok || bucket == "" || key == "" {
		return nil, false, sources.Refuse("its URL must be s3://, a bucket, / and a key")
	}
	address, err := a.S3.object(bucket, key)
	if err == nil {
		request, err = http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	}
	if err != nil {
		return nil, false, sources.Refuse("the endpoint of its store is not a URL")
	}
	signed, err = a.sign(request)
	return request, signed, err
}

func (a Archive) openObject(ctx context.Context) (content io.ReadCloser, size int64, err error) {
	request, signed, err := a.objectRequest(ctx)
	if err != nil {
		return nil, 0, err
	}
	client, err := a.Credentials.client()
	if err != nil {
		return nil, 0, err
	}
	// The signature is for one host. The response names the host of a moved bucket.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil {
		return nil, 0, unreached(err)
	}
	if response.StatusCode != http.StatusOK {
		err := judgeAnswer(response.StatusCode, complaint(response), signed)
		return nil, 0, errors.Join(err, response.Body.Close())
	}
	return response.Body, response.ContentLength, nil
}

func (a Archive) sign(request *http.Request) (signed bool, err error) {
	id, secret, session, err := a.Credentials.three([3]string{AccessKeyIDKey, SecretAccessKeyKey, SessionTokenKey})
	switch {
	case err != nil:
		return false, err
	case id == "" && secret == "" && session == "":
		return false, nil
	case id == "" || secret == "":
		return false, sources.Refuse("the Secret with its credentials must have both %s and %s", AccessKeyIDKey, SecretAccessKeyKey)
	}
	nothing := sha256.Sum256(nil)
	payload := hex.EncodeToString(nothing[:])
	request.Header.Set("X-Amz-Content-Sha256", payload)
	credentials := aws.Credentials{AccessKeyID: id, SecretAccessKey: secret, SessionToken: session}
	err = signer.NewSigner(func(o *signer.SignerOptions) { o.DisableURIPathEscaping = true }).
		SignHTTP(request.Context(), credentials, request, payload, "s3", a.S3.region(), time.Now())
	if err != nil {
		return false, fmt.Errorf("failed to sign request: %w", err)
	}
	return true, nil
}

var complaintCode = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// complaint returns the store's error: its status, with the code and the message if the
// response has them.
func complaint(response *http.Response) string {
	said := fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	var answer struct{ Code, Message string }
	text, err := io.ReadAll(io.LimitReader(response.Body, maxComplaint))
	if err != nil || xml.Unmarshal(text, &answer) != nil || !complaintCode.MatchString(answer.Code) {
		return said
	}
	return fmt.Sprintf("%s, %s: %.300q", said, answer.Code, answer.Message)
}
