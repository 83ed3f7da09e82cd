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

package compose

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
)

// newFetchStep returns a step that fetches the archive from a server.
func newFetchStep(t *testing.T, archive []byte) *FetchStep {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(archive); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	files := t.TempDir()
	// Kubernetes mounts a ConfigMap like this.
	if err := os.Mkdir(filepath.Join(files, "..data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"Dockerfile", "server.cjs"} {
		writeFile(t, filepath.Join(files, "..data", file), []byte("Kiln's "+file))
		link(t, filepath.Join("..data", file), filepath.Join(files, file))
	}
	return &FetchStep{
		Archive:        fetch.Archive{URL: server.URL + "/code.zip?signature=secret"},
		Files:          files,
		Work:           t.TempDir(),
		OriginFile:     filepath.Join(t.TempDir(), "result"),
		Base:           "base:1",
		Language:       "nodejs",
		SourceFiles:    []string{"handler.js", "handler.ts"},
		DependencyFile: "package.json",
		Limits:         sources.Limits{Download: 1000000, Size: 1000000, Files: 100, Ratio: 100},
		Log:            io.Discard,
	}
}

// tree returns the files below a folder with their content.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found[name] = readFile(t, path.Join(folder, name))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

const ms = `{"dependencies": {"ms": "^2.1.0"}}`

func lockedDockerfile(language string) string {
	runtime, _ := runtimes.For(language)
	text, err := runtime.LockedDockerfile("base:1")
	if err != nil {
		panic(err)
	}
	return text
}

func TestFetch(t *testing.T) {
	handler, manifest := sourcestest.File("handler.js", "code"), sourcestest.File("package.json", "\ufeff{}")
	inFolder := func(s *FetchStep) { s.Tree = "source" }
	for name, tc := range map[string]struct {
		entries []sourcestest.Entry
		change  func(*FetchStep)
		want    map[string]string
	}{
		"source beside the files of the runtime": {
			[]sourcestest.Entry{handler, manifest, sourcestest.File("Dockerfile", "the author's"), sourcestest.File("lib/a.js", "more")},
			inFolder,
			map[string]string{
				"source/handler.js": "code", "source/package.json": "\ufeff{}", "source/Dockerfile": "the author's", "source/lib/a.js": "more",
				"package.json": "{}", "Dockerfile": "Kiln's Dockerfile", "server.cjs": "Kiln's server.cjs",
			},
		},
		"a lock file": {
			[]sourcestest.Entry{
				handler, sourcestest.File("package.json", ms), sourcestest.File("package-lock.json", "a lock"),
				sourcestest.File("yarn.lock", "another"), {Name: "npm-shrinkwrap.json", Link: "package-lock.json"},
			},
			inFolder,
			map[string]string{
				"source/handler.js": "code", "source/package.json": ms, "source/package-lock.json": "a lock", "source/yarn.lock": "another",
				"source/npm-shrinkwrap.json": "a lock", "package.json": ms, "package-lock.json": "a lock", "Dockerfile": lockedDockerfile("nodejs"), "server.cjs": "Kiln's server.cjs",
			},
		},
		"hashes": {
			[]sourcestest.Entry{sourcestest.File("handler.py", "code"), sourcestest.File("requirements.txt", "\ufeffa==1 --hash=sha256:aa"), sourcestest.File("uv.lock", "x")},
			func(s *FetchStep) {
				inFolder(s)
				s.Language, s.SourceFiles, s.DependencyFile = "python", []string{"handler.py"}, "requirements.txt"
			},
			map[string]string{
				"source/handler.py": "code", "source/requirements.txt": "\ufeffa==1 --hash=sha256:aa", "source/uv.lock": "x",
				"requirements.txt": "a==1 --hash=sha256:aa", "Dockerfile": lockedDockerfile("python"), "server.cjs": "Kiln's server.cjs",
			},
		},
		"a lock file among the files of the runtime, whose Dockerfile decides": {
			[]sourcestest.Entry{handler, sourcestest.File("package.json", ms), sourcestest.File("yarn.lock", "a lock")},
			func(*FetchStep) {},
			map[string]string{"handler.js": "code", "package.json": ms, "yarn.lock": "a lock", "Dockerfile": "Kiln's Dockerfile", "server.cjs": "Kiln's server.cjs"},
		},
		"source in the only folder, without dependencies": {
			[]sourcestest.Entry{{Name: "repo/"}, sourcestest.File("repo/handler.js", "code")},
			inFolder,
			map[string]string{"source/handler.js": "code", "package.json": "{}\n", "Dockerfile": "Kiln's Dockerfile", "server.cjs": "Kiln's server.cjs"},
		},
		"source in TypeScript": {
			[]sourcestest.Entry{sourcestest.File("handler.ts", "code")},
			inFolder,
			map[string]string{"source/handler.ts": "code", "package.json": "{}\n", "Dockerfile": "Kiln's Dockerfile", "server.cjs": "Kiln's server.cjs"},
		},
		"source among the files of the runtime, which replace it": {
			[]sourcestest.Entry{handler, sourcestest.File("Dockerfile/x", "the author's"), {Name: "server.cjs", Link: "handler.js"}},
			func(*FetchStep) {},
			map[string]string{"handler.js": "code", "package.json": "{}\n", "Dockerfile": "Kiln's Dockerfile", "server.cjs": "Kiln's server.cjs"},
		},
		"another language": {
			[]sourcestest.Entry{sourcestest.File("handler.pl", "code"), sourcestest.File("cpanfile", "\ufeffmore")},
			func(s *FetchStep) {
				s.Language, s.SourceFiles, s.DependencyFile = "custom", []string{"handler.pl"}, "cpanfile"
			},
			map[string]string{"handler.pl": "code", "cpanfile": "\ufeffmore", "Dockerfile": "Kiln's Dockerfile", "server.cjs": "Kiln's server.cjs"},
		},
		"another language, without dependencies": {
			[]sourcestest.Entry{sourcestest.File("handler.pl", "code")},
			func(s *FetchStep) {
				s.Language, s.SourceFiles, s.DependencyFile = "custom", []string{"handler.pl"}, "cpanfile"
			},
			map[string]string{"handler.pl": "code", "cpanfile": "", "Dockerfile": "Kiln's Dockerfile", "server.cjs": "Kiln's server.cjs"},
		},
		"language without dependencies": {
			[]sourcestest.Entry{sourcestest.File("handler.pl", "code")},
			func(s *FetchStep) { s.Language, s.SourceFiles, s.DependencyFile = "custom", []string{"handler.pl"}, "" },
			map[string]string{"handler.pl": "code", "Dockerfile": "Kiln's Dockerfile", "server.cjs": "Kiln's server.cjs"},
		},
		"own Dockerfile: no file is added": {
			[]sourcestest.Entry{sourcestest.File("Dockerfile", "the author's"), sourcestest.File(".dockerignore", "x"), sourcestest.File("package.json", "[]")},
			func(s *FetchStep) {
				s.Language, s.SourceFiles, s.DependencyFile, s.Files = "dockerfile", []string{"Dockerfile"}, "", t.TempDir()
			},
			map[string]string{"Dockerfile": "the author's", ".dockerignore": "x", "package.json": "[]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			archive := sourcestest.TarGz(tc.entries...)
			step := newFetchStep(t, archive)
			tc.change(step)
			checkFetch(t, step, archive, tc.want)
		})
	}
}

// checkFetch runs the step and checks the build context and the results.
func checkFetch(t *testing.T, step *FetchStep, archive []byte, want map[string]string) {
	t.Helper()
	if err := step.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, tree(t, filepath.Join(step.Work, "context"))); diff != "" {
		t.Errorf("build context (-want, +got):\n%s", diff)
	}
	sum := sha256.Sum256(archive)
	server, _, _ := strings.Cut(step.Archive.URL, "?")
	origin := `{"uri":"` + server + `","digest":"sha256:` + hex.EncodeToString(sum[:]) + `"}`
	if got := readFile(t, filepath.Join(step.Work, "source.json")); got != origin {
		t.Errorf("source.json has %s, want %s", got, origin)
	}
	if got := readFile(t, step.OriginFile); got != origin {
		t.Errorf("the result is %s, want %s", got, origin)
	}
	if left := tree(t, step.Work); len(left) != len(want)+1 {
		t.Errorf("the working folder has other files: %v", left)
	}
}

func TestFetchErrors(t *testing.T) {
	handler, manifest := sourcestest.File("handler.js", "code"), sourcestest.File("package.json", ms)
	for name, tc := range map[string]struct {
		archive []byte
		want    string
	}{
		"hostile":                      {sourcestest.Zip(handler, sourcestest.File("../x", "")), `cannot be used: file "../x" in it has .. in its path`},
		"link out of the only folder":  {sourcestest.Zip(sourcestest.File("r/handler.js", ""), sourcestest.Entry{Name: "r/x", Link: "../.."}), `link "x" in it leads out of it, to "../.."`},
		"dependencies that are a list": {sourcestest.Zip(handler, sourcestest.File("package.json", "[]")), "its package.json must be a JSON object"},
		"dependencies in a folder":     {sourcestest.Zip(handler, sourcestest.File("package.json/x", "")), "its package.json is not a file"},
		"two documents":                {sourcestest.Zip(handler, sourcestest.File("package.json", ms+`{"lockfileVersion": 3}`)), "its package.json must be one JSON object"},
		"a lock file of yarn":          {sourcestest.Zip(handler, manifest, sourcestest.File("yarn.lock", "")), "its yarn.lock is not a lock file of npm"},
		"a lock file that is a folder": {sourcestest.Zip(handler, manifest, sourcestest.File("package-lock.json/x", "")), "its package-lock.json is not a file"},
		"a lock file that leads out":   {sourcestest.Zip(handler, manifest, sourcestest.Entry{Name: "package-lock.json", Link: "../x"}), `link "package-lock.json" in it leads out of it`},
		"a lock file that leads away":  {sourcestest.Zip(handler, manifest, sourcestest.Entry{Name: "package-lock.json", Link: "x"}), "its package-lock.json is not a file"},
		"a lock file without an end":   {sourcestest.Zip(handler, manifest, sourcestest.Entry{Name: "package-lock.json", Link: "package-lock.json"}), "its package-lock.json is not a file"},
		"a lock file that is too long": {sourcestest.TarGz(handler, manifest, sourcestest.Entry{Name: "package-lock.json", Zeros: 16<<20 + 1}), "its package-lock.json is more than 16Mi"},
		"too many dependencies":        {sourcestest.TarGz(handler, sourcestest.Entry{Name: "package.json", Zeros: 1<<20 + 1}), "its package.json is more than 1Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			step := newFetchStep(t, tc.archive)
			step.Tree, step.Limits.Size, step.Limits.Ratio = "source", 100000000, 10000
			err := step.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || sources.ExitCode(err) != sources.ExitRefused {
				t.Errorf("Run() = %v, exit code %d, want %q", err, sources.ExitCode(err), tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("Run() = %v: it has the signature", err)
			}
		})
	}
}

// TestPushFetched makes an image of the files that FetchStep leaves.
func TestPushFetched(t *testing.T) {
	w := newWorkshop(t)
	fetching := newFetchStep(t, sourcestest.Zip(
		sourcestest.File("handler.js", "code"), sourcestest.Entry{Name: "bin/run", Content: "#!", Mode: 0o111}, sourcestest.Entry{Name: "run", Link: "bin/run"},
	))
	fetching.Tree = "source"
	if err := fetching.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	step := w.step()
	step.ContextFolder, step.SourceFile = filepath.Join(fetching.Work, "context"), filepath.Join(fetching.Work, "source.json")
	step.Layout = filepath.Join(w.context, "layout.json")
	writeFile(t, step.Layout, encode(t, runtimes.Layout{
		Files:   map[string]string{"server.cjs": "/kiln/server.cjs"},
		Folders: map[string]string{"source": "/function"}, Entrypoint: []string{"node"},
	}))
	if err := step.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	pushed := w.config(t, "/ns/fn:tag")
	if len(pushed.RootFS.DiffIDs) != 4 {
		t.Errorf("the image has %d layers, want 4", len(pushed.RootFS.DiffIDs))
	}
	if got := pushed.Config.Labels["serverless.kiln.dev/source-hash"]; !strings.HasPrefix(got, "sha256:") {
		t.Errorf("the label with the hash of the source is %q", got)
	}
	first := readFile(t, step.ImageDigestFile)
	if err := step.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := readFile(t, step.ImageDigestFile); again != first {
		t.Errorf("the image is %s, and then %s", first, again)
	}
	writeFile(t, step.SourceFile, []byte(`{"digest": "x"}`))
	if err := step.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is not a digest") {
		t.Errorf("Run() = %v of a source without a digest", err)
	}
}

// TestFetchReportsCommit fetches a commit that cannot be used. Git polling must know
// it, and no build may start from it.
func TestFetchReportsCommit(t *testing.T) {
	repository := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = repository
		command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+repository,
			"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	writeFile(t, filepath.Join(repository, "README.md"), []byte("no function"))
	if err := os.Mkdir(filepath.Join(repository, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(repository, "sub", "main.go"), []byte("package compose"))
	git("add", ".")
	git("commit", "-qm", "x")

	step := newFetchStep(t, nil)
	step.Git = fetch.Git{URL: repository, Revision: "main"}
	err := step.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "handler.js") || sources.ExitCode(err) != sources.ExitRefused {
		t.Errorf("Run() = %v (exit code %d)", err, sources.ExitCode(err))
	}
	below := newFetchStep(t, nil)
	below.Git, below.SourceFiles = fetch.Git{URL: repository, Revision: "main", Folder: "sub"}, []string{"Dockerfile"}
	const want = `its folder sub is not a function: it must have the file Dockerfile at its top, which has: "main.go"`
	if err := below.Run(t.Context()); err == nil || !strings.HasSuffix(err.Error(), want) || sources.ExitCode(err) != sources.ExitRefused {
		t.Errorf("of a folder: Run() = %v (exit code %d), want %q", err, sources.ExitCode(err), want)
	}
	if got, want := readFile(t, step.OriginFile), "sha1:"+git("rev-parse", "HEAD"); !strings.Contains(got, want) {
		t.Errorf("the result is %s, want %s", got, want)
	}
	// The install sidecar starts when this file appears.
	if _, err := os.Stat(filepath.Join(step.Work, "source.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("source.json of a context that is not complete: %v", err)
	}
}
