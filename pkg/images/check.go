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
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/background"
)

const (
	// secondLook is the delay before a second look for an image that seems lost. A
	// registry with several replicas may not show the image at one of them.
	secondLook = 5 * time.Second

	checkTimeout = 30 * time.Second
)

// Check is the deployed image of a Function. The registry is asked periodically whether
// it still holds the image.
type Check struct {
	Repository

	// Digest is the digest of the image.
	Digest string

	// Interval is the time between two checks. It must be positive.
	Interval time.Duration
}

// Checked is the result of a Check.
type Checked struct {
	// Lost reports that the registry does not hold the image. A registry that does not
	// answer, or refuses to, loses no image.
	Lost bool
}

// NewChecks returns a Worker that checks one image of each Function. It calls wake for a
// Function whose image is lost.
func NewChecks(client *Client, wake func(types.NamespacedName)) *background.Worker[Check, Checked] {
	return background.New(background.Options[Check, Checked]{
		Name:     "image-checks",
		Workers:  workers,
		Do:       func(ctx context.Context, check Check) (Checked, error) { return client.Check(ctx, check, secondLook) },
		Timeout:  checkTimeout,
		Interval: func(check Check) time.Duration { return check.Interval },
		Wake:     wake,
	})
}

// Check reports whether the registry has lost the image. It looks twice before it says so.
func (c *Client) Check(ctx context.Context, check Check, pause time.Duration) (Checked, error) {
	repository, options, err := c.open(ctx, check.Repository)
	if err != nil {
		return Checked{}, err
	}
	image := repository.Digest(check.Digest)
	if _, err := remote.Head(image, options...); err == nil {
		return Checked{}, nil
	}
	// No answer to HEAD has an error text.
	lost, err := isLost(image, options)
	if err != nil || !lost {
		return Checked{}, err
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return Checked{}, ctx.Err()
	}
	lost, err = isLost(image, options)
	return Checked{Lost: lost}, err
}

// isLost reports whether the registry itself reports that it does not hold the image. A
// proxy, or another server at its address, answers 404 for other reasons.
func isLost(image name.Digest, options []remote.Option) (bool, error) {
	_, err := remote.Get(image, options...)
	if err == nil {
		return false, nil
	}
	refusal, ok := errors.AsType[*transport.Error](err)
	if ok && refusal.StatusCode == http.StatusNotFound && slices.ContainsFunc(refusal.Errors, isUnknown) {
		return true, nil
	}
	return false, fmt.Errorf("failed to check image %s: %w", image, err)
}

// isUnknown reports whether a registry does not know the image or its repository. Harbor
// has a code of its own.
func isUnknown(d transport.Diagnostic) bool {
	return d.Code == transport.ManifestUnknownErrorCode || d.Code == transport.NameUnknownErrorCode || d.Code == "NOT_FOUND"
}
