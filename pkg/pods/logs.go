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

package pods

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// npm ci ends with 95 lines of help.
	tailLines = 200
	// tailBytes bounds the result, because lines can have any length.
	tailBytes   = 64 << 10
	tailTimeout = 3 * time.Second
)

// LogReader reads the end of a container's log.
type LogReader interface {
	// Tail returns the last lines of the log: at most 200 lines and 64 KiB.
	Tail(ctx context.Context, namespace, pod, container string) (string, error)
}

// Logs reads logs through the API server. It waits at most 3 s for each.
type Logs struct {
	Client kubernetes.Interface
}

// Tail implements LogReader.
func (l Logs) Tail(ctx context.Context, namespace, pod, container string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	stream, err := l.Client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: container,
		TailLines: new(int64(tailLines)),
	}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("failed to open log: %w", err)
	}
	defer stream.Close()
	log, err := readEnd(stream, tailBytes)
	if err != nil {
		return log, fmt.Errorf("failed to read log: %w", err)
	}
	return log, nil
}

// readEnd returns at most limit bytes of the end of the stream. The API server can
// only limit its beginning.
func readEnd(r io.Reader, limit int) (string, error) {
	var end []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if end = append(end, buf[:n]...); len(end) > limit {
			end = bytes.Clone(end[len(end)-limit:])
		}
		if err == io.EOF {
			return string(end), nil
		}
		if err != nil {
			return string(end), err
		}
	}
}
