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

// Command kubernetes holds every Kubernetes program of a kind node. The name it
// is called by picks the program: one link instead of seven, and one layer that
// all control plane images share.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // CronJob time zones must work in images without zone files.

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins.
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json.
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // Client metrics.
	_ "k8s.io/component-base/metrics/prometheus/version"  // Version metric.
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps the name the binary is called by to what then runs.
var programs = map[string]func(){
	"kube-apiserver":          serve(apiserver.NewAPIServerCommand),
	"kube-controller-manager": serve(controllermanager.NewControllerManagerCommand),
	"kube-proxy":              serve(proxy.NewProxyCommand),
	"kube-scheduler":          serve(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 serve(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubeadm":                 func() { kubeadmerrors.HandleError(kubeadm.Run()) },
	"kubectl":                 runKubectl,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, ok := programs[name]
	if !ok && len(os.Args) > 1 {
		// Called by its own name: the first argument says which program is meant.
		os.Args = os.Args[1:]
		run, ok = programs[os.Args[0]]
	}
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: call this binary by one of the names %s\n", name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	run()
}

func names() []string {
	all := make([]string, 0, len(programs))
	for name := range programs {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// serve defers making the command until its program is the one that was called:
// making it registers flags and metrics in process-wide registries.
func serve(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

func runKubectl() {
	// Set before the command exists, because making it already logs.
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
