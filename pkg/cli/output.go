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
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/cli/advice"
	kilnscheme "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/scheme"
)

const (
	wide = "wide"
	none = "<none>"
)

type output struct {
	flags *genericclioptions.PrintFlags
}

func newOutput(command *cobra.Command) *output {
	o := &output{flags: genericclioptions.NewPrintFlags("").WithTypeSetter(kilnscheme.Scheme)}
	o.flags.AddFlags(command)
	flag := command.Flags().Lookup("output")
	flag.Usage = strings.Replace(flag.Usage, "One of: (", "One of: (wide, ", 1)
	formats := append([]string{wide}, o.flags.AllowedFormats()...)
	must(command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	return o
}

// must panics on errors that only a mistake in this package can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (o *output) forHumans() bool {
	return *o.flags.OutputFormat == "" || o.isWide()
}

func (o *output) isWide() bool {
	return *o.flags.OutputFormat == wide
}

func (o *output) object(out io.Writer, object runtime.Object) error {
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(object, out)
}

// report prints a value that is no object of the API. It prints the value's JSON as
// an object of that kind, so -o accepts all its formats.
func (o *output) report(out io.Writer, kind string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("failed to encode %s: %w", kind, err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &object.Object); err != nil {
		return fmt.Errorf("failed to encode %s: %w", kind, err)
	}
	object.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	return o.object(out, object)
}

func columns(names ...string) (definitions []metav1.TableColumnDefinition) {
	for _, name := range names {
		definition := metav1.TableColumnDefinition{Name: strings.TrimPrefix(name, "+"), Type: "string"}
		if strings.HasPrefix(name, "+") {
			definition.Priority = 1
		}
		definitions = append(definitions, definition)
	}
	return definitions
}

func (o *output) table(out io.Writer, definitions []metav1.TableColumnDefinition, rows [][]any) error {
	return printTable(out, o.isWide(), definitions, rows)
}

func printTable(out io.Writer, wide bool, definitions []metav1.TableColumnDefinition, rows [][]any) error {
	table := &metav1.Table{ColumnDefinitions: definitions}
	for _, cells := range rows {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, out)
}

func (c *cli) age(then *metav1.Time) string {
	if then.IsZero() {
		return none
	}
	return duration.HumanDuration(c.now().Sub(then.Time))
}

func (c *cli) took(from, to *metav1.Time) string {
	if from.IsZero() {
		return none
	}
	until := c.now()
	if !to.IsZero() {
		until = to.Time
	}
	return duration.HumanDuration(until.Sub(from.Time).Round(time.Second))
}

func indent(text string, width int) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", width))
}

// display returns a writer for text that a function has sent. A terminal gets it
// without control characters, which could change its settings or what it shows.
func display(out io.Writer) io.WriteCloser {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return transform.NewWriter(out, runes.Map(advice.Visible))
	}
	return struct {
		io.Writer
		io.Closer
	}{out, io.NopCloser(nil)}
}
