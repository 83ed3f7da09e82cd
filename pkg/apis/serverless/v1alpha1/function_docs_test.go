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

package v1alpha1_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// These tests keep docs/function.md, which people read, in step with the code.

const (
	root = "../../../.."
	page = root + "/docs/function.md"
	crd  = root + "/config/300-function.yaml"
)

// table is one table of the page: its rows by what their first cell has in
// backquotes, and each row's cells by their column's heading.
type table map[string]map[string]string

var tableKey = regexp.MustCompile("^`([^`]+)`$")

// readPage returns the page's first table of each section, by its heading.
func readPage(t *testing.T) map[string]table {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal("failed to read page: ", err)
	}
	tables := map[string]table{}
	var section string
	var columns []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "#"); ok {
			section, columns = strings.TrimLeft(heading, "# "), nil
			continue
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if columns == nil {
			columns, tables[section] = cells, table{}
			continue
		}
		key := tableKey.FindStringSubmatch(cells[0])
		if key == nil || len(cells) != len(columns) {
			t.Errorf("docs/function.md, %q: this is no row of the table, which has %d cells and begins with `a name`:\n%s", section, len(columns), line)
			continue
		}
		if _, ok := tables[section][key[1]]; ok {
			t.Errorf("docs/function.md, %q: there are two rows of `%s`", section, key[1])
		}
		row := map[string]string{}
		for i, column := range columns {
			row[column] = cells[i]
		}
		tables[section][key[1]] = row
	}
	return tables
}

// compareKeys checks that the page has a row for each name of the code, and for no other.
// examples are rows that can be added.
func compareKeys(t *testing.T, section string, rows table, examples map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(examples)) {
		if _, ok := rows[name]; !ok {
			t.Errorf("docs/function.md, section %q: the code has `%s`, the page has not. Add a row such as\n  %s", section, name, examples[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if _, ok := examples[name]; !ok {
			t.Errorf("docs/function.md, section %q: the page has `%s`, the code has not. Remove the row, or correct the name.", section, name)
		}
	}
}

// fieldsOf returns the types of the fields of a struct of the API, and of the
// structs in it that Kiln itself defines, by path.
func fieldsOf(structure reflect.Type, prefix string) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for field := range structure.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if options == "inline" || field.Anonymous {
			maps.Copy(fields, fieldsOf(field.Type, prefix))
			continue
		}
		element, name := field.Type, prefix+name
		fields[name] = element
		if element.Kind() == reflect.Slice {
			name, element = name+"[]", element.Elem()
		}
		if element.Kind() == reflect.Pointer {
			element = element.Elem()
		}
		if element.Kind() == reflect.Struct && element.PkgPath() == structure.PkgPath() {
			maps.Copy(fields, fieldsOf(element, name+"."))
		}
	}
	return fields
}

// typeName returns the name of a type in the docs.
func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return "duration"
	case reflect.TypeFor[resource.Quantity]():
		return "quantity"
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "time"
	case reflect.TypeFor[apis.URL]():
		return "string"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	default:
		return "object"
	}
}

func TestPageHasEachField(t *testing.T) {
	tables := readPage(t)
	for section, structure := range map[string]reflect.Type{
		"Spec":   reflect.TypeFor[v1alpha1.FunctionSpec](),
		"Status": reflect.TypeFor[v1alpha1.FunctionStatus](),
	} {
		fields, examples := fieldsOf(structure, ""), map[string]string{}
		for name, fieldType := range fields {
			examples[name] = fmt.Sprintf("| `%s` | %s | what it means |", name, typeName(fieldType))
			if section == "Spec" {
				examples[name] = fmt.Sprintf("| `%s` | %s | its default | its bounds | revision |", name, typeName(fieldType))
			}
		}
		rows := tables[section]
		compareKeys(t, section, rows, examples)
		for name, row := range rows {
			if fieldType, ok := fields[name]; ok && row["type"] != typeName(fieldType) {
				t.Errorf("docs/function.md, section %q: `%s` is called a %s, and is a %s", section, name, row["type"], typeName(fieldType))
			}
			if effects := []string{"build", "revision", "route", "nothing"}; section == "Spec" && !slices.Contains(effects, row["a change causes"]) {
				t.Errorf("docs/function.md, section %q: a change of `%s` causes %q, want one of %v", section, name, row["a change causes"], effects)
			}
		}
	}
}

// schema is what the tests read of the CRD's schema.
type schema struct {
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
	Required    []string          `json:"required"`
	Enum        []string          `json:"enum"`
	Minimum     *int64            `json:"minimum"`
	Maximum     *int64            `json:"maximum"`
	MinLength   *int64            `json:"minLength"`
	MaxLength   *int64            `json:"maxLength"`
	MaxItems    *int64            `json:"maxItems"`
}

// at returns the schema of the field of that path, and whether it is required.
func (s schema) at(path string) (field schema, required bool) {
	for name := range strings.SplitSeq(path, ".") {
		name, isList := strings.CutSuffix(name, "[]")
		required = slices.Contains(s.Required, name)
		if s = s.Properties[name]; isList {
			s = *s.Items
		}
	}
	return s, required
}

type definition struct {
	Spec struct {
		Versions []struct {
			Columns []struct {
				Name     string `json:"name"`
				Priority int    `json:"priority"`
				JSONPath string `json:"jsonPath"`
			} `json:"additionalPrinterColumns"`
			Schema struct {
				OpenAPIV3Schema schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

func readDefinition(t *testing.T) definition {
	t.Helper()
	var d definition
	readYAML(t, crd, &d)
	return d
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal("failed to read manifest: ", err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("failed to parse %s: %v", file, err)
	}
}

// TestCRDDescribesEachField checks that kubectl explain describes each field.
func TestCRDDescribesEachField(t *testing.T) {
	all := readDefinition(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, part := range []string{"spec", "status"} {
		for _, path := range undescribed(all.Properties[part], part) {
			t.Errorf("config/300-function.yaml: %s has no description: give its field a comment, and run hack/update-codegen.sh", path)
		}
	}
}

func undescribed(s schema, path string) (paths []string) {
	if s.Description == "" {
		paths = append(paths, path)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if name != "address" { // Knative's words, of which there are none.
			paths = append(paths, undescribed(s.Properties[name], path+"."+name)...)
		}
	}
	if s.Items != nil {
		for _, name := range slices.Sorted(maps.Keys(s.Items.Properties)) {
			paths = append(paths, undescribed(s.Items.Properties[name], path+"[]."+name)...)
		}
	}
	return paths
}

// TestPageHasEachBound checks that the column of bounds has the numbers and words of the
// CRD's schema, and that required fields have the default "required".
func TestPageHasEachBound(t *testing.T) {
	spec, _ := readDefinition(t).Spec.Versions[0].Schema.OpenAPIV3Schema.at("spec")
	for path, row := range readPage(t)["Spec"] {
		field, required := spec.at(path)
		if required != (row["default"] == "required") {
			t.Errorf("docs/function.md: the default of `%s` is said to be %q, required is %v", path, row["default"], required)
		}
		wanted := slices.Clone(field.Enum)
		for _, bound := range []*int64{field.Minimum, field.Maximum, field.MinLength, field.MaxLength, field.MaxItems} {
			if bound != nil {
				wanted = append(wanted, inWords(*bound))
			}
		}
		for _, want := range wanted {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(want) + `\b`).MatchString(row["bounds"]) {
				t.Errorf("docs/function.md: the bounds of `%s` are said to be %q, the CRD has %q", path, row["bounds"], want)
			}
		}
	}
}

func inWords(n int64) string {
	if n >= 1<<17 && n%(1<<10) == 0 {
		return strconv.FormatInt(n>>10, 10) + " KiB"
	}
	return strconv.FormatInt(n, 10)
}

// TestPageHasEachDefault checks that the page has each default of the shipped configuration,
// with the key that changes it.
func TestPageHasEachDefault(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	defaults := shippedExample(t, config.FunctionsConfigName)
	build := shippedExample(t, config.BuildConfigName)
	for _, key := range []string{"timeout", "cpu-request", "memory-request", "cpu-limit", "memory-limit"} {
		defaults[key] = build[key]
	}
	for _, key := range slices.Sorted(maps.Keys(defaults)) {
		want := fmt.Sprintf("`%s` (`%s`)", defaults[key], key)
		if defaults[key] == "" {
			want = fmt.Sprintf("none (`%s`)", key)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/function.md, section \"Spec\": say the default, or the bound, of the field that the key %s is for, as\n  %s", key, want)
		}
	}
}

// shippedExample returns the _example of a ConfigMap as it is shipped.
func shippedExample(t *testing.T, name string) map[string]string {
	t.Helper()
	var configMap corev1.ConfigMap
	readYAML(t, filepath.Join(root, "config", name+".yaml"), &configMap)
	example := map[string]string{}
	if err := yaml.Unmarshal([]byte(configMap.Data["_example"]), &example); err != nil {
		t.Fatal("failed to parse example: ", err)
	}
	return example
}

// constant is one constant of a Go file, with what its comments say.
type constant struct {
	// name is the constant's name, and value its value if that is a literal.
	name, value string
	// doc is its comment, and block that of the constants it stands among.
	doc, block string
}

// constantsOf parses the constants of a Go file whose names have the prefix.
func constantsOf(t *testing.T, file, prefix string) []constant {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ParseComments)
	if err != nil {
		t.Fatal("failed to parse: ", err)
	}
	var constants []constant
	for _, declaration := range parsed.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		for _, spec := range block.Specs {
			spec := spec.(*ast.ValueSpec)
			if !strings.HasPrefix(spec.Names[0].Name, prefix) || len(spec.Values) == 0 {
				continue
			}
			c := constant{name: spec.Names[0].Name, doc: spec.Doc.Text(), block: block.Doc.Text()}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				c.value, _ = strconv.Unquote(literal.Value)
			}
			constants = append(constants, c)
		}
	}
	if len(constants) == 0 {
		t.Fatalf("%s has no constants %s*", file, prefix)
	}
	return constants
}

const lifecycleFile = "pkg/apis/serverless/v1alpha1/function_lifecycle.go"

var (
	reasonBlock  = regexp.MustCompile(`^Reasons of the condition (\w+)\.`)
	reasonStatus = regexp.MustCompile(`^\w+ \((True|False|Unknown)(, any condition)?\): `)
)

// TestPageHasEachReason checks that each reason is in the table of its condition, with
// the status in its comment, and with advice if the reason stays.
func TestPageHasEachReason(t *testing.T) {
	tables, examples := readPage(t), map[string]map[string]string{}
	for _, c := range constantsOf(t, lifecycleFile, "Reason") {
		status, section := reasonStatus.FindStringSubmatch(c.doc+c.block), "Any condition"
		if status == nil {
			t.Errorf("%s: the comment of %s must begin with \"%s (True): \", or the other status that it has", lifecycleFile, c.name, c.name)
			continue
		}
		if status[2] == "" {
			block := reasonBlock.FindStringSubmatch(c.block)
			if block == nil {
				t.Errorf("%s: %s must stand among the \"Reasons of the condition …\"", lifecycleFile, c.name)
				continue
			}
			section = block[1]
		}
		if examples[section] == nil {
			examples[section] = map[string]string{}
		}
		examples[section][c.value] = fmt.Sprintf("| `%s` | %s | what it means, to whom it happens | what to do |", c.value, status[1])
		row, ok := tables[section][c.value]
		if !ok {
			continue
		}
		if row["status"] != status[1] {
			t.Errorf("docs/function.md, section %q: `%s` is said to be %q, the comment of %s says %s", section, c.value, row["status"], c.name, status[1])
		}
		if row["meaning"] == "" || row["what to do"] == "" && status[1] != "True" {
			t.Errorf("docs/function.md, section %q: say what `%s` means, and what to do about it", section, c.value)
		}
	}
	for section, reasons := range examples {
		compareKeys(t, section, tables[section], reasons)
	}
}

func TestPageHasEachConstant(t *testing.T) {
	sections := []struct {
		section, file, prefix, example string
		// wants selects the constants of the section.
		wants func(constant) bool
	}{
		{"Conditions", lifecycleFile, "FunctionCondition", "| `%s` | when it is True |", nil},
		{"Phases", "pkg/apis/serverless/v1alpha1/function_types.go", "Function", "| `%s` | what it means |", nil},
		{"Why a build ran", "pkg/builds/reasons.go", "Reason", "| `%s` | what it means |", nil},
		{
			"Labels and annotations", "pkg/apis/serverless/register.go", "", "| `%s` | what it is on | Kiln | what it means |",
			func(c constant) bool { return strings.HasSuffix(c.name, "Key") },
		},
	}
	tables := readPage(t)
	for _, s := range sections {
		examples := map[string]string{}
		for _, c := range constantsOf(t, s.file, s.prefix) {
			if s.wants != nil && !s.wants(c) {
				continue
			}
			name := c.value
			switch s.section {
			case "Conditions":
				name = strings.TrimPrefix(c.name, s.prefix) // Ready is no literal.
			case "Labels and annotations":
				name = keyOf(t, s.file, c.name)
			}
			examples[name] = fmt.Sprintf(s.example, name)
		}
		compareKeys(t, s.section, tables[s.section], examples)
	}
}

// keyOf returns the key of a label or an annotation: GroupName + "/rebuild".
func keyOf(t *testing.T, file, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	suffix := regexp.MustCompile(`\b` + name + ` = GroupName \+ "(/[a-z-]+)"`).FindSubmatch(text)
	if suffix == nil {
		t.Fatalf("%s: %s is not GroupName + \"/…\"", file, name)
	}
	return v1alpha1.SchemeGroupVersion.Group + string(suffix[1])
}

// TestColumns checks the order of the columns of kubectl get, and that the page has each.
func TestColumns(t *testing.T) {
	var narrow, wide []string
	examples := map[string]string{}
	rows := readPage(t)["What kubectl prints"]
	for _, column := range readDefinition(t).Spec.Versions[0].Columns {
		if column.Priority == 0 {
			narrow = append(narrow, column.Name)
		} else {
			wide = append(wide, column.Name)
		}
		examples[column.Name] = fmt.Sprintf("| `%s` | %d | %s |", column.Name, column.Priority, column.JSONPath)
		if row, ok := rows[column.Name]; ok && row["width"] != strconv.Itoa(column.Priority) {
			t.Errorf("docs/function.md: the column `%s` is said to be of width %s, it has priority %d", column.Name, row["width"], column.Priority)
		}
	}
	compareKeys(t, "What kubectl prints", rows, examples)
	if got, want := strings.Join(narrow, " "), "Configured Built Running Runtime Version Age"; got != want {
		t.Errorf("kubectl get prints %q, want %q", got, want)
	}
	if got, want := strings.Join(wide, " "), "Phase URL Reason"; got != want {
		t.Errorf("kubectl get -o wide adds %q, want %q", got, want)
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestPageExamples checks that each Function on the page can be applied.
func TestPageExamples(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	functions, err := config.NewFunctionsFromMap(nil)
	if err != nil {
		t.Fatal(err)
	}
	build, err := config.NewBuildFromMap(map[string]string{"kaniko-image": "registry.example.com/kaniko", "compose-image": "registry.example.com/compose"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := config.ToContext(t.Context(), &config.Config{
		Functions: functions, Build: build, Registry: &config.Registry{},
		Runtimes: config.Runtimes{functions.DefaultRuntime: {BaseImage: "node", Language: "nodejs"}},
	})
	blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("found %d examples", len(blocks))
	}
	for _, block := range blocks {
		var fn v1alpha1.Function
		if err := yaml.UnmarshalStrict([]byte(block[1]), &fn); err != nil {
			t.Errorf("%v:\n%s", err, block[1])
			continue
		}
		fn.SetDefaults(apis.WithinCreate(ctx))
		if err := fn.Validate(apis.WithinCreate(ctx)); err != nil {
			t.Errorf("%v:\n%s", err, block[1])
		}
	}
}
