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

// Command relay sends HTTP requests inside the cluster for tests that run outside of it,
// once or repeatedly, and reports the answers. It can also kill processes of its node.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// requestTimeout is longer than a cold start of a function.
const requestTimeout = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	server := &http.Server{
		Addr:              fmt.Sprintf(":%d", api.Port),
		Handler:           newHandler(ctx),
		ReadHeaderTimeout: requestTimeout,
	}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}

// newHandler returns the handler of the API. Probes end with ctx.
func newHandler(ctx context.Context) http.Handler {
	p := &probes{ctx: ctx, running: map[string]*probe{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.HealthPath, func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST "+api.CallPath, answer(func(r *http.Request, in api.Request) (api.Answer, error) {
		return send(r.Context(), in), nil
	}))
	mux.HandleFunc("POST "+api.ProbesPath, answer(func(_ *http.Request, in api.Request) (api.Probe, error) {
		return p.start(in), nil
	}))
	mux.HandleFunc("GET "+api.ProbesPath+"/{id}", answer(func(r *http.Request, _ struct{}) (api.Report, error) {
		return p.report(r.Context(), r.PathValue("id"), r.URL.Query()["until"])
	}))
	mux.HandleFunc("DELETE "+api.ProbesPath+"/{id}", answer(func(r *http.Request, _ struct{}) (api.Report, error) {
		return p.stop(r.PathValue("id"))
	}))
	mux.HandleFunc("POST "+api.FloodPath, answer(func(r *http.Request, in api.Flood) (api.Flooded, error) {
		return flood(r.Context(), in), nil
	}))
	mux.HandleFunc("POST "+api.KillPath, answer(func(_ *http.Request, in api.Kill) (api.Killed, error) {
		pids, err := kill("/proc", in)
		return api.Killed{PIDs: pids}, err
	}))
	return mux
}

// answer returns a handler that calls fn with the JSON of the request.
func answer[In, Out any](fn func(*http.Request, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		out, err := fn(r, in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(out); err != nil {
			log.Print(err)
		}
	}
}

// send sends a request and reports the answer.
func send(ctx context.Context, in api.Request) api.Answer {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	start := time.Now()
	out, err := do(ctx, in)
	if err != nil {
		out.Error = err.Error()
	}
	out.Took = time.Since(start)
	return out
}

func do(ctx context.Context, in api.Request) (api.Answer, error) {
	var sent io.Reader = bytes.NewReader(in.Body)
	if in.Chunked {
		sent = io.MultiReader(sent) // The client cannot see its length.
	}
	request, err := http.NewRequestWithContext(ctx, in.Method, in.URL, sent)
	if err != nil {
		return api.Answer{}, err
	}
	request.Host = in.Host
	if in.ContentType != "" {
		request.Header.Set("Content-Type", in.ContentType)
	}
	if in.Accept != "" {
		request.Header.Set("Accept", in.Accept)
	}
	for name, value := range in.Headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return api.Answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	headers := map[string]string{}
	for name, values := range response.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return api.Answer{
		Status:      response.StatusCode,
		ContentType: response.Header.Get("Content-Type"),
		Headers:     headers,
		Body:        string(body),
	}, err
}
