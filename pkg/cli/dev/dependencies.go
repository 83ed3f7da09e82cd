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

package dev

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/cli/advice"
	typedv1alpha1 "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/typed/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// maxBuildAge is the age at which no terminal waits for a build any more, unless the build
// has a longer timeout.
const maxBuildAge = time.Hour

// placeholders are sources for images whose dependencies alone are used.
var placeholders = map[string]string{
	"nodejs": "export const main = () => {};\n",
	"python": "def main(event, context):\n    pass\n",
}

// installed returns the part of dependencies that decides what is installed.
func installed(language runtimes.Runtime, text string) (string, error) {
	text, lock, err := language.SplitDependencies(text)
	if err != nil {
		return "", err
	}
	if language.Language == "nodejs" {
		var all map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return "", err
		}
		manifest := map[string]map[string]any{}
		for _, key := range []string{"dependencies", "optionalDependencies", "peerDependencies", "overrides"} {
			var some map[string]any
			// npm rejects another form.
			if json.Unmarshal(all[key], &some) == nil && len(some) > 0 {
				manifest[key] = some
			}
		}
		normal, err := json.Marshal(manifest)
		return string(normal) + strings.TrimSpace(lock), err
	}
	var kept []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n"), nil
}

// builtDependencies returns the dependencies that the pod's image was built with, as
// spec.deps has them.
func (s *Session) builtDependencies(ctx context.Context, p *pod) (string, error) {
	if s.deps != nil {
		return *s.deps, nil
	}
	file, err := p.launcher.builtWith(ctx, s.Language.DependencyFile)
	if err != nil {
		return "", err
	}
	if s.Function.Spec.Source != "" {
		// The image of a source in the Function has no lock file.
		_, lock, err := s.Language.SplitDependencies(s.Function.Spec.Deps)
		return runtimes.JoinDependencies(file, lock), err
	}
	locks := map[string]string{}
	name, failed := s.Language.FindLock(file, func(name string) bool {
		locks[name], err = p.launcher.builtWith(ctx, name)
		return locks[name] != ""
	})
	return runtimes.JoinDependencies(file, locks[name]), errors.Join(err, failed)
}

// decideDependencies reports whether files can change what is installed.
func (s *Session) decideDependencies(names []string) bool {
	if slices.Contains(names, s.Language.DependencyFile) {
		return true
	}
	// Without the file, nothing is installed.
	text, _ := os.ReadFile(filepath.Join(s.Dir, s.Language.DependencyFile))
	isLock := false
	// It asks for each name of a lock file.
	_, _ = s.Language.FindLock(string(text), func(name string) bool {
		isLock = isLock || slices.Contains(names, name)
		return false
	})
	return isLock
}

// checkDependencies returns the folder's dependencies, and whether they install something
// else than the pod's image has.
func (s *Session) checkDependencies(ctx context.Context, p *pod) (text string, differ bool, err error) {
	if text, err = s.Dependencies(); err != nil {
		return "", false, err
	}
	desired, err := installed(s.Language, text)
	if err != nil {
		return "", false, err
	}
	built, err := s.builtDependencies(ctx, p)
	if err != nil {
		return "", false, fmt.Errorf("failed to read them: %w", err)
	}
	has, err := installed(s.Language, built)
	return text, err == nil && has != desired, err
}

// newBuild returns a Function whose image has the dependencies of the folder. It has the
// author's spec.build, which installs them, but not the code, which others could call, and
// not the environment. Equal dependencies give the same name, and so the same images.
func (s *Session) newBuild(deps string) *v1alpha1.Function {
	sum := sha256.Sum256([]byte(s.Function.Spec.Runtime + "\n" + deps))
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{
			Name:            kmeta.ChildName(s.Function.Name, "-dev-"+hex.EncodeToString(sum[:4])),
			Namespace:       s.Function.Namespace,
			Labels:          map[string]string{serverless.DevLabelKey: s.Function.Name},
			OwnerReferences: ownedBy(s.Function),
		},
		Spec: v1alpha1.FunctionSpec{
			Runtime: s.Function.Spec.Runtime,
			Source:  placeholders[s.Language.Language],
			Deps:    deps,
			Build:   s.Function.Spec.Build.DeepCopy(),
		},
	}
}

// build builds an image with the dependencies of the folder, in a Function of its own, so
// that the Function stays as it is.
func (s *Session) build(ctx context.Context, deps string) (image string, err error) {
	desired := s.newBuild(deps)
	fn, err := s.functions().Create(ctx, desired, metav1.CreateOptions{})
	if apierrs.IsAlreadyExists(err) {
		// Another terminal builds the same, or was lost.
		if fn, err = s.functions().Get(ctx, desired.Name, metav1.GetOptions{}); err == nil && !isSame(fn, desired) {
			return "", advice.Try(fmt.Errorf("function %s exists and is not of kubectl fn dev", fn.Name), "kubectl fn status %s", fn.Name)
		}
	}
	if err != nil {
		return "", fmt.Errorf("failed to create Function %s: %w", desired.Name, err)
	}
	defer s.removeBuild(ctx, fn)
	built, err := s.Built(ctx, fn)
	if err != nil {
		return "", err
	}
	return built.Status.Image, nil
}

func (s *Session) functions() typedv1alpha1.FunctionInterface {
	return s.Kiln.ServerlessV1alpha1().Functions(s.Function.Namespace)
}

// removeBuild deletes the Function of a build, also after an interrupt.
func (s *Session) removeBuild(ctx context.Context, fn *v1alpha1.Function) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := s.functions().Delete(ctx, fn.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &fn.UID}})
	if err != nil && !apierrs.IsNotFound(err) {
		fmt.Fprintf(s.ErrOut, "Function %s could not be deleted: %v\nTry: kubectl fn delete %s\n", fn.Name, err, fn.Name)
	}
}

// isLost reports whether a Function is that of a build whose terminal is lost.
func (s *Session) isLost(fn *v1alpha1.Function) bool {
	age := maxBuildAge
	if build := fn.Spec.Build; build != nil && build.Timeout != nil {
		age = max(age, build.Timeout.Duration)
	}
	return time.Since(fn.CreationTimestamp.Time) > age && fn.Spec.Source == placeholders[s.Language.Language] &&
		len(fn.OwnerReferences) == 1 && fn.OwnerReferences[0].UID == s.Function.UID
}

func isSame(a, b *v1alpha1.Function) bool {
	return a.Labels[serverless.DevLabelKey] == b.Labels[serverless.DevLabelKey] && a.DeletionTimestamp == nil &&
		len(a.OwnerReferences) == 1 && a.OwnerReferences[0].UID == b.OwnerReferences[0].UID &&
		a.Spec.Runtime == b.Spec.Runtime && a.Spec.Source == b.Spec.Source && a.Spec.Deps == b.Spec.Deps
}
