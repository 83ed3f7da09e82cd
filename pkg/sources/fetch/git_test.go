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

package fetch_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

// repository is one that git itself has made and serves.
type repository struct {
	t *testing.T
	// folder is where it is, and above is where its server begins.
	above, folder string
}

// git runs git, which must be there.
func (r *repository) git(args ...string) string {
	r.t.Helper()
	command := exec.CommandContext(r.t.Context(), "git", args...)
	command.Dir = r.folder
	command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+r.above,
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := command.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repository) write(name, content string) {
	r.t.Helper()
	file := filepath.Join(r.folder, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) commit() string {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-qm", "x")
	return r.git("rev-parse", "HEAD")
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	above := t.TempDir()
	r := &repository{t: t, above: above, folder: filepath.Join(above, "code")}
	if err := os.Mkdir(r.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "-b", "main")
	return r
}

// serve serves the repository by git's own program, to those with a password if there
// is one.
func (r *repository) serve(password string) *httptest.Server {
	r.t.Helper()
	root, err := exec.CommandContext(r.t.Context(), "git", "--exec-path").Output()
	if err != nil {
		r.t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(root)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + r.above, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, got, _ := req.BasicAuth(); password != "" && got != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, req)
	}))
}

// fetchGit fetches the source and returns the files.
func fetchGit(t *testing.T, g fetch.Git, limits sources.Limits) (commit string, files map[string]string, err error) {
	t.Helper()
	folder, work := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree := sources.NewTree(root, limits)
	defer tree.Close()
	if commit, err = g.Fetch(t.Context(), work, tree, limits); err != nil {
		return commit, nil, err
	}
	files = map[string]string{}
	err = filepath.WalkDir(folder, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		if target, err := os.Readlink(file); err == nil {
			files[name] = "-> " + target
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Mode()&0o111 != 0 {
			name += "!"
		}
		content, err := os.ReadFile(file)
		files[strings.TrimSuffix(name, "!")] = string(content)
		if before, ok := strings.CutSuffix(name, "!"); ok {
			files[before] += "!"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return commit, files, nil
}

var gitLimits = sources.Limits{Download: 1 << 20, Size: 1 << 20, Files: 100, Ratio: 100}

func TestGit(t *testing.T) {
	r := newRepository(t)
	r.write("handler.js", "one")
	first := r.commit()
	r.git("tag", "v1")
	r.git("tag", "-a", "-m", "x", "v1-annotated")
	r.git("checkout", "-qb", "feature/x")
	r.write("handler.js", "two")
	r.write("fn/deep/handler.js", "deep")
	r.write("fn/deep/run", "#!")
	if err := os.Chmod(filepath.Join(r.folder, "fn/deep/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run", filepath.Join(r.folder, "fn/deep/link")); err != nil {
		t.Fatal(err)
	}
	second := r.commit()
	r.write("handler.js", "three")
	third := r.commit()
	r.git("checkout", "-q", "main")
	server := r.serve("")
	t.Cleanup(server.Close)
	url := server.URL + "/code/.git"

	one := map[string]string{"handler.js": "one"}
	deep := map[string]string{"handler.js": "deep", "run": "#!!", "link": "-> run"}
	for name, tc := range map[string]struct {
		revision, folder string
		commit           string
		want             map[string]string
	}{
		"what it is on":         {"", "", first, one},
		"a branch":              {"main", "", first, one},
		"a folder of a branch":  {"feature/x", "fn/deep", third, deep},
		"a tag":                 {"v1", "", first, one},
		"a tag with words":      {"v1-annotated", "", first, one},
		"a commit of a branch":  {first, "", first, one},
		"a commit in the midst": {second, "fn/deep", second, deep},
	} {
		t.Run(name, func(t *testing.T) {
			commit, files, err := fetchGit(t, fetch.Git{URL: url, Revision: tc.revision, Folder: tc.folder}, gitLimits)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, files); diff != "" || commit != tc.commit {
				t.Errorf("commit %s, want %s; files (-want, +got):\n%s", commit, tc.commit, diff)
			}
			if sources.IsCommit(tc.revision) {
				return
			}
			if commit, err := (fetch.Git{URL: url, Revision: tc.revision}).Resolve(t.Context()); err != nil || commit != tc.commit {
				t.Errorf("Resolve() = %s, %v, want %s", commit, err, tc.commit)
			}
		})
	}
	r.git("config", "uploadpack.allowReachableSHA1InWant", "true")
	if commit, files, err := fetchGit(t, fetch.Git{URL: url, Revision: second, Folder: "fn/deep"}, gitLimits); err != nil || commit != second || len(files) != 3 {
		t.Errorf("from a server that gives any commit: %s, %v, %v", commit, files, err)
	}

	for name, tc := range map[string]struct {
		git    fetch.Git
		limits sources.Limits
		want   string
	}{
		"no such branch":     {fetch.Git{URL: url, Revision: "nowhere"}, gitLimits, `it has no branch or tag "nowhere"`},
		"part of a hash":     {fetch.Git{URL: url, Revision: first[:10]}, gitLimits, "name a commit by all 40 digits"},
		"no such commit":     {fetch.Git{URL: url, Revision: strings.Repeat("1", 40)}, gitLimits, "its server has no commit 1111111111111111111111111111111111111111"},
		"no such folder":     {fetch.Git{URL: url, Folder: "nowhere"}, gitLimits, "it has no folder nowhere in commit " + first},
		"a file as a folder": {fetch.Git{URL: url, Folder: "handler.js"}, gitLimits, "it has no folder handler.js"},
		"no such repository": {fetch.Git{URL: server.URL + "/nothing/.git"}, gitLimits, "its server has no such repository"},
		"too many files":     {fetch.Git{URL: url, Revision: "feature/x"}, sources.Limits{Download: 1 << 20, Size: 1 << 20, Files: 2}, "it has more than 2 files"},
		"too large":          {fetch.Git{URL: url}, sources.Limits{Download: 1 << 20, Size: 2, Files: 10}, "its files are more than 2 bytes together (max-unpacked-size in config-build)"},
		"too much to fetch":  {fetch.Git{URL: url}, sources.Limits{Download: 100, Size: 1 << 20, Files: 10}, "it is more than 100 bytes (max-download-size in config-build)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := fetchGit(t, tc.git, tc.limits)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Fetch() = %v, want %q", err, tc.want)
			}
			if sources.ExitCode(err) != sources.ExitRefused {
				t.Errorf("Fetch() = %v: exit code %d", err, sources.ExitCode(err))
			}
		})
	}
	server.Close()
	if _, _, err := fetchGit(t, fetch.Git{URL: url}, gitLimits); sources.ExitCode(err) != sources.ExitUnreachable {
		t.Errorf("nobody there: %v, exit code %d", err, sources.ExitCode(err))
	}
}

func TestGitCredentials(t *testing.T) {
	r := newRepository(t)
	r.write("handler.js", "one")
	r.commit()
	server := r.serve("s3cret")
	t.Cleanup(server.Close)
	url := server.URL + "/code/.git"
	for name, tc := range map[string]struct {
		secret map[string]string
		want   string
	}{
		"password":       {map[string]string{"username": "a", "password": "s3cret\n"}, ""},
		"token":          {map[string]string{"token": "s3cret"}, ""},
		"wrong password": {map[string]string{"username": "a", "password": "x"}, "its server refuses the credentials: check the Secret"},
		"none":           {nil, "its server requires credentials: name a Secret"},
	} {
		g := fetch.Git{URL: url}
		if tc.secret != nil {
			g.Credentials = secret(t, tc.secret)
		}
		if _, _, err := fetchGit(t, g, gitLimits); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Fetch() = %v, want %q", name, err, tc.want)
		}
		if _, err := g.Resolve(t.Context()); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Resolve() = %v, want %q", name, err, tc.want)
		}
	}
}

// TestGitRefuses checks that a repository has the same limits as an archive.
func TestGitRefuses(t *testing.T) {
	r := newRepository(t)
	r.write("handler.js", "one")
	r.commit()
	server := r.serve("")
	t.Cleanup(server.Close)
	for name, tc := range map[string]struct{ entry, want string }{
		"parent":    {"100644 blob %s\t..", "cannot be read: invalid path"},
		"submodule": {"160000 commit %s\tlib", `"lib" in it is a submodule`},
	} {
		t.Run(name, func(t *testing.T) {
			blob := r.git("hash-object", "-w", "handler.js")
			if name == "submodule" {
				blob = strings.Repeat("1", 40)
			}
			// git itself makes no such tree, but it serves it.
			command := exec.CommandContext(t.Context(), "git", "mktree", "--missing")
			command.Dir, command.Stdin = r.folder, strings.NewReader(fmt.Sprintf(tc.entry, blob)+"\n")
			out, err := command.Output()
			if err != nil {
				t.Fatal(err)
			}
			commit := r.git("commit-tree", "-m", "x", strings.TrimSpace(string(out)))
			r.git("branch", "-f", name, commit)
			if _, _, err := fetchGit(t, fetch.Git{URL: server.URL + "/code/.git", Revision: name}, gitLimits); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Fetch() = %v, want %q", err, tc.want)
			}
		})
	}
}

// serveSSH serves the repository by SSH to clients with the key, and returns its address and
// the line of known_hosts.
func (r *repository) serveSSH(client ssh.PublicKey) (address, known string) {
	r.t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		r.t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(key.Marshal(), client.Marshal()) {
			return nil, errors.New("another key")
		}
		return nil, nil //nolint:nilnil // As it is documented.
	}}
	config.AddHostKey(signer)
	listener, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go r.talkSSH(connection, config)
		}
	}()
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	return listener.Addr().String(), fmt.Sprintf("[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(signer.PublicKey()))
}

func (r *repository) talkSSH(connection net.Conn, config *ssh.ServerConfig) {
	_, channels, requests, err := ssh.NewServerConn(connection, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for opened := range channels {
		channel, requests, err := opened.Accept()
		if err != nil {
			return
		}
		go func() {
			for request := range requests {
				if request.Type != "exec" {
					continue
				}
				_ = request.Reply(true, nil)
				command := exec.CommandContext(r.t.Context(), "git", "upload-pack", filepath.Join(r.folder, ".git"))
				if !bytes.Contains(request.Payload, []byte("'/code'")) {
					command = exec.CommandContext(r.t.Context(), "git", "upload-pack", filepath.Join(r.folder, "nothing"))
				}
				command.Stdout, command.Stderr = channel, channel.Stderr()
				// It ends when it has failed, whether the client has more to say or not.
				if stdin, err := command.StdinPipe(); err == nil {
					go func() { _, _ = io.Copy(stdin, channel); stdin.Close() }()
				}
				_ = command.Run()
				_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{0}))
				channel.Close()
			}
		}()
	}
}

func newKey(t *testing.T) (text string, public ssh.PublicKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), signer.PublicKey()
}

func TestGitBySSH(t *testing.T) {
	r := newRepository(t)
	r.write("handler.js", "one")
	want := r.commit()
	key, public := newKey(t)
	stranger, _ := newKey(t)
	address, known := r.serveSSH(public)
	_, other := r.serveSSH(public)
	_, unknown, _ := strings.Cut(other, " ")
	host, _, _ := strings.Cut(known, " ")
	for name, tc := range map[string]struct {
		secret map[string]string
		want   string
	}{
		"right":        {map[string]string{"ssh-privatekey": key, "known_hosts": known}, ""},
		"wrong key":    {map[string]string{"ssh-privatekey": stranger, "known_hosts": known}, "its server refuses the key"},
		"no key":       {map[string]string{"known_hosts": known}, "SSH needs a Secret with ssh-privatekey and known_hosts"},
		"no host":      {map[string]string{"ssh-privatekey": key}, "SSH needs a Secret with ssh-privatekey and known_hosts"},
		"another host": {map[string]string{"ssh-privatekey": key, "known_hosts": host + " " + unknown}, "its server is not the one that known_hosts"},
		"unknown host": {map[string]string{"ssh-privatekey": key, "known_hosts": other}, "its server is not the one that known_hosts"},
		"nonsense":     {map[string]string{"ssh-privatekey": "x", "known_hosts": known}, "is no private key without a passphrase"},
	} {
		t.Run(name, func(t *testing.T) {
			g := fetch.Git{URL: "ssh://git@" + address + "/code", Credentials: secret(t, tc.secret)}
			for _, call := range []struct {
				name string
				do   func() (string, error)
			}{
				{"Fetch", func() (string, error) { commit, _, err := fetchGit(t, g, gitLimits); return commit, err }},
				{"Resolve", func() (string, error) { return g.Resolve(t.Context()) }},
			} {
				commit, err := call.do()
				if tc.want == "" && (err != nil || commit != want) {
					t.Errorf("%s() = %s, %v, want %s", call.name, commit, err, want)
				}
				if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || sources.ExitCode(err) != sources.ExitRefused) {
					t.Errorf("%s() = %v, exit code %d, want %q", call.name, err, sources.ExitCode(err), tc.want)
				}
			}
		})
	}
}

func TestGitName(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.com/a/b.git":        "https://example.com/a/b.git",
		"https://user:pass@example.com/a":    "https://user@example.com/a",
		"git@example.com:a/b.git":            "ssh://git@example.com/a/b.git",
		"ssh://git@example.com:2222/a/b.git": "ssh://git@example.com:2222/a/b.git",
	} {
		if got := fetch.GitName(address); got != want {
			t.Errorf("GitName(%q) = %q, want %q", address, got, want)
		}
	}
}
