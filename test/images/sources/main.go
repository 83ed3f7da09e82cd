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

// Command sources serves the archives of package sourcestest, good and hostile ones. It
// can also push them to registries and object stores.
package main

import (
	"context"
	"crypto/subtle"
	"flag"
	"log"
	"maps"
	"net/http"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
)

func main() {
	address := flag.String("address", ":8080", "the address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	server := &http.Server{Addr: *address, Handler: handler(), ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		if err := server.Close(); err != nil {
			log.Println(err)
		}
	}()
	log.Println(server.ListenAndServe())
}

// handler returns the HTTP handler:
//   - /good/NAME and /hostile/NAME are archives.
//   - /private/NAME is a good archive, for clients with the token.
//   - POST /token?token=T sets the token.
//   - /flaky/COUNT/NAME is a good archive. The first COUNT requests get status 503.
//   - POST /push pushes to a registry, see servePush.
//   - POST /store writes to an object store, see serveStore.
func handler() http.Handler {
	good := sourcestest.Functions()
	hostile := map[string][]byte{}
	for name, archive := range sourcestest.HostileArchives(20000) {
		hostile[name] = archive.Archive
	}
	state := &state{failed: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /good/{name}", func(w http.ResponseWriter, r *http.Request) { send(w, good, r.PathValue("name")) })
	mux.HandleFunc("GET /hostile/{name}", func(w http.ResponseWriter, r *http.Request) { send(w, hostile, r.PathValue("name")) })
	mux.HandleFunc("POST /token", func(_ http.ResponseWriter, r *http.Request) { state.setToken(r.FormValue("token")) })
	mux.HandleFunc("GET /private/{name}", func(w http.ResponseWriter, r *http.Request) {
		if !state.mayRead(r.Header.Get("Authorization")) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		send(w, good, r.PathValue("name"))
	})
	mux.HandleFunc("GET /flaky/{count}/{name}", func(w http.ResponseWriter, r *http.Request) {
		if count, err := strconv.Atoi(r.PathValue("count")); err == nil && state.fail(r.URL.Path) <= count {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		send(w, good, r.PathValue("name"))
	})
	all := maps.Clone(good)
	maps.Copy(all, hostile)
	servePush(mux, all)
	serveStore(mux, all)
	return mux
}

// state is the token, and the number of requests of each flaky path.
type state struct {
	mu     sync.Mutex
	token  string
	failed map[string]int
}

func (s *state) setToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

func (s *state) mayRead(authorization string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token != "" && subtle.ConstantTimeCompare([]byte(authorization), []byte("Bearer "+s.token)) == 1
}

// fail counts a request of a path and returns the count.
func (s *state) fail(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[path]++
	return s.failed[path]
}

func send(w http.ResponseWriter, archives map[string][]byte, name string) {
	archive, ok := archives[name]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if _, err := w.Write(archive); err != nil {
		log.Println("failed to send archive:", err)
	}
}
