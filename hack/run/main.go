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

// Command run shows what Kiln does: it applies a Function, prints its conditions
// as they change, calls it from inside the cluster and prints the answer. It is
// the second half of make run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// patience is longer than a first build on a slow machine.
const patience = 15 * time.Minute

func main() {
	file := flag.String("f", "examples/greeter.yaml", "the file of the Function")
	body := flag.String("body", `{"name": "world"}`, "what to send to the function, as JSON")
	local := flag.Bool("local", false, "the cluster is the one of make cluster-up")
	relayImage := flag.String("relay-image", "", "the image of test/images/relay, as ko build prints it")
	flag.Parse()
	// The logs of the client libraries, such as the end of a watch, would hide the
	// progress.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file, *body, *relayImage, *local); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, body, relayImage string, local bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	clients, err := test.NewClients()
	if err != nil {
		return err
	}
	name, err := functionIn(file)
	if err != nil {
		return err
	}
	relay, err := test.StartRelay(ctx, clients, clients.Namespace, relayImage)
	if relay != nil {
		defer func() { _ = relay.Stop(ctx) }()
	}
	if err != nil {
		return err
	}

	if err := kubectl(ctx, "apply", "-f", file); err != nil {
		return err
	}
	fn, err := follow(ctx, clients, name, os.Stdout)
	if err != nil {
		explain(fn, os.Stderr)
		return err
	}
	if err := kubectl(ctx, "get", "fn", name); err != nil {
		return err
	}
	if err := call(ctx, relay, fn, body, os.Stdout); err != nil {
		return err
	}
	next(fn, file, local, os.Stdout)
	return nil
}

// functionIn returns the name of the Function in a file.
func functionIn(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("failed to read Function: %w", err)
	}
	fn := &v1alpha1.Function{}
	if err := yaml.Unmarshal(data, fn); err != nil {
		return "", fmt.Errorf("failed to read Function in %s: %w", file, err)
	}
	return fn.Name, nil
}

// kubectl runs kubectl and shows the command, so that the user can repeat it.
func kubectl(ctx context.Context, args ...string) error {
	fmt.Printf("\n$ kubectl %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("failed to run kubectl %s: %w", args[0], err)
	}
	return nil
}

// follow prints each change of the Function's conditions until it is ready.
func follow(ctx context.Context, clients *test.Clients, name string, w io.Writer) (*v1alpha1.Function, error) {
	start := time.Now()
	shown := map[string]string{}
	fmt.Fprintln(w)
	return test.WaitForFunction(ctx, clients, clients.Namespace, name, func(fn *v1alpha1.Function) error {
		if fn.Status.ObservedGeneration != fn.Generation {
			return fmt.Errorf("generation %d is not observed yet", fn.Generation)
		}
		for _, line := range conditionLines(fn) {
			if shown[line.condition] != line.text {
				shown[line.condition] = line.text
				fmt.Fprintf(w, "%6.1fs  %-20s%s\n", time.Since(start).Seconds(), line.condition, line.text)
			}
		}
		return test.Ready(fn)
	})
}

type conditionLine struct{ condition, text string }

// conditionLines returns a line for each condition with a message, in the order in which
// they become True.
func conditionLines(fn *v1alpha1.Function) []conditionLine {
	var lines []conditionLine
	for _, kind := range []apis.ConditionType{
		v1alpha1.FunctionConditionConfigurationReady,
		v1alpha1.FunctionConditionBuildReady,
		v1alpha1.FunctionConditionRunning,
		v1alpha1.FunctionConditionReady,
	} {
		condition := fn.Status.GetCondition(kind)
		if condition == nil || kind == v1alpha1.FunctionConditionReady && condition.IsUnknown() {
			// While Ready is Unknown it repeats the one that it waits for.
			continue
		}
		text := fmt.Sprintf("%-9s%-24s%s", condition.Status, condition.Reason, firstLine(condition.Message))
		lines = append(lines, conditionLine{condition: string(kind), text: strings.TrimRight(text, " ")})
	}
	return lines
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// explain prints the end of a failed build's log.
func explain(fn *v1alpha1.Function, w io.Writer) {
	if fn == nil || fn.Status.Build == nil || fn.Status.Build.Failure == nil {
		return
	}
	fmt.Fprintf(w, "\nThe build's last words:\n%s\n\n", fn.Status.Build.Failure.Log)
}

// call sends the body to the function and prints request and answer.
func call(ctx context.Context, relay *test.Relay, fn *v1alpha1.Function, body string, w io.Writer) error {
	if fn.Status.URL == nil {
		return fmt.Errorf("function %s is ready and has no URL", fn.Name)
	}
	request := api.Request{Method: "POST", URL: fn.Status.URL.String(), ContentType: "application/json", Body: []byte(body)}
	fmt.Fprintf(w, "\nThe request, sent by a pod in the cluster:\n\n  %s %s\n  Content-Type: %s\n\n  %s\n",
		request.Method, request.URL, request.ContentType, request.Body)
	answer, err := relay.CallFunction(ctx, request)
	if err != nil {
		return err
	}
	if answer.Error != "" {
		return fmt.Errorf("failed to call function %s: %s", fn.Name, answer.Error)
	}
	fmt.Fprintf(w, "\nThe function's answer, after %s:\n\n  %d\n  Content-Type: %s\n\n  %s\n",
		answer.Took.Round(time.Millisecond), answer.Status, answer.ContentType, answer.Body)
	if answer.Status/100 != 2 {
		return fmt.Errorf("function %s answered status %d", fn.Name, answer.Status)
	}
	return nil
}

// podSelector returns the selector of the Function's pods.
func podSelector(fn *v1alpha1.Function) string {
	if fn.Status.Serving == string(config.KubernetesServer) {
		return serverless.ServerLabelKey + "," + serverless.FunctionNameLabelKey + "=" + fn.Name
	}
	return "serving.knative.dev/service=" + fn.Name
}

// next prints commands to try next.
func next(fn *v1alpha1.Function, file string, local bool, w io.Writer) {
	lines := [][2]string{
		{"kubectl get fn -w", "watch the Functions"},
		{"kubectl edit fn " + fn.Name, "change the source: it is built again while the old one serves"},
		{"kubectl describe fn " + fn.Name, "conditions and events"},
		{"kubectl logs -l " + podSelector(fn) + " -c function", "what the function logs"},
		{"kubectl delete -f " + file, "remove the function and all that belongs to it"},
	}
	if local {
		again := "make run"
		if platform := os.Getenv("PLATFORM"); platform == "plain" {
			again += " PLATFORM=" + platform
		}
		lines = slices.Concat(
			[][2]string{{". build/cluster/env", "let kubectl work with the cluster"}},
			lines,
			[][2]string{
				{again, "install your changes of Kiln and try again"},
				{"make cluster-down", "remove the cluster"},
			})
	}
	fmt.Fprint(w, "\nWhat to try next:\n\n")
	for _, line := range lines {
		fmt.Fprintf(w, "  %-72s # %s\n", line[0], line[1])
	}
}
