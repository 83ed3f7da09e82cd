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

// Command registries serves two registries that require credentials. The registry of
// images takes a user and a password. It forwards requests to third_party/htpasswd in
// the same pod, and can act as if it were down or full. The registry of packages takes a
// token and serves npm and pip. A control port searches the stored images for a text.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	imagesPort := flag.Int("images-port", 5000, "the port of the registry of images")
	packagesPort := flag.Int("packages-port", 5001, "the port of the registry of packages")
	controlPort := flag.Int("control-port", 5002, "the control port: /password and /token set credentials, /images sets the state of the registry of images, /find searches it, /hashes has the hashes of the packages")
	storePort := flag.Int("store-port", 5003, "the local port of the registry of images to forward to")
	passwordPort := flag.Int("password-port", 5004, "its local port that sets the password, at /password")
	folder := flag.String("folder", "/data", "the folder of its images")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	token := &secret{}
	listen := func(port int, handler http.Handler) *door {
		return &door{ctx: ctx, address: net.JoinHostPort("", strconv.Itoa(port)), handler: handler}
	}
	store := &images{Handler: forward(*storePort)}
	store.door = listen(*imagesPort, store)
	served, hashes := packages(token)
	for _, d := range []*door{store.door, listen(*packagesPort, served), listen(*controlPort, control(*folder, forward(*passwordPort), token, store, hashes))} {
		if err := d.open(); err != nil {
			log.Fatal(err)
		}
	}
	<-ctx.Done()
}

// forward forwards requests to a local port. It keeps the header Host, which redirects
// in the responses need.
func forward(port int) http.Handler {
	target := &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
}

// door is a port that can be closed. Connections are refused then.
type door struct {
	ctx     context.Context
	address string
	handler http.Handler

	mu     sync.Mutex
	server *http.Server
}

// open opens the port unless it is open.
func (d *door) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(d.ctx, "tcp", d.address)
	if err != nil {
		return err
	}
	d.server = &http.Server{
		Handler: d.handler, ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return d.ctx },
	}
	go func(server *http.Server) { log.Println(server.Serve(listener)) }(d.server)
	return nil
}

// close closes the port unless it is closed.
func (d *door) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	server := d.server
	if d.server = nil; server == nil {
		return nil
	}
	return server.Close()
}

// images is the registry of images: up, down or full.
type images struct {
	http.Handler

	door *door
	full atomic.Bool
}

func (i *images) set(state string) error {
	i.full.Store(state == "full")
	switch state {
	case "up", "full":
		return i.door.open()
	case "down":
		return i.door.close()
	default:
		return fmt.Errorf("the state must be up, down or full: it is %q", state)
	}
}

// ServeHTTP implements http.Handler. A full registry answers as CNCF Distribution does
// when its disk is full.
func (i *images) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if i.full.Load() && r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"errors":[{"code":"UNKNOWN","message":"unknown error",`+
			`"detail":{"DriverName":"filesystem","Enclosed":{"Op":"mkdir","Path":"/var/lib/registry/docker","Err":28}}}]}`)
		return
	}
	i.Handler.ServeHTTP(w, r)
}

// secret is a text that can be set. It matches no text until then.
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

// packages serves the package kiln-private of npm and pip to clients with the token. The
// one of npm writes hashes of the environment of its installation to seen.json. hashes are
// those of the package, as lock files have them.
func packages(token *secret) (_ http.Handler, hashes map[string]string) {
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
	const wheel = "kiln_private-1.0.0-py3-none-any.whl"
	wheelArchive := mustWheel(map[string]string{
		"kiln_private.py":                       "MARKER = 'kiln-private-wheel'\n",
		"kiln_private-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: kiln-private\nVersion: 1.0.0\n",
		"kiln_private-1.0.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"kiln_private-1.0.0.dist-info/RECORD":   "",
	})
	mux.HandleFunc("GET /simple/kiln-private/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="/`+wheel+`">`+wheel+`</a>`)
	})
	mux.HandleFunc("GET /"+wheel, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheelArchive) })
	wheelSum := sha256.Sum256(wheelArchive)
	hashes = map[string]string{"npm": integrity, "pip": "sha256:" + hex.EncodeToString(wheelSum[:])}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			// pip can only send a user and a password.
			_, given, _ = r.BasicAuth()
		}
		if !token.matches(given) {
			http.Error(w, "the token is wrong", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}), hashes
}

// mustArchive returns a package in the format of npm.
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

// mustWheel returns a package in the format of pip.
func mustWheel(files map[string]string) []byte {
	archive := &bytes.Buffer{}
	entries := zip.NewWriter(archive)
	for name, text := range files {
		entry, err := entries.Create(name)
		if err == nil {
			_, err = io.WriteString(entry, text)
		}
		if err != nil {
			panic(err) // memory does not fail
		}
	}
	if err := entries.Close(); err != nil {
		panic(err)
	}
	return archive.Bytes()
}

// control returns the handler of the control port.
func control(folder string, password http.Handler, token *secret, images *images, hashes map[string]string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hashes", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(hashes)
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("POST /password", password)
	mux.HandleFunc("POST /token", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		token.set(string(text))
	})
	mux.HandleFunc("POST /images", func(w http.ResponseWriter, r *http.Request) {
		state, _ := io.ReadAll(r.Body)
		if err := images.set(string(state)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
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

// find returns the names of the files in layers, and of the blobs, that contain the
// text.
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
