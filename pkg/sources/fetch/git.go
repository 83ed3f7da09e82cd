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
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	gitconfig "github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/kiln-dev/kiln/pkg/sources"
)

// The keys of the Secret for Git over SSH. Kubernetes' type for SSH has the same.
const (
	// KeyKey is the key of the private key.
	KeyKey = "ssh-privatekey"
	// KnownHostsKey is the key of the server's public keys, in the format of ssh-keyscan.
	KnownHostsKey = "known_hosts"
)

const (
	// remoteName and fetchedRef are the local names of the repository and of the fetched
	// commit.
	remoteName = "origin"
	fetchedRef = plumbing.ReferenceName("refs/kiln/source")

	// streamed is the size from which files are not read into memory.
	streamed = 1 << 20
)

// Git is a revision of a Git repository.
type Git struct {
	// URL is the address of the repository: https, http or ssh.
	URL string

	// Revision is a branch, a tag or the hash of a commit. "" is the default branch.
	Revision string

	// Folder is the folder to fetch. "" is the whole repository.
	Folder string

	// Credentials are for its server.
	Credentials Credentials

	// Guard returns an error for addresses that Resolve must not connect to. nil
	// accepts all. Fetch does not use it.
	Guard func(netip.Addr) error
}

// Fetch writes the files of the revision to the tree, and returns the hash of its commit.
// It downloads to the folder work, within the limits.
func (g Git) Fetch(ctx context.Context, work string, tree *sources.Tree, limits sources.Limits) (commit string, err error) {
	auth, err := g.auth()
	if err != nil {
		return "", err
	}
	certificates, err := g.Credentials.Get(CAKey)
	if err != nil {
		return "", err
	}
	disk := &quota{Filesystem: osfs.New(work, osfs.WithBoundOS()), left: &atomic.Int64{}, limits: limits}
	disk.left.Store(limits.Download)
	store := filesystem.NewStorageWithOptions(disk, cache.NewObjectLRU(16*cache.MiByte), filesystem.Options{LargeObjectThreshold: streamed})
	defer func() { err = errors.Join(err, store.Close()) }()
	remote := git.NewRemote(store, &gitconfig.RemoteConfig{Name: remoteName, URLs: []string{g.URL}})

	refs, err := remote.ListContext(ctx, &git.ListOptions{Auth: auth, CABundle: []byte(certificates)})
	if err != nil {
		return "", g.judge(err)
	}
	wanted, err := g.find(refs)
	if err != nil {
		return "", err
	}
	options := &git.FetchOptions{
		Auth: auth, CABundle: []byte(certificates), Tags: git.NoTags, Depth: 1,
		RefSpecs: []gitconfig.RefSpec{gitconfig.RefSpec("+" + wanted + ":" + fetchedRef.String())},
	}
	if sources.IsCommit(wanted) {
		options.RefSpecs = []gitconfig.RefSpec{gitconfig.RefSpec(wanted + ":" + fetchedRef.String())}
	}
	err = remote.FetchContext(ctx, options)
	if errors.Is(err, git.ErrExactSHA1NotSupported) {
		// The commit may be in any branch or tag.
		options.Depth, options.RefSpecs = 0, []gitconfig.RefSpec{"+refs/heads/*:refs/kiln/heads/*", "+refs/tags/*:refs/kiln/tags/*"}
		err = remote.FetchContext(ctx, options)
	}
	if err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
		return "", g.judge(err)
	}
	found, err := commitOf(store, wanted)
	if err != nil {
		return "", err
	}
	return found.Hash.String(), g.write(found, tree)
}

// find returns the reference of the revision, or the hash of a commit. A branch takes
// precedence over a tag of its name.
func (g Git) find(refs []*plumbing.Reference) (string, error) {
	known := map[plumbing.ReferenceName]bool{}
	for _, ref := range refs {
		known[ref.Name()] = true
	}
	if g.Revision == "" {
		if !known[plumbing.HEAD] {
			return "", g.notFound()
		}
		return plumbing.HEAD.String(), nil
	}
	for _, name := range []plumbing.ReferenceName{plumbing.NewBranchReferenceName(g.Revision), plumbing.NewTagReferenceName(g.Revision)} {
		if known[name] {
			return name.String(), nil
		}
	}
	if sources.IsCommit(g.Revision) {
		return g.Revision, nil
	}
	return "", g.notFound()
}

func (g Git) notFound() error {
	if g.Revision == "" {
		return sources.Refuse("it has no default branch: set revision")
	}
	return sources.Refuse("it has no branch or tag %q; name a commit by all 40 digits of its hash", g.Revision)
}

// commitOf returns the fetched commit. An annotated tag is a separate object.
func commitOf(store *filesystem.Storage, wanted string) (*object.Commit, error) {
	hash := plumbing.NewHash(wanted)
	if !sources.IsCommit(wanted) {
		ref, err := store.Reference(fetchedRef)
		if err != nil {
			return nil, sources.Refuse("its server did not send %s", wanted)
		}
		hash = ref.Hash()
	}
	if tag, err := object.GetTag(store, hash); err == nil {
		commit, err := tag.Commit()
		if err != nil {
			return nil, sources.Refuse("its tag does not name a commit")
		}
		return commit, nil
	}
	commit, err := object.GetCommit(store, hash)
	if err != nil {
		return nil, sources.Refuse("it has no commit %s in any branch or tag", hash)
	}
	return commit, nil
}

func (g Git) write(commit *object.Commit, to *sources.Tree) error {
	tree, err := commit.Tree()
	if err == nil && g.Folder != "" {
		if tree, err = tree.Tree(g.Folder); err != nil {
			return sources.Refuse("it has no folder %s in commit %s", g.Folder, commit.Hash)
		}
	}
	if err != nil {
		return sources.Refuse("its commit %s cannot be read: %w", commit.Hash, err)
	}
	walker := object.NewTreeWalker(tree, true, nil)
	defer walker.Close()
	for {
		name, entry, err := walker.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return sources.Refuse("its commit %s cannot be read: %w", commit.Hash, err)
		}
		if err := writeEntry(tree, name, entry, to); err != nil {
			return err
		}
	}
}

func writeEntry(tree *object.Tree, name string, entry object.TreeEntry, to *sources.Tree) error {
	switch entry.Mode {
	case filemode.Dir:
		return to.Folder(name)
	case filemode.Submodule:
		return sources.Refuse("%q in it is a submodule, which is not fetched: put its files into the repository", name)
	case filemode.Regular, filemode.Deprecated, filemode.Executable, filemode.Symlink:
	default:
		return sources.Refuse("%q in it is not a file, folder or link", name)
	}
	file, err := tree.TreeEntryFile(&entry)
	if err != nil {
		return sources.Refuse("file %q in it cannot be read: %w", name, err)
	}
	content, err := file.Reader()
	if err != nil {
		return sources.Refuse("file %q in it cannot be read: %w", name, err)
	}
	defer content.Close()
	if entry.Mode != filemode.Symlink {
		return to.File(name, entry.Mode == filemode.Executable, content)
	}
	target, err := sources.ReadTarget(content)
	if err != nil {
		return sources.Refuse("link %q in it cannot be read: %w", name, err)
	}
	return to.Symlink(name, target)
}

func (g Git) auth() (transport.AuthMethod, error) {
	endpoint, err := transport.NewEndpoint(g.URL)
	if err != nil {
		return nil, sources.Refuse("its URL is invalid")
	}
	if endpoint.Protocol == "ssh" {
		return g.authSSH(endpoint)
	}
	username, password, token, err := g.Credentials.three(loginKeys)
	if err != nil {
		return nil, err
	}
	if password = cmp.Or(token, password); username != "" || password != "" {
		// Servers that accept tokens accept any user name with them.
		return &githttp.BasicAuth{Username: cmp.Or(username, "git"), Password: password}, nil
	}
	return nil, nil //nolint:nilnil // Nothing is what there is to show.
}

type sshKey struct {
	*gitssh.PublicKeys
	algorithms []string
}

func (k *sshKey) ClientConfig() (*ssh.ClientConfig, error) {
	config, err := k.PublicKeys.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.HostKeyAlgorithms, config.Timeout = k.algorithms, patience
	return config, nil
}

func (g Git) authSSH(endpoint *transport.Endpoint) (transport.AuthMethod, error) {
	key, err := g.Credentials.Get(KeyKey)
	if err != nil {
		return nil, err
	}
	hosts, err := g.Credentials.Get(KnownHostsKey)
	if err != nil {
		return nil, err
	}
	if key == "" || hosts == "" {
		return nil, sources.Refuse("SSH needs a Secret with %s and %s: name it in secretName", KeyKey, KnownHostsKey)
	}
	keys, err := gitssh.NewPublicKeys(cmp.Or(endpoint.User, "git"), []byte(key+"\n"), "")
	if err != nil {
		return nil, sources.Refuse("%s of the Secret with its credentials is no private key without a passphrase", KeyKey)
	}
	db, err := gitssh.NewKnownHostsDb(filepath.Join(string(g.Credentials), KnownHostsKey))
	if err != nil {
		return nil, sources.Refuse("%s of the Secret with its credentials cannot be read: %w", KnownHostsKey, err)
	}
	keys.HostKeyCallback = db.HostKeyCallback()
	return &sshKey{PublicKeys: keys, algorithms: db.HostKeyAlgorithms(sshAddress(endpoint))}, nil
}

func sshAddress(endpoint *transport.Endpoint) string {
	port := endpoint.Port
	if port <= 0 {
		port = gitssh.DefaultPort
	}
	return net.JoinHostPort(endpoint.Host, strconv.Itoa(port))
}

func (g Git) judge(err error) error {
	if _, ok := errors.AsType[*sources.RefusedError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*sources.UnreachableError](err); ok {
		return err
	}
	if failed, ok := errors.AsType[*githttp.Err](err); ok {
		if err := judge(failed.StatusCode(), g.Credentials != ""); err != nil {
			return err
		}
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return unreached(err)
	}
	_, unknownHost := errors.AsType[*knownhosts.KeyError](err)
	_, onDisk := errors.AsType[*os.PathError](err)
	switch {
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		if g.Credentials != "" {
			return sources.Refuse("its server refuses the credentials: check the Secret with them")
		}
		return sources.Refuse("its server requires credentials: name a Secret with them in secretName")
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return sources.Refuse("its server has no such repository, or requires credentials for it")
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return sources.Refuse("there is nothing in it")
	case strings.Contains(err.Error(), "not our ref"):
		return sources.Refuse("its server has no commit %s", g.Revision)
	case unknownHost:
		return sources.Refuse("its server is not the one that %s of the Secret with its credentials has: %w", KnownHostsKey, err)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return sources.Refuse("its server refuses the key: check the Secret with the credentials")
	case onDisk:
		return fmt.Errorf("failed to write repository: %w", err)
	}
	return sources.Unreachable("its server was not reached, or failed: %w", err)
}

// GitName returns the URL of a repository without secrets.
func GitName(address string) string {
	endpoint, err := transport.NewEndpoint(address)
	if err != nil {
		return "at its URL"
	}
	endpoint.Password = ""
	return endpoint.String()
}

// quota is a file system that limits the written bytes.
type quota struct {
	billy.Filesystem
	left   *atomic.Int64
	limits sources.Limits
}

func (q *quota) Create(name string) (billy.File, error) { return q.limit(q.Filesystem.Create(name)) }

func (q *quota) OpenFile(name string, flag int, mode os.FileMode) (billy.File, error) {
	return q.limit(q.Filesystem.OpenFile(name, flag, mode))
}

func (q *quota) TempFile(dir, prefix string) (billy.File, error) {
	return q.limit(q.Filesystem.TempFile(dir, prefix))
}

func (q *quota) Chroot(name string) (billy.Filesystem, error) {
	below, err := q.Filesystem.Chroot(name)
	if err != nil {
		return nil, err
	}
	return &quota{Filesystem: below, left: q.left, limits: q.limits}, nil
}

func (q *quota) limit(file billy.File, err error) (billy.File, error) {
	if err != nil {
		return nil, err
	}
	return &quotaFile{File: file, quota: q}, nil
}

type quotaFile struct {
	billy.File
	quota *quota
}

func (f *quotaFile) Write(p []byte) (int, error) {
	if f.quota.left.Add(-int64(len(p))) < 0 {
		return 0, tooLarge(f.quota.limits)
	}
	return f.File.Write(p)
}
