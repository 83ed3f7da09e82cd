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
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// Nothing can be mounted at, above or below these paths: the mount would hide them.
var reservedPaths = []string{
	"/dev", "/proc", "/sys", "/tmp", runtimes.FunctionFolder, runtimes.WrapperFolder,
	"/etc/hosts", "/etc/hostname", "/etc/resolv.conf",
	"/var/run/secrets/kubernetes.io", "/run/secrets/kubernetes.io",
}

var mountPath = regexp.MustCompile(`^(/([^/:.\x00-\x1f][^/:\x00-\x1f]*|\.[^/:.\x00-\x1f][^/:\x00-\x1f]*|\.\.[^/:\x00-\x1f]+))+$`)

// mounted is what is mounted at a path of the function's container.
type mounted struct {
	path  MountPath
	field string
	index int

	// errs is what is wrong with the rest of it.
	errs *apis.FieldError
}

// mounts returns all mounts, in the order of the fields.
func (fs *FunctionSpec) mounts() (all []mounted) {
	for i, m := range fs.SecretMounts {
		all = append(all, mounted{m.MountPath, "secretMounts", i, requireObjectName(m.SecretName, "secretName")})
	}
	for i, m := range fs.ConfigMapMounts {
		all = append(all, mounted{m.MountPath, "configMapMounts", i, requireObjectName(m.ConfigMapName, "configMapName")})
	}
	for i, m := range fs.EmptyDirMounts {
		all = append(all, mounted{m.MountPath, "emptyDirMounts", i, validateSizeLimit(m.SizeLimit)})
	}
	for i, m := range fs.PersistentVolumeClaimMounts {
		all = append(all, mounted{m.MountPath, "persistentVolumeClaimMounts", i, requireObjectName(m.ClaimName, "claimName")})
	}
	return all
}

func (fs *FunctionSpec) validateMounts(cfg *config.Functions) (errs *apis.FieldError) {
	all := fs.mounts()
	for i, mount := range all {
		problems := mount.errs.Also(validateMountPath(string(mount.path)))
		for _, other := range all[:i] {
			switch {
			case mount.path == other.path:
				problems = problems.Also(apis.ErrGeneric(fmt.Sprintf("duplicate mountPath %q", mount.path), "mountPath"))
			case overlap(string(mount.path), string(other.path)):
				problems = problems.Also(apis.ErrGeneric(fmt.Sprintf("%q and %q, the mountPath of %s[%d], must not be nested",
					mount.path, other.path, other.field, other.index), "mountPath"))
			}
		}
		errs = errs.Also(problems.ViaFieldIndex(mount.field, mount.index))
	}
	return errs.Also(validateSizes(fs.EmptyDirMounts, cfg).ViaField("emptyDirMounts"))
}

func validateMountPath(path string) *apis.FieldError {
	if path == "" {
		return apis.ErrMissingField("mountPath")
	}
	if !mountPath.MatchString(path) {
		return apis.ErrInvalidValue(path, "mountPath", "use an absolute path such as /etc/tls, without a colon, and with nothing to shorten")
	}
	for _, reserved := range reservedPaths {
		if overlap(path, reserved) {
			return apis.ErrInvalidValue(path, "mountPath", "it must not overlap "+reserved)
		}
	}
	return nil
}

// overlap reports whether two clean paths are the same or one is below the other.
func overlap(a, b string) bool {
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/")
}

func validateSizeLimit(size *resource.Quantity) *apis.FieldError {
	if size != nil && size.Sign() <= 0 {
		return apis.ErrInvalidValue(size.String(), "sizeLimit", "it must be more than 0")
	}
	return nil
}

// validateSizes bounds what the folders of a pod take of the disk of its node.
func validateSizes(mounts []EmptyDirMount, cfg *config.Functions) *apis.FieldError {
	most, sum := resource.NewQuantity(cfg.MaxEmptyDirBytes, resource.BinarySI), resource.Quantity{Format: resource.BinarySI}
	for _, mount := range mounts {
		if size := mount.SizeLimit; size != nil {
			sum.Add(*size)
		} else {
			sum.Add(*resource.NewQuantity(cfg.DefaultEmptyDirBytes, resource.BinarySI))
		}
	}
	if sum.Cmp(*most) > 0 {
		return apis.ErrGeneric(fmt.Sprintf("the sizeLimits add up to %s, more than the limit of %s, which is max-empty-dir-size of the ConfigMap %s",
			sum.String(), most.String(), config.FunctionsConfigName), apis.CurrentField)
	}
	return nil
}
