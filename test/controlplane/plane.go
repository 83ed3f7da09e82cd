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

// Package controlplane runs Kiln without a cluster. It starts a real etcd, API server,
// controller and webhook, and replaces Tekton and Serving by a stand-in that completes
// everything at once. It needs Go and a POSIX system.
package controlplane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kiln-dev/kiln/test"
)

// Binaries are the programs, and the definitions of Tekton and Serving.
type Binaries struct {
	// Etcd and Kubernetes are those of the node image.
	Etcd, Kubernetes string

	// Definitions is the file with the definitions of Tekton and Serving.
	Definitions string

	// Controller and Webhook are Kiln's programs, built from this repository.
	Controller, Webhook string
}

// Build returns the programs: etcd and Kubernetes of the node image, and Kiln built from
// this repository into the folder. Call it in the root of the repository.
func Build(ctx context.Context, folder string) (b Binaries, err error) {
	command := exec.CommandContext(ctx, "go", "-C", "hack", "run", "./cluster", "control-plane")
	command.Stderr = os.Stdout
	output, err := command.Output()
	if err != nil {
		return b, fmt.Errorf("failed to build the control plane: %w", err)
	}
	paths := strings.Fields(string(output))
	if len(paths) != 3 {
		return b, fmt.Errorf("failed to build the control plane: its paths are %q", output)
	}
	b.Etcd, b.Kubernetes, b.Definitions = paths[0], paths[1], paths[2]
	b.Controller, b.Webhook = filepath.Join(folder, "controller"), filepath.Join(folder, "webhook")
	for path, pkg := range map[string]string{b.Controller: "./cmd/controller", b.Webhook: "./cmd/webhook"} {
		// The same flags as ko, so both share the compiler's cache.
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, pkg)
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := command.CombinedOutput(); err != nil {
			return b, fmt.Errorf("failed to build %s: %w: %s", pkg, err, output)
		}
	}
	return b, nil
}

// The users of the API server. Kiln has only the roles of its manifests, and the API
// server's limits. The stand-in and the harness have all rights and no limits, so nothing
// waits for them.
const (
	// ControllerUser is Kiln's controller.
	ControllerUser = "system:serviceaccount:kiln-system:controller"
	// WebhookUser is Kiln's webhook.
	WebhookUser = "system:serviceaccount:kiln-system:webhook"
	// StandInUser stands for Tekton and Serving.
	StandInUser = "stand-in"
	// HarnessUser is the user of tests and benchmarks.
	HarnessUser = "harness"
)

var users = map[string]string{
	ControllerUser: `"system:serviceaccounts,system:serviceaccounts:kiln-system,system:authenticated"`,
	WebhookUser:    `"system:serviceaccounts,system:serviceaccounts:kiln-system,system:authenticated"`,
	StandInUser:    `"system:masters"`,
	HarnessUser:    `"system:masters"`,
}

// auditPolicy makes the API server log the requests of the counted users.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  omitManagedFields: true
  users: ["` + ControllerUser + `", "` + WebhookUser + `", "` + StandInUser + `"]
- level: None
`

// Plane is an API server with its etcd, without a scheduler and nodes.
type Plane struct {
	// Folder has all files of the programs.
	Folder string

	// Address is the address of the API server, and CAFile its CA.
	Address, CAFile string

	// AuditLog is the file with the requests of all users except the harness.
	AuditLog string

	// Etcd and API are the processes.
	Etcd, API *Process

	kubernetes  string
	controllers *Process
}

// StartPlane starts an empty API server.
func StartPlane(ctx context.Context, b Binaries, folder string) (p *Plane, err error) {
	p = &Plane{
		Folder: folder, CAFile: filepath.Join(folder, "apiserver.crt"), AuditLog: filepath.Join(folder, "audit.log"),
		kubernetes: b.Kubernetes,
	}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p.Address = "https://" + net.JoinHostPort("127.0.0.1", ports[2])
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	p.Etcd, err = Start("etcd", folder, nil, b.Etcd, "--data-dir="+filepath.Join(folder, "etcd"), "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--quota-backend-bytes=8589934592")
	if err != nil {
		return nil, err
	}
	if err := p.writeFiles(); err != nil {
		return nil, err
	}
	p.API, err = Start("kube-apiserver", folder, nil, b.Kubernetes, "kube-apiserver",
		"--etcd-servers="+client, "--bind-address=127.0.0.1", "--secure-port="+ports[2], "--cert-dir="+folder,
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC", "--token-auth-file="+filepath.Join(folder, "tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+filepath.Join(folder, "service-account.key"),
		"--service-account-key-file="+filepath.Join(folder, "service-account.pub"),
		"--audit-policy-file="+filepath.Join(folder, "audit.yaml"), "--audit-log-path="+p.AuditLog, "--audit-log-maxsize=100000")
	if err != nil {
		return nil, err
	}
	return p, p.API.Until(ctx, "the API server is ready", time.Minute, func(ctx context.Context) error {
		clients, err := p.Clients(HarnessUser)
		if err != nil {
			return err
		}
		_, err = clients.Kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// writeFiles writes the configuration of the API server.
func (p *Plane) writeFiles() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("failed to make a key: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("failed to encode a key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("failed to encode a key: %w", err)
	}
	var tokens bytes.Buffer
	for user, groups := range users {
		fmt.Fprintf(&tokens, "%s,%s,%s,%s\n", TokenOf(user), user, user, groups)
	}
	for name, data := range map[string][]byte{
		"service-account.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		"service-account.pub": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv":          tokens.Bytes(),
		"audit.yaml":          []byte(auditPolicy),
	} {
		if err := os.WriteFile(filepath.Join(p.Folder, name), data, 0o600); err != nil {
			return fmt.Errorf("failed to write a file for the API server: %w", err)
		}
	}
	return nil
}

// TokenOf returns the token of a user. It need not be secret, because the API server runs
// only briefly on this machine.
func TokenOf(user string) string { return "token-of-" + strings.ReplaceAll(user, ":", "-") }

// startControllers starts controllers of Kubernetes.
func (p *Plane) startControllers(names ...string) error {
	kubeconfig, err := p.Kubeconfig(HarnessUser)
	if err != nil {
		return err
	}
	p.controllers, err = Start("kube-controller-manager", p.Folder, nil, p.kubernetes, "kube-controller-manager",
		"--kubeconfig="+kubeconfig, "--controllers="+strings.Join(names, ","),
		"--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000")
	return err
}

// Stop kills all processes, because nothing is kept.
func (p *Plane) Stop() {
	p.controllers.Kill()
	p.API.Kill()
	p.Etcd.Kill()
}

// Clients returns clients of one user without a rate limit.
func (p *Plane) Clients(user string) (*test.Clients, error) {
	return test.NewClientsFor(&rest.Config{
		Host: p.Address, BearerToken: TokenOf(user), TLSClientConfig: rest.TLSClientConfig{CAFile: p.CAFile},
	})
}

// Kubeconfig writes the kubeconfig of a user, and returns its path.
func (p *Plane) Kubeconfig(user string) (string, error) {
	return p.kubeconfig(user, p.Address, p.CAFile)
}

func (p *Plane) kubeconfig(user, address, caFile string) (string, error) {
	const name = "control-plane"
	file := filepath.Join(p.Folder, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: address, CertificateAuthority: caFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: TokenOf(user)}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file)
	if err != nil {
		return "", fmt.Errorf("failed to write kubeconfig: %w", err)
	}
	return file, nil
}

// Kubectl runs kubectl.
func (p *Plane) Kubectl(ctx context.Context, input []byte, args ...string) error {
	kubeconfig, err := p.Kubeconfig(HarnessUser)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, p.kubernetes, append([]string{"kubectl", "--kubeconfig=" + kubeconfig}, args...)...)
	command.Stdin = bytes.NewReader(input)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("failed to run kubectl %s: %w: %s", args[0], err, output)
	}
	return nil
}
