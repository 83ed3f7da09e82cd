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

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

type runtimeReport struct {
	Name           string `json:"name"`
	Language       string `json:"language"`
	BaseImage      string `json:"base_image,omitempty"`
	Deprecated     bool   `json:"deprecated"`
	OwnDockerfile  bool   `json:"own_dockerfile"`
	SourceFile     string `json:"source_file"`
	DependencyFile string `json:"dependency_file,omitempty"`
}

func (c *Clients) runtimes(ctx context.Context) (config.Runtimes, error) {
	configMap, err := c.Kube.CoreV1().ConfigMaps(SystemNamespace).Get(ctx, config.RuntimesConfigName, metav1.GetOptions{})
	switch {
	case apierrs.IsNotFound(err):
		return nil, try(fmt.Errorf("there is no ConfigMap %s in %s: Kiln is probably not installed on this cluster", config.RuntimesConfigName, SystemNamespace),
			"kubectl config current-context")
	case err != nil:
		return nil, fmt.Errorf("failed to get ConfigMap %s: %w", config.RuntimesConfigName, err)
	}
	known, err := config.NewRuntimesFromConfigMap(configMap)
	if err != nil {
		return nil, fmt.Errorf("failed to read runtimes: %w", err)
	}
	return known, nil
}

func (c *cli) describeRuntimeCommand() *cobra.Command {
	command := &cobra.Command{
		Use:               "describe-runtime [RUNTIME]",
		Short:             "List the runtimes, or describe one",
		Example:           "  kubectl fn describe-runtime\n  kubectl fn describe-runtime nodejs24",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeRuntimes,
	}
	out := newOutput(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		clients, err := c.connect()
		if err != nil {
			return err
		}
		known, err := clients.runtimes(command.Context())
		if err != nil {
			return err
		}
		if len(args) == 1 {
			r, err := describeRuntime(known, args[0])
			switch {
			case err != nil:
				return err
			case !out.forHumans():
				return out.report(c.Out, "RuntimeReport", r)
			}
			c.printRuntime(r)
			return nil
		}
		var reports []runtimeReport
		var rows [][]any
		for _, name := range known.Names() {
			r, err := describeRuntime(known, name)
			if err != nil {
				return err
			}
			reports = append(reports, r)
			rows = append(rows, []any{r.Name, r.Language, r.Deprecated, r.SourceFile, cmp.Or(r.DependencyFile, none), cmp.Or(r.BaseImage, none)})
		}
		if !out.forHumans() {
			return out.report(c.Out, "RuntimesReport", map[string]any{"runtimes": reports})
		}
		return out.table(c.Out, columns("Runtime", "Language", "Deprecated", "Source File", "Dependency File", "Base Image"), rows)
	}
	return command
}

func describeRuntime(known config.Runtimes, name string) (runtimeReport, error) {
	configured, ok := known[name]
	if !ok {
		return runtimeReport{}, try(fmt.Errorf("unknown runtime %s; the runtimes are %s", name, strings.Join(known.Names(), ", ")), "kubectl fn describe-runtime")
	}
	language, ok := configured.Find()
	if !ok {
		return runtimeReport{}, try(errors.New("this kubectl fn does not know the language "+configured.Language), "a newer kubectl fn")
	}
	return runtimeReport{
		Name: name, Language: configured.Language, BaseImage: configured.BaseImage, Deprecated: configured.Deprecated,
		OwnDockerfile: configured.Dockerfile != "", SourceFile: language.SourceFile, DependencyFile: language.DependencyFile,
	}, nil
}

func (c *cli) printRuntime(r runtimeReport) {
	fmt.Fprintf(c.Out, "Runtime       %s\nLanguage      %s\nBase image    %s\n", r.Name, r.Language, cmp.Or(r.BaseImage, "set by the Dockerfile"))
	if r.Deprecated {
		fmt.Fprint(c.Out, "Deprecated    yes: choose another one\n")
	}
	if r.OwnDockerfile {
		fmt.Fprint(c.Out, "Dockerfile    provided by the administrator of the cluster\n")
	}
	source, dependencies, health := r.SourceFile+", in spec.source", "none", "GET "+runtimes.HealthPath
	switch {
	case r.Language == runtimes.DockerfileLanguage:
		source, dependencies = r.SourceFile+" and the files beside it, in spec.git or spec.archive", "installed by the Dockerfile"
		health = fmt.Sprintf("the container listens on $PORT, which is %d", runtimes.Port)
	case r.DependencyFile != "":
		dependencies = r.DependencyFile + ", in spec.deps"
	}
	fmt.Fprintf(c.Out, "Source        %s\nDependencies  %s\nHealth        %s\n", source, dependencies, health)
	if _, files := starterOf(r.Language); len(files) > 0 {
		fmt.Fprintf(c.Out, "\nNext: kubectl fn init DIR --runtime=%s\n", r.Name)
	}
}
