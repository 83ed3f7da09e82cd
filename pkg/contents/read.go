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

package contents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/flowcontrol"
)

// perSecond limits the requests for the objects of all Functions together. With many objects,
// it takes more than the interval until a change is noticed.
const perSecond = 50

// NewReader returns a Read that asks the API server. Kiln's own roles do not allow it to get
// Secrets: the author must create a Role.
func NewReader(client corev1client.CoreV1Interface) Read {
	r := &reader{client: client, pace: flowcontrol.NewTokenBucketRateLimiter(perSecond, perSecond)}
	return r.read
}

type reader struct {
	client corev1client.CoreV1Interface
	pace   flowcontrol.RateLimiter
}

func (r *reader) read(ctx context.Context, request Request) Found {
	sum := sha256.New()
	for _, o := range request.objects() {
		if err := r.add(ctx, sum, request.Namespace, o); err != nil {
			return Found{Failure: describe(o, err), Unanswered: !apierrs.IsNotFound(err) && !apierrs.IsForbidden(err)}
		}
	}
	return Found{Hash: request.Prefix() + shorten(sum.Sum(nil), 16)}
}

// add adds an object to the hash, with its UID. More people can read the hash than Secrets,
// and few of them know the UID. Without it, they could try likely contents.
func (r *reader) add(ctx context.Context, sum hash.Hash, namespace string, o object) error {
	if err := r.pace.Wait(ctx); err != nil {
		return fmt.Errorf("failed to wait for a turn: %w", err)
	}
	uid, data, err := r.get(ctx, namespace, o)
	switch {
	case o.optional && apierrs.IsNotFound(err):
		fmt.Fprintf(sum, "%q does not exist\n", o.kind+o.name)
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintf(sum, "%q %q\n", o.kind+o.name, uid)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(sum, "%q %q\n", key, data[key])
	}
	return nil
}

func (r *reader) get(ctx context.Context, namespace string, o object) (types.UID, map[string][]byte, error) {
	if o.kind == secretKind {
		secret, err := r.client.Secrets(namespace).Get(ctx, o.name, metav1.GetOptions{})
		if err != nil {
			return "", nil, err
		}
		return secret.UID, secret.Data, nil
	}
	configMap, err := r.client.ConfigMaps(namespace).Get(ctx, o.name, metav1.GetOptions{})
	if err != nil {
		return "", nil, err
	}
	data := maps.Clone(configMap.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, text := range configMap.Data {
		data[key] = []byte(text)
	}
	return configMap.UID, data, nil
}

// describe returns why the object could not be read. The words do not change while the cause
// stays.
func describe(o object, err error) string {
	name := o.kind + " " + o.name
	var status apierrs.APIStatus
	switch {
	case apierrs.IsNotFound(err):
		return name + " does not exist."
	case apierrs.IsForbidden(err):
		return fmt.Sprintf("Kiln may not read %s. Allow it with a Role, as docs/guides/secrets.md says.", name)
	case errors.As(err, &status):
		return fmt.Sprintf("%s could not be read: %s.", name, cmp.Or(status.Status().Reason, metav1.StatusReasonUnknown))
	default:
		return name + " could not be read: the API server did not answer."
	}
}

// Prefix returns the first part of each hash of these objects. It changes with their names.
func (r Request) Prefix() string {
	sum := sha256.Sum256([]byte(r.Objects))
	return shorten(sum[:], 4) + "."
}

// Matches reports whether the hash is of the objects of the request, whatever their content.
func (r Request) Matches(hash string) bool {
	return strings.HasPrefix(hash, r.Prefix())
}

func shorten(sum []byte, bytes int) string { return hex.EncodeToString(sum[:bytes]) }
