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
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/background"
)

const (
	workers = 8

	lookupTimeout = 3 * time.Second

	// lookupDeadline bounds a lookup and its wait for a worker. Many lookups fit in it
	// while the registry answers.
	lookupDeadline = 30 * time.Second

	taggingTimeout = 30 * time.Second
)

// NewLookups returns a Worker that finds images. A lookup that fails or takes too long
// finds no image. The Worker calls wake for a Function that awaits the answer.
func NewLookups(client *Client, wake func(types.NamespacedName)) *background.Worker[Lookup, Found] {
	return background.New(background.Options[Lookup, Found]{
		Name:     "image-lookups",
		Workers:  workers,
		Do:       client.Find,
		Timeout:  lookupTimeout,
		Deadline: lookupDeadline,
		Wake:     wake,
	})
}

// NewTaggings returns a Worker that tags images. It retries with a backoff until it
// succeeds or forgets the Function.
func NewTaggings(client *Client, wake func(types.NamespacedName)) *background.Worker[Tagging, struct{}] {
	return background.New(background.Options[Tagging, struct{}]{
		Name:    "image-taggings",
		Workers: workers,
		Do: func(ctx context.Context, t Tagging) (struct{}, error) {
			return struct{}{}, client.Tag(ctx, t)
		},
		Timeout:  taggingTimeout,
		Retry:    true,
		Replaces: replaces,
		Wake:     wake,
	})
}

// replaces reports whether t makes an earlier Tagging obsolete. A new version does not
// cancel the tags of earlier versions.
func replaces(t, earlier Tagging) bool {
	return t.Repository != earlier.Repository || t.Tag == earlier.Tag
}
