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
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrNotInstalled means that the sidecar that installs dependencies has failed. The push
// step then ends with sources.ExitNotInstalled.
var ErrNotInstalled = errors.New("the sidecar that installs dependencies has failed, see its log")

const (
	// lockFile is locked by the sidecar while it runs. The kernel releases the lock when
	// the sidecar ends in any way.
	lockFile = "lock"

	// doneFile is written by the sidecar when all layers are complete.
	doneFile = "done"

	// lockTimeout bounds the wait for the lock to exist. Tekton starts steps once all
	// sidecars run, and the sidecar makes the lock first.
	lockTimeout = time.Minute

	lockPoll = 50 * time.Millisecond
)

func (s *PushStep) awaitLayers(ctx context.Context) error {
	folder, err := os.OpenRoot(s.Layers)
	if err != nil {
		return fmt.Errorf("failed to open layers: %w", err)
	}
	defer folder.Close()
	if err := awaitLock(ctx, folder); err != nil {
		return err
	}
	_, err = folder.Lstat(doneFile)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotInstalled
	}
	return err
}

func awaitLock(ctx context.Context, folder *os.Root) error {
	var lock *os.File
	waiting, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	err := wait.PollUntilContextCancel(waiting, lockPoll, true, func(context.Context) (found bool, err error) {
		lock, err = openFile(folder, lockFile)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("failed to wait for the sidecar that installs dependencies: %w", err)
	}
	released := make(chan error, 1)
	go func() {
		defer lock.Close()
		var err error = syscall.EINTR
		for errors.Is(err, syscall.EINTR) {
			err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH)
		}
		released <- err
	}()
	select {
	case err := <-released:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
