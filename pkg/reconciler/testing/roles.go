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

package testing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/system"
)

// Roles are the permissions that manifests give to a ServiceAccount. Roles records which of
// them were used. It is not safe for concurrent use.
type Roles struct {
	grants []grant
	used   map[string]bool
}

type grant struct {
	rbacv1.PolicyRule
	// namespace limits the rule. "" means all namespaces.
	namespace string
}

type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Rules    []rbacv1.PolicyRule `json:"rules"`
	Subjects []rbacv1.Subject    `json:"subjects"`
	RoleRef  rbacv1.RoleRef      `json:"roleRef"`
}

// LoadRoles reads the roles that the manifests in a folder bind to a ServiceAccount.
func LoadRoles(folder, serviceAccount string) (*Roles, error) {
	objects, err := loadObjects(folder)
	if err != nil {
		return nil, err
	}
	roles := &Roles{used: map[string]bool{}}
	for _, binding := range objects {
		if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Name == serviceAccount
		}) {
			continue
		}
		for _, role := range objects {
			if role.Kind != binding.RoleRef.Kind || role.Metadata.Name != binding.RoleRef.Name {
				continue
			}
			for _, rule := range role.Rules {
				roles.grants = append(roles.grants, grant{rule, binding.Metadata.Namespace})
			}
		}
	}
	if len(roles.grants) == 0 {
		return nil, fmt.Errorf("%s binds no role to ServiceAccount %s", folder, serviceAccount)
	}
	return roles, nil
}

func loadObjects(folder string) (objects []object, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("failed to find manifests: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("failed to read manifest: %w", err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
		for {
			var o object
			err := decoder.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("failed to parse %s: %w", file, err)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// Check returns an error if the roles forbid the action of a fake client.
func (r *Roles) Check(action clientgotesting.Action) error {
	verb := strings.ReplaceAll(action.GetVerb(), "-", "")
	resource := action.GetResource().Resource
	if action.GetSubresource() != "" {
		resource += "/" + action.GetSubresource()
	}
	name := nameOf(action)
	group := action.GetResource().Group
	allowed := false
	for _, g := range r.grants {
		// Tests have another system namespace.
		here := g.namespace == "" || g.namespace == action.GetNamespace() || action.GetNamespace() == system.Namespace()
		if here && slices.Contains(g.APIGroups, group) && slices.Contains(g.Resources, resource) && slices.Contains(g.Verbs, verb) &&
			(len(g.ResourceNames) == 0 || slices.Contains(g.ResourceNames, name)) {
			allowed = true
			r.used[permission(g.namespace, group, resource, verb)] = true
		}
	}
	if !allowed {
		return fmt.Errorf("no role allows to %s in namespace %q", permission("", group, resource, verb), action.GetNamespace())
	}
	return nil
}

// nameOf returns the resource name that the API server authorizes an action with, or "". A
// list or a watch has a name if it selects one object by its name.
func nameOf(action clientgotesting.Action) string {
	switch action := action.(type) {
	case clientgotesting.UpdateAction:
		if object, err := meta.Accessor(action.GetObject()); err == nil {
			return object.GetName()
		}
	case clientgotesting.ListAction:
		name, _ := action.GetListRestrictions().Fields.RequiresExactMatch(metav1.ObjectNameField)
		return name
	case clientgotesting.WatchAction:
		name, _ := action.GetWatchRestrictions().Fields.RequiresExactMatch(metav1.ObjectNameField)
		return name
	case interface{ GetName() string }:
		return action.GetName()
	}
	return ""
}

// Unused returns the permissions that were never used, except others, which only clients
// without a fake need. An example is "kiln-system: get secrets".
func (r *Roles) Unused(others ...string) []string {
	var unused []string
	for _, g := range r.grants {
		for _, group := range g.APIGroups {
			for _, resource := range g.Resources {
				for _, verb := range g.Verbs {
					p := permission(g.namespace, group, resource, verb)
					if !r.used[p] && !slices.Contains(others, p) {
						unused = append(unused, p)
					}
				}
			}
		}
	}
	return unused
}

func permission(namespace, group, resource, verb string) string {
	p := verb + " " + resource
	if group != "" {
		p += "." + group
	}
	if namespace != "" {
		p = namespace + ": " + p
	}
	return p
}
