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

package compose

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// lockLayers locks the layers as the sidecar does. The returned function ends the sidecar.
func lockLayers(t *testing.T, folder string) (end func()) {
	t.Helper()
	file, err := os.Create(filepath.Join(folder, "unnamed"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file.Name(), filepath.Join(folder, lockFile)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAwaitLayers checks that the push step waits for the sidecar to end, also where the
// sidecar starts later.
func TestAwaitLayers(t *testing.T) {
	step := &PushStep{Layers: t.TempDir()}
	result := make(chan error)
	go func() { result <- step.awaitLayers(t.Context()) }()
	end := lockLayers(t, step.Layers)
	if err := os.WriteFile(filepath.Join(step.Layers, doneFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		t.Fatalf("awaitLayers() = %v while the sidecar runs", err)
	case <-time.After(5 * lockPoll):
	}
	end()
	if err := <-result; err != nil {
		t.Errorf("awaitLayers() = %v", err)
	}
}

// TestAwaitKilledSidecar checks that the push step notices a sidecar that ends without
// any report.
func TestAwaitKilledSidecar(t *testing.T) {
	step := &PushStep{Layers: t.TempDir()}
	end := lockLayers(t, step.Layers)
	result := make(chan error)
	go func() { result <- step.awaitLayers(t.Context()) }()
	end()
	if err := <-result; !errors.Is(err, ErrNotInstalled) {
		t.Errorf("awaitLayers() = %v, want %v", err, ErrNotInstalled)
	}
}

// TestAwaitCancelled checks that a build that is cancelled does not wait.
func TestAwaitCancelled(t *testing.T) {
	step := &PushStep{Layers: t.TempDir()}
	defer lockLayers(t, step.Layers)()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- step.awaitLayers(ctx) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("awaitLayers() = %v, want %v", err, context.Canceled)
	}
}
