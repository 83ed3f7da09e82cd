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

package migrate

import (
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// kymaSpec has the fields of a Function of Kyma that Kiln has, too.
type kymaSpec struct {
	Runtime              string          `json:"runtime"`
	RuntimeImageOverride string          `json:"runtimeImageOverride"`
	Source               kymaSource      `json:"source"`
	Env                  []corev1.EnvVar `json:"env"`
	Resources            struct {
		Build    kymaResources `json:"build"`
		Function kymaResources `json:"function"`
	} `json:"resourceConfiguration"`
	ScaleConfig struct {
		MinReplicas *int32 `json:"minReplicas"`
		MaxReplicas *int32 `json:"maxReplicas"`
	} `json:"scaleConfig"`
	Replicas     *int32                 `json:"replicas"`
	SecretMounts []v1alpha1.SecretMount `json:"secretMounts"`
	Labels       map[string]string      `json:"labels"`
	Annotations  map[string]string      `json:"annotations"`

	// Template is the old place of labels and annotations.
	Template struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"template"`
}

type kymaSource struct {
	Inline *struct {
		Source       string `json:"source"`
		Dependencies string `json:"dependencies"`
	} `json:"inline"`
	Git *kymaGit `json:"gitRepository"`
}

type kymaGit struct {
	URL       string `json:"url"`
	BaseDir   string `json:"baseDir"`
	Reference string `json:"reference"`
	Auth      struct {
		Type       string `json:"type"`
		SecretName string `json:"secretName"`
	} `json:"auth"`
}

type kymaResources struct {
	Profile   string                       `json:"profile"`
	Resources *corev1.ResourceRequirements `json:"resources"`
}

var kymaHints = map[string]string{
	"podSecurityContext":       "left out: pods of Kiln always run restricted, as user 1000",
	"containerSecurityContext": "left out: pods of Kiln always run restricted, as user 1000",
}

const (
	kymaPrefix       = "serverless.kyma-project.io/"
	kymaProfileLabel = kymaPrefix + "function-resources-preset"
	kymaFollowKey    = kymaPrefix + "continuousGitCheckout"
)

// kymaProfiles are the requests and limits of CPU and memory of Kyma's profiles.
var kymaProfiles = map[string][4]string{
	"XS": {"50m", "64Mi", "100m", "128Mi"},
	"S":  {"100m", "128Mi", "200m", "256Mi"},
	"M":  {"200m", "256Mi", "400m", "512Mi"},
	"L":  {"400m", "512Mi", "800m", "1Gi"},
	"XL": {"800m", "1Gi", "1600m", "2Gi"},
}

func fromKyma(d *draft, data []byte) error {
	var from kymaSpec
	if err := d.decode(data, &from, kymaHints); err != nil {
		return err
	}
	d.setRuntime(from.Runtime)
	if from.RuntimeImageOverride != "" {
		d.note("spec.runtimeImageOverride", "left out: an administrator can add a runtime with the base image %q to the ConfigMap config-runtimes. Name it in spec.runtime", from.RuntimeImageOverride)
	}
	if from.Source.Inline != nil {
		d.setInline(from.Source.Inline.Source, from.Source.Inline.Dependencies)
	}
	if from.Source.Git != nil {
		d.setKymaGit(from.Source.Git)
	}
	d.addEnv(from.Env)
	d.setKymaResources(&from)
	d.setReplicas(from.Replicas, from.ScaleConfig.MinReplicas, from.ScaleConfig.MaxReplicas)
	for _, mount := range from.SecretMounts {
		mount.MountPath = v1alpha1.MountPath(path.Clean(string(mount.MountPath)))
		d.Function.Spec.SecretMounts = append(d.Function.Spec.SecretMounts, mount)
	}
	d.addPodMetadata(from.Template.Labels, from.Template.Annotations)
	d.addPodMetadata(from.Labels, from.Annotations)
	for _, all := range []map[string]string{d.Function.Labels, d.Function.Annotations} {
		for key := range all {
			if strings.HasPrefix(key, kymaPrefix) {
				delete(all, key)
			}
		}
	}
	return nil
}

var (
	urlScheme = regexp.MustCompile(`^[a-z+]+://|^[^/]+@[^/]+:`)
	commit    = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

func (d *draft) setKymaGit(from *kymaGit) {
	git := &v1alpha1.GitSource{
		URL: from.URL, Revision: strings.TrimSpace(from.Reference), ContextDir: strings.Trim(path.Clean("/"+from.BaseDir), "/"),
		SecretName: from.Auth.SecretName,
	}
	d.Function.Spec.Git = git
	if git.URL != "" && !urlScheme.MatchString(git.URL) {
		git.URL = "https://" + git.URL
		d.note("spec.git.url", "https:// was missing")
	}
	if from.Auth.Type == "key" {
		d.note("spec.git.secretName", "Secret %q must have the private key as ssh-privatekey, without a passphrase, and known_hosts", git.SecretName)
	}
	if !commit.MatchString(git.Revision) {
		d.note("spec.git.revision", "Kiln follows branches only if an administrator sets follow-interval in the ConfigMap config-build")
	}
}

func (d *draft) setKymaResources(from *kymaSpec) {
	spec, ofFunction, ofBuild := &d.Function.Spec, from.Resources.Function, from.Resources.Build
	if ofFunction.Profile == "" && ofFunction.Resources == nil {
		ofFunction.Profile = d.Function.Labels[kymaProfileLabel]
	}
	values, ok := kymaProfiles[ofFunction.Profile]
	switch {
	case ofFunction.Resources != nil:
		spec.Resources = *ofFunction.Resources
	case ok:
		spec.Resources = corev1.ResourceRequirements{Requests: cpuAndMemory(values[0], values[1]), Limits: cpuAndMemory(values[2], values[3])}
	case ofFunction.Profile != "":
		d.note("spec.resources", "the profile %q is not known. Set the requests and limits", ofFunction.Profile)
	default:
		d.note("spec.resources", "none were set. Kiln's default limit of memory, 256Mi, may be lower than that of Kyma's default profile")
	}
	if ofBuild.Resources != nil {
		spec.Build = &v1alpha1.BuildSpec{Resources: *ofBuild.Resources}
	}
	if ofBuild.Profile != "" {
		d.note("spec.build.resources", "the profile %q was for Kyma's builds. Kiln's builds have the defaults of the ConfigMap config-build", ofBuild.Profile)
	}
}

func cpuAndMemory(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}
