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

// Package sbom tells which packages are in an image, as a document of CycloneDX.
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

// MediaType is that of a document.
const MediaType = "application/vnd.cyclonedx+json"

// maxFile is more than a package manager writes about what it has installed.
const maxFile = 64 << 20

// Package is a package that a package manager has installed.
type Package struct {
	// URL is its package URL, which tells its kind, name and version.
	URL string

	// Name and Version are as the package manager says them.
	Name, Version string
}

// Image is an image in a registry.
type Image struct {
	// Repository is the name of its repository, with the host.
	Repository string

	// Digest is its digest: sha256: and 64 digits.
	Digest string
}

// readers know the files in which package managers tell what they have installed.
var readers = []struct {
	matches func(file string) bool
	read    func(io.Reader) ([]Package, error)
}{
	{func(file string) bool { return strings.HasSuffix(file, "node_modules/.package-lock.json") }, readNPM},
	{func(file string) bool {
		return strings.HasSuffix(path.Dir(file), ".dist-info") && path.Base(file) == "METADATA"
	}, readPython},
}

// Scan reads a layer to its end and returns the packages that it tells of. What
// cannot be read tells of none: it was written by what is not to be trusted. An
// error is one of the layer.
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

// readNPM reads npm's list of what is in a node_modules.
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
		// A package that was installed by another name tells its own.
		_, name, _ := cutLast(place, "node_modules/")
		if name = cmp.Or(p.Name, name); name == "" || p.Version == "" {
			continue
		}
		found = append(found, Package{URL: "pkg:npm/" + strings.ReplaceAll(name, "@", "%40") + "@" + url.PathEscape(p.Version), Name: name, Version: p.Version})
	}
	return found, nil
}

// cutLast is strings.Cut around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// separators are what names of Python's packages mean the same with.
var separators = regexp.MustCompile(`[-_.]+`)

// readPython reads what a Python package says of itself.
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

// Encode returns the document of an image, of what it is built upon, if that is
// known, and of the packages in it. The same arguments, in any order, make the same
// document.
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

// Decode returns the packages that a document tells of. They are nil with an error
// only.
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

// component returns an image as a part of a document.
func component(image Image) cyclonedx.Component {
	purl := "pkg:oci/" + path.Base(image.Repository) + "@" + url.QueryEscape(image.Digest) + "?repository_url=" + url.QueryEscape(image.Repository)
	return cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeContainer, Name: image.Repository, Version: image.Digest, PackageURL: purl,
	}
}

// sorted returns each package once. A list may have one in several places.
func sorted(packages []Package) []Package {
	packages = slices.Clone(packages)
	slices.SortFunc(packages, func(a, b Package) int { return cmp.Compare(a.URL, b.URL) })
	return slices.CompactFunc(packages, func(a, b Package) bool { return a.URL == b.URL })
}
