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

// Command versitygw is an S3 store for the end-to-end tests: Versity's gateway to
// a folder of its own, empty at first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	config := &embedgw.Config{Quiet: true, HealthPath: "/healthz", MaxConnections: 100, MaxRequests: 100, MultipartMaxParts: 10000}
	address := flag.String("address", ":7070", "where to listen")
	flag.StringVar(&config.RootUserAccess, "access", "", "the access key that may do everything")
	flag.StringVar(&config.RootUserSecret, "secret", "", "its secret key")
	flag.StringVar(&config.Region, "region", "us-east-1", "the region that requests are signed for")
	flag.StringVar(&config.VirtualDomain, "domain", "", "the domain that names of buckets may be put before")
	flag.Parse()
	config.Ports = []string{*address}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, config); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs until the context is done. Not all file systems keep attributes of
// files: these are files, too, in a folder beside.
func serve(ctx context.Context, config *embedgw.Config) error {
	dir, err := os.MkdirTemp("", "versitygw")
	if err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	objects, attributes := filepath.Join(dir, "objects"), filepath.Join(dir, "attributes")
	if err := errors.Join(os.Mkdir(objects, 0o700), os.Mkdir(attributes, 0o700)); err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	store, err := meta.NewSideCar(attributes)
	if err != nil {
		return fmt.Errorf("failed to open store: %w", err)
	}
	files, err := posix.New(objects, store, posix.PosixOpts{SideCarDir: attributes, ValidateBucketNames: true})
	if err != nil {
		return fmt.Errorf("failed to open store: %w", err)
	}
	return embedgw.RunVersityGW(ctx, files, config)
}
