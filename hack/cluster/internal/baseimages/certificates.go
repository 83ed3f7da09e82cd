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

package baseimages

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// systemBundle is where the images keep their bundle of CA certificates.
const systemBundle = "/etc/ssl/certs/ca-certificates.crt"

// bundlePaths are the places where systems keep their bundle.
var bundlePaths = []string{
	systemBundle,                       // Debian and its relatives
	"/etc/pki/tls/certs/ca-bundle.crt", // Fedora and its relatives
	"/etc/ssl/ca-bundle.pem",           // SUSE
	"/etc/ssl/cert.pem",                // macOS, Alpine
}

// hostBundle returns the CA certificates that this machine trusts. If a proxy intercepts
// TLS, programs on the cluster must trust them too.
func hostBundle(getenv func(string) string) ([]byte, error) {
	paths := bundlePaths
	if path := getenv("SSL_CERT_FILE"); path != "" {
		paths = append([]string{path}, paths...)
	}
	var bundle []byte
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("failed to read CA certificates: %w", err)
		}
		bundle = data
		break
	}
	// Node.js on the host may have an additional certificate.
	if path := getenv("NODE_EXTRA_CA_CERTS"); path != "" {
		if data, err := os.ReadFile(path); err == nil {
			bundle = append(bundle, difference(data, bundle)...)
		}
	}
	return bundle, nil
}

// difference returns the certificates of a that b lacks.
func difference(a, b []byte) []byte {
	known := make(map[string]bool)
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		known[string(block.Bytes)] = true
	}
	var out bytes.Buffer
	for block, rest := pem.Decode(a); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || known[string(block.Bytes)] {
			continue
		}
		known[string(block.Bytes)] = true
		out.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
	return out.Bytes()
}
