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

// The program burst applies many Functions at once on the cluster that KUBECONFIG names.
// It fails unless all become Ready. It also fails if more builds run than config-build
// allows, plus one for each namespace. It reports the time, the controller's memory and
// CPU, and the requests to the API server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

func main() {
	functions := flag.Int("functions", 100, "how many Functions are applied")
	namespaces := flag.Int("namespaces", 4, "over how many namespaces")
	patience := flag.Duration("patience", 30*time.Minute, "how long that may take")
	folder := flag.String("out", "build/bench", "where burst.json is written")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()
	if err := run(ctx, *functions, max(*namespaces, 1), *folder); err != nil {
		fmt.Fprintln(os.Stderr, "The burst has failed:", err)
		os.Exit(1)
	}
}

// run applies the Functions in new namespaces and writes the report.
func run(ctx context.Context, functions, namespaces int, folder string) error {
	clients, err := test.NewClients()
	if err != nil {
		return err
	}
	limit, err := limitOf(ctx, clients)
	if err != nil {
		return err
	}
	var names []string
	defer func() {
		for _, name := range names {
			if err := clients.Kube.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil {
				fmt.Println("failed to delete namespace:", err)
			}
		}
	}()
	for range namespaces {
		namespace, err := clients.Kube.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kiln-burst-"}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("failed to create namespace: %w", err)
		}
		names = append(names, namespace.Name)
	}
	w := newWatcher(clients, limit, namespaces, functions)
	result, err := w.follow(ctx, func() error { return apply(ctx, clients, functions, names) })
	if result != nil {
		err = errors.Join(err, result.print(os.Stdout), test.WriteJSON(folder, "burst", result))
	}
	return err
}

// limitOf returns the limit of concurrent builds; 0 means no limit.
func limitOf(ctx context.Context, clients *test.Clients) (int, error) {
	configMap, err := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace).Get(ctx, config.BuildConfigName, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("failed to get ConfigMap: %w", err)
	}
	cfg, err := config.NewBuildFromConfigMap(configMap)
	if err != nil {
		return 0, err
	}
	return int(cfg.MaxConcurrent), nil
}

// apply creates the Functions, each with a different source.
func apply(ctx context.Context, clients *test.Clients, functions int, namespaces []string) error {
	for i := range functions {
		fn := &v1alpha1.Function{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fn-%03d", i)},
			Spec: v1alpha1.FunctionSpec{
				Runtime:   "nodejs24",
				Source:    fmt.Sprintf("// %d\nmodule.exports = { main: () => %d };\n", time.Now().UnixNano(), i),
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")}},
			},
		}
		namespace := namespaces[i%len(namespaces)]
		if _, err := clients.Kiln.ServerlessV1alpha1().Functions(namespace).Create(ctx, fn, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create Function: %w", err)
		}
	}
	return nil
}
