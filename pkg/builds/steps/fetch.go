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

package steps

import (
	"cmp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

func contextPathOf(fn *v1alpha1.Function) string {
	if fn.Spec.IsFetched() {
		return fetchedContextPath
	}
	return contextPath
}

// fetchStep returns the container that fetches the source and writes the build context. It
// alone sees the credentials of the source, and it runs none of its code.
func fetchStep(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec, target Target) corev1.Container {
	limits := cfg.Build.Sources
	args := append(fetchArgs(fn, cfg, build),
		"--files="+filesPath,
		"--work="+workPath,
		"--language="+build.Runtime.Language,
	)
	for _, name := range build.Runtime.SourceFiles() {
		args = append(args, "--source-file="+name)
	}
	args = append(args,
		"--dependency-file="+build.Runtime.DependencyFile,
		"--origin-file="+target.sourceResult(),
		limit(sources.MaxDownloadSizeKey, limits.Download),
		limit(sources.MaxUnpackedSizeKey, limits.Size),
		limit(sources.MaxUnpackedFilesKey, limits.Files),
		limit(sources.MaxUnpackedRatioKey, limits.Ratio),
	)
	if _, ok := build.Files[runtimes.LayoutName]; ok {
		// The administrator's own Dockerfile expects the source beside it instead.
		args = append(args, "--tree="+runtimes.SourceFolder, "--base="+build.BaseImage)
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
	disk := diskOfBuild(fn, cfg.Build)
	return corev1.Container{
		Name:            Fetch,
		Image:           cfg.Build.ComposeImage,
		Command:         []string{composeBinary},
		Args:            args,
		VolumeMounts:    mounts,
		Resources:       disk.limit(copying(), disk.work),
		SecurityContext: children.Restricted(),
	}
}

// sourceResult returns the file for the result of the fetch step.
func (t Target) sourceResult() string {
	if t.ResultFile == nil {
		return corev1.TerminationMessagePathDefault
	}
	return t.ResultFile(SourceResult)
}

// fetchArgs returns the arguments that name the source.
func fetchArgs(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) []string {
	if git := fn.Spec.Git; git != nil {
		// The build uses the commit that polling found, not the current head. Otherwise a
		// branch that moves back and forth could be built for ever.
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

// isOwnArtifact reports whether the source is an artifact in the repositories of the
// Function's namespace. Only such a source is fetched with the push credentials, which
// may read all namespaces' repositories. An editor of Functions may not.
func isOwnArtifact(fn *v1alpha1.Function, cfg *config.Config) bool {
	return sourceSecret(fn) == "" && fn.Spec.Archive != nil &&
		strings.HasPrefix(fn.Spec.Archive.URL, sources.OCIScheme+cfg.Registry.PushRepository(fn.Namespace, "")+"/")
}

// sourceSecret returns the name of the Secret with the source's credentials, or "".
func sourceSecret(fn *v1alpha1.Function) string {
	if fn.Spec.Git != nil {
		return fn.Spec.Git.SecretName
	}
	return fn.Spec.Archive.SecretName
}

func limit(key string, value int64) string {
	return "--" + key + "=" + strconv.FormatInt(value, 10)
}
