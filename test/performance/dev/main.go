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

// The program dev measures the time from a save until the new code answers, with kubectl
// fn dev and with kubectl fn deploy, on the cluster that KUBECONFIG names.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
	"github.com/kiln-dev/kiln/test/performance/report"
)

// The rows of the report: the command, and what builds.
const (
	rowDev          = "dev"
	rowDeployTekton = "deploy-tekton"
	rowDeployJobs   = "deploy-jobs"
)

const (
	name = "fn"
	// patience bounds each save.
	patience = 5 * time.Minute
	poll     = 5 * time.Millisecond
	// builderKey is the key of the builder in config-build.
	builderKey = "builder"
)

func main() {
	saves := flag.Int("saves", 20, "how many saves of kubectl fn dev are counted")
	deploys := flag.Int("deploys", 5, "how many saves of kubectl fn deploy are counted, with each builder")
	folder := flag.String("out", "build/bench", "where dev.json and dev.svg are written")
	plugin := flag.String("kubectl-fn", "build/kubectl-fn", "the plugin")
	relayImage := flag.String("relay-image", "", "the image of test/images/relay")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	result, err := measure(ctx, max(*saves, 1), max(*deploys, 1), *plugin, *relayImage)
	if err == nil {
		err = errors.Join(result.Print(os.Stdout), result.Save(*folder, "dev"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "The saves cannot be measured:", err)
		os.Exit(1)
	}
}

// author edits a Function in a namespace of its own.
type author struct {
	clients           *test.Clients
	relay             *test.Relay
	namespace         string
	plugin, directory string
	versions          int
}

// measure takes the times of all rows that the cluster can have.
func measure(ctx context.Context, saves, deploys int, plugin, relayImage string) (result *report.Report, err error) {
	clients, err := test.NewClients()
	if err != nil {
		return nil, err
	}
	hasTekton, _, err := clients.Platform()
	if err != nil {
		return nil, err
	}
	namespaces := clients.Kube.CoreV1().Namespaces()
	namespace, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kiln-dev-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to create namespace: %w", err)
	}
	defer func() {
		err = errors.Join(err, namespaces.Delete(context.WithoutCancel(ctx), namespace.Name, metav1.DeleteOptions{}))
	}()
	a := &author{clients: clients, namespace: namespace.Name}
	if a.plugin, err = filepath.Abs(plugin); err != nil {
		return nil, err
	}
	if a.directory, err = os.MkdirTemp("", "kiln-dev-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(a.directory)
	if a.relay, err = test.StartRelay(ctx, clients, namespace.Name, relayImage); err != nil {
		return nil, err
	}
	samples := map[string][]float64{}
	rows := []string{rowDev}
	for _, with := range []struct {
		row     string
		builder config.Builder
		able    bool
	}{{rowDeployTekton, config.TektonBuilder, hasTekton}, {rowDeployJobs, config.JobBuilder, true}} {
		if !with.able {
			continue
		}
		rows = append(rows, with.row)
		if samples[with.row], err = a.deployAll(ctx, with.builder, deploys); err != nil {
			return nil, fmt.Errorf("failed to take %s: %w", with.row, err)
		}
	}
	if samples[rowDev], err = a.dev(ctx, saves); err != nil {
		return nil, fmt.Errorf("failed to take %s: %w", rowDev, err)
	}
	result = &report.Report{Title: "From a save to the answer of the new code"}
	for _, row := range rows {
		result.Rows = append(result.Rows, report.NewRow(row, samples[row], nil))
	}
	for i := range result.Rows {
		result.Rows[i].Baseline = rowDev
		result.Rows[i].Ratio = result.Rows[i].MedianS / result.Rows[0].MedianS
	}
	return result, nil
}

// save writes another version of the code, and returns its answer.
func (a *author) save() (answer string, err error) {
	a.versions++
	answer = fmt.Sprintf("version %d", a.versions)
	source := fmt.Sprintf("module.exports = { main: () => '%s' };\n", answer)
	return answer, os.WriteFile(filepath.Join(a.directory, "handler.js"), []byte(source), 0o600)
}

func (a *author) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, a.plugin, append(args, "--namespace="+a.namespace)...)
	command.Dir = a.directory
	return command
}

// deployAll deploys several saves with a builder, after one that is not counted.
func (a *author) deployAll(ctx context.Context, builder config.Builder, count int) (samples []float64, err error) {
	restore, err := a.choose(ctx, string(builder))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	for i := range count + 1 {
		took, err := a.deploy(ctx)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			samples = append(samples, took.Seconds())
		}
	}
	return samples, nil
}

// choose sets the builder until restore is called.
func (a *author) choose(ctx context.Context, builder string) (restore func() error, err error) {
	configMaps := a.clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace)
	set := func(value *string) error {
		patch, err := json.Marshal(map[string]any{"data": map[string]any{builderKey: value}})
		if err == nil {
			_, err = configMaps.Patch(context.WithoutCancel(ctx), config.BuildConfigName, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err
	}
	before, err := configMaps.Get(ctx, config.BuildConfigName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get ConfigMap: %w", err)
	}
	var former *string
	if text, ok := before.Data[builderKey]; ok {
		former = &text
	}
	return func() error { return set(former) }, set(&builder)
}

// deploy saves the code, and returns the time until the Function answers with it.
func (a *author) deploy(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	want, err := a.save()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if out, err := a.command(ctx, "deploy", name, "--runtime=nodejs24").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("kubectl fn deploy: %w: %s", err, out)
	}
	fn, err := a.clients.Kiln.ServerlessV1alpha1().Functions(a.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	for {
		answer, err := a.relay.CallFunction(ctx, api.Request{Method: http.MethodGet, URL: fn.Status.URL.String()})
		switch {
		case err != nil:
			return 0, err
		case answer.Body == want:
			return time.Since(begin), nil
		}
	}
}

// dev returns the times of several saves with kubectl fn dev, after one that is not counted.
func (a *author) dev(ctx context.Context, count int) (samples []float64, err error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	command := a.command(running, "dev", name, "--port=0")
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = time.Minute
	words, err := command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	defer func() {
		stop()
		// It was interrupted, so it returns an error.
		_ = command.Wait()
	}()
	url, err := findURL(words)
	if err != nil {
		return nil, err
	}
	for i := range count + 1 {
		want, err := a.save()
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := untilAnswer(ctx, url, want); err != nil {
			return nil, err
		}
		if i > 0 {
			samples = append(samples, time.Since(begin).Seconds())
		}
	}
	return samples, nil
}

var local = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// findURL reads the URL that kubectl fn dev prints, and then discards what it prints.
func findURL(words io.Reader) (string, error) {
	var before []string
	scanner := bufio.NewScanner(words)
	for scanner.Scan() {
		if url := local.FindString(scanner.Text()); url != "" {
			go io.Copy(io.Discard, words) //nolint:errcheck // It ends with the command.
			return url, nil
		}
		before = append(before, scanner.Text())
	}
	return "", fmt.Errorf("kubectl fn dev printed no URL: %s", strings.Join(before, "\n"))
}

func untilAnswer(ctx context.Context, url, want string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ; ; time.Sleep(poll) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || string(body) == want {
			return err
		}
	}
}
