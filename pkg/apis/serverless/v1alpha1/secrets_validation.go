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

package v1alpha1

import (
	"slices"

	"knative.dev/pkg/apis"
)

// ValidateSecrets rejects references to the reserved Secrets, which have the registry
// credentials. All namespaces may share them, and users who can edit Functions may not be
// allowed to read Secrets.
func (fs *FunctionSpec) ValidateSecrets(reserved []string) (errs *apis.FieldError) {
	check := func(name, field string) *apis.FieldError {
		if !slices.Contains(reserved, name) {
			return nil
		}
		return apis.ErrGeneric("no Function may use Secret "+name+", which has the credentials of the image registry: use another", field)
	}
	for i := range fs.Env {
		if from := fs.Env[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
			errs = errs.Also(check(from.SecretKeyRef.Name, "valueFrom.secretKeyRef.name").ViaFieldIndex("env", i))
		}
	}
	for i := range fs.EnvFrom {
		if from := fs.EnvFrom[i].SecretRef; from != nil {
			errs = errs.Also(check(from.Name, "secretRef.name").ViaFieldIndex("envFrom", i))
		}
	}
	for i := range fs.SecretMounts {
		errs = errs.Also(check(fs.SecretMounts[i].SecretName, "secretName").ViaFieldIndex("secretMounts", i))
	}
	if fs.Archive != nil {
		errs = errs.Also(check(fs.Archive.SecretName, "secretName").ViaField("archive"))
	}
	if fs.Git != nil {
		errs = errs.Also(check(fs.Git.SecretName, "secretName").ViaField("git"))
	}
	if fs.Build != nil {
		errs = errs.Also(check(fs.Build.SecretName, "secretName").ViaField("build"))
	}
	return errs
}
