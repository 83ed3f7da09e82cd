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
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-billy/v5/util"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
)

// gitRepository is the one that the server has, which is pushed to while it is read.
type gitRepository struct {
	mu    sync.RWMutex
	store *memory.Storage
}

// newRepository returns a repository with a function of each language in functions:
// of version 1 on the branch main, and of version 2 on next.
func newRepository() *gitRepository {
	store := memory.NewStorage()
	files := memfs.New()
	repository, err := git.Init(store, files)
	must(err)
	tree, err := repository.Worktree()
	must(err)
	for _, v := range [][2]string{{"1", "main"}, {"2", "next"}} {
		version, branch := v[0], v[1]
		for _, language := range []string{"nodejs", "python"} {
			for _, entry := range sourcestest.Function(language, version) {
				name := files.Join("functions", language, entry.Name)
				if entry.Link == "" {
					must(util.WriteFile(files, name, []byte(entry.Content), 0o644))
				} else if _, err := files.Lstat(name); err != nil {
					must(files.Symlink(entry.Link, name))
				}
			}
		}
		must(tree.AddGlob("functions"))
		commit, err := tree.Commit("version "+version, &git.CommitOptions{Author: &object.Signature{Name: "A", Email: "a@example.com", When: time.Unix(0, 0)}})
		must(err)
		must(store.SetReference(plumbing.NewHashReference(plumbing.NewBranchReferenceName(branch), commit)))
	}
	return &gitRepository{store: store}
}

// move has a branch be where another is, as a push has it.
func (r *gitRepository) move(branch, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref, err := r.store.Reference(plumbing.NewBranchReferenceName(to))
	if err != nil {
		return err
	}
	return r.store.SetReference(plumbing.NewHashReference(plumbing.NewBranchReferenceName(branch), ref.Hash()))
}

// branches tells which branches there are.
func (r *gitRepository) branches() *packp.AdvRefs {
	r.mu.RLock()
	defer r.mu.RUnlock()
	refs := packp.NewAdvRefs()
	for _, branch := range []string{"main", "next"} {
		ref, err := r.store.Reference(plumbing.NewBranchReferenceName(branch))
		must(err)
		must(refs.AddReference(ref))
	}
	must(refs.Capabilities.Set(capability.Shallow))
	must(refs.Capabilities.Set(capability.AllowReachableSHA1InWant))
	return refs
}

// answer returns the answer to who wants commits.
func (r *gitRepository) answer(request *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	packed := &bytes.Buffer{}
	if _, err := packfile.NewEncoder(packed, r.store, false).Encode(objectsOf(r.store, request.Wants), 0); err != nil {
		return nil, err
	}
	response := packp.NewUploadPackResponseWithPackfile(request, io.NopCloser(packed))
	response.Shallows = request.Wants
	return response, nil
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// serveGit serves the branches of a repository at /git, by Git's protocol, to who
// wants the latest of them, or a commit: the history of neither. At /private/git it
// does so for those who may read. Who posts to /move/BRANCH has it
// moved to where another is.
func serveGit(mux *http.ServeMux, r *gitRepository, mayRead func(*http.Request) bool) {
	public := http.NewServeMux()
	mux.Handle("/git/", public)
	mux.HandleFunc("/private/git/", func(w http.ResponseWriter, request *http.Request) {
		if !mayRead(request) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.StripPrefix("/private", public).ServeHTTP(w, request)
	})
	mux.HandleFunc("POST /move/{branch}", func(w http.ResponseWriter, request *http.Request) {
		if err := r.move(request.PathValue("branch"), request.FormValue("to")); err != nil {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	public.HandleFunc("GET /git/info/refs", func(w http.ResponseWriter, _ *http.Request) {
		refs := r.branches()
		refs.Prefix = [][]byte{[]byte("# service=git-upload-pack"), pktline.Flush}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		answer(w, refs.Encode)
	})
	public.HandleFunc("POST /git/git-upload-pack", func(w http.ResponseWriter, asked *http.Request) {
		request := packp.NewUploadPackRequest()
		if err := request.UploadRequest.Decode(asked.Body); err != nil || len(request.Wants) == 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		response, err := r.answer(request)
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		answer(w, response.Encode)
	})
}

func answer(w io.Writer, encode func(io.Writer) error) {
	if err := encode(w); err != nil {
		log.Println("failed to answer:", err)
	}
}

// objectsOf returns the commits with their files, and not those before them.
func objectsOf(store *memory.Storage, commits []plumbing.Hash) []plumbing.Hash {
	var all []plumbing.Hash
	for _, hash := range commits {
		commit, err := object.GetCommit(store, hash)
		if err != nil {
			continue
		}
		all = append(all, hash, commit.TreeHash)
		tree, err := commit.Tree()
		must(err)
		walker := object.NewTreeWalker(tree, true, nil)
		for {
			_, entry, err := walker.Next()
			if err != nil {
				break
			}
			all = append(all, entry.Hash)
		}
		walker.Close()
	}
	return all
}
