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

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// isLocked reports whether another process would wait for the lock of the folder.
func isLocked(t *testing.T, folder string) bool {
	t.Helper()
	file, err := os.Open(filepath.Join(folder, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err != nil
}

// TestLock checks that the lock holds until this process ends, that commands do not
// inherit it, and that a second process does not get it.
func TestLock(t *testing.T) {
	folder := t.TempDir()
	if first, err := lock(folder); !first || err != nil {
		t.Fatalf("lock() = %t, %v, want true", first, err)
	}
	if !isLocked(t, folder) {
		t.Error("the folder is not locked")
	}
	if first, err := lock(folder); first || err != nil {
		t.Errorf("lock() = %t, %v after a restart, want false", first, err)
	}
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if isLocked(t, folder) {
		t.Error("a command holds the lock")
	}
}

// TestAwaitFile checks that the build waits for the file of an earlier step.
func TestAwaitFile(t *testing.T) {
	if err := awaitFile(""); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "source.json")
	result := make(chan error)
	go func() { result <- awaitFile(file) }()
	select {
	case err := <-result:
		t.Fatalf("awaitFile() = %v, and the file does not exist", err)
	case <-time.After(3 * filePoll):
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}
