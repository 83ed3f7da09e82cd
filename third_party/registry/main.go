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

// Command registry is the container registry of the kind cluster: CNCF
// Distribution's handlers over a directory, on plain HTTP. Its own command
// would bring along the SDKs of several clouds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/sirupsen/logrus"

	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

// drain is how long requests may take to end when the registry is stopped.
const drain = 5 * time.Second

func main() {
	addr := flag.String("addr", ":5000", "address to listen on")
	root := flag.String("root", "/var/lib/registry", "directory that holds the images")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, addr, root string) error {
	logrus.SetLevel(logrus.WarnLevel)
	app := handlers.NewApp(ctx, settings(root))
	server := &http.Server{Addr: addr, Handler: app, ReadHeaderTimeout: time.Minute}

	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return fmt.Errorf("failed to serve: %w", err)
	case <-ctx.Done():
	}
	// Not of ctx, which has ended.
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	return errors.Join(server.Shutdown(ctx), app.Shutdown())
}

func settings(root string) *configuration.Configuration {
	c := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": {"rootdirectory": root},
			"cache":      {"blobdescriptor": "inmemory"},
			"delete":     {"enabled": true},
		},
	}
	c.Log.Level = "warn"
	c.Catalog.MaxEntries = 1000
	return c
}
