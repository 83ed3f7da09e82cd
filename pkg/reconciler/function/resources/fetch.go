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

package resources

import (
	"cmp"
	"strconv"
	"strings"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

// isFetched says whether the build fetches the source.
func isFetched(fn *v1alpha1.Function) bool {
	return fn.Spec.IsFetched()
}

// contextPathOf returns where the steps that make the image find the build context.
func contextPathOf(fn *v1alpha1.Function) string {
	if isFetched(fn) {
		return fetchedContextPath
	}
	return contextPath
}

// fetchStep returns the step that fetches the source and makes the build context of
// it. It alone sees the credentials of the source, and runs nothing of it.
func fetchStep(fn *v1alpha1.Function, cfg *config.Config, build Build) pipelinev1.Step {
	limits := cfg.Build.Sources
	args := append(fetchArgs(fn, cfg, build),
		"--files="+filesPath,
		"--work="+workPath,
		"--language="+build.Runtime.Language,
		"--source-file="+build.Runtime.SourceFile,
		"--dependency-file="+build.Runtime.DependencyFile,
		"--origin-file=$(results."+SourceResult+".path)",
		limit(sources.MaxDownloadSizeKey, limits.Download),
		limit(sources.MaxUnpackedSizeKey, limits.Size),
		limit(sources.MaxUnpackedFilesKey, limits.Files),
		limit(sources.MaxUnpackedRatioKey, limits.Ratio),
	)
	if _, ok := build.Files[runtimes.LayoutName]; ok {
		// Else the administrator's Dockerfile finds the source beside it.
		args = append(args, "--tree="+runtimes.SourceFolder)
	}
	mounts := []corev1.VolumeMount{
		{Name: contextVolumeName, MountPath: filesPath, ReadOnly: true},
		{Name: workVolumeName, MountPath: workPath},
	}
	if sourceSecret(fn) != "" {
		args = append(args, "--credentials="+sourceCredentialsPath)
		mounts = append(mounts, corev1.VolumeMount{Name: sourceCredentialsVolumeName, MountPath: sourceCredentialsPath, ReadOnly: true})
	}
	if build.Credentials != nil && isOwnArtifact(fn, cfg) {
		args = append(args, "--registry-credentials="+credentialsPath)
		mounts = append(mounts, corev1.VolumeMount{Name: credentialsVolumeName, MountPath: credentialsPath, ReadOnly: true})
	}
	return pipelinev1.Step{
		Name:             FetchStepName,
		Image:            cfg.Build.ComposeImage,
		Command:          []string{composeBinary},
		Args:             args,
		VolumeMounts:     mounts,
		ComputeResources: copying(),
		SecurityContext:  restricted(),
	}
}

// fetchArgs tells the step what to fetch.
func fetchArgs(fn *v1alpha1.Function, cfg *config.Config, build Build) []string {
	if git := fn.Spec.Git; git != nil {
		// What the branch was found at is built, and not what it is at by then: else a
		// branch that goes back and forth could be built for ever.
		return []string{"fetch", "--git=" + git.URL, "--revision=" + cmp.Or(build.Commit, git.Revision), "--folder=" + git.ContextDir}
	}
	args := []string{"fetch", "--archive=" + fn.Spec.Archive.URL, "--sha256=" + fn.Spec.Archive.SHA256}
	if s3 := fn.Spec.Archive.S3; s3 != nil {
		args = append(args, "--s3-endpoint="+s3.Endpoint, "--s3-region="+s3.Region)
		if s3.PathStyle != nil {
			args = append(args, "--s3-path-style="+strconv.FormatBool(*s3.PathStyle))
		}
	}
	if strings.HasPrefix(fn.Spec.Archive.URL, sources.OCIScheme) {
		args = append(args, insecureRegistries(cfg)...)
	}
	return args
}

// isOwnArtifact says whether the source is an artifact beside the images of the
// Function's namespace. It is fetched with the credentials that these are pushed
// with. Others are not: they may be those of all namespaces, and who may edit
// Functions need not be one who may read what others have there.
func isOwnArtifact(fn *v1alpha1.Function, cfg *config.Config) bool {
	return sourceSecret(fn) == "" && fn.Spec.Archive != nil &&
		strings.HasPrefix(fn.Spec.Archive.URL, sources.OCIScheme+cfg.Registry.PushRepository(fn.Namespace, "")+"/")
}

// sourceSecret returns the name of the Secret with the credentials of the source.
func sourceSecret(fn *v1alpha1.Function) string {
	if fn.Spec.Git != nil {
		return fn.Spec.Git.SecretName
	}
	return fn.Spec.Archive.SecretName
}

func limit(key string, value int64) string {
	return "--" + key + "=" + strconv.FormatInt(value, 10)
}

// fetchVolumes returns what only a build needs that fetches its source. It waits
// until the Secret exists that the Function names.
func fetchVolumes(fn *v1alpha1.Function) []corev1.Volume {
	volumes := []corev1.Volume{{Name: workVolumeName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if name := sourceSecret(fn); name != "" {
		volumes = append(volumes, corev1.Volume{
			Name:         sourceCredentialsVolumeName,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}},
		})
	}
	return volumes
}
