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

package images

import (
	"slices"
	"strings"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// RecordBuilt records an image as the newest that a build has pushed. Only recorded images
// are reused: everyone who can push to the repository can move its tags.
func RecordBuilt(status *v1alpha1.FunctionStatus, image v1alpha1.BuiltImage) {
	status.BuiltImages = putFirst(status.BuiltImages, image, v1alpha1.MaxBuiltImages,
		func(other v1alpha1.BuiltImage) bool { return other.Tag == image.Tag })
}

// RecordInstalled records an image with installed dependencies as the newest, unless it is
// zero.
func RecordInstalled(status *v1alpha1.FunctionStatus, image v1alpha1.DependencyImage) {
	if image.Digest == "" {
		return
	}
	status.DependencyImages = putFirst(status.DependencyImages, image, v1alpha1.MaxDependencyImages,
		func(other v1alpha1.DependencyImage) bool { return other.Tag == image.Tag })
}

// Built returns the recorded image of that tag, or its zero value.
func Built(status *v1alpha1.FunctionStatus, tag string) v1alpha1.BuiltImage {
	return first(status.BuiltImages, func(image v1alpha1.BuiltImage) bool { return image.Tag == tag })
}

// Installed returns the newest recorded image with these dependencies on any base image,
// or its zero value.
func Installed(status *v1alpha1.FunctionStatus, dependencies string) v1alpha1.DependencyImage {
	return first(status.DependencyImages, func(image v1alpha1.DependencyImage) bool {
		return dependencies != "" && strings.HasPrefix(image.Tag, dependenciesPrefix(dependencies))
	})
}

func first[Image any](list []Image, matches func(Image) bool) (image Image) {
	if i := slices.IndexFunc(list, matches); i >= 0 {
		image = list[i]
	}
	return image
}

// putFirst returns a copy of the list with the image first, without the images that it
// replaces and without the last ones beyond most.
func putFirst[Image any](list []Image, image Image, most int, replaces func(Image) bool) []Image {
	updated := append([]Image{image}, slices.DeleteFunc(slices.Clone(list), replaces)...)
	return updated[:min(len(updated), most)]
}
