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
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// story is a series of edits of one Function and the expected final state.
type story struct {
	key   types.NamespacedName
	steps []step

	// source is the final source, or "" if the Function is deleted.
	source string
	// greeting is the final value of an environment variable.
	greeting string
}

// step is an action of a user, some time after the previous one.
type step struct {
	after time.Duration
	do    func(context.Context, *test.Clients) error
}

// isBroken reports whether the final source cannot be built.
func (s *story) isBroken() bool { return strings.Contains(s.source, brokenSource) }

// brokenSource is a part of each source that the stand-in cannot build.
const brokenSource = "broken"

// plots are all stories. The Functions use them in turn.
var plots = []func(*teller){
	func(t *teller) { t.create("one") },
	func(t *teller) { t.create("one"); t.edit("two") },
	func(t *teller) { t.create("one"); t.edit("two"); t.edit("three"); t.edit("four") },
	func(t *teller) { t.create(brokenSource) },
	func(t *teller) { t.create(brokenSource); t.edit("mended") },
	func(t *teller) { t.create("one"); t.edit(brokenSource) },
	func(t *teller) { t.create("one"); t.edit("two"); t.remove() },
	func(t *teller) { t.create("one"); t.remove(); t.create("two") },
	func(t *teller) { t.create("one"); t.greet("hello"); t.edit("two"); t.greet("hi") },
	func(t *teller) { t.create("one"); t.rebuild("now"); t.edit("two"); t.edit("one") },
}

// teller generates a story. Some users pause between their steps, others hardly.
type teller struct {
	*story
	dice *rand.Rand
}

// storiesOf returns the stories of n Functions in two namespaces. The same seed gives the
// same stories.
func storiesOf(n int, seed uint64) (all []*story) {
	for i := range n {
		s := &story{key: types.NamespacedName{Namespace: namespaces[i%len(namespaces)], Name: fmt.Sprintf("fn-%03d", i)}}
		plots[i%len(plots)](&teller{story: s, dice: rand.New(rand.NewPCG(seed, uint64(i)))})
		all = append(all, s)
	}
	return all
}

// namespaces are the namespaces of the Functions.
var namespaces = []string{"one", "two"}

func (t *teller) then(do func(context.Context, *test.Clients) error) {
	longest := 2500 * time.Millisecond
	if t.dice.IntN(3) == 0 {
		longest = 100 * time.Millisecond
	}
	t.steps = append(t.steps, step{after: time.Duration(t.dice.Int64N(int64(longest))), do: do})
}

func (t *teller) sourceOf(version string) string {
	return fmt.Sprintf("// %s\nmodule.exports = { main: () => %q };\n", t.key, version)
}

func (t *teller) create(version string) {
	key, source := t.key, t.sourceOf(version)
	t.source, t.greeting = source, ""
	t.then(func(ctx context.Context, c *test.Clients) error {
		_, err := c.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Create(ctx, &v1alpha1.Function{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Spec:       v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: source},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("failed to create Function: %w", err)
		}
		return nil
	})
}

func (t *teller) patch(format string, args ...any) {
	key, patch := t.key, fmt.Appendf(nil, format, args...)
	t.then(func(ctx context.Context, c *test.Clients) error {
		_, err := c.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("failed to edit Function: %w", err)
		}
		return nil
	})
}

func (t *teller) edit(version string) {
	t.source = t.sourceOf(version)
	t.patch(`{"spec":{"source":%q}}`, t.source)
}

func (t *teller) greet(greeting string) {
	t.greeting = greeting
	t.patch(`{"spec":{"env":[{"name":"GREETING","value":%q}]}}`, greeting)
}

func (t *teller) rebuild(request string) {
	t.patch(`{"metadata":{"annotations":{%q:%q}}}`, serverless.RebuildAnnotationKey, request)
}

func (t *teller) remove() {
	key := t.key
	t.source = ""
	t.then(func(ctx context.Context, c *test.Clients) error { return remove(ctx, c, key) })
}

// remove deletes a Function.
func remove(ctx context.Context, c *test.Clients, key types.NamespacedName) error {
	if err := c.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("failed to delete Function: %w", err)
	}
	return nil
}

// tell runs the steps of the story. It retries a step that fails because the webhook is not
// available.
func (s *story) tell(ctx context.Context, c *test.Clients) error {
	for _, step := range s.steps {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(step.after):
		}
		err := step.do(ctx, c)
		for isWebhookAway(err) && ctx.Err() == nil {
			pause(ctx, again)
			err = step.do(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.key, err)
		}
	}
	return nil
}

// isWebhookAway reports whether the API server could not call the webhook.
func isWebhookAway(err error) bool {
	return apierrs.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// hasGreeting reports whether a container has the expected variable.
func hasGreeting(container corev1.Container, greeting string) bool {
	for _, variable := range container.Env {
		if variable.Name == "GREETING" {
			return variable.Value == greeting
		}
	}
	return greeting == ""
}
