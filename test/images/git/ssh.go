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
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
)

const (
	// user is the account of all clients.
	user = "git"

	// sshAddress is the address of OpenSSH.
	sshAddress = "127.0.0.1:22"

	// keysFile has the public keys of the clients.
	keysFile = "/etc/ssh/authorized_keys"

	// hostKeyFile has the public key for known_hosts, which is one of several.
	hostKeyFile = "/etc/ssh/ssh_host_rsa_key.pub"
)

// prepareSSH creates the keys of OpenSSH, and a user that may only use Git. It changes
// the system's configuration, and must run in a container.
func prepareSSH(ctx context.Context) error {
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		return fmt.Errorf("failed to create folder: %w", err)
	}
	for _, command := range [][]string{
		{"ssh-keygen", "-A"},
		// OpenSSH rejects accounts without a password. No password matches this one.
		{"useradd", "--password", "*", "--home-dir", "/", "--shell", "/usr/bin/git-shell", user},
		// The repository belongs to another user.
		{"git", "config", "--system", "safe.directory", "*"},
	} {
		if _, err := run(exec.CommandContext(ctx, command[0], command[1:]...)); err != nil {
			return err
		}
	}
	return nil
}

// serveSSH runs OpenSSH until the context is done.
func serveSSH(ctx context.Context) error {
	// sshd requires its absolute path: it starts itself again for each connection.
	_, err := run(exec.CommandContext(ctx, "/usr/sbin/sshd", "-D", "-e",
		"-o", "AuthorizedKeysFile="+keysFile, "-o", "PasswordAuthentication=no", "-o", "KbdInteractiveAuthentication=no", "-o", "UsePAM=no"))
	if err == nil {
		err = errors.New("sshd exited")
	}
	return err
}

// greetSSH returns an error unless OpenSSH accepts connections.
func greetSSH(ctx context.Context) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", sshAddress)
	if err != nil {
		return fmt.Errorf("failed to reach sshd: %w", err)
	}
	return connection.Close()
}

// authorize makes the owner of the key the only client.
func authorize(key string) error {
	if err := os.WriteFile(keysFile, []byte(key+"\n"), 0o644); err != nil {
		return fmt.Errorf("failed to write keys: %w", err)
	}
	return nil
}

func hostKey() (string, error) {
	key, err := os.ReadFile(hostKeyFile)
	if err != nil {
		return "", fmt.Errorf("failed to read key: %w", err)
	}
	return string(key), nil
}
