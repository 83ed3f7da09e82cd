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

import "strings"

// origin is the base image of an image; it is empty where that is not known.
type origin struct {
	// name is what it is called, in full; repository is where it is.
	name, repository string

	// digest is its digest: of an index, where it is one.
	digest string
}

// origin tells which base image the image was built upon. Who has kept
// dependencies knows its digest, and names it.
func (o *order) origin(from *source) (origin, error) {
	if o.base == "" {
		return origin{}, nil
	}
	called, digest, pinned := strings.Cut(o.base, "@")
	if !pinned && o.dependencies == "" {
		digest = from.digest.String()
	}
	ref, err := o.reference(called)
	if err != nil {
		return origin{}, err
	}
	base := origin{name: ref.Name(), repository: ref.Context().Name(), digest: digest}
	if pinned && !strings.HasSuffix(called, ":"+ref.Identifier()) {
		// No tag was said: it is not the latest.
		base.name = base.repository + "@" + digest
	}
	return base, nil
}

// labels are those that OCI has for what an image is built upon.
func (o origin) labels() map[string]string {
	if o.name == "" {
		return nil
	}
	return map[string]string{
		"org.opencontainers.image.base.name":   o.name,
		"org.opencontainers.image.base.digest": o.digest,
	}
}
