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
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/randfill"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/depcheck"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

var knownRuntimes = config.Runtimes{
	"nodejs18": {Language: "nodejs", Deprecated: true},
	"nodejs24": {Language: "nodejs"},
	"python3":  {Language: "python"},
	"any":      {Language: "dockerfile"},
}

func withConfig(t testing.TB) context.Context {
	t.Helper()
	cfg := *config.FromContextOrDefaults(withFunctions(t, map[string]string{
		"max-source-size": "1Ki", "allowed-pod-annotations": "example.com/*, example.org/one",
		"allowed-pod-labels": "app.kubernetes.io/*, example.com/*, myknative.dev/x",
	}))
	cfg.Runtimes = knownRuntimes
	return config.ToContext(t.Context(), &cfg)
}

func manyResources(n int) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := range n {
		list[corev1.ResourceName(fmt.Sprint("example.com/", i))] = resource.MustParse("1")
	}
	return list
}

func variable(name string, source *corev1.EnvVarSource) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: source}
}

func secretKey(name, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key,
	}}
}

func configMapKey(name, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key,
	}}
}

func named(name string) corev1.LocalObjectReference {
	return corev1.LocalObjectReference{Name: name}
}

// mounts mounts Secrets at paths, which follow one another in pairs.
func mounts(pairs ...string) func(*Function) {
	return func(fn *Function) {
		for i := 0; i < len(pairs); i += 2 {
			fn.Spec.SecretMounts = append(fn.Spec.SecretMounts, SecretMount{SecretName: pairs[i], MountPath: MountPath(pairs[i+1])})
		}
	}
}

func configMapMount(name string, path MountPath) func(*Function) {
	return func(fn *Function) {
		fn.Spec.ConfigMapMounts = append(fn.Spec.ConfigMapMounts, ConfigMapMount{ConfigMapName: name, MountPath: path})
	}
}

// folder mounts an empty folder. A blank size sets none.
func folder(path MountPath, size string) func(*Function) {
	return func(fn *Function) {
		mount := EmptyDirMount{MountPath: path}
		if size != "" {
			mount.SizeLimit = new(resource.MustParse(size))
		}
		fn.Spec.EmptyDirMounts = append(fn.Spec.EmptyDirMounts, mount)
	}
}

func claim(name string, path MountPath) func(*Function) {
	return func(fn *Function) {
		fn.Spec.PersistentVolumeClaimMounts = append(fn.Spec.PersistentVolumeClaimMounts, PersistentVolumeClaimMount{ClaimName: name, MountPath: path})
	}
}

func all(edits ...func(*Function)) func(*Function) {
	return func(fn *Function) {
		for _, edit := range edits {
			edit(fn)
		}
	}
}

func rolloutOnChange(value string) func(*Function) {
	return func(fn *Function) {
		fn.Annotations = map[string]string{serverless.RolloutOnChangeAnnotationKey: value}
	}
}

func toleration(t corev1.Toleration) func(*Function) {
	return func(fn *Function) { fn.Spec.Tolerations = []corev1.Toleration{t} }
}

var latest = TrafficTarget{LatestRevision: new(true), Percent: new(int64(100))}

func traffic(targets ...TrafficTarget) func(*Function) {
	return func(fn *Function) { fn.Spec.Traffic = targets }
}

func build(b BuildSpec) func(*Function) {
	return func(fn *Function) { fn.Spec.Build = &b }
}

const badURL = "use a URL such as https://example.com/code.zip, without a user, and with %24 for $, or oci://registry.example.com/code:1, with a tag or a digest, or s3://bucket/key, without %: spec.archive.url"

const badEndpoint = "use a URL such as https://minio.example.com:9000, without a user or a path: spec.archive.s3.endpoint"

const hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// archive has the source in an archive.
func archive(a ArchiveSource) func(*Function) {
	return func(fn *Function) { fn.Spec.Source, fn.Spec.Archive = "", &a }
}

const badGitURL = "use a URL such as https://example.com/a/b.git or git@example.com:a/b.git, without a password: spec.git.url"

// repository has the source in a Git repository.
func repository(g GitSource) func(*Function) {
	return func(fn *Function) { fn.Spec.Source, fn.Spec.Git = "", &g }
}

const noFiles = "the runtime builds a Dockerfile with the files beside it: put them into spec.git or spec.archive; kubectl fn deploy --dir packs a folder: spec."

// ownDockerfile edits a Function of a runtime that takes no source in it.
func ownDockerfile(edit func(*Function)) func(*Function) {
	return func(fn *Function) {
		fn.Spec.Runtime = "any"
		edit(fn)
	}
}

// validationCase is an edit of a valid Function.
type validationCase struct {
	edit func(*Function)
	// want are the errors, one a line; none where the Function stays valid.
	want string
}

// validationCases are the cases of the webhook, of the CRD, and of the resources
// that are made of Functions.
func validationCases() map[string]validationCase {
	longest := "a" + strings.Repeat("b", 62)
	return map[string]validationCase{
		"as it is":     {func(*Function) {}, ""},
		"longest name": {func(fn *Function) { fn.Name = longest }, ""},
		"no name yet":  {func(fn *Function) { fn.Name, fn.GenerateName = "", "x-" }, ""},
		"name too long": {
			func(fn *Function) { fn.Name = longest + "b" },
			"invalid value: " + longest + "b: metadata.name\nmust be no more than 63 characters",
		},
		"name begins with a digit": {
			func(fn *Function) { fn.Name = "1st" },
			"invalid value: 1st: metadata.name\na DNS-1035 label must consist of",
		},
		"name with a dot": {func(fn *Function) { fn.Name = "a.b" }, "invalid value: a.b: metadata.name\n"},

		"no runtime":      {func(fn *Function) { fn.Spec.Runtime = "" }, "missing field(s): spec.runtime"},
		"unknown runtime": {func(fn *Function) { fn.Spec.Runtime = "cobol" }, `unknown runtime "cobol": choose one of any, nodejs18, nodejs24, python3: spec.runtime`},
		"deprecated":      {func(fn *Function) { fn.Spec.Runtime = "nodejs18" }, ""},

		"own Dockerfile in an archive": {ownDockerfile(archive(ArchiveSource{URL: "https://example.com/a.zip"})), ""},
		"own Dockerfile in Git":        {ownDockerfile(repository(GitSource{URL: "https://example.com/a.git", ContextDir: "b"})), ""},
		"own Dockerfile as the source": {ownDockerfile(func(fn *Function) { fn.Spec.Source = "FROM scratch" }), noFiles + "source"},
		"own Dockerfile with dependencies": {
			ownDockerfile(func(fn *Function) { fn.Spec.Deps = "{}" }),
			noFiles + "source\nthe runtime takes no dependencies: the Dockerfile installs them: spec.deps",
		},

		"blank source":                {func(fn *Function) { fn.Spec.Source = " \n\t" }, "must not be blank: spec.source"},
		"no source":                   {func(fn *Function) { fn.Spec.Source = "" }, "expected exactly one, got neither: spec.archive, spec.git, spec.source"},
		"source of a byte order mark": {func(fn *Function) { fn.Spec.Source = "\ufeff\r\n" }, "must not be blank: spec.source"},
		"byte order marks":            {func(fn *Function) { fn.Spec.Source, fn.Spec.Deps = "\ufeff;\r\n", "\ufeff{}\r\n" }, ""},
		"Unicode, in bytes": {
			func(fn *Function) { fn.Spec.Source = strings.Repeat("大", 342) },
			"source and deps together are 1026 bytes, more than the limit of 1024: spec.deps, spec.source",
		},
		"largest": {func(fn *Function) { fn.Spec.Source, fn.Spec.Deps = strings.Repeat("x", 1022), "{}" }, ""},
		"too large": {
			func(fn *Function) { fn.Spec.Source, fn.Spec.Deps = strings.Repeat("x", 1023), "{}" },
			"source and deps together are 1025 bytes, more than the limit of 1024: spec.deps, spec.source",
		},

		"archive":               {archive(ArchiveSource{URL: "https://example.com/code.zip"}), ""},
		"archive with all":      {archive(ArchiveSource{URL: "http://store:9000/a/b.tar.gz?x=y", SHA256: hash, SecretName: "a"}), ""},
		"artifact by tag":       {archive(ArchiveSource{URL: "oci://registry.example.com:5000/a/b__c:V1.0_x"}), ""},
		"artifact by digest":    {archive(ArchiveSource{URL: "oci://10.0.0.1/a@sha256:" + hash, SHA256: hash}), ""},
		"artifact by both":      {archive(ArchiveSource{URL: "oci://registry:5000/a:1@sha256:" + hash}), ""},
		"artifact by name":      {archive(ArchiveSource{URL: "oci://registry.example.com/a"}), badURL},
		"artifact of nobody":    {archive(ArchiveSource{URL: "oci://team/a:1"}), badURL},
		"artifact above":        {archive(ArchiveSource{URL: "oci://registry.example.com/a/../b:1"}), badURL},
		"artifact in capitals":  {archive(ArchiveSource{URL: "oci://registry.example.com/A:1"}), badURL},
		"artifact with a user":  {archive(ArchiveSource{URL: "oci://user:pass@registry.example.com/a:1"}), badURL},
		"artifact, and more":    {archive(ArchiveSource{URL: "oci://registry.example.com/a:1?b=c"}), badURL},
		"artifact's long tag":   {archive(ArchiveSource{URL: "oci://registry.example.com/a:" + strings.Repeat("b", 129)}), badURL},
		"artifact's bad digest": {archive(ArchiveSource{URL: "oci://registry.example.com/a@sha256:" + hash[1:]}), badURL},
		"object":                {archive(ArchiveSource{URL: "s3://my.bucket-1/a/b+c=é.zip"}), ""},
		"object with all":       {archive(ArchiveSource{URL: "s3://code/a", S3: &S3Store{Endpoint: "http://store:9000", Region: "eu-1", PathStyle: new(false)}}), ""},
		"object by default":     {archive(ArchiveSource{URL: "s3://code/a", S3: &S3Store{}}), ""},
		"object of no bucket":   {archive(ArchiveSource{URL: "s3:///a"}), badURL},
		"object of bad bucket":  {archive(ArchiveSource{URL: "s3://Code/a"}), badURL},
		"object without key":    {archive(ArchiveSource{URL: "s3://code/"}), badURL},
		"object, escaped":       {archive(ArchiveSource{URL: "s3://code/a%20b"}), badURL},
		"object, and more":      {archive(ArchiveSource{URL: "s3://code/a?b=c"}), badURL},
		"store without object":  {archive(ArchiveSource{URL: "https://a/b", S3: &S3Store{Region: "eu-1"}}), "s3 must not be set unless url is such as s3://bucket/key: spec.archive.s3, spec.archive.url"},
		"store with a user":     {archive(ArchiveSource{URL: "s3://code/a", S3: &S3Store{Endpoint: "https://a:b@store"}}), badEndpoint},
		"store with a path":     {archive(ArchiveSource{URL: "s3://code/a", S3: &S3Store{Endpoint: "https://store/a"}}), badEndpoint},
		"store of no scheme":    {archive(ArchiveSource{URL: "s3://code/a", S3: &S3Store{Endpoint: "store:9000"}}), badEndpoint},
		"store too far":         {archive(ArchiveSource{URL: "s3://code/a", S3: &S3Store{Endpoint: "https://" + strings.Repeat("a", 248)}}), badEndpoint},
		"store's bad region":    {archive(ArchiveSource{URL: "s3://code/a", S3: &S3Store{Region: "EU"}}), "invalid value: EU: spec.archive.s3.region\nuse the name of a region such as eu-central-1"},
		"store's long region":   {archive(ArchiveSource{URL: "s3://code/a", S3: &S3Store{Region: strings.Repeat("a", 64)}}), "invalid value: " + strings.Repeat("a", 64) + ": spec.archive.s3.region\nuse the name"},
		"archive and source":    {func(fn *Function) { fn.Spec.Archive = &ArchiveSource{URL: "https://a/b"} }, "expected exactly one, got both: spec.archive, spec.source"},
		"archive and deps":      {func(fn *Function) { archive(ArchiveSource{URL: "https://a/b"})(fn); fn.Spec.Deps = "{}" }, "deps must not be set without source: a repository or an archive contains its dependency file: spec.deps"},
		"archive of nothing":    {archive(ArchiveSource{}), "missing field(s): spec.archive.url"},
		"archive by FTP":        {archive(ArchiveSource{URL: "ftp://a/b"}), badURL},
		"archive with a user":   {archive(ArchiveSource{URL: "https://user:pass@a/b"}), badURL},
		"archive with a $":      {archive(ArchiveSource{URL: "https://a/$(params.b)"}), badURL},
		"archive with a space":  {archive(ArchiveSource{URL: "https://a/b c"}), badURL},
		"archive with a part":   {archive(ArchiveSource{URL: "https://a/b#c"}), badURL},
		"archive without path":  {archive(ArchiveSource{URL: "https://a"}), badURL},
		"archive with bad %":    {archive(ArchiveSource{URL: "https://a/%zz"}), badURL},
		"archive too far":       {archive(ArchiveSource{URL: "https://a/" + strings.Repeat("b", 2039)}), "it is 2049 characters, more than the limit of 2048: spec.archive.url"},
		"archive's short hash":  {archive(ArchiveSource{URL: "https://a/b", SHA256: hash[1:]}), "invalid value: " + hash[1:] + ": spec.archive.sha256\nuse 64 of 0-9 and a-f"},
		"archive's loud hash":   {archive(ArchiveSource{URL: "https://a/b", SHA256: strings.ToUpper(hash)}), "invalid value: " + strings.ToUpper(hash) + ": spec.archive.sha256\nuse 64 of 0-9 and a-f"},
		"archive's bad secret":  {archive(ArchiveSource{URL: "https://a/b", SecretName: "A"}), "invalid value: A: spec.archive.secretName\n"},
		"archive's long secret": {archive(ArchiveSource{URL: "https://a/b", SecretName: strings.Repeat("a", 254)}), "invalid value: " + strings.Repeat("a", 254) + ": spec.archive.secretName\n"},

		"git":              {repository(GitSource{URL: "https://example.com/a/b.git"}), ""},
		"git with all":     {repository(GitSource{URL: "ssh://git@example.com:2222/a/b.git", Revision: "feature/x-1.0", ContextDir: "a/.b/..c", SecretName: "a"}), ""},
		"git with a colon": {repository(GitSource{URL: "git@example.com:a/b.git"}), ""},
		"git and source":   {func(fn *Function) { fn.Spec.Git = &GitSource{URL: "https://a/b"} }, "expected exactly one, got both: spec.git, spec.source"},
		"git and archive": {func(fn *Function) {
			archive(ArchiveSource{URL: "https://a/b"})(fn)
			fn.Spec.Git = &GitSource{URL: "https://a/b"}
		}, "expected exactly one, got both: spec.archive, spec.git"},
		"git and deps":          {func(fn *Function) { repository(GitSource{URL: "https://a/b"})(fn); fn.Spec.Deps = "{}" }, "deps must not be set without source: a repository or an archive contains its dependency file: spec.deps"},
		"git of nothing":        {repository(GitSource{}), "missing field(s): spec.git.url"},
		"git on a disk":         {repository(GitSource{URL: "file:///etc"}), badGitURL},
		"git with a path":       {repository(GitSource{URL: "/etc/passwd"}), badGitURL},
		"git with a password":   {repository(GitSource{URL: "https://a:b@c/d"}), badGitURL},
		"git with a $":          {repository(GitSource{URL: "https://a/$(params.b)"}), badGitURL},
		"git by an option":      {repository(GitSource{URL: "--upload-pack=x"}), badGitURL},
		"git too far":           {repository(GitSource{URL: "https://a/" + strings.Repeat("b", 2039)}), "it is 2049 characters, more than the limit of 2048: spec.git.url"},
		"git of a bad branch":   {repository(GitSource{URL: "https://a/b", Revision: "$(params.b)"}), "invalid value: $(params.b): spec.git.revision\n"},
		"git of an option":      {repository(GitSource{URL: "https://a/b", Revision: "-x"}), "invalid value: -x: spec.git.revision\n"},
		"git of a long branch":  {repository(GitSource{URL: "https://a/b", Revision: strings.Repeat("b", 256)}), "invalid value: " + strings.Repeat("b", 256) + ": spec.git.revision\n"},
		"git out of its folder": {repository(GitSource{URL: "https://a/b", ContextDir: "a/../.."}), "invalid value: a/../..: spec.git.contextDir\n"},
		"git in no folder":      {repository(GitSource{URL: "https://a/b", ContextDir: "./a"}), "invalid value: ./a: spec.git.contextDir\n"},
		"git from the root":     {repository(GitSource{URL: "https://a/b", ContextDir: "/a"}), "invalid value: /a: spec.git.contextDir\n"},
		"git's bad secret":      {repository(GitSource{URL: "https://a/b", SecretName: "A"}), "invalid value: A: spec.git.secretName\n"},

		"blank deps":       {func(fn *Function) { fn.Spec.Deps = " \n" }, ""},
		"deps":             {func(fn *Function) { fn.Spec.Deps = `{"dependencies": {"ms": "2.1.3"}}` }, ""},
		"deps in Python":   {func(fn *Function) { fn.Spec.Runtime, fn.Spec.Deps = "python3", "requests==2.32" }, ""},
		"deps of a list":   {func(fn *Function) { fn.Spec.Deps = `{"dependencies": ["ms"]}` }, "package.json dependencies must be a JSON object: it is of type array: spec.deps"},
		"deps an array":    {func(fn *Function) { fn.Spec.Deps = "[]" }, "package.json must be a JSON object: it is of type array: spec.deps"},
		"deps a string":    {func(fn *Function) { fn.Spec.Deps = `"ms"` }, "package.json must be a JSON object: it is of type string: spec.deps"},
		"deps null":        {func(fn *Function) { fn.Spec.Deps = "null" }, "package.json must be a JSON object: it is null: spec.deps"},
		"deps not JSON":    {func(fn *Function) { fn.Spec.Deps = "{\n  \"é\": x}" }, "package.json must be a JSON object: line 2, column 8: invalid character 'x' looking for beginning of value: spec.deps"},
		"deps cut off":     {func(fn *Function) { fn.Spec.Deps = "{\n" }, "package.json must be a JSON object: line 1, column 2: unexpected end of JSON input: spec.deps"},
		"deps and a rest":  {func(fn *Function) { fn.Spec.Deps = "{} {}" }, "package.json must be a JSON object: line 1, column 4: invalid character '{' after top-level value: spec.deps"},
		"deps with commas": {func(fn *Function) { fn.Spec.Deps = "{\"a\": 1,\n}" }, "package.json must be a JSON object: line 2, column 1: invalid character '}' looking for beginning of object key string: spec.deps"},

		"min above max":     {func(fn *Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(2)) }, "minReplicas is 3, more than maxReplicas, which is 2: spec.maxReplicas, spec.minReplicas"},
		"min without a max": {func(fn *Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(0)) }, ""},
		"min is max":        {func(fn *Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(3)) }, ""},
		"min alone":         {func(fn *Function) { fn.Spec.MinReplicas = new(int32(3)) }, ""},
		"min negative":      {func(fn *Function) { fn.Spec.MinReplicas = new(int32(-1)) }, "expected 0 <= -1 <= 1000: spec.minReplicas"},
		"max too many":      {func(fn *Function) { fn.Spec.MaxReplicas = new(int32(1001)) }, "expected 0 <= 1001 <= 1000: spec.maxReplicas"},

		"env": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{
				{Name: "A"},
				{Name: "b.c-d_1", Value: "x"},
				variable("S", secretKey("my.secret", "a.key")), variable("C", configMapKey("c", "k")),
			}
		}, ""},
		"env without a name":    {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Value: "x"}} }, "missing field(s): spec.env[0].name"},
		"env name with =":       {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A"}, {Name: "A=B"}} }, "invalid value: A=B: spec.env[1].name\n"},
		"env name with a space": {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A B"}} }, "invalid value: A B: spec.env[0].name\n"},
		"env name with a digit": {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "1A"}} }, "invalid value: 1A: spec.env[0].name\n"},
		"env PORT":              {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "PORT"}} }, "invalid value: PORT: spec.env[0].name\nKnative sets this variable"},
		"env K_SERVICE":         {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "K_SERVICE"}} }, "invalid value: K_SERVICE: spec.env[0].name\nKnative sets this variable"},
		"env K_REVISION":        {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "K_REVISION"}} }, "invalid value: K_REVISION: spec.env[0].name\nKnative sets this variable"},
		"env K_SINK":            {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "K_SINK"}, {Name: "K_CE_OVERRIDES"}} }, ""},
		"env value with NUL":    {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A", Value: "a\x00"}} }, "invalid value: a\x00: spec.env[0].value\nit contains a NUL character"},
		"env FUNC_NAME":         {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "FUNC_NAME"}} }, "invalid value: FUNC_NAME: spec.env[0].name\nKiln sets this variable"},
		"env twice":             {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A"}, {Name: "B"}, {Name: "A"}} }, `duplicate name "A": spec.env[2].name`},
		"env value and source": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{{Name: "A", Value: "x", ValueFrom: secretKey("s", "k")}}
		}, "expected exactly one, got both: spec.env[0].value, spec.env[0].valueFrom"},
		"env no source": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", &corev1.EnvVarSource{})}
		}, "expected exactly one, got neither: spec.env[0].valueFrom.configMapKeyRef, spec.env[0].valueFrom.secretKeyRef"},
		"env two sources": {func(fn *Function) {
			both := secretKey("s", "k")
			both.ConfigMapKeyRef = configMapKey("c", "k").ConfigMapKeyRef
			fn.Spec.Env = []corev1.EnvVar{variable("A", both)}
		}, "expected exactly one, got both: spec.env[0].valueFrom.configMapKeyRef, spec.env[0].valueFrom.secretKeyRef"},
		"env of a field": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{}})}
		}, "must not set the field(s): spec.env[0].valueFrom.fieldRef"},
		"env of a resource": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{}})}
		}, "must not set the field(s): spec.env[0].valueFrom.resourceFieldRef"},
		"env of a file": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{}})}
		}, "must not set the field(s): spec.env[0].valueFrom.fileKeyRef"},
		"env of nothing in a secret": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", secretKey("", ""))}
		}, "missing field(s): spec.env[0].valueFrom.secretKeyRef.key, spec.env[0].valueFrom.secretKeyRef.name"},
		"env of a bad name and key": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", configMapKey("C", "a/b"))}
		}, "invalid value: C: spec.env[0].valueFrom.configMapKeyRef.name\n"},

		"resources": {func(fn *Function) {
			fn.Spec.Resources = resources(
				list("cpu", "1", "ephemeral-storage", "1Gi", "nvidia.com/gpu", "2"),
				list("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "2", "amd.com/gpu", "1"))
		}, ""},
		"request above limit": {func(fn *Function) {
			fn.Spec.Resources = resources(list("memory", "2Gi"), list("memory", "1Gi"))
		}, "the request of 2Gi is more than the limit, which is 1Gi: spec.resources.requests[memory]"},
		"negative request": {func(fn *Function) {
			fn.Spec.Resources = resources(list("cpu", "-1"), nil)
		}, "invalid value: -1: spec.resources.requests[cpu]\nit must not be negative"},
		"unknown resource": {func(fn *Function) {
			fn.Spec.Resources = resources(nil, list("ram", "1Gi"))
		}, "invalid key name \"ram\": spec.resources.limits\nuse cpu, memory"},
		"half a GPU": {func(fn *Function) {
			fn.Spec.Resources = resources(nil, list("nvidia.com/gpu", "500m"))
		}, "invalid value: 500m: spec.resources.limits.[nvidia.com/gpu]\nit must be a whole number"},
		"a GPU requested without a limit": {func(fn *Function) {
			fn.Spec.Resources = resources(list("nvidia.com/gpu", "1"), nil)
		}, "the request must equal the limit, since this resource cannot be shared: spec.resources.requests.[nvidia.com/gpu]"},
		"resource claims": {func(fn *Function) {
			fn.Spec.Resources.Claims = []corev1.ResourceClaim{{Name: "x"}}
		}, "must not set the field(s): spec.resources.claims"},

		"labels": {func(fn *Function) {
			fn.Spec.Labels = map[string]string{"a": "", "example.com/b": "c", "app.kubernetes.io/part-of": "shop"}
		}, ""},
		"label key with a space": {func(fn *Function) { fn.Spec.Labels = map[string]string{"a b": "c"} }, "invalid key name \"a b\": spec.labels\n"},
		"label value":            {func(fn *Function) { fn.Spec.Labels = map[string]string{"a": "b c"} }, "invalid value: b c: spec.labels[a]\n"},
		"label of Kiln":          {func(fn *Function) { fn.Spec.Labels = map[string]string{"serverless.kiln.dev/x": "y"} }, "invalid key name \"serverless.kiln.dev/x\": spec.labels\nKiln sets labels of this prefix"},
		"label of Azure":         {func(fn *Function) { fn.Spec.Labels = map[string]string{"azure.workload.identity/use": "true"} }, "invalid key name \"azure.workload.identity/use\": spec.labels\nthe labels that pods may have are listed in allowed-pod-labels of the ConfigMap config-functions"},
		"label of Kubernetes":    {func(fn *Function) { fn.Spec.Labels = map[string]string{"app.kubernetes.io/name": "x"} }, ""},
		"many variables":         {func(fn *Function) { fn.Spec.Env = make([]corev1.EnvVar, 257) }, "it has 257 entries, more than the limit of 256: spec.env"},
		"many resources":         {func(fn *Function) { fn.Spec.Resources.Limits = manyResources(65) }, "it has 65 entries, more than the limit of 64: spec.resources.limits"},
		"large dependencies":     {func(fn *Function) { fn.Spec.Deps = strings.Repeat("[", 1<<20+1) }, "it is 1048577 bytes, more than the limit of 1048576: spec.deps"},
		"label of Knative":       {func(fn *Function) { fn.Spec.Labels = map[string]string{"serving.knative.dev/service": "y"} }, "invalid key name \"serving.knative.dev/service\": spec.labels\nKnative sets labels of this prefix"},
		"label like Knative":     {func(fn *Function) { fn.Spec.Labels = map[string]string{"myknative.dev/x": "y"} }, ""},

		"env from": {func(fn *Function) {
			fn.Spec.EnvFrom = []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("s"), Optional: new(true)}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("my.c")}, Prefix: "DB_"},
			}
		}, ""},
		"env from two": {func(fn *Function) {
			fn.Spec.EnvFrom = []corev1.EnvFromSource{{
				SecretRef:    &corev1.SecretEnvSource{LocalObjectReference: named("s")},
				ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("c")},
			}}
		}, "expected exactly one, got both: spec.envFrom[0].configMapRef, spec.envFrom[0].secretRef"},
		"env from nothing": {func(fn *Function) { fn.Spec.EnvFrom = []corev1.EnvFromSource{{}} }, "expected exactly one, got neither: spec.envFrom[0].configMapRef, spec.envFrom[0].secretRef"},
		"env from a Secret without a name": {func(fn *Function) {
			fn.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
		}, "missing field(s): spec.envFrom[0].secretRef.name"},
		"env from a bad name": {func(fn *Function) {
			fn.Spec.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("A/b")}}}
		}, "invalid value: A/b: spec.envFrom[0].configMapRef.name\n"},
		"env from with a bad prefix": {func(fn *Function) {
			fn.Spec.EnvFrom = []corev1.EnvFromSource{{Prefix: "1=", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("s")}}}
		}, "invalid value: 1=: spec.envFrom[0].prefix\n"},

		"mounts":                      {mounts("s", "/etc/tls", "s", "/etc/tls-2", "t.u", "/var/run/secrets/db/..data.d/.x"), ""},
		"mount without a Secret":      {mounts("", "/a"), "missing field(s): spec.secretMounts[0].secretName"},
		"mount of a bad name":         {mounts("A", "/a"), "invalid value: A: spec.secretMounts[0].secretName\n"},
		"mount without a path":        {mounts("s", ""), "missing field(s): spec.secretMounts[0].mountPath"},
		"mount that is relative":      {mounts("s", "etc/tls"), "invalid value: etc/tls: spec.secretMounts[0].mountPath\nuse an absolute path"},
		"mount on the root":           {mounts("s", "/"), "invalid value: /: spec.secretMounts[0].mountPath\nuse an absolute path"},
		"mount that climbs":           {mounts("s", "/a/../b"), "invalid value: /a/../b: spec.secretMounts[0].mountPath\nuse an absolute path"},
		"mount with a dot":            {mounts("s", "/a/./b"), "invalid value: /a/./b: spec.secretMounts[0].mountPath\nuse an absolute path"},
		"mount with a slash too many": {mounts("s", "/a/"), "invalid value: /a/: spec.secretMounts[0].mountPath\nuse an absolute path"},
		"mount with a double slash":   {mounts("s", "/a//b"), "invalid value: /a//b: spec.secretMounts[0].mountPath\nuse an absolute path"},
		"mount with a colon":          {mounts("s", "/a:b"), "invalid value: /a:b: spec.secretMounts[0].mountPath\nuse an absolute path"},
		"mount with a line break":     {mounts("s", "/a\nb"), "invalid value: /a\nb: spec.secretMounts[0].mountPath\nuse an absolute path"},
		"mount on /tmp":               {mounts("s", "/tmp"), "invalid value: /tmp: spec.secretMounts[0].mountPath\nit must not overlap /tmp"},
		"mount below /proc":           {mounts("s", "/proc/1"), "invalid value: /proc/1: spec.secretMounts[0].mountPath\nit must not overlap /proc"},
		"mount on the function":       {mounts("s", "/function"), "invalid value: /function: spec.secretMounts[0].mountPath\nit must not overlap /function"},
		"mount on the wrapper":        {mounts("s", "/kiln"), "invalid value: /kiln: spec.secretMounts[0].mountPath\nit must not overlap /kiln"},
		"mount beside the function":   {mounts("s", "/functions"), ""},
		"mount above the token":       {mounts("s", "/var/run"), "invalid value: /var/run: spec.secretMounts[0].mountPath\nit must not overlap /var/run/secrets/kubernetes.io"},
		"mount above the hosts":       {mounts("s", "/etc"), "invalid value: /etc: spec.secretMounts[0].mountPath\nit must not overlap /etc/hosts"},
		"mount twice":                 {mounts("s", "/a", "t", "/a"), `duplicate mountPath "/a": spec.secretMounts[1].mountPath`},
		"mount below another":         {mounts("s", "/a", "t", "/a/b"), `"/a/b" and "/a", the mountPath of secretMounts[0], must not be nested: spec.secretMounts[1].mountPath`},
		"mount above another":         {mounts("s", "/a/b", "t", "/a"), `"/a" and "/a/b", the mountPath of secretMounts[0], must not be nested: spec.secretMounts[1].mountPath`},

		"mounts of all kinds":              {all(mounts("s", "/a"), configMapMount("c", "/b"), folder("/c", ""), folder("/d", "1Gi"), claim("p", "/e")), ""},
		"ConfigMap without a name":         {configMapMount("", "/a"), "missing field(s): spec.configMapMounts[0].configMapName"},
		"ConfigMap of a bad name":          {configMapMount("A", "/a"), "invalid value: A: spec.configMapMounts[0].configMapName\n"},
		"ConfigMap on /tmp":                {configMapMount("c", "/tmp/a"), "invalid value: /tmp/a: spec.configMapMounts[0].mountPath\nit must not overlap /tmp"},
		"ConfigMap on a Secret":            {all(mounts("s", "/a"), configMapMount("c", "/a")), `duplicate mountPath "/a": spec.configMapMounts[0].mountPath`},
		"ConfigMap below a Secret":         {all(mounts("s", "/a"), configMapMount("c", "/a/b")), `"/a/b" and "/a", the mountPath of secretMounts[0], must not be nested: spec.configMapMounts[0].mountPath`},
		"ConfigMap below another":          {all(configMapMount("c", "/a"), configMapMount("d", "/a/b")), `"/a/b" and "/a", the mountPath of configMapMounts[0], must not be nested: spec.configMapMounts[1].mountPath`},
		"folder above the function":        {folder("/", ""), "invalid value: /: spec.emptyDirMounts[0].mountPath\nuse an absolute path"},
		"folder on the function":           {folder("/function/cache", ""), "invalid value: /function/cache: spec.emptyDirMounts[0].mountPath\nit must not overlap /function"},
		"folder above a Secret":            {all(mounts("s", "/a/b"), folder("/a", "")), `"/a" and "/a/b", the mountPath of secretMounts[0], must not be nested: spec.emptyDirMounts[0].mountPath`},
		"folder on a ConfigMap":            {all(configMapMount("c", "/a"), folder("/a", "")), `duplicate mountPath "/a": spec.emptyDirMounts[0].mountPath`},
		"folder twice":                     {all(folder("/a", ""), folder("/a", "")), `duplicate mountPath "/a": spec.emptyDirMounts[1].mountPath`},
		"folder of no size":                {folder("/a", "0"), "invalid value: 0: spec.emptyDirMounts[0].sizeLimit\nit must be more than 0"},
		"folder of a negative size":        {folder("/a", "-1Mi"), "invalid value: -1Mi: spec.emptyDirMounts[0].sizeLimit\nit must be more than 0"},
		"folders as large as may be":       {all(folder("/a", "3Gi"), folder("/b", "1Gi")), ""},
		"folders too large":                {all(folder("/a", "3Gi"), folder("/b", "1Gi"), folder("/c", "1Mi")), "the sizeLimits add up to 4097Mi, more than the limit of 4Gi, which is max-empty-dir-size of the ConfigMap config-functions: spec.emptyDirMounts"},
		"folders beyond numbers":           {all(folder("/a", "8Ei"), folder("/b", "8Ei")), "the sizeLimits add up to 18446744073709551614, more than the limit of 4Gi, which is max-empty-dir-size of the ConfigMap config-functions: spec.emptyDirMounts"},
		"folders too large with a default": {all(folder("/a", "4Gi"), folder("/b", "")), "the sizeLimits add up to 4608Mi, more than the limit of 4Gi, which is max-empty-dir-size of the ConfigMap config-functions: spec.emptyDirMounts"},
		"too many folders": {func(fn *Function) {
			for i := range 9 {
				folder(MountPath(fmt.Sprint("/", i)), "1Mi")(fn)
			}
		}, "it has 9 entries, more than the limit of 8: spec.emptyDirMounts"},
		"claim without a name": {claim("", "/a"), "missing field(s): spec.persistentVolumeClaimMounts[0].claimName"},
		"claim of a bad name":  {claim("a/b", "/a"), "invalid value: a/b: spec.persistentVolumeClaimMounts[0].claimName\n"},
		"claim without a path": {claim("p", ""), "missing field(s): spec.persistentVolumeClaimMounts[0].mountPath"},
		"claim on the token":   {claim("p", "/run/secrets/kubernetes.io/x"), "invalid value: /run/secrets/kubernetes.io/x: spec.persistentVolumeClaimMounts[0].mountPath\nit must not overlap /run/secrets/kubernetes.io"},
		"claim below a Secret": {all(mounts("s", "/a"), claim("p", "/a/b")), `"/a/b" and "/a", the mountPath of secretMounts[0], must not be nested: spec.persistentVolumeClaimMounts[0].mountPath`},
		"claim on a ConfigMap": {all(configMapMount("c", "/a"), claim("p", "/a")), `duplicate mountPath "/a": spec.persistentVolumeClaimMounts[0].mountPath`},
		"claim above a folder": {all(folder("/a/b", ""), claim("p", "/a")), `"/a" and "/a/b", the mountPath of emptyDirMounts[0], must not be nested: spec.persistentVolumeClaimMounts[0].mountPath`},
		"claim below another":  {all(claim("p", "/a"), claim("p", "/a/b")), `"/a/b" and "/a", the mountPath of persistentVolumeClaimMounts[0], must not be nested: spec.persistentVolumeClaimMounts[1].mountPath`},

		"service account":     {func(fn *Function) { fn.Spec.ServiceAccountName = "my.account-1" }, ""},
		"bad service account": {func(fn *Function) { fn.Spec.ServiceAccountName = "A" }, "invalid value: A: spec.serviceAccountName\n"},

		"node selector":       {func(fn *Function) { fn.Spec.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"} }, ""},
		"node selector key":   {func(fn *Function) { fn.Spec.NodeSelector = map[string]string{"a b": "c"} }, "invalid key name \"a b\": spec.nodeSelector\n"},
		"node selector value": {func(fn *Function) { fn.Spec.NodeSelector = map[string]string{"a": "b c"} }, "invalid value: b c: spec.nodeSelector[a]\n"},

		"tolerations": {func(fn *Function) {
			fn.Spec.Tolerations = []corev1.Toleration{
				{Operator: "Exists"}, {Key: "a.b/c", Value: "d", Effect: "NoSchedule"}, {Key: "a", Operator: "Equal"},
				{Key: "a", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(-1))},
			}
		}, ""},
		"toleration of nothing":   {toleration(corev1.Toleration{}), "invalid value: : spec.tolerations[0].operator\nit must be Exists where there is no key"},
		"toleration key":          {toleration(corev1.Toleration{Key: "a b"}), "invalid value: a b: spec.tolerations[0].key\n"},
		"toleration value":        {toleration(corev1.Toleration{Key: "a", Value: "b c"}), "invalid value: b c: spec.tolerations[0].value\n"},
		"toleration of any value": {toleration(corev1.Toleration{Key: "a", Value: "b", Operator: "Exists"}), "invalid value: b: spec.tolerations[0].value\nit must be empty"},
		"toleration operator":     {toleration(corev1.Toleration{Key: "a", Operator: "Lt"}), "invalid value: Lt: spec.tolerations[0].operator\nuse Equal or Exists"},
		"toleration effect":       {toleration(corev1.Toleration{Key: "a", Effect: "Never"}), "invalid value: Never: spec.tolerations[0].effect\nuse NoSchedule"},
		"toleration seconds":      {toleration(corev1.Toleration{Key: "a", TolerationSeconds: new(int64(1))}), "invalid value: : spec.tolerations[0].effect\nit must be NoExecute"},

		"limits":               {func(fn *Function) { fn.Spec.Concurrency, fn.Spec.TimeoutSeconds = new(int64(1000)), new(int64(86400)) }, ""},
		"no limits":            {func(fn *Function) { fn.Spec.Concurrency, fn.Spec.TimeoutSeconds = new(int64(0)), new(int64(1)) }, ""},
		"concurrency negative": {func(fn *Function) { fn.Spec.Concurrency = new(int64(-1)) }, "expected 0 <= -1 <= 1000: spec.concurrency"},
		"concurrency too high": {func(fn *Function) { fn.Spec.Concurrency = new(int64(1001)) }, "expected 0 <= 1001 <= 1000: spec.concurrency"},
		"timeout of 0":         {func(fn *Function) { fn.Spec.TimeoutSeconds = new(int64(0)) }, "expected 1 <= 0 <= 86400: spec.timeoutSeconds"},
		"timeout too long":     {func(fn *Function) { fn.Spec.TimeoutSeconds = new(int64(86401)) }, "expected 1 <= 86401 <= 86400: spec.timeoutSeconds"},

		"visibility":         {func(fn *Function) { fn.Spec.Visibility = VisibilityPublic }, ""},
		"unknown visibility": {func(fn *Function) { fn.Spec.Visibility = "Public" }, "invalid value: Public: spec.visibility\nuse cluster-local or public"},

		"traffic": {traffic(
			TrafficTarget{RevisionName: "greeter-00001", Percent: new(int64(90)), Tag: "stable"},
			TrafficTarget{RevisionName: "greeter-00001", LatestRevision: new(false), Percent: new(int64(0))},
			TrafficTarget{LatestRevision: new(true), Percent: new(int64(10))},
			TrafficTarget{LatestRevision: new(true), Tag: "next"},
		), ""},
		"traffic of 99":               {traffic(TrafficTarget{LatestRevision: new(true), Percent: new(int64(99))}), "the percentages add up to 99, not to 100: spec.traffic"},
		"traffic beyond 100":          {traffic(TrafficTarget{LatestRevision: new(true), Percent: new(int64(101))}), "expected 0 <= 101 <= 100: spec.traffic[0].percent\nthe percentages"},
		"traffic to nobody":           {traffic(latest, TrafficTarget{Tag: "a"}), "expected a revisionName, or latestRevision: true: spec.traffic[1].latestRevision, spec.traffic[1].revisionName"},
		"traffic to both":             {traffic(latest, TrafficTarget{Tag: "a", LatestRevision: new(true), RevisionName: "greeter-00001"}), "expected exactly one, got both: spec.traffic[1].latestRevision, spec.traffic[1].revisionName"},
		"traffic of nothing":          {traffic(latest, TrafficTarget{LatestRevision: new(true)}), "expected a percent, a tag, or both: spec.traffic[1].percent, spec.traffic[1].tag"},
		"traffic to another function": {traffic(latest, TrafficTarget{Tag: "a", RevisionName: "greeter-2-00001"}), "invalid value: greeter-2-00001: spec.traffic[1].revisionName\nthe names of the function's revisions are like greeter-00001"},
		"traffic to no revision":      {traffic(latest, TrafficTarget{Tag: "a", RevisionName: "greeter"}), "invalid value: greeter: spec.traffic[1].revisionName\nthe names"},
		"traffic tags":                {traffic(latest, TrafficTarget{Tag: "a", LatestRevision: new(true)}, TrafficTarget{Tag: "a", LatestRevision: new(true)}), `duplicate tag "a": spec.traffic[2].tag`},
		"traffic tag":                 {traffic(latest, TrafficTarget{Tag: "v1.2", LatestRevision: new(true)}), "invalid value: v1.2: spec.traffic[1].tag\n"},
		"traffic tag too long": {
			traffic(latest, TrafficTarget{Tag: strings.Repeat("a", 56), LatestRevision: new(true)}),
			"invalid value: " + strings.Repeat("a", 56) + ": spec.traffic[1].tag\nits URL begins with " + strings.Repeat("a", 56) + "-greeter, which is 64 characters, more than the limit of 63",
		},
		"longest traffic tag": {traffic(latest, TrafficTarget{Tag: strings.Repeat("a", 55), LatestRevision: new(true)}), ""},
		"traffic of the longest name": {func(fn *Function) {
			fn.Name = longest
			fn.Spec.Traffic = []TrafficTarget{latest, {Percent: new(int64(0)), RevisionName: kmeta.ChildName(longest, "-00012")}}
		}, ""},
		"traffic of a name that is not known yet": {func(fn *Function) {
			fn.Name = ""
			fn.Spec.Traffic = []TrafficTarget{latest, {Percent: new(int64(0)), RevisionName: "x-00012"}}
		}, ""},

		"build": {func(fn *Function) {
			fn.Spec.Build = &BuildSpec{
				Resources:  resources(list("cpu", "4", "memory", "8Gi", "ephemeral-storage", "16Gi"), nil),
				Timeout:    &metav1.Duration{Duration: time.Hour},
				Env:        []BuildEnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}, {Name: "_a1"}},
				SecretName: "my.registries",
			}
		}, ""},
		"build with too much":          {build(BuildSpec{Resources: resources(list("cpu", "5"), list("memory", "9Gi", "ephemeral-storage", "17Gi"))}), "invalid value: 17Gi: spec.build.resources.limits[ephemeral-storage]\nbuilds may have at most 16Gi\ninvalid value: 5: spec.build.resources.requests[cpu]\nbuilds may have at most 4\ninvalid value: 9Gi: spec.build.resources.limits[memory]\nbuilds may have at most 8Gi"},
		"build request above limit":    {build(BuildSpec{Resources: resources(list("cpu", "2"), list("cpu", "1"))}), "the request of 2 is more than the limit, which is 1: spec.build.resources.requests[cpu]"},
		"build timeout of 0":           {build(BuildSpec{Timeout: &metav1.Duration{}}), "expected 10s <= 0s <= 1h0m0s: spec.build.timeout"},
		"build timeout negative":       {build(BuildSpec{Timeout: &metav1.Duration{Duration: -time.Minute}}), "expected 10s <= -1m0s <= 1h0m0s: spec.build.timeout"},
		"build timeout above the most": {build(BuildSpec{Timeout: &metav1.Duration{Duration: 2 * time.Hour}}), "expected 10s <= 2h0m0s <= 1h0m0s: spec.build.timeout"},
		"build env without a name":     {build(BuildSpec{Env: []BuildEnvVar{{}}}), "missing field(s): spec.build.env[0].name"},
		"build env twice":              {build(BuildSpec{Env: []BuildEnvVar{{Name: "A"}, {Name: "A"}}}), `duplicate name "A": spec.build.env[1].name`},
		"build env with a dash":        {build(BuildSpec{Env: []BuildEnvVar{{Name: "A-B"}}}), "invalid value: A-B: spec.build.env[0].name\n"},
		"build env too large":          {build(BuildSpec{Env: []BuildEnvVar{{Name: "A", Value: strings.Repeat("x", 32<<10)}}}), "names and values are 32769 bytes, more than the limit of 32768: spec.build.env"},
		"build env PATH":               {build(BuildSpec{Env: []BuildEnvVar{{Name: "PATH"}}}), "invalid value: PATH: spec.build.env[0].name\nthis variable must not be set: the build's own tools need"},
		"build env LD_PRELOAD":         {build(BuildSpec{Env: []BuildEnvVar{{Name: "LD_PRELOAD"}}}), "invalid value: LD_PRELOAD: spec.build.env[0].name\nthis variable must not be set: the build's own tools need"},
		"build Secret":                 {build(BuildSpec{SecretName: "A"}), "invalid value: A: spec.build.secretName\n"},

		"rollout on change":    {rolloutOnChange("true"), ""},
		"no rollout on change": {rolloutOnChange("false"), ""},
		"rollout on what":      {rolloutOnChange("yes"), "invalid value: yes: metadata.annotations.[serverless.kiln.dev/rollout-on-change]\nuse true or false"},
		"rollout on nothing":   {rolloutOnChange(""), "invalid value: : metadata.annotations.[serverless.kiln.dev/rollout-on-change]\nuse true or false"},

		"being deleted": {func(fn *Function) {
			fn.DeletionTimestamp, fn.Spec = &metav1.Time{Time: time.Now()}, FunctionSpec{}
		}, ""},
	}
}

func TestValidate(t *testing.T) {
	for name, test := range validationCases() {
		t.Run(name, func(t *testing.T) {
			fn := validFunction()
			test.edit(fn)
			err := fn.Validate(withConfig(t))
			switch got := err.Error(); {
			case test.want == "" && err != nil:
				t.Errorf("unexpected: %v", err)
			case strings.Contains(test.want, "\n") && !strings.HasPrefix(got, test.want):
				t.Errorf("got %q\nwant it to begin with %q", got, test.want)
			case !strings.Contains(test.want, "\n") && got != test.want:
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestValidateRolloutOnChange edits the annotation, or something else.
func TestValidateRolloutOnChange(t *testing.T) {
	none := func(*Function) {}
	for name, tc := range map[string]struct {
		before, after func(*Function)
		denied        bool
	}{
		"set":           {none, rolloutOnChange("true"), false},
		"set wrongly":   {none, rolloutOnChange("on"), true},
		"another value": {rolloutOnChange("true"), rolloutOnChange("True"), true},
		"an old value":  {rolloutOnChange("on"), all(rolloutOnChange("on"), func(fn *Function) { fn.Labels = map[string]string{"a": "b"} }), false},
		"removed":       {rolloutOnChange("on"), none, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := validFunction(), validFunction()
			tc.before(before)
			tc.after(after)
			if err := after.Validate(apis.WithinUpdate(withConfig(t), before)); (err != nil) != tc.denied {
				t.Errorf("got %v, want it denied: %t", err, tc.denied)
			}
		})
	}
}

// TestValidateAnnotations sets one annotation, or more, of the pods.
func TestValidateAnnotations(t *testing.T) {
	const (
		autoscaling = "autoscaling.knative.dev/"
		sidecar     = "queue.sidecar.serving.knative.dev/"
	)
	tests := map[string]struct {
		annotations map[string]string
		// want is what the error contains; nothing where there is none.
		want string
	}{
		"any":                     {map[string]string{"a": "b", "B": "\n"}, ""},
		"allowed":                 {map[string]string{"example.com/any": "x", "example.org/one": "x"}, ""},
		"another of a prefix":     {map[string]string{"example.org/two": "x"}, `invalid key name "example.org/two": spec.annotations` + "\nthe annotations that pods may have are listed in allowed-pod-annotations of the ConfigMap config-functions"},
		"of another case":         {map[string]string{"Example.org/one": "x"}, "allowed-pod-annotations"},
		"Istio's":                 {map[string]string{"sidecar.istio.io/userVolume": "[]"}, "allowed-pod-annotations"},
		"Vault's":                 {map[string]string{"vault.hashicorp.com/role": "x"}, "allowed-pod-annotations"},
		"kube2iam's":              {map[string]string{"iam.amazonaws.com/role": "x"}, "allowed-pod-annotations"},
		"kubectl's":               {map[string]string{"kubectl.kubernetes.io/restartedAt": "x"}, "allowed-pod-annotations"},
		"bad key":                 {map[string]string{"a b": ""}, `invalid key name "a b": spec.annotations`},
		"Kiln's":                  {map[string]string{"serverless.kiln.dev/rebuild": "1"}, "Kiln sets annotations of this prefix"},
		"Serving's":               {map[string]string{"serving.knative.dev/creator": "me"}, "Knative sets annotations of this prefix"},
		"a deadline":              {map[string]string{"serving.knative.dev/progress-deadline": "20m"}, ""},
		"a deadline of 0":         {map[string]string{"serving.knative.dev/progress-deadline": "0s"}, "from 1s to 24h0m0s"},
		"a deadline, no duration": {map[string]string{"serving.knative.dev/progress-deadline": "600"}, "from 1s to 24h0m0s"},
		"a deadline in parts":     {map[string]string{"serving.knative.dev/progress-deadline": "1500ms"}, "whole number of seconds"},
		"networking's":            {map[string]string{"networking.knative.dev/ingress-class": "x"}, "Knative sets annotations that begin with networking.knative.dev"},
		"almost networking's":     {map[string]string{"networking.knative.dev.example.com/x": "x"}, "Knative sets annotations that begin with networking.knative.dev"},
		"networking's, no slash":  {map[string]string{"networking.knative.devx": "x"}, "Knative sets annotations that begin with networking.knative.dev"},
		"of AppArmor":             {map[string]string{"container.apparmor.security.beta.kubernetes.io/function": "unconfined"}, "Kubernetes reads more"},
		"of a mirror pod":         {map[string]string{"kubernetes.io/config.mirror": "x"}, "Kubernetes reads more"},
		"minReplicas":             {map[string]string{autoscaling + "min-scale": "1"}, "use the field minReplicas"},
		"maxReplicas, old":        {map[string]string{autoscaling + "maxScale": "1"}, "use the field maxReplicas"},
		"a feature":               {map[string]string{"features.knative.dev/http-full-duplex": "Enabled"}, ""},
		"the sidecar":             {map[string]string{sidecar + "cpu-resource-request": "100m"}, ""},
		"the sidecar's nonsense":  {map[string]string{sidecar + "cpu-resource-request": "much"}, "quantity"},
		"the sidecar, unknown":    {map[string]string{sidecar + "colour": "red"}, "Knative sets"},
		"class":                   {map[string]string{autoscaling + "class": "hpa.autoscaling.knative.dev", autoscaling + "metric": "cpu", autoscaling + "target": "75"}, ""},
		"own class":               {map[string]string{autoscaling + "class": "example.com", autoscaling + "metric": "moon", autoscaling + "metric-aggregation-algorithm": "x"}, ""},
		"unknown class":           {map[string]string{autoscaling + "class": "x.knative.dev"}, "a class of your own"},
		"no class":                {map[string]string{autoscaling + "class": ""}, "a class of your own"},
		"metric of KPA":           {map[string]string{autoscaling + "metric": "rps"}, ""},
		"metric of HPA":           {map[string]string{autoscaling + "metric": "cpu"}, "use concurrency or rps, or set"},
		"no metric of HPA":        {map[string]string{autoscaling + "class": "hpa.autoscaling.knative.dev", autoscaling + "metric": ""}, "must not be empty"},
		"algorithm":               {map[string]string{autoscaling + "metric-aggregation-algorithm": "weighted-exponential"}, ""},
		"unknown algorithm":       {map[string]string{autoscaling + "metric-aggregation-algorithm": "guess"}, "use linear or weighted-exponential"},
		"target":                  {map[string]string{autoscaling + "target": "0.01"}, ""},
		"target of 0":             {map[string]string{autoscaling + "target": "0"}, "number from 0.01"},
		"target that is none":     {map[string]string{autoscaling + "target": "NaN"}, "number from 0.01"},
		"utilization":             {map[string]string{autoscaling + "target-utilization-percentage": "101"}, "number from 1 to 100"},
		"burst":                   {map[string]string{autoscaling + "target-burst-capacity": "-1"}, ""},
		"burst below -1":          {map[string]string{autoscaling + "target-burst-capacity": "-2"}, "must be -1"},
		"window":                  {map[string]string{autoscaling + "window": "1m30s"}, ""},
		"window too short":        {map[string]string{autoscaling + "window": "5s"}, "from 6s to 1h0m0s"},
		"window in parts":         {map[string]string{autoscaling + "window": "6500ms"}, "whole number of seconds"},
		"retention":               {map[string]string{autoscaling + "scale-to-zero-pod-retention-period": "1.5s"}, ""},
		"retention too long":      {map[string]string{autoscaling + "scale-to-zero-pod-retention-period": "2h"}, "from 0s to 1h0m0s"},
		"delay":                   {map[string]string{autoscaling + "scale-down-delay": "15m"}, ""},
		"delay negative":          {map[string]string{autoscaling + "scale-down-delay": "-1s"}, "from 0s"},
		"panic":                   {map[string]string{autoscaling + "panic-window-percentage": "10", autoscaling + "panic-threshold-percentage": "200"}, ""},
		"panic window":            {map[string]string{autoscaling + "panic-window-percentage": "0.5"}, "number from 1 to 100"},
		"panic threshold":         {map[string]string{autoscaling + "panic-threshold-percentage": "100"}, "number from 110 to 1000"},
		"initial scale":           {map[string]string{autoscaling + "initial-scale": "0"}, ""},
		"initial scale, old":      {map[string]string{autoscaling + "initialScale": "-1"}, "from 0 to 1000"},
		"activation scale":        {map[string]string{autoscaling + "activation-scale": "5"}, ""},
		"activation scale of 1":   {map[string]string{autoscaling + "activation-scale": "1"}, "from 3 to 5"},
		"activation below min":    {map[string]string{autoscaling + "activation-scale": "2"}, "from 3 to 5"},
		"activation above max":    {map[string]string{autoscaling + "activation-scale": "6"}, "from 3 to 5"},
		"what Serving knows not":  {map[string]string{autoscaling + "colour": "red"}, ""},
		"too large":               {map[string]string{"a": strings.Repeat("x", 128<<10)}, "they are 131073 bytes, more than the limit of 131072: spec.annotations"},
		"each as large as can be": {map[string]string{"a": strings.Repeat("x", 128<<10-1)}, ""},
	}
	crd := newCRD(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fn := validFunction()
			fn.Spec.Annotations = test.annotations
			fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(5))
			if errs := crd.validate(t, unstructured(t, fn)); test.want == "" && len(errs) > 0 {
				t.Errorf("the CRD denies what the webhook takes: %v", errs.ToAggregate())
			}
			switch err := fn.Validate(withConfig(t)); {
			case test.want == "" && err != nil:
				t.Errorf("unexpected: %v", err)
			case test.want != "" && !strings.Contains(err.Error(), test.want):
				t.Errorf("got %q\nwant it to contain %q", err, test.want)
			}
		})
	}
}

// TestValidateSize takes 900 KiB of code, and denies what the API server could not
// store with a status.
func TestValidateSize(t *testing.T) {
	fn := validFunction()
	line := "exports.main = (event) => event.data && 'größer, 大, 🚀' || \"<b>\";\r\n"
	const comment = "// A comment of usual length, as code has, in many lines of it.\n"
	fn.Spec.Source = strings.Repeat(comment, 900<<10/len(comment)) + strings.Repeat(line, 100)
	if err := fn.Validate(t.Context()); err != nil {
		t.Errorf("%d bytes of usual code: %v", len(fn.Spec.Source), err)
	}
	fn.Spec.Source = strings.Repeat("x", 936<<10)
	if err := fn.Validate(t.Context()); err != nil {
		t.Errorf("the largest source: %v", err)
	}
	fn.Spec.Source = strings.Repeat("<", 300<<10)
	const want = "bytes of JSON, more than the limit of 1228800"
	if err := fn.Validate(t.Context()); !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), ": spec") {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestValidateOtherSize denies an environment that would fill the controller's memory.
func TestValidateOtherSize(t *testing.T) {
	fn := validFunction()
	fn.Spec.Source = strings.Repeat("x", 900<<10)
	fn.Spec.Env = []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 250<<10)}}
	if err := fn.Validate(t.Context()); err != nil {
		t.Errorf("an environment of 250 KiB: %v", err)
	}
	fn.Spec.Env = append(fn.Spec.Env, corev1.EnvVar{Name: "B", Value: strings.Repeat("x", 10<<10)})
	const want = "bytes of JSON, more than the limit of 262144: put large values of env into a ConfigMap or a Secret: spec"
	if err := fn.Validate(t.Context()); !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func validFunction() *Function {
	return &Function{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: "default"},
		Spec:       FunctionSpec{Runtime: "nodejs24", Source: "module.exports = { main: () => 'hello' }"},
	}
}

func TestValidateReportsAll(t *testing.T) {
	fn := validFunction()
	fn.Name = "1st"
	fn.Spec = FunctionSpec{Runtime: "cobol", MinReplicas: new(int32(-1)), Env: []corev1.EnvVar{{Name: "PORT"}}}
	got := fn.Validate(withConfig(t)).Error()
	for _, want := range []string{"metadata.name", "spec.runtime", "spec.source", "spec.minReplicas", "spec.env[0].name"} {
		if !strings.Contains(got, want) {
			t.Errorf("the error does not name %s: %s", want, got)
		}
	}
}

// TestValidateUpdate edits a Function that today's configuration would deny.
func TestValidateUpdate(t *testing.T) {
	before := validFunction()
	before.Spec.Runtime = "cobol"
	ctx := apis.WithinUpdate(withConfig(t), before)

	now := before.DeepCopy()
	now.Labels = map[string]string{"a": "b"}
	if err := now.Validate(ctx); err != nil {
		t.Errorf("an edit of labels: %v", err)
	}
	now.Spec.Source += "\n"
	if err := now.Validate(ctx); err == nil {
		t.Error("an edit of the spec was not denied")
	}
	if err := now.Validate(apis.WithinSubResourceUpdate(withConfig(t), before, "status")); err != nil {
		t.Errorf("an update of the status: %v", err)
	}
}

func TestValidateWithoutConfig(t *testing.T) {
	fn := validFunction()
	fn.Spec.Runtime, fn.Spec.Deps = "cobol", "IDENTIFICATION DIVISION."
	if err := fn.Validate(t.Context()); err != nil {
		t.Errorf("nothing is known of runtimes, yet: %v", err)
	}
	ctx := config.ToContext(t.Context(), &config.Config{Runtimes: config.Runtimes{}})
	if got, want := fn.Validate(ctx).Error(), `unknown runtime "cobol": no runtime is configured: spec.runtime`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDeprecatedRuntimeWarns(t *testing.T) {
	fn := validFunction()
	fn.Spec.Runtime = "nodejs18"
	err := fn.Validate(apis.WithinCreate(withConfig(t)))
	if got := err.Filter(apis.ErrorLevel); got != nil {
		t.Errorf("denied: %v", got)
	}
	if got, want := err.Filter(apis.WarningLevel).Error(), `runtime "nodejs18" is deprecated: spec.runtime`; got != want {
		t.Errorf("warning %q, want %q", got, want)
	}
}

// randomSpec returns a spec that is the same for the same seed.
func randomSpec(seed int64) (spec FunctionSpec) {
	randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 4).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(1<<40)-1<<20, resource.BinarySI)
		},
		func(n *corev1.ResourceName, c randfill.Continue) {
			*n = []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu", "ram"}[c.Intn(4)]
		},
		func(n *int32, c randfill.Continue) { *n = int32(c.Intn(20) - 2) },
		// Half of the specs have nothing random that could be denied but
		// what has a default.
		func(s *FunctionSpec, c randfill.Continue) {
			if c.Bool() {
				c.FillNoCustom(s)
				return
			}
			s.Runtime, s.Source = "", "x"
			c.Fill(&s.MinReplicas)
			c.Fill(&s.MaxReplicas)
			c.Fill(&s.Resources.Requests)
			c.Fill(&s.Resources.Limits)
		},
	).Fill(&spec)
	return spec
}

// FuzzFunction checks that no Function makes defaulting or validation panic,
// and that defaulting is idempotent and never makes a Function invalid.
func FuzzFunction(f *testing.F) {
	add := func(fn *Function) {
		spec, err := json.Marshal(fn.Spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(fn.Name, spec)
	}
	cases := validationCases()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		fn := validFunction()
		cases[name].edit(fn)
		add(fn)
	}
	for seed := range int64(200) {
		fn := validFunction()
		fn.Spec = randomSpec(seed)
		add(fn)
	}
	f.Fuzz(func(t *testing.T, name string, spec []byte) {
		ctx := withConfig(t)
		fn := validFunction()
		fn.Name, fn.Spec = name, FunctionSpec{}
		if json.Unmarshal(spec, &fn.Spec) != nil {
			return
		}
		// A Function that lacks a runtime is not denied: it gets one.
		if fn.Spec.Runtime == "" {
			fn.Spec.Runtime = "nodejs24"
		}
		before := fn.Validate(ctx)
		fn.SetDefaults(ctx)
		once := fn.DeepCopy()
		fn.SetDefaults(ctx)
		if !equality.Semantic.DeepEqual(once, fn) {
			t.Fatalf("defaulting twice differs (-once +twice):\n%s", cmp.Diff(once, fn))
		}
		if after := fn.Validate(ctx); before == nil && after != nil {
			t.Fatalf("defaulting made the Function invalid: %v", after)
		}
		update := apis.WithinUpdate(ctx, once)
		fn.SetDefaults(update)
		if err := fn.Validate(update); err != nil {
			t.Fatalf("an unchanged Function is denied: %v", err)
		}
	})
}

// TestDependencies keeps Tekton's and Serving's types out of the API.
func TestDependencies(t *testing.T) {
	depcheck.AssertNoDependency(t, map[string][]string{
		"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1": {
			"github.com/tektoncd/pipeline",
			"knative.dev/serving",
			"k8s.io/client-go/kubernetes",
		},
	})
}

// TestConcurrencyOfDeployment checks that a Function that a Deployment serves gets a warning
// for a limit that nothing enforces.
func TestConcurrencyOfDeployment(t *testing.T) {
	for _, test := range []struct {
		name     string
		setting  config.Server
		status   FunctionStatus
		noLimit  bool
		wantWarn bool
	}{
		{name: "new", setting: config.AutoServer},
		{name: "new, for a Deployment", setting: config.KubernetesServer, wantWarn: true},
		{name: "new, for a Deployment, without a limit", setting: config.KubernetesServer, noLimit: true},
		{name: "under Knative", setting: config.KubernetesServer, status: FunctionStatus{TemplateHash: "a.b"}},
		{name: "of a Deployment", setting: config.KnativeServer, status: FunctionStatus{Serving: string(config.KubernetesServer), TemplateHash: "a.b"}, wantWarn: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := config.FromContextOrDefaults(t.Context())
			cfg.Functions.Server = test.setting
			fn := &Function{
				ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: "default"},
				Spec:       FunctionSpec{Runtime: "nodejs24", Source: "x", Concurrency: new(int64(5))},
				Status:     test.status,
			}
			if test.noLimit {
				fn.Spec.Concurrency = new(int64(0))
			}
			err := fn.Validate(config.ToContext(t.Context(), cfg))
			if warns := strings.Contains(err.Filter(apis.WarningLevel).Error(), "spec.concurrency"); warns != test.wantWarn || err.Filter(apis.ErrorLevel) != nil {
				t.Errorf("Validate() = %v, want a warning: %t", err, test.wantWarn)
			}
		})
	}
}
