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

package poll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

// NewResolver returns a Resolve that asks Git servers. It reads the Secret each time.
// Kiln's own roles do not allow that: the user must create a Role.
func NewResolver(secrets corev1client.SecretsGetter) Resolve {
	return func(ctx context.Context, branch Branch) (string, error) {
		git := fetch.Git{URL: branch.URL, Revision: branch.Revision, Guard: branch.Allowed.Check}
		if branch.Secret == "" {
			return git.Resolve(ctx)
		}
		folder, err := mount(ctx, secrets, branch)
		if folder != "" {
			defer os.RemoveAll(folder)
		}
		if err != nil {
			return "", err
		}
		git.Credentials = fetch.Credentials(folder)
		return git.Resolve(ctx)
	}
}

func mount(ctx context.Context, secrets corev1client.SecretsGetter, branch Branch) (folder string, err error) {
	secret, err := secrets.Secrets(branch.Namespace).Get(ctx, branch.Secret, metav1.GetOptions{})
	switch {
	case apierrs.IsNotFound(err):
		return "", sources.Refuse("Secret %s does not exist", branch.Secret)
	case apierrs.IsForbidden(err):
		return "", sources.Refuse("Kiln may not read Secret %s: allow it with a Role, as docs/sources.md says", branch.Secret)
	case err != nil:
		return "", fmt.Errorf("failed to get Secret: %w", err)
	}
	if folder, err = os.MkdirTemp("", "kiln-"); err != nil {
		return "", fmt.Errorf("failed to create folder: %w", err)
	}
	for _, key := range []string{fetch.UsernameKey, fetch.PasswordKey, fetch.TokenKey, fetch.CAKey, fetch.KeyKey, fetch.KnownHostsKey} {
		if value, ok := secret.Data[key]; ok {
			err = errors.Join(err, os.WriteFile(filepath.Join(folder, key), value, 0o600))
		}
	}
	if err != nil {
		return folder, fmt.Errorf("failed to write credentials: %w", err)
	}
	return folder, nil
}
