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
	"context"
	"crypto/subtle"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"sync"
)

// newHandler returns the HTTP handler:
//   - /code is the repository. /private/code is the same, for clients with the token.
//   - POST /token?token=T sets the token.
//   - POST /move/BRANCH?to=OTHER moves a branch to the commit of another.
//   - POST /authorize takes the public key of the only client by SSH.
//   - GET /hostkey returns the public key of the server by SSH.
func newHandler(ctx context.Context, r *repository) (http.Handler, error) {
	programs, err := run(exec.CommandContext(ctx, "git", "--exec-path"))
	if err != nil {
		return nil, err
	}
	backend := &cgi.Handler{
		Path: filepath.Join(programs, "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + r.above, "GIT_HTTP_EXPORT_ALL=1"},
	}
	door := &door{}
	mux := http.NewServeMux()
	mux.Handle("/"+repositoryName+"/", backend)
	mux.Handle("/private/", http.StripPrefix("/private", door.guard(backend)))
	mux.HandleFunc("POST /token", func(_ http.ResponseWriter, r *http.Request) { door.setToken(r.FormValue("token")) })
	mux.HandleFunc("POST /move/{branch}", answer(func(request *http.Request) (string, error) {
		return "", r.move(request.Context(), request.PathValue("branch"), request.FormValue("to"))
	}))
	mux.HandleFunc("POST /authorize", answer(func(request *http.Request) (string, error) {
		key, err := io.ReadAll(request.Body)
		if err != nil {
			return "", err
		}
		return "", authorize(string(key))
	}))
	mux.HandleFunc("GET /hostkey", answer(func(*http.Request) (string, error) { return hostKey() }))
	mux.HandleFunc("GET /healthz", answer(func(request *http.Request) (string, error) { return "", greetSSH(request.Context()) }))
	return mux, nil
}

// answer returns a handler that sends the result of do.
func answer(do func(*http.Request) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := do(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if _, err := io.WriteString(w, text); err != nil {
			log.Println("failed to send answer:", err)
		}
	}
}

// door admits clients with the token. It admits none until the token is set.
type door struct {
	mu    sync.Mutex
	token string
}

func (d *door) setToken(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.token = token
}

func (d *door) opens(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(d.token)) == 1
}

func (d *door) guard(inside http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); !d.opens(password) {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inside.ServeHTTP(w, r)
	})
}
