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

// Command kaniko is the executor of the pinned Kaniko module: the image builder that Kiln ships.
// It has one flag more, for Tekton Chains, which signs the image that a build says it has pushed.
package main

import (
	"fmt"
	"os"

	"github.com/chainguard-dev/kaniko/cmd/executor/cmd"
)

func main() {
	urlFile := cmd.RootCmd.PersistentFlags().String("image-url-file", "", "Specify a file to save the name of the built image, without its digest, to.")
	if err := cmd.RootCmd.Execute(); err != nil {
		os.Exit(1)
	}
	if err := writeImageURL(*urlFile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeImageURL saves where the image was pushed to.
func writeImageURL(file string) error {
	if file == "" {
		return nil
	}
	destination := cmd.RootCmd.PersistentFlags().Lookup("destination").Value.String()
	if err := os.WriteFile(file, []byte(destination), 0o644); err != nil {
		return fmt.Errorf("failed to write --image-url-file: %w", err)
	}
	return nil
}
