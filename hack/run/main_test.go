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

package main

import (
	"slices"
	"testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestFunctionIn(t *testing.T) {
	if got, err := functionIn("../../examples/greeter.yaml"); err != nil || got != "greeter" {
		t.Errorf("functionIn = %q, %v; want greeter", got, err)
	}
	if _, err := functionIn("no-such-file.yaml"); err == nil {
		t.Error("functionIn of a missing file returned no error")
	}
}

func TestConditionLinesEndWithReady(t *testing.T) {
	fn := &v1alpha1.Function{}
	fn.Status.InitializeConditions()
	fn.Status.MarkConfigurationReady(v1alpha1.ReasonConfigMapCreated, "")
	fn.Status.MarkBuildFailed(v1alpha1.ReasonTaskRunFailed, "npm error 404\nmore")

	got := conditionLines(fn)
	want := []conditionLine{
		{"ConfigurationReady", "True     ConfigMapCreated"},
		{"BuildReady", "False    TaskRunFailed           npm error 404"},
		{"Running", "Unknown  WaitingForBuild         The service waits for BuildReady."},
		{"Ready", "False    TaskRunFailed           npm error 404"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("conditionLines = %q, want %q", got, want)
	}
}
