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
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const completionTimeout = 3 * time.Second

// complete returns the results of ask that begin with the typed text. It returns
// nothing if the cluster does not respond.
func (c *cli) complete(command *cobra.Command, typed string, ask func(context.Context, *Clients) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	clients, err := c.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	parent := command.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	found, err := ask(ctx, clients)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found = slices.DeleteFunc(found, func(name string) bool { return !strings.HasPrefix(name, typed) })
	return found, cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) completeNames(most int) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.complete(command, typed, func(ctx context.Context, clients *Clients) (names []string, err error) {
			list, err := clients.Kiln.ServerlessV1alpha1().Functions(clients.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				if !slices.Contains(args, list.Items[i].Name) {
					names = append(names, list.Items[i].Name)
				}
			}
			return names, nil
		})
	}
}

func (c *cli) completeNamespaces(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return c.complete(command, typed, func(ctx context.Context, clients *Clients) (names []string, err error) {
		list, err := clients.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, nil
	})
}

func (c *cli) completeContexts(_ *cobra.Command, _ []string, typed string) (names []string, directive cobra.ShellCompDirective) {
	kubeconfig, err := c.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for name := range kubeconfig.Contexts {
		if strings.HasPrefix(name, typed) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) completeRuntimes(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && command.Name() == "describe-runtime" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.complete(command, typed, func(ctx context.Context, clients *Clients) ([]string, error) {
		known, err := clients.runtimes(ctx)
		return known.Names(), err
	})
}

// completeRevisions completes the revisions of the Function in the first argument,
// each with the suffix.
func (c *cli) completeRevisions(suffix string, others ...string) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		before := typed[:strings.LastIndex(typed, ",")+1]
		return c.complete(command, typed, func(ctx context.Context, clients *Clients) (names []string, err error) {
			fn, err := clients.Kiln.ServerlessV1alpha1().Functions(clients.Namespace).Get(ctx, args[0], metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			revisions, err := clients.revisions(ctx, fn)
			for i := range revisions {
				names = append(names, before+revisions[i].Name+suffix)
			}
			for _, other := range others {
				names = append(names, before+other+suffix)
			}
			return names, err
		})
	}
}

func (c *cli) completeTraffic(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return c.completeNames(1)(command, args, typed)
	case 1:
		names, _ := c.completeRevisions("=", latest)(command, args, typed)
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
