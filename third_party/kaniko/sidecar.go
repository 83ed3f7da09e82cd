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
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// lockFile is locked while this process runs. The push step of the build waits for
	// the lock, so it notices each end of this process. See pkg/compose.
	lockFile = "lock"

	// doneFile reports to the push step that all layers are complete.
	doneFile = "done"

	// filePoll is the time between two looks for the file of an earlier step.
	filePoll = 50 * time.Millisecond
)

// held keeps the lock. Commands do not inherit it.
var held *os.File

// lock locks the folder until this process ends. It returns false if an earlier process
// has locked it.
func lock(folder string) (first bool, err error) {
	name := filepath.Join(folder, lockFile)
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// The file gets its name once it is locked.
	file, err := os.CreateTemp(folder, lockFile+"-")
	if err != nil {
		return false, fmt.Errorf("failed to create lock: %w", err)
	}
	if err := file.Chmod(0o644); err != nil {
		return false, fmt.Errorf("failed to create lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return false, fmt.Errorf("failed to lock layers: %w", err)
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return false, fmt.Errorf("failed to lock layers: %w", err)
	}
	held = file
	return true, nil
}

// awaitFile returns when the file exists. It returns at once if the name is empty.
func awaitFile(name string) error {
	if name == "" {
		return nil
	}
	for {
		_, err := os.Lstat(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(filePoll)
	}
}

// awaitSignal returns when the container must end.
func awaitSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
}

// markDone reports that all layers are complete.
func markDone(folder string) error {
	if err := os.WriteFile(filepath.Join(folder, doneFile), nil, 0o644); err != nil {
		return fmt.Errorf("failed to report the layers: %w", err)
	}
	return nil
}
