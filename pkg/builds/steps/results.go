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

package steps

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	containerregistry "github.com/google/go-containerregistry/pkg/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

const (
	// ImageURLResult is the result with the repository of the image. Tekton Chains signs
	// the image that the results ImageURLResult and ImageDigestResult describe.
	ImageURLResult = "IMAGE_URL"

	// ImageDigestResult is the result with the digest of the image.
	ImageDigestResult = "IMAGE_DIGEST"

	// BaseImageResult is the result with the base image: an object with a uri and a
	// digest. Tekton Chains records results with this suffix as inputs of the build.
	BaseImageResult = "BASE_IMAGE_ARTIFACT_INPUTS"

	// SourceResult is the result with the fetched source: an object like BaseImageResult.
	SourceResult = "SOURCE_ARTIFACT_INPUTS"

	// DependenciesResult is the result with the image of the installed dependencies: an
	// object with its tag, its digest, and the digest of the list of its packages. Tekton
	// Chains does not sign it, because no Function runs it.
	DependenciesResult = "DEPENDENCIES"
)

// Results are the results that a build has reported. They are not validated.
type Results struct {
	// ImageDigest is the result ImageDigestResult.
	ImageDigest string `json:"IMAGE_DIGEST,omitempty"`

	// BaseImage, Dependencies and Source have the properties of the other results.
	BaseImage    map[string]string `json:"BASE_IMAGE_ARTIFACT_INPUTS,omitempty"`
	Dependencies map[string]string `json:"DEPENDENCIES,omitempty"`
	Source       map[string]string `json:"SOURCE_ARTIFACT_INPUTS,omitempty"`
}

// Digest returns the digest of the image.
func (r *Results) Digest() (string, error) {
	if r.ImageDigest == "" {
		return "", errors.New("the result " + ImageDigestResult + " is missing")
	}
	digest, err := containerregistry.NewHash(strings.TrimSpace(r.ImageDigest))
	if err != nil {
		return "", fmt.Errorf("the result %s is not a digest: %w", ImageDigestResult, err)
	}
	return digest.String(), nil
}

// IsValid reports whether the results name the image.
func (r *Results) IsValid() bool {
	_, err := r.Digest()
	return err == nil
}

// installed returns the image with the dependencies that the build has installed. It is
// zero unless the result is valid.
func (r *Results) installed() v1alpha1.DependencyImage {
	digest := digestIn(r.Dependencies, "digest")
	if digest == "" || r.Dependencies["tag"] == "" {
		return v1alpha1.DependencyImage{}
	}
	return v1alpha1.DependencyImage{Tag: r.Dependencies["tag"], Digest: digest, PackagesDigest: digestIn(r.Dependencies, "packages")}
}

// digestIn returns a property that is a digest, or "".
func digestIn(result map[string]string, property string) string {
	digest, err := containerregistry.NewHash(result[property])
	if err != nil {
		return ""
	}
	return digest.String()
}

// RunOf returns the build that the object runs, without Ref and CompletionTime.
func RunOf(object metav1.Object, state builds.State, results Results) builds.Run {
	annotations := object.GetAnnotations()
	run := builds.Run{
		Request: builds.Request{
			Tag:                object.GetLabels()[serverless.ImageTagLabelKey],
			Fingerprint:        annotations[serverless.BuildInputsAnnotationKey],
			Rebuild:            annotations[serverless.RebuildAnnotationKey],
			Commit:             annotations[serverless.BuildCommitAnnotationKey],
			Generation:         parse(annotations[serverless.GenerationAnnotationKey], 64),
			CredentialsVersion: annotations[serverless.BuildCredentialsAnnotationKey],
		},
		Object:  object,
		Reason:  annotations[serverless.BuildReasonAnnotationKey],
		Attempt: int32(cmp.Or(parse(annotations[serverless.BuildAttemptAnnotationKey], 32), 1)),
		State:   state,
	}
	run.Source.Algorithm, run.Source.Value, _ = strings.Cut(results.Source["digest"], ":")
	if created := object.GetCreationTimestamp(); !created.IsZero() {
		// Builders set their own start time later, and may correct it. Each correction would
		// be a write of the status.
		run.StartTime = &created
	}
	if state == builds.Succeeded {
		run.Digest, _ = results.Digest()
		run.BaseDigest = digestIn(results.BaseImage, "digest")
		run.Installed = results.installed()
	}
	return run
}

func parse(text string, bits int) int64 {
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return 0
	}
	return n
}

// IsKept reports whether the controller reads the annotation of the object that runs a
// build. Only the pod reads the environment of the build.
func IsKept(annotation string) bool {
	return strings.HasPrefix(annotation, serverless.GroupName+"/") && annotation != serverless.BuildEnvAnnotationKey
}
