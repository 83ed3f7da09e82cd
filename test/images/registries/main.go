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

// Command registries is two registries that want credentials: one of images,
// with a user and a password, and one of npm packages, with a token. It also
// tells whether what it was given holds a text.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// user is who may push and pull, and who may ask for packages.
const user = "kiln"

func main() {
	imagesPort := flag.Int("images-port", 5000, "the port of the registry of images")
	packagesPort := flag.Int("packages-port", 5001, "the port of the registry of packages")
	controlPort := flag.Int("control-port", 5002, "the port that sets credentials, at /password and /token, and finds a text, at /find")
	folder := flag.String("folder", "/data", "where the images are kept")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	password, token := &secret{}, &secret{}
	images := registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(*folder)), registry.Logger(log.New(io.Discard, "", 0)))
	ended := make(chan error)
	for port, handler := range map[int]http.Handler{
		*imagesPort:   guardImages(images, password),
		*packagesPort: packages(token),
		*controlPort:  control(*folder, password, token),
	} {
		server := &http.Server{
			Addr: net.JoinHostPort("", strconv.Itoa(port)), Handler: handler, ReadHeaderTimeout: time.Minute,
			BaseContext: func(net.Listener) context.Context { return ctx },
		}
		go func() { ended <- server.ListenAndServe() }()
	}
	select {
	case err := <-ended:
		log.Fatal(err)
	case <-ctx.Done():
	}
}

// secret is a text that can be changed. It matches nothing until it is set.
type secret struct {
	mu   sync.Mutex
	text string
}

func (s *secret) set(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
}

func (s *secret) matches(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text != "" && subtle.ConstantTimeCompare([]byte(s.text), []byte(text)) == 1
}

// guardImages lets pass who knows the password.
func guardImages(images http.Handler, password *secret) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, given, ok := r.BasicAuth()
		if !ok || name != user || !password.matches(given) {
			w.Header().Set("WWW-Authenticate", `Basic realm="kiln"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			// Who has gone away is not answered, here and below.
			_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
			return
		}
		images.ServeHTTP(w, r)
	})
}

// packages serves kiln-private, to those who know the token, and never answers
// who asks for kiln-slow. What kiln-private was installed with it tells, as a
// hash, in seen.json.
func packages(token *secret) http.Handler {
	archive := mustArchive(map[string]string{
		"package/package.json": `{"name": "kiln-private", "version": "1.0.0", "scripts": {"install": "node install.js"}}`,
		"package/index.js":     "module.exports = { marker: 'kiln-private-marker', ...require('./seen.json') };\n",
		"package/install.js": `const hash = (text) => require('crypto').createHash('sha256').update(text || '').digest('hex');
const seen = Object.fromEntries(Object.keys(process.env).filter((n) => n.startsWith('HOSTILE_')).map((n) => [n, hash(process.env[n])]));
require('fs').writeFileSync('seen.json', JSON.stringify(seen));
`,
	})
	sum := sha512.Sum512(archive)
	integrity := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	mux := http.NewServeMux()
	mux.HandleFunc("GET /kiln-private", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name":      "kiln-private",
			"dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{
				"name": "kiln-private", "version": "1.0.0", "hasInstallScript": true,
				"dist": map[string]string{"tarball": "http://" + r.Host + "/kiln-private.tgz", "integrity": integrity},
			}},
		})
	})
	mux.HandleFunc("GET /kiln-private.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || !token.matches(given) {
			http.Error(w, "the token is not right", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
	all := http.NewServeMux()
	all.HandleFunc("GET /kiln-slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	all.Handle("/", guarded)
	return all
}

// mustArchive returns a package as npm has it.
func mustArchive(files map[string]string) []byte {
	archive := &bytes.Buffer{}
	compressed := gzip.NewWriter(archive)
	entries := tar.NewWriter(compressed)
	for name, text := range files {
		err := entries.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.WriteString(entries, text)
		}
		if err != nil {
			panic(err) // memory does not fail
		}
	}
	if err := errors.Join(entries.Close(), compressed.Close()); err != nil {
		panic(err)
	}
	return archive.Bytes()
}

// control sets the credentials and searches.
func control(folder string, password, token *secret) http.Handler {
	mux := http.NewServeMux()
	set := func(s *secret) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			s.set(string(text))
		}
	}
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /password", set(password))
	mux.HandleFunc("POST /token", set(token))
	mux.HandleFunc("POST /find", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		found, err := find(folder, text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found)
	})
	return mux
}

// find returns where the text is: in which layers, under which name, and in
// which other blobs, such as configurations of images.
func find(folder string, text []byte) (found []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(data, text) {
			found = append(found, entry.Name())
		}
		if layer, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			inLayer, err := findInLayer(layer, text)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			found = append(found, inLayer...)
		}
		return nil
	})
	return found, err
}

func findInLayer(layer io.Reader, text []byte) (found []string, err error) {
	archive := tar.NewReader(layer)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(data, text) || strings.Contains(header.Name, string(text)) {
			found = append(found, header.Name)
		}
	}
}
