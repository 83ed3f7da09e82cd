//go:build e2e

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

// Package e2e tests Kiln as its users see it, on the cluster that KUBECONFIG names.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/test"
)

// testTimeout is the timeout of a test. It is much longer than a test needs, because tests
// share one node's cores with each other's builds.
const testTimeout = 10 * time.Minute

// All tests share these.
var (
	clients    *test.Clients
	relay      *test.Relay
	relayImage string
	// registriesImage and htpasswdImage are the images of a pod for the tests of
	// credentials.
	registriesImage, htpasswdImage string
	// sourcesImage, versitygwImage and gitImage are the images of pods for the tests of
	// sources.
	sourcesImage, versitygwImage, gitImage string
	// toolNamespace is the namespace of the relay and other tools. It admits privileged
	// pods.
	toolNamespace string
	// builder is the kind of the objects that run the builds of the tests.
	builder *kind
	// server is what serves the Functions of the tests.
	server *serverKind
	// hasTekton and hasServing report whether the cluster has the APIs of both.
	hasTekton, hasServing bool
	// edits is how often TestEditsUnderLoad edits a Function.
	edits int
	// deleteTekton lets TestWithoutTekton delete all TaskRuns of the cluster.
	deleteTekton bool
)

func TestMain(m *testing.M) {
	flag.StringVar(&relayImage, "relay-image", "", "the image of test/images/relay, as ko build prints it")
	flag.StringVar(&htpasswdImage, "htpasswd-image", "", "the image of third_party/htpasswd, as ko build prints it")
	flag.StringVar(&registriesImage, "registries-image", "", "the image of test/images/registries, as ko build prints it")
	flag.StringVar(&sourcesImage, "sources-image", "", "the image of test/images/sources, as ko build prints it")
	flag.StringVar(&gitImage, "git-image", "", "the image of test/images/git, as ko build prints it on a base with Git and OpenSSH")
	flag.StringVar(&versitygwImage, "versitygw-image", "", "the image of third_party/versitygw, as ko build prints it")
	flag.BoolVar(&deleteTekton, "delete-tekton", false, "let TestWithoutTekton delete Tekton's definition of TaskRuns, and with it all TaskRuns of the cluster")
	flag.IntVar(&edits, "edits", 5, "how often TestEditsUnderLoad edits a Function")
	chosen := flag.String("builder", string(config.TektonBuilder), "what runs the builds of the tests: tekton or job")
	chosenServer := flag.String("server", string(config.KnativeServer), "what serves the Functions of the tests: knative or kubernetes")
	flag.Parse()

	ctx := context.Background()
	teardown, err := setUp(ctx, config.Builder(*chosen), config.Server(*chosenServer))
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, "The end-to-end tests cannot run:", err)
	}
	if err := teardown(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// setUp starts what all tests share, and returns a function that deletes it.
func setUp(ctx context.Context, chosenBuilder config.Builder, chosenServer config.Server) (teardown func(context.Context) error, err error) {
	var undo []func(context.Context) error
	teardown = func(ctx context.Context) (err error) {
		for _, step := range slices.Backward(undo) {
			err = errors.Join(err, step(ctx))
		}
		return err
	}
	if relayImage == "" {
		return teardown, errors.New("-relay-image is not set; make test-e2e sets it")
	}
	if builder = kinds[chosenBuilder]; builder == nil {
		return teardown, fmt.Errorf("-builder is %q, and must be %s or %s", chosenBuilder, config.TektonBuilder, config.JobBuilder)
	}
	if server = servers[chosenServer]; server == nil {
		return teardown, fmt.Errorf("-server is %q, and must be %s or %s", chosenServer, config.KnativeServer, config.KubernetesServer)
	}
	if clients, err = test.NewClients(); err != nil {
		return teardown, err
	}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	if hasTekton, hasServing, err = clients.Platform(); err != nil {
		return teardown, err
	}
	for _, choose := range []func(context.Context) (func(context.Context) error, error){
		func(ctx context.Context) (func(context.Context) error, error) {
			return chooseBuilder(ctx, chosenBuilder)
		},
		func(ctx context.Context) (func(context.Context) error, error) { return chooseServer(ctx, chosenServer) },
		chooseMaxReplicas,
	} {
		restore, err := choose(ctx)
		if err != nil {
			return teardown, err
		}
		undo = append(undo, restore)
	}
	if toolNamespace, err = createNamespace(ctx, "kiln-e2e-tools-", "privileged"); err != nil {
		return teardown, err
	}
	undo = append(undo, func(ctx context.Context) error { return deleteNamespace(ctx, toolNamespace) })
	relay, err = test.StartRelay(ctx, clients, toolNamespace, relayImage)
	return teardown, err
}

// builderKey is the key of the builder in config-build, and servingKey that of the server in
// config-functions.
const (
	builderKey = "builder"
	servingKey = "serving"
)

// chooseBuilder sets the builder in config-build until restore is called. Where the default
// means the same, it tests the default.
func chooseBuilder(ctx context.Context, chosen config.Builder) (restore func(context.Context) error, err error) {
	if hasTekton == (chosen == config.TektonBuilder) {
		return setKey(ctx, config.BuildConfigName, builderKey, nil)
	}
	return setKey(ctx, config.BuildConfigName, builderKey, new(string(chosen)))
}

// chooseServer sets the server in config-functions, as chooseBuilder sets the builder.
func chooseServer(ctx context.Context, chosen config.Server) (restore func(context.Context) error, err error) {
	if hasServing == (chosen == config.KnativeServer) {
		return setKey(ctx, config.FunctionsConfigName, servingKey, nil)
	}
	return setKey(ctx, config.FunctionsConfigName, servingKey, new(string(chosen)))
}

// chooseMaxReplicas lets only tests that ask for it have an autoscaler. Functions are called
// all the time here, and their pods share a small node.
func chooseMaxReplicas(ctx context.Context) (restore func(context.Context) error, err error) {
	return setKey(ctx, config.FunctionsConfigName, "kubernetes-max-replicas", new("1"))
}

// setKey sets a key of one of Kiln's ConfigMaps until restore is called. With nil, it deletes
// the key.
func setKey(ctx context.Context, name, key string, value *string) (restore func(context.Context) error, err error) {
	configMaps := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace)
	set := func(ctx context.Context, value *string) error {
		patch, err := json.Marshal(map[string]any{"data": map[string]any{key: value}})
		if err == nil {
			_, err = configMaps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			return fmt.Errorf("failed to set %s in %s: %w", key, name, err)
		}
		return nil
	}
	before, err := configMaps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get ConfigMap: %w", err)
	}
	var former *string
	if text, ok := before.Data[key]; ok {
		former = &text
	}
	return func(ctx context.Context) error { return set(ctx, former) }, set(ctx, value)
}

// createNamespace creates a namespace with that pod security level, waits until it has its
// ServiceAccount, and returns its name.
func createNamespace(ctx context.Context, prefix, podSecurity string) (string, error) {
	namespace, err := clients.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: prefix,
			Labels: map[string]string{
				"app.kubernetes.io/part-of":          "kiln-e2e",
				"pod-security.kubernetes.io/enforce": podSecurity,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to create namespace: %w", err)
	}
	// A pod that is created before its ServiceAccount is denied, and a build of Tekton fails.
	err = test.Until(ctx, clients.Kube.CoreV1().ServiceAccounts(namespace.Name), test.Named("default"), func(found []*corev1.ServiceAccount) error {
		if len(found) == 0 {
			return errors.New("the ServiceAccount does not exist")
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("failed to wait for the ServiceAccount of namespace %s: %w", namespace.Name, err)
	}
	return namespace.Name, nil
}

func deleteNamespace(ctx context.Context, name string) error {
	if err := clients.Kube.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("failed to delete namespace: %w", err)
	}
	return nil
}
