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

// Package fetch downloads the source of a function. sources.Refuse and
// sources.Unreachable classify its errors.
package fetch

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kiln-dev/kiln/pkg/sources"
)

const (
	// patience is the maximum time without data from a server.
	patience = time.Minute

	maxRedirects = 10

	maxCredential = 1 << 20
)

// Credentials is the folder of a mounted Secret. "" means no credentials.
type Credentials string

// The keys of the Secret, named as in Kubernetes' own types of Secrets.
const (
	// UsernameKey and PasswordKey are for basic authentication.
	UsernameKey = "username"
	PasswordKey = "password"
	// TokenKey is for a bearer token.
	TokenKey = "token"
	// CAKey is for CA certificates, in addition to the public ones.
	CAKey = "ca.crt"
)

var loginKeys = [3]string{UsernameKey, PasswordKey, TokenKey}

// Get returns the value of a key, without a final line break, or "".
func (c Credentials) Get(key string) (string, error) {
	if c == "" {
		return "", nil
	}
	file, err := os.Open(filepath.Join(string(c), key))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("failed to read credentials: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCredential))
	if err != nil {
		return "", fmt.Errorf("failed to read credentials: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func (c Credentials) three(keys [3]string) (first, second, third string, err error) {
	for i, value := range []*string{&first, &second, &third} {
		if *value, err = c.Get(keys[i]); err != nil {
			return "", "", "", err
		}
	}
	return first, second, third, nil
}

func (c Credentials) authorize(request *http.Request) error {
	username, password, token, err := c.three(loginKeys)
	switch {
	case err != nil:
		return err
	case token != "":
		request.Header.Set("Authorization", "Bearer "+token)
	case username != "" || password != "":
		request.SetBasicAuth(username, password)
	}
	return nil
}

// client returns a client that also trusts the Secret's certificates, and does not
// decompress responses.
func (c Credentials) client() (*http.Client, error) {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("failed to copy the transport of HTTP")
	}
	transport = transport.Clone()
	transport.DisableCompression = true
	transport.ResponseHeaderTimeout = patience
	certificates, err := c.Get(CAKey)
	if err != nil {
		return nil, err
	}
	if certificates != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM([]byte(certificates)) {
			return nil, sources.Refuse("%s of the Secret with its credentials has no certificate in PEM", CAKey)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, CheckRedirect: checkRedirect}, nil
}

// checkRedirect rejects redirects from https to http. It drops credentials and referrer
// on a redirect to another host, because net/http keeps them for subdomains and other
// ports.
func checkRedirect(request *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return sources.Refuse("its server redirects more than %d times", maxRedirects)
	}
	if request.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
		return sources.Refuse("its server redirects from https to %s", request.URL.Scheme)
	}
	if request.URL.Host != via[0].URL.Host {
		for _, name := range []string{"Authorization", "Referer"} {
			request.Header.Del(name)
		}
	}
	return nil
}

// Archive is an archive on a server.
type Archive struct {
	// URL is its address: http or https; oci, for the only layer of an artifact in a
	// registry; or s3, for an object in a bucket.
	URL string

	// S3 is the store of the bucket.
	S3 S3Store

	// SHA256 is its expected hash, in hexadecimal. "" accepts any archive.
	SHA256 string

	// Credentials are for its server.
	Credentials Credentials

	// RegistryCredentials is a folder with a config.json in the format of docker login. It
	// applies to registries without Credentials.
	RegistryCredentials Credentials

	// Insecure are the registries that use plain HTTP.
	Insecure []string
}

// Fetched describes a fetched archive.
type Fetched struct {
	// SHA256 is the hash of the archive, in hexadecimal.
	SHA256 string

	// Size is its size in bytes.
	Size int64
}

// Fetch writes the archive, up to the limit. It rejects an archive with an unexpected hash.
func (a Archive) Fetch(ctx context.Context, to io.Writer, limits sources.Limits) (Fetched, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	open := a.openFile
	switch {
	case strings.HasPrefix(a.URL, sources.OCIScheme):
		open = a.openArtifact
	case strings.HasPrefix(a.URL, S3Scheme):
		open = a.openObject
	}
	watchdog := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer watchdog.Stop()
	content, size, err := open(ctx)
	if errors.Is(context.Cause(ctx), errSilent) {
		return Fetched{}, sources.Unreachable("%w", errSilent)
	}
	if err != nil {
		return Fetched{}, err
	}
	defer content.Close()
	if size > limits.Download {
		return Fetched{}, tooLarge(limits)
	}
	watchdog.Reset(patience)
	body := &watched{Reader: content, heard: func() { watchdog.Reset(patience) }}
	return a.save(ctx, to, body, limits)
}

// openFile requests the archive by HTTP. The size is -1 if the server does not send it.
func (a Archive) openFile(ctx context.Context) (content io.ReadCloser, size int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return nil, 0, sources.Refuse("its URL is invalid")
	}
	if err := a.Credentials.authorize(request); err != nil {
		return nil, 0, err
	}
	client, err := a.Credentials.client()
	if err != nil {
		return nil, 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, 0, unreached(err)
	}
	if err := judge(response.StatusCode, a.Credentials != ""); err != nil {
		return nil, 0, errors.Join(err, response.Body.Close())
	}
	return response.Body, response.ContentLength, nil
}

// errSilent means that a server has stopped in the middle of a response.
var errSilent = fmt.Errorf("its server has sent nothing for %s", patience)

type watched struct {
	io.Reader
	heard func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.heard()
	return n, err
}

func (a Archive) save(ctx context.Context, to io.Writer, from io.Reader, limits sources.Limits) (Fetched, error) {
	hash := sha256.New()
	size, err := io.Copy(sources.Writer{Writer: to}, io.TeeReader(io.LimitReader(from, limits.Download+1), hash))
	switch {
	case size > limits.Download:
		return Fetched{}, tooLarge(limits)
	case err != nil && context.Cause(ctx) != nil:
		return Fetched{}, sources.Unreachable("%w", context.Cause(ctx))
	case err != nil:
		if _, ok := errors.AsType[*sources.WriteError](err); ok {
			return Fetched{}, err
		}
		return Fetched{}, sources.Unreachable("its server closed the connection after %d bytes: %w", size, err)
	}
	fetched := Fetched{SHA256: hex.EncodeToString(hash.Sum(nil)), Size: size}
	return fetched, a.checkHash(fetched.SHA256)
}

func (a Archive) checkHash(hash string) error {
	if a.SHA256 != "" && a.SHA256 != hash {
		return sources.Refuse("its sha256 is %s, and not %s as the Function says", hash, a.SHA256)
	}
	return nil
}

func tooLarge(limits sources.Limits) error {
	return sources.Refuse("it is more than %s (%s in config-build)", sources.InWords(limits.Download), sources.MaxDownloadSizeKey)
}

func judge(status int, authorized bool) error {
	return judgeAnswer(status, fmt.Sprintf("%d %s", status, http.StatusText(status)), authorized)
}

func judgeAnswer(status int, said string, authorized bool) error {
	switch {
	case status == http.StatusOK:
		return nil
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		if authorized {
			return sources.Refuse("its server answered %s: check the Secret with its credentials", said)
		}
		return sources.Refuse("its server answered %s: name a Secret with credentials for it in secretName", said)
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return sources.Unreachable("its server answered %s", said)
	default:
		return sources.Refuse("its server answered %s", said)
	}
}

// unreached returns the error for a missing response. A permanent error, such as an
// untrusted certificate, is a RefusedError. It hides the signature of a URL.
func unreached(err error) error {
	if refusal, ok := errors.AsType[*sources.RefusedError](err); ok {
		return refusal
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	if untrusted || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return sources.Refuse("its server cannot be trusted: %w", err)
	}
	return sources.Unreachable("its server was not reached: %w", err)
}

// Name returns a URL without the parts that may be secret.
func Name(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "at its URL"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
