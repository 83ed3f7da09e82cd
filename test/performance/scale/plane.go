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
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	pipelineclient "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	kilnclient "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
)

// binaries are the programs that are run, and the definitions of Tekton and Serving.
type binaries struct {
	etcd, kubernetes, definitions string
	controller, webhook           string
}

// build returns the programs: etcd and Kubernetes as the node image has them, and
// Kiln as it is in this repository.
func build(ctx context.Context, folder string) (b binaries, err error) {
	command := exec.CommandContext(ctx, "go", "run", "./hack/cluster", "control-plane")
	command.Stderr = os.Stdout
	output, err := command.Output()
	if err != nil {
		return b, fmt.Errorf("failed to build the control plane: %w", err)
	}
	paths := strings.Fields(string(output))
	if len(paths) != 3 {
		return b, fmt.Errorf("failed to build the control plane: its paths are %q", output)
	}
	b.etcd, b.kubernetes, b.definitions = paths[0], paths[1], paths[2]
	b.controller, b.webhook = filepath.Join(folder, "controller"), filepath.Join(folder, "webhook")
	for path, pkg := range map[string]string{b.controller: "./cmd/controller", b.webhook: "./cmd/webhook"} {
		command := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
		if output, err := command.CombinedOutput(); err != nil {
			return b, fmt.Errorf("failed to build %s: %w: %s", pkg, err, output)
		}
	}
	return b, nil
}

// The users of the API server. Kiln has the roles of its manifests and no others,
// and the API server's limits on them; the stand-in and the harness have all rights,
// and no limits, so that nothing waits for them.
const (
	controllerUser = "system:serviceaccount:kiln-system:controller"
	webhookUser    = "system:serviceaccount:kiln-system:webhook"
	standInUser    = "stand-in"
	harnessUser    = "harness"
)

var users = map[string]string{
	controllerUser: `"system:serviceaccounts,system:serviceaccounts:kiln-system,system:authenticated"`,
	webhookUser:    `"system:serviceaccounts,system:serviceaccounts:kiln-system,system:authenticated"`,
	standInUser:    `"system:masters"`,
	harnessUser:    `"system:masters"`,
}

// auditPolicy has the API server write down the requests of those whose requests
// are counted.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  omitManagedFields: true
  users: ["` + controllerUser + `", "` + webhookUser + `", "` + standInUser + `"]
- level: None
`

// plane is an API server with its etcd, and nothing else of a cluster: no
// scheduler, no controllers, no nodes.
type plane struct {
	folder     string
	kubernetes string
	address    string
	etcd, api  *process
	audit      *audit
}

// startPlane starts an API server that knows nothing yet.
func startPlane(ctx context.Context, b binaries, folder string) (p *plane, err error) {
	p = &plane{folder: folder, kubernetes: b.kubernetes, audit: &audit{file: filepath.Join(folder, "audit.log")}}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p.address = "https://" + net.JoinHostPort("127.0.0.1", ports[2])
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	p.etcd, err = start("etcd", folder, nil, b.etcd, "--data-dir="+filepath.Join(folder, "etcd"), "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--quota-backend-bytes=8589934592")
	if err != nil {
		return nil, err
	}
	if err := p.writeFiles(); err != nil {
		return nil, err
	}
	p.api, err = start("kube-apiserver", folder, nil, b.kubernetes, "kube-apiserver",
		"--etcd-servers="+client, "--bind-address=127.0.0.1", "--secure-port="+ports[2], "--cert-dir="+folder,
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC", "--token-auth-file="+filepath.Join(folder, "tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+filepath.Join(folder, "service-account.key"),
		"--service-account-key-file="+filepath.Join(folder, "service-account.pub"),
		"--audit-policy-file="+filepath.Join(folder, "audit.yaml"), "--audit-log-path="+p.audit.file, "--audit-log-maxsize=100000")
	if err != nil {
		return nil, err
	}
	return p, p.api.until(ctx, "the API server is ready", time.Minute, func(ctx context.Context) error {
		clients, err := p.clients(harnessUser)
		if err != nil {
			return err
		}
		_, err = clients.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// writeFiles writes what the API server reads when it starts.
func (p *plane) writeFiles() error {
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
		fmt.Fprintf(&tokens, "%s,%s,%s,%s\n", token(user), user, user, groups)
	}
	for name, data := range map[string][]byte{
		"service-account.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		"service-account.pub": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv":          tokens.Bytes(),
		"audit.yaml":          []byte(auditPolicy),
	} {
		if err := os.WriteFile(filepath.Join(p.folder, name), data, 0o600); err != nil {
			return fmt.Errorf("failed to write a file for the API server: %w", err)
		}
	}
	return nil
}

// token returns the token of a user: nobody else can reach this API server for
// longer than a benchmark takes.
func token(user string) string { return "token-of-" + strings.ReplaceAll(user, ":", "-") }

// stop ends the API server and etcd.
func (p *plane) stop() {
	p.api.stop()
	p.etcd.stop()
}

// clients talk to the API server as one user, as fast as they can.
type clients struct {
	kube     kubernetes.Interface
	kiln     kilnclient.Interface
	pipeline pipelineclient.Interface
	serving  servingclient.Interface
}

func (p *plane) clients(user string) (*clients, error) {
	config := &rest.Config{
		Host: p.address, BearerToken: token(user), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(p.folder, "apiserver.crt")},
	}
	kube, err := kubernetes.NewForConfig(config)
	kiln, err2 := kilnclient.NewForConfig(config)
	pipeline, err3 := pipelineclient.NewForConfig(config)
	serving, err4 := servingclient.NewForConfig(config)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return nil, fmt.Errorf("failed to make clients: %w", err)
	}
	return &clients{kube: kube, kiln: kiln, pipeline: pipeline, serving: serving}, nil
}

// kubeconfig writes the kubeconfig of a user, and returns its path.
func (p *plane) kubeconfig(user string) (string, error) {
	const name = "scale"
	file := filepath.Join(p.folder, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: p.address, CertificateAuthority: filepath.Join(p.folder, "apiserver.crt"),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token(user)}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file)
	if err != nil {
		return "", fmt.Errorf("failed to write kubeconfig: %w", err)
	}
	return file, nil
}

// kubectl runs kubectl.
func (p *plane) kubectl(ctx context.Context, input []byte, args ...string) error {
	kubeconfig, err := p.kubeconfig(harnessUser)
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
