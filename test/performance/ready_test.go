//go:build performance

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

// Package performance measures what Kiln's users wait for, on the cluster that
// KUBECONFIG names. It judges nothing: it prints.
package performance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

const patience = 10 * time.Minute

var rounds = flag.Int("rounds", 3, "how often each time is taken")

// step is a change of a Function whose time to Ready is taken.
type step struct {
	name   string
	change func(*v1alpha1.Function)
}

// TestTimeToReady takes the seconds from the write of a Function to the Ready
// of its generation.
func TestTimeToReady(t *testing.T) {
	clients, err := test.NewClients()
	if err != nil {
		t.Fatal(err)
	}
	times := map[string][]time.Duration{}
	var order []string
	for round := range *rounds {
		for _, name := range []string{"greeter", "no-dependency"} {
			fn := functionNamed(t, name)
			measure(t, clients, fn, steps(name, round), func(step string, took time.Duration) {
				if !slices.Contains(order, step) {
					order = append(order, step)
				}
				times[step] = append(times[step], took)
			})
		}
	}
	fmt.Printf("%-40s %8s   %s\n", "seconds from write to Ready", "median", "all")
	for _, step := range order {
		all := slices.Sorted(slices.Values(times[step]))
		fmt.Printf("%-40s %8.1f  ", step, all[len(all)/2].Seconds())
		for _, took := range times[step] {
			fmt.Printf(" %.1f", took.Seconds())
		}
		fmt.Println()
	}
}

// steps are what happens to a Function after its creation.
func steps(name string, round int) []step {
	return []step{
		{name + ": source edited", func(fn *v1alpha1.Function) {
			fn.Spec.Source += fmt.Sprintf("// edit %d at %d\n", round, time.Now().UnixNano())
		}},
		{name + ": env edited", func(fn *v1alpha1.Function) {
			fn.Spec.Env = []corev1.EnvVar{{Name: "ROUND", Value: strconv.Itoa(round)}}
		}},
	}
}

// functionNamed returns the Function of the example, or one without dependency.
func functionNamed(t *testing.T, name string) *v1alpha1.Function {
	t.Helper()
	fn := &v1alpha1.Function{}
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "greeter.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, fn); err != nil {
		t.Fatal(err)
	}
	if name != fn.Name {
		fn.Name = name
		fn.Spec.Deps, fn.Spec.Source = "", "module.exports = { main: () => 'hello' };\n"
	}
	// Content of its own for each round: nothing is there from before.
	fn.Spec.Source += fmt.Sprintf("// %d\n", time.Now().UnixNano())
	return fn
}

// measure creates a Function in a namespace of its own, takes it through the
// steps, and reports how long each took.
func measure(t *testing.T, clients *test.Clients, fn *v1alpha1.Function, steps []step, report func(string, time.Duration)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	namespaces := clients.Kube.CoreV1().Namespaces()
	namespace, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kiln-performance-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := namespaces.Delete(context.WithoutCancel(ctx), namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()

	functions := clients.Kiln.ServerlessV1alpha1().Functions(namespace.Name)
	ready := func(step string, write func() (*v1alpha1.Function, error)) {
		t.Helper()
		start := time.Now()
		if fn, err = write(); err != nil {
			t.Fatal(err)
		}
		if fn, err = test.WaitForFunction(ctx, clients, namespace.Name, fn.Name, test.Ready); err != nil {
			t.Fatal(err)
		}
		report(step, time.Since(start))
	}
	ready(fn.Name+": created", func() (*v1alpha1.Function, error) { return functions.Create(ctx, fn, metav1.CreateOptions{}) })
	for _, step := range steps {
		ready(step.name, func() (*v1alpha1.Function, error) {
			// The controller may write the status between our read and our write.
			current, err := functions.Get(ctx, fn.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			step.change(current)
			return functions.Update(ctx, current, metav1.UpdateOptions{})
		})
	}
}
