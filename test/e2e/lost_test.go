//go:build e2e

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

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// TestLostImages deletes all images of two Functions from the registry. Kiln builds them
// again, and both Functions serve, without an edit. The dependencies of one differ in each
// installation, so its nodes must pull the new image.
func TestLostImages(t *testing.T) {
	e := newEnv(t)
	same, differs := function(answering("same")), installing("require(`fs`).writeFileSync(`built.txt`, String(Date.now()))")
	same.Name, differs.Name = "same", "differs"
	same = e.until(e.create(same), test.Ready)
	differs = e.until(e.create(differs), test.Ready)
	e.deleteImages(same)
	e.deleteImages(differs)
	configure(e, config.RegistryConfigName, func(data map[string]string) { data["check-interval"] = "10s" })

	for _, row := range []struct {
		lost   *v1alpha1.Function
		answer string
	}{{same, "same"}, {differs, "7200000"}} {
		fn := e.until(row.lost, isRebuilt)
		e.wantTag(fn, fn.Status.ImageTag, fn.Status.Image)
		e.wantAnswerSoon(fn, row.answer)
		if changed := fn.Status.Image != row.lost.Status.Image; changed != (fn.Name == "differs") {
			e.Errorf("the image of Function %s was %s and is %s", fn.Name, row.lost.Status.Image, fn.Status.Image)
		}
	}
}

// isRebuilt returns nil for a Function that is ready after its lost image was built again.
func isRebuilt(fn *v1alpha1.Function) error {
	if build := fn.Status.Build; build == nil || build.Reason != builds.ReasonImageLost {
		return fmt.Errorf("the last build is %+v, want reason %s", build, builds.ReasonImageLost)
	}
	return test.Ready(fn)
}

// deleteImages deletes the images that the Function's builds have pushed.
func (e *env) deleteImages(fn *v1alpha1.Function) {
	e.Helper()
	image, err := name.NewDigest(fn.Status.Image)
	if err != nil {
		e.Fatal(err)
	}
	digests := []string{image.DigestStr()}
	for _, installed := range fn.Status.DependencyImages {
		digests = append(digests, installed.Digest)
	}
	for _, digest := range digests {
		answer := e.askRegistry(fn, http.MethodDelete, "manifests/"+digest, api.Request{})
		if answer.Status == http.StatusMethodNotAllowed {
			e.Skip("the registry does not allow to delete images")
		}
		if answer.Status != http.StatusAccepted {
			e.Fatalf("the registry answers %+v", answer)
		}
	}
	if left := e.askRegistry(fn, http.MethodGet, "manifests/"+fn.Status.ImageTag, api.Request{}); left.Status != http.StatusNotFound || !strings.Contains(left.Body, "UNKNOWN") {
		e.Fatalf("the registry still has the image: %+v", left)
	}
}
