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

// Command htpasswd is a registry of images that wants a password, for the
// end-to-end tests: CNCF Distribution's handlers behind an htpasswd file, as many
// run it. A port of its own sets the password.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"

	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

// user is who may push and pull.
const user = "kiln"

func main() {
	addr := flag.String("addr", ":5000", "address of the registry")
	control := flag.String("control", ":5003", "address that a new password is posted to")
	root := flag.String("root", "/data", "directory that holds the images")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *control, *root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs until the context is done, or one of the servers fails.
func serve(ctx context.Context, addr, control, root string) error {
	logrus.SetLevel(logrus.WarnLevel)
	dir, err := os.MkdirTemp("", "htpasswd")
	if err != nil {
		return fmt.Errorf("failed to make a directory for the passwords: %w", err)
	}
	passwords := filepath.Join(dir, "htpasswd")
	// Without a file Distribution makes one, with a password of its own.
	if err := os.WriteFile(passwords, nil, 0o600); err != nil {
		return fmt.Errorf("failed to write the passwords: %w", err)
	}
	ended := make(chan error, 2)
	for address, handler := range map[string]http.Handler{
		addr:    handlers.NewApp(ctx, settings(root, passwords)),
		control: setPassword(passwords),
	} {
		server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: time.Minute}
		go func() { ended <- server.ListenAndServe() }()
	}
	select {
	case err := <-ended:
		return fmt.Errorf("failed to serve: %w", err)
	case <-ctx.Done():
		return nil
	}
}

// setPassword writes the password that is posted, in the place of the last one.
func setPassword(passwords string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /password", func(w http.ResponseWriter, r *http.Request) {
		password, err := io.ReadAll(r.Body)
		// Each request costs such a hash.
		hash, hashErr := bcrypt.GenerateFromPassword(password, bcrypt.MinCost)
		next := passwords + ".next"
		err = errors.Join(err, hashErr, os.WriteFile(next, fmt.Appendf(nil, "%s:%s\n", user, hash), 0o600), os.Rename(next, passwords))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

func settings(root, passwords string) *configuration.Configuration {
	c := &configuration.Configuration{
		Auth:    configuration.Auth{"htpasswd": {"realm": "kiln", "path": passwords}},
		Storage: configuration.Storage{"filesystem": {"rootdirectory": root}},
	}
	c.Log.Level = "warn"
	c.Catalog.MaxEntries = 1000
	return c
}
