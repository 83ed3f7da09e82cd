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
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"

	"github.com/kiln-dev/kiln/pkg/sources"
)

const (
	// maxReferences bounds the list of branches and tags, in bytes.
	maxReferences = 64 << 20

	// maxWords bounds the quotation of a server's error.
	maxWords = 200

	announcement = "application/x-git-upload-pack-advertisement"
)

// Resolve returns the commit of the revision. It lists the references of the server once,
// as git ls-remote does, and fetches nothing. Its memory is bounded.
func (g Git) Resolve(ctx context.Context) (string, error) {
	auth, err := g.auth()
	if err != nil {
		return "", err
	}
	endpoint, err := transport.NewEndpoint(g.URL)
	if err != nil {
		return "", sources.Refuse("its URL is invalid")
	}
	list := g.listByHTTP
	if endpoint.Protocol == "ssh" {
		list = g.listBySSH
	}
	told, err := list(ctx, endpoint, auth)
	if err != nil {
		return "", g.late(ctx, err)
	}
	defer told.Close()
	commit, err := g.scan(told)
	if errors.Is(err, errBrokenOff) {
		if said := told.said(); said != "" {
			return "", sources.Refuse("its server says: %s", said)
		}
	}
	return commit, g.late(ctx, err)
}

// errBrokenOff means that the list of a server is incomplete.
var errBrokenOff = sources.Unreachable("its server closed the connection before the end of its list of branches and tags")

// late classifies an error. After the deadline of the context, it is temporary.
func (g Git) late(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return sources.Unreachable("its server has not answered in time")
	default:
		return g.judge(err)
	}
}

type references interface {
	io.ReadCloser

	// said returns the server's error text, if it sends no list.
	said() string
}

func (g Git) listByHTTP(ctx context.Context, endpoint *transport.Endpoint, auth transport.AuthMethod) (references, error) {
	if endpoint.Protocol != "http" && endpoint.Protocol != "https" {
		return nil, sources.Refuse("its URL must begin with https, ssh or http")
	}
	address := strings.TrimSuffix(g.URL, "/") + "/info/refs?service=" + url.QueryEscape(transport.UploadPackServiceName)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, sources.Refuse("its URL is invalid")
	}
	if basic, ok := auth.(*githttp.BasicAuth); ok {
		basic.SetAuth(request)
	}
	client, err := g.client()
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		client.CloseIdleConnections()
		return nil, unreached(err)
	}
	answer := &answer{Body: response.Body, client: client}
	if err := g.judgeAnswer(response); err != nil {
		answer.Close()
		return nil, err
	}
	return answer, nil
}

func (g Git) client() (*http.Client, error) {
	client, err := g.Credentials.client()
	if err != nil {
		return nil, err
	}
	guarded, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("failed to guard the transport of HTTP")
	}
	g.guard(guarded)
	return client, nil
}

func (g Git) judgeAnswer(response *http.Response) error {
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return transport.ErrAuthenticationRequired
	case http.StatusForbidden:
		return transport.ErrAuthorizationFailed
	case http.StatusNotFound:
		return transport.ErrRepositoryNotFound
	}
	if err := judge(response.StatusCode, g.Credentials != ""); err != nil {
		return err
	}
	if said := response.Header.Get("Content-Type"); said != announcement {
		return sources.Refuse("it is not a Git repository: its server answered with %s", words(said))
	}
	return nil
}

type answer struct {
	Body   io.ReadCloser
	client *http.Client
}

func (a *answer) Read(p []byte) (int, error) { return a.Body.Read(p) }
func (a *answer) said() string               { return "" }

func (a *answer) Close() error {
	defer a.client.CloseIdleConnections()
	return a.Body.Close()
}

func (g Git) listBySSH(ctx context.Context, endpoint *transport.Endpoint, auth transport.AuthMethod) (references, error) {
	method, ok := auth.(gitssh.AuthMethod)
	if !ok {
		return nil, sources.Refuse("SSH needs a private key")
	}
	config, err := method.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("failed to configure SSH: %w", err)
	}
	address := sshAddress(endpoint)
	connection, err := g.dialer().DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, unreached(err)
	}
	// Blocked reads end with the context.
	end := context.AfterFunc(ctx, func() { connection.Close() })
	accepted, channels, requests, err := ssh.NewClientConn(connection, address, config)
	if err != nil {
		end()
		connection.Close()
		return nil, err
	}
	conversation := &conversation{client: ssh.NewClient(accepted, channels, requests), end: end}
	if err := conversation.begin(transport.UploadPackServiceName + " " + quote(endpoint.Path)); err != nil {
		conversation.Close()
		return nil, sources.Unreachable("its server closed the connection: %w", err)
	}
	return conversation, nil
}

// conversation reads from a server by SSH until it is closed.
type conversation struct {
	io.Reader

	client  *ssh.Client
	session *ssh.Session
	errors  head
	end     func() bool
}

func (c *conversation) begin(command string) (err error) {
	if c.session, err = c.client.NewSession(); err != nil {
		return err
	}
	c.session.Stderr = &c.errors
	// An open stdin keeps the server waiting for a request. After an error it exits.
	if _, err = c.session.StdinPipe(); err != nil {
		return err
	}
	if c.Reader, err = c.session.StdoutPipe(); err != nil {
		return err
	}
	return c.session.Start(command)
}

// said returns the error text of the server's program. It is valid once there is nothing
// more to read.
func (c *conversation) said() string {
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return ""
	}
	_ = c.session.Wait()
	return words(string(c.errors))
}

func (c *conversation) Close() error {
	c.end()
	return c.client.Close()
}

type head []byte

func (h *head) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), max(0, maxWords-len(*h)))]...)
	return len(p), nil
}

func quote(path string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func words(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "…"
	}
	return text
}

// scan finds the commit of the revision in the server's list. A branch takes precedence
// over a tag of its name.
func (g Git) scan(from io.Reader) (string, error) {
	branch, tag := plumbing.NewBranchReferenceName(g.Revision).String(), plumbing.NewTagReferenceName(g.Revision).String()
	if g.Revision == "" {
		branch, tag = plumbing.HEAD.String(), ""
	}
	limited := &io.LimitedReader{R: from, N: maxReferences}
	scanner := pktline.NewScanner(limited)
	tagged, begins, ended := "", false, false
	for !ended && scanner.Scan() {
		line, _, _ := strings.Cut(string(scanner.Bytes()), "\x00")
		hash, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case line == "":
			// The first line of HTTP has its own terminator.
			ended, begins = !begins, false
		case strings.HasPrefix(line, "# service="):
			begins = true
		case !sources.IsCommit(hash):
		case name == branch:
			return hash, nil
		case tag != "" && (name == tag || name == tag+"^{}"):
			// For an annotated tag, the commit follows in a second line.
			tagged = hash
		}
	}
	complaint, complained := errors.AsType[*pktline.ErrorLine](scanner.Err())
	switch {
	case complained:
		return "", sources.Refuse("its server says: %s", words(complaint.Text))
	case limited.N <= 0:
		return "", sources.Refuse("it has too many branches and tags: their list is larger than %s", sources.InWords(maxReferences))
	case errors.Is(scanner.Err(), pktline.ErrInvalidPktLen):
		return "", sources.Refuse("its server does not speak the Git protocol")
	case !ended:
		return "", errBrokenOff
	case tagged != "":
		return tagged, nil
	default:
		return "", g.notFound()
	}
}
