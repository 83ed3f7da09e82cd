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
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/kiln-dev/kiln/pkg/cli/advice"
	"github.com/kiln-dev/kiln/pkg/migrate"
)

func (c *cli) importCommand() *cobra.Command {
	var from resource.FilenameOptions
	command := &cobra.Command{
		Use:   "import -f FILE",
		Short: "Turn Functions of Kyma or Kubeless into Functions of Kiln",
		Long: "Turn Functions of Kyma Serverless (v1alpha2) or Kubeless (v1beta1) into Functions of Kiln, and print them as\n" +
			"YAML. Comments above a Function say what Kiln has no equal for, and what to do about it. The command changes\n" +
			"nothing in a cluster. It passes over other objects, and fails if a Function needs a correction.",
		Example: "  kubectl fn import -f kyma.yaml >kiln.yaml\n" +
			"  kubectl fn import -R -f manifests/\n" +
			"  kubectl fn import -f https://example.com/function.yaml",
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().StringSliceVarP(&from.Filenames, "filename", "f", nil, "A file, a folder or a URL with the manifests, or - for standard input. It can be repeated.")
	command.Flags().BoolVarP(&from.Recursive, "recursive", "R", false, "Also read the folders in a folder.")
	must(command.MarkFlagFilename("filename", "yaml", "yml", "json"))
	command.RunE = func(command *cobra.Command, _ []string) error {
		if len(from.Filenames) == 0 {
			return try(errors.New("no manifest was given"), "kubectl fn import -f kyma.yaml")
		}
		return interruptible(command.Context(), func() error { return c.importAll(&from) })
	}
	return command
}

// imported counts the Functions that were read.
type imported struct {
	written, rejected, failed int
}

func (c *cli) importAll(from *resource.FilenameOptions) error {
	builder := resource.NewLocalBuilder().Unstructured().ContinueOnError()
	if slices.Equal(from.Filenames, []string{"-"}) {
		builder = builder.Stream(c.In, "standard input")
	} else {
		builder = builder.FilenameParam(false, from)
	}
	var done imported
	err := builder.Do().IgnoreErrors(c.passOver).Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		one := func(object runtime.Object) error { return c.importOne(info.Source, object, &done) }
		if meta.IsListType(info.Object) {
			return meta.EachListItem(info.Object, one)
		}
		return one(info.Object)
	})
	switch {
	case err != nil:
		return try(fmt.Errorf("failed to read the manifests: %w", err), "kubectl fn import --help")
	case done.failed > 0:
		return try(fmt.Errorf("failed to read %d Functions", done.failed), "correct the manifests as the lines above say")
	case done.rejected > 0:
		return try(fmt.Errorf("%d of %d Functions need a correction", done.rejected, done.written), "correct them as their comments say")
	case done.written == 0:
		return try(errors.New("the manifests have no Function of Kyma or Kubeless"), "kubectl fn import -R -f FOLDER")
	}
	return nil
}

// passOver reports whether the error is that of a document that is no object, such as the
// values of a Helm chart. The library has no type for it.
func (c *cli) passOver(err error) bool {
	where, _, found := strings.Cut(err.Error(), ": Object 'Kind' is missing in ")
	if !found {
		where, _, found = strings.Cut(err.Error(), ": Object 'apiVersion' is missing in ")
	}
	if found {
		c.warn(strings.Trim(strings.TrimPrefix(where, "unable to decode "), `"`), "a document that is no object is passed over")
	}
	return found
}

// warn prints a line about a manifest, which may be hostile.
func (c *cli) warn(source, text string) {
	fmt.Fprintln(c.ErrOut, strings.Map(advice.Visible, strings.ReplaceAll(source+": "+text, "\n", " ")))
}

func (c *cli) importOne(source string, item runtime.Object, done *imported) error {
	object, ok := item.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%s has an object of type %T", source, item)
	}
	what := strings.TrimSpace(object.GetKind()+" "+cmp.Or(object.GetName(), object.GetGenerateName())) + " "
	result, err := migrate.From(object)
	switch {
	case err != nil:
		done.failed++
		c.warn(source, what+"is not imported: "+err.Error())
		return nil
	case result.Function == nil && len(result.Notes) > 0:
		c.warn(source, what+"is not imported: "+result.Notes[0])
		return nil
	case result.Function == nil:
		c.warn(source, what+"is passed over")
		return nil
	}
	text, err := result.Write()
	if err != nil {
		return err
	}
	if done.written > 0 {
		text = append([]byte("---\n"), text...)
	}
	done.written++
	if result.Rejected {
		done.rejected++
	}
	_, err = bytes.NewReader(text).WriteTo(c.Out)
	return err
}
