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

// Package tunnel forwards ports of this machine to a pod, as kubectl port-forward does.
package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
)

// Tunnel forwards ports to a pod until it is closed or the connection breaks.
type Tunnel struct {
	// Addresses are the addresses on this machine, one for each port of the pod.
	Addresses []string

	// Ended is closed when the tunnel no longer forwards.
	Ended <-chan struct{}

	// Close ends the tunnel.
	Close func()
}

// Open forwards free ports of this machine to those of a pod.
func Open(ctx context.Context, kube kubernetes.Interface, config *rest.Config, namespace, pod string, ports ...int) (*Tunnel, error) {
	url := kube.CoreV1().RESTClient().Get().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialer(url, config)
	if err != nil {
		return nil, err
	}
	var pairs []string
	for _, port := range ports {
		pairs = append(pairs, fmt.Sprintf("0:%d", port))
	}
	ctx, cancel := context.WithCancel(ctx)
	ready, ended, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, pairs, ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		failed <- forwarder.ForwardPorts()
		close(ended)
	}()
	select {
	case <-ctx.Done():
		cancel()
		return nil, ctx.Err()
	case <-ready:
	case err := <-failed:
		cancel()
		return nil, cmp.Or(err, errors.New("the connection closed"))
	}
	forwarded, err := forwarder.GetPorts()
	if err != nil {
		cancel()
		return nil, err
	}
	t := &Tunnel{Ended: ended, Close: cancel}
	for _, port := range forwarded {
		t.Addresses = append(t.Addresses, fmt.Sprintf("127.0.0.1:%d", port.Local))
	}
	return t, nil
}
