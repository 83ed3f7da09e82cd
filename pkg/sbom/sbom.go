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

// Package sbom lists the packages in an image as a CycloneDX document.
package sbom

import (
	"archive/tar"
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// MediaType is the media type of a document.
const MediaType = "application/vnd.cyclonedx+json"

const maxFile = 64 << 20

// Package is a package that a package manager installed.
type Package struct {
	// URL is its package URL: type, name and version.
	URL string

	// Name and Version are spelled as in the package manager's list.
	Name, Version string
}

// Image is an image in a registry.
type Image struct {
	// Repository is the full name of its repository, host included.
	Repository string

	// Digest is sha256: and 64 hexadecimal digits.
	Digest string
}

var readers = []struct {
	matches func(file string) bool
	read    func(io.Reader) ([]Package, error)
}{
	{func(file string) bool { return strings.HasSuffix(file, "node_modules/.package-lock.json") }, readNPM},
	{func(file string) bool {
		return strings.HasSuffix(path.Dir(file), ".dist-info") && path.Base(file) == "METADATA"
	}, readPython},
}

// Scan reads a layer to its end and returns the packages that its files list. It
// skips lists that it cannot parse, because untrusted code may have written them. It
// returns an error if it cannot read the layer.
func Scan(layer *tar.Reader) ([]Package, error) {
	var found []Package
	for {
		header, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		for _, reader := range readers {
			if header.Typeflag != tar.TypeReg || !reader.matches(header.Name) {
				continue
			}
			if packages, err := reader.read(io.LimitReader(layer, maxFile)); err == nil {
				found = append(found, packages...)
			}
		}
	}
}

func readNPM(file io.Reader) (found []Package, err error) {
	var lock struct {
		Packages map[string]struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"packages"`
	}
	if err := json.NewDecoder(file).Decode(&lock); err != nil {
		return nil, fmt.Errorf("failed to read npm's list: %w", err)
	}
	for place, p := range lock.Packages {
		// An alias has another folder name. Its entry has the real name.
		_, name, _ := cutLast(place, "node_modules/")
		if name = cmp.Or(p.Name, name); name == "" || p.Version == "" {
			continue
		}
		found = append(found, Package{URL: "pkg:npm/" + strings.ReplaceAll(name, "@", "%40") + "@" + url.PathEscape(p.Version), Name: name, Version: p.Version})
	}
	return found, nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

var separators = regexp.MustCompile(`[-_.]+`)

func readPython(file io.Reader) ([]Package, error) {
	headers, err := textproto.NewReader(bufio.NewReader(file)).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("failed to read a Python package's metadata: %w", err)
	}
	name, version := headers.Get("Name"), headers.Get("Version")
	if name == "" || version == "" {
		return nil, nil
	}
	normal := separators.ReplaceAllString(strings.ToLower(name), "-")
	return []Package{{URL: "pkg:pypi/" + normal + "@" + url.PathEscape(version), Name: name, Version: version}}, nil
}

// Encode returns the document of an image. It lists the packages, and the base image
// unless its Repository is empty. Equal packages in any order make equal documents.
func Encode(image, base Image, packages []Package) ([]byte, error) {
	about := component(image)
	components := []cyclonedx.Component{}
	if base.Repository != "" {
		components = append(components, component(base))
	}
	for _, p := range sorted(packages) {
		components = append(components, cyclonedx.Component{
			BOMRef: p.URL, Type: cyclonedx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: p.URL,
		})
	}
	document := cyclonedx.NewBOM()
	document.Metadata = &cyclonedx.Metadata{Component: &about}
	document.Components = &components
	var text strings.Builder
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).Encode(document); err != nil {
		return nil, fmt.Errorf("failed to encode document: %w", err)
	}
	return []byte(text.String()), nil
}

// Decode returns the packages in a document. The result is nil only with an error.
func Decode(text io.Reader) ([]Package, error) {
	document := cyclonedx.BOM{}
	if err := cyclonedx.NewBOMDecoder(text, cyclonedx.BOMFileFormatJSON).Decode(&document); err != nil {
		return nil, fmt.Errorf("failed to read document: %w", err)
	}
	packages := []Package{}
	if document.Components == nil {
		return packages, nil
	}
	for _, c := range *document.Components {
		if c.Type == cyclonedx.ComponentTypeLibrary {
			packages = append(packages, Package{URL: c.PackageURL, Name: c.Name, Version: c.Version})
		}
	}
	return packages, nil
}

func component(image Image) cyclonedx.Component {
	purl := "pkg:oci/" + path.Base(image.Repository) + "@" + url.QueryEscape(image.Digest) + "?repository_url=" + url.QueryEscape(image.Repository)
	return cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeContainer, Name: image.Repository, Version: image.Digest, PackageURL: purl,
	}
}

// sorted returns each package once. npm may install one in several folders.
func sorted(packages []Package) []Package {
	packages = slices.Clone(packages)
	slices.SortFunc(packages, func(a, b Package) int { return cmp.Compare(a.URL, b.URL) })
	return slices.CompactFunc(packages, func(a, b Package) bool { return a.URL == b.URL })
}
