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

package function

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
)

// namedBuilder has one build, whose object is called as the builder.
type namedBuilder struct {
	Builder
	name config.Builder
	kind string
	err  error
}

func (b namedBuilder) Name() config.Builder { return b.name }

func (b namedBuilder) Kind() string { return b.kind }

func (b namedBuilder) run() builds.Run {
	return builds.Run{Ref: v1alpha1.BuildReference{Kind: b.kind, Name: string(b.name)}}
}

func (b namedBuilder) List(*v1alpha1.Function) ([]builds.Run, error) {
	return []builds.Run{b.run()}, b.err
}

func (b namedBuilder) Running(context.Context) ([]queue.Build, error) {
	return []queue.Build{{UID: types.UID(b.name)}}, b.err
}

func (b namedBuilder) Get(_ context.Context, _, name string) (builds.Run, error) {
	if b.err == nil && name != string(b.name) {
		return builds.Run{}, apierrs.NewNotFound(schema.GroupResource{Resource: b.kind}, name)
	}
	return b.run(), b.err
}

var (
	tektonBuilder = namedBuilder{name: config.TektonBuilder, kind: "TaskRun"}
	jobBuilder    = namedBuilder{name: config.JobBuilder, kind: "Job"}
)

func TestChooseBuilder(t *testing.T) {
	both, onlyJob := Builders{tektonBuilder, jobBuilder}, Builders{Absent(tektonBuilder), jobBuilder}
	for _, test := range []struct {
		builders Builders
		name     config.Builder
		want     string
	}{
		{both, config.AutoBuilder, "TaskRun"},
		{both, config.TektonBuilder, "TaskRun"},
		{both, config.JobBuilder, "Job"},
		{onlyJob, config.AutoBuilder, "Job"},
		{onlyJob, config.JobBuilder, "Job"},
		// A chosen API that is absent is never replaced by another one.
		{onlyJob, config.TektonBuilder, ""},
	} {
		got, ok := test.builders.choose(test.name)
		if ok != (test.want != "") || ok && got.Kind() != test.want {
			t.Errorf("choose(%q) of %d builders = %v, %t, want %q", test.name, len(test.builders), got, ok, test.want)
		}
	}
}

func TestBuildersShareNames(t *testing.T) {
	both := Builders{tektonBuilder, jobBuilder}
	for name, want := range map[string]string{"tekton": "TaskRun", "job": "Job"} {
		if run, err := both.Get(t.Context(), "ns", name); err != nil || run.Ref.Kind != want {
			t.Errorf("Get(%q) = %s, %v, want a %s", name, run.Ref.Kind, err, want)
		}
	}
	if _, err := both.Get(t.Context(), "ns", "gone"); !apierrs.IsNotFound(err) {
		t.Errorf("Get(gone) = %v, want NotFound", err)
	}
	broken := jobBuilder
	broken.err = errors.New("no response")
	// A build may exist although one builder does not answer.
	if _, err := (Builders{tektonBuilder, broken}).Get(t.Context(), "ns", "gone"); err == nil || apierrs.IsNotFound(err) {
		t.Errorf("Get() beside a broken builder = %v, want its error", err)
	}
	if _, err := (Builders{tektonBuilder, broken}).List(&v1alpha1.Function{}); err == nil {
		t.Error("List() beside a broken builder = nil, want its error")
	}
	if _, err := (Builders{tektonBuilder, broken}).Running(t.Context()); err == nil {
		t.Error("Running() beside a broken builder = nil, want its error")
	}
}

// Builds of every builder are listed: a change of config-build does not lose one that runs.
func TestBuildersList(t *testing.T) {
	for _, test := range []struct {
		builders Builders
		want     []string
	}{
		{Builders{tektonBuilder, jobBuilder}, []string{"TaskRun", "Job"}},
		{Builders{Absent(tektonBuilder), jobBuilder}, []string{"Job"}},
	} {
		runs, err := test.builders.List(&v1alpha1.Function{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, run := range runs {
			got = append(got, run.Ref.Kind)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("List() (-want +got):\n%s", diff)
		}
		running, err := test.builders.Running(t.Context())
		if err != nil || len(running) != len(test.want) {
			t.Errorf("Running() = %v, %v, want %d builds", running, err, len(test.want))
		}
	}
}
