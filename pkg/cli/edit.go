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
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func (c *cli) rebuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild NAME",
		Short: "Build a Function again without a change",
		Long: "Build a Function again without a change, for example to use a newer base image or after you fixed\n" +
			"the cause of a failed build.",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
		RunE: func(command *cobra.Command, args []string) error {
			clients, err := c.connect()
			if err != nil {
				return err
			}
			err = clients.edit(command.Context(), args[0], func(fn *v1alpha1.Function) {
				if fn.Annotations == nil {
					fn.Annotations = map[string]string{}
				}
				fn.Annotations[serverless.RebuildAnnotationKey] = c.now().UTC().Format(time.RFC3339Nano)
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(c.Out, "function.%s/%s rebuild requested\n", serverless.GroupName, args[0])
			fmt.Fprintf(c.ErrOut, "Watch it: kubectl fn build-logs --follow %s\n", args[0])
			return nil
		},
	}
}

func (c *cli) deleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME...",
		Short:             "Delete Functions and all that Kiln created for them, except their images",
		ValidArgsFunction: c.completeNames(-1),
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				return try(errors.New("expected the name of at least one Function"), "kubectl fn list")
			}
			return nil
		},
		RunE: func(command *cobra.Command, names []string) error {
			clients, err := c.connect()
			if err != nil {
				return err
			}
			var failed error
			missing := false
			for _, name := range names {
				err := clients.Kiln.ServerlessV1alpha1().Functions(clients.Namespace).Delete(command.Context(), name, metav1.DeleteOptions{})
				switch {
				case apierrs.IsNotFound(err) && isOfObject(err):
					failed = errors.Join(failed, clients.noFunction(name))
					missing = true
				case err != nil:
					failed = errors.Join(failed, fmt.Errorf("failed to delete Function %s: %w", name, err))
				default:
					fmt.Fprintf(c.Out, "function.%s %q deleted\n", serverless.GroupName, name)
				}
			}
			if missing {
				return try(failed, listAll)
			}
			return failed
		},
	}
}
