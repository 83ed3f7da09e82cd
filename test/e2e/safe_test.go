//go:build e2e

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

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	containerregistry "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/sbom"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// TestSameInputsSameImage checks the labels of an image, and that a second installation and
// build of the same inputs makes the same image.
func TestSameInputsSameImage(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(example(t, "greeter.yaml")), test.Ready)
	e.wantSteps(fn, "install", "push")
	first := fn.Status.Image
	base := e.wantTypeHints(fn)
	e.wantNoTokens()
	e.wantLabels(fn, base)
	e.wantPackages(fn, base, "pkg:npm/ms@2.1.3")
	e.wantBuildPolicy()

	fn = e.edit(fn, requestRebuild("1"))
	fn = e.until(fn, answered("1"))
	fn = e.until(fn, test.Ready)
	e.wantRebuilds(2, 1)
	e.wantSteps(fn, "install", "push")
	if fn.Status.Image != first {
		e.Errorf("the same inputs made %s, and %s before", fn.Status.Image, first)
	}
}

// wantTypeHints checks that the Function's last build reports its image and its inputs. A
// TaskRun does so as Tekton Chains documents it. It returns the digest of the base image.
func (e *env) wantTypeHints(fn *v1alpha1.Function) string {
	e.Helper()
	results := e.onlyBuild().results
	var repository, digest string
	e.parse(results["IMAGE_DIGEST"], &digest)
	if builder == taskRunKind {
		e.parse(results["IMAGE_URL"], &repository)
	} else {
		// Chains does not read Jobs, so they do not repeat the repository.
		repository, _, _ = strings.Cut(fn.Status.Image, "@")
	}
	built, err := name.NewDigest(repository + "@" + digest)
	if err != nil {
		e.Errorf("the results name no image: %v", err)
	} else if !strings.HasSuffix(fn.Status.Image, "@"+built.DigestStr()) {
		e.Errorf("the results name %s, and the image is %s", built, fn.Status.Image)
	}
	input := map[string]string{}
	e.parse(results["BASE_IMAGE_ARTIFACT_INPUTS"], &input)
	if _, err := containerregistry.NewHash(input["digest"]); err != nil || !strings.HasPrefix(input["uri"], "oci://") || len(input) != 2 {
		e.Errorf("BASE_IMAGE_ARTIFACT_INPUTS is %v: %v", input, err)
	}
	return input["digest"]
}

// parse reads a result.
func (e *env) parse(result json.RawMessage, into any) {
	e.Helper()
	if err := json.Unmarshal(result, into); err != nil {
		e.Errorf("failed to parse result %q: %v", result, err)
	}
}

// wantLabels checks the labels that name the source and the base image.
func (e *env) wantLabels(fn *v1alpha1.Function, base string) {
	e.Helper()
	_, digest, _ := strings.Cut(fn.Status.Image, "@")
	manifest, image := containerregistry.Manifest{}, containerregistry.ConfigFile{}
	e.fetch(fn, "manifests/"+digest, &manifest)
	e.fetch(fn, "blobs/"+manifest.Config.Digest.String(), &image)
	labels := image.Config.Labels
	if source := labels["serverless.kiln.dev/source-hash"]; !strings.HasPrefix(source, "sha256:") {
		e.Errorf("the hash of the source is %q", source)
	}
	if name := labels["org.opencontainers.image.base.name"]; name == "" {
		e.Error("the image has no label with its base image's name")
	}
	want := map[string]string{
		"org.opencontainers.image.title":         fn.Name,
		"org.opencontainers.image.base.name":     labels["org.opencontainers.image.base.name"],
		"org.opencontainers.image.base.digest":   base,
		"serverless.kiln.dev/function-name":      fn.Name,
		"serverless.kiln.dev/function-namespace": e.namespace,
		"serverless.kiln.dev/runtime":            fn.Spec.Runtime,
		"serverless.kiln.dev/image-tag":          fn.Status.ImageTag,
		"serverless.kiln.dev/source-hash":        labels["serverless.kiln.dev/source-hash"],
	}
	if diff := cmp.Diff(want, labels); diff != "" {
		e.Errorf("labels (-want, +got):\n%s", diff)
	}
	if annotations := manifest.Annotations; annotations != nil && !cmp.Equal(annotations, want) {
		e.Errorf("annotations are %v, want %v", annotations, want)
	}
}

// wantPackages checks that the registry has a package list that refers to the image and has
// its base image and these packages.
func (e *env) wantPackages(fn *v1alpha1.Function, base string, want ...string) {
	e.Helper()
	_, digest, _ := strings.Cut(fn.Status.Image, "@")
	referrers := "referrers/" + digest
	if e.askRegistry(fn, http.MethodGet, referrers, api.Request{}).Status == http.StatusNotFound {
		// This is the tag scheme for registries without the referrers API.
		referrers = "manifests/" + strings.Replace(digest, ":", "-", 1)
	}
	index, artifact, document := containerregistry.IndexManifest{}, containerregistry.Manifest{}, cyclonedx.BOM{}
	e.fetch(fn, referrers, &index)
	if len(index.Manifests) != 1 || index.Manifests[0].ArtifactType != sbom.MediaType {
		e.Fatalf("the referrers of the image are %+v", index.Manifests)
	}
	e.fetch(fn, "manifests/"+index.Manifests[0].Digest.String(), &artifact)
	e.fetch(fn, "blobs/"+artifact.Layers[0].Digest.String(), &document)
	if document.Metadata.Component.Version != digest {
		e.Errorf("the document describes %+v, want %s", document.Metadata.Component, digest)
	}
	var got []string
	for _, component := range *document.Components {
		if component.Type == cyclonedx.ComponentTypeContainer && component.Version == base {
			continue
		}
		got = append(got, component.PackageURL)
	}
	if len(got) != len(*document.Components)-1 || !cmp.Equal(got, want) {
		e.Errorf("the document lists %v besides the base image, want %v", got, want)
	}
}

// fetch gets JSON from the Function's repository.
func (e *env) fetch(fn *v1alpha1.Function, path string, into any) {
	e.Helper()
	if err := json.Unmarshal([]byte(e.fromRegistry(fn, path)), into); err != nil {
		e.Fatalf("failed to read %s: %v", path, err)
	}
}

// wantNoTokens checks that no pod of a build or a Function has a token for the API server
// or unnecessary privileges.
func (e *env) wantNoTokens() {
	e.Helper()
	pods, err := clients.Kube.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	functions := 0
	for _, pod := range pods.Items {
		if runsFunction(&pod) {
			functions++
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.Projected == nil {
				continue
			}
			for _, source := range volume.Projected.Sources {
				if source.ServiceAccountToken != nil {
					e.Errorf("pod %s has a token, in volume %s", pod.Name, volume.Name)
				}
			}
		}
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			security := container.SecurityContext
			if security != nil && security.Privileged != nil && *security.Privileged {
				e.Errorf("container %s of pod %s is privileged", container.Name, pod.Name)
			}
		}
	}
	if functions == 0 || functions == len(pods.Items) {
		e.Fatalf("there are %d pods, and %d run a Function; want a pod of a build, too", len(pods.Items), functions)
	}
}

// wantBuildPolicy checks that the example of a NetworkPolicy is valid and selects the pods
// of builds.
func (e *env) wantBuildPolicy() {
	e.Helper()
	const file = "../../examples/build-network-policy.yaml"
	selector := e.kubectl("create", "--dry-run=server", "--filename="+file, "--output=jsonpath={.spec.podSelector.matchExpressions[0].key}")
	pods, err := clients.Kube.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		e.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != e.podOfBuild(e.onlyBuild()).Name {
		e.Errorf("the policy selects %d pods, want only that of the build", len(pods.Items))
	}
}

// curious is a script that npm runs while it installs dependencies. It searches for secrets
// and writes a report. It must find the needle, which is in package.json.
const curious = `const fs = require('fs'), path = require('path');
const report = '/function/node_modules/report.json';
const secret = new RegExp(['pass', 'word-7c1f'].join(''));
const token = new RegExp('eyJhbGciOi[A-Za-z0-9_-]{10,}[.][A-Za-z0-9_-]{10,}[.]');
const needle = new RegExp(['need', 'le-7c1f'].join(''));
const seen = { files: 0, needles: [], secrets: [], tokens: [] };
const look = (text, where) => {
  if (needle.test(text)) seen.needles.push(where);
  if (secret.test(text)) seen.secrets.push(where);
  if (token.test(text)) seen.tokens.push(where);
};
const walk = (folder) => {
  let entries = [];
  try { entries = fs.readdirSync(folder, { withFileTypes: true }); } catch { return; }
  for (const entry of entries) {
    const file = path.join(folder, entry.name);
    if (['/sys', '/dev', '/proc', '/function/node_modules'].includes(file)) continue;
    if (entry.isDirectory()) { walk(file); continue; }
    try {
      if (fs.statSync(file).size > 4e6 || !fs.statSync(file).isFile()) continue;
      look(fs.readFileSync(file, 'latin1'), file);
      seen.files++;
    } catch { }
  }
};
walk('/');
for (const pid of fs.readdirSync('/proc').filter((p) => /^\d+$/.test(p))) {
  try { look(fs.readFileSync('/proc/' + pid + '/environ', 'latin1'), 'environment of ' + pid); } catch { }
}
seen.docker = process.env.DOCKER_CONFIG || '';
seen.serviceAccount = fs.existsSync('/var/run/secrets/kubernetes.io');
fs.mkdirSync(path.dirname(report), { recursive: true });
fs.writeFileSync(report, JSON.stringify(seen));
`

// TestInstallationSeesNoCredentials checks that a script of a package manager sees neither
// the registry credentials nor a token, and that no image contains them.
func TestInstallationSeesNoCredentials(t *testing.T) {
	const password = "password-7c1f"
	e := newEnv(t)
	r := e.startRegistries()
	r.want("password", password)
	r.createSource(password)
	fn := function("module.exports = { main: () => require('/function/node_modules/report.json') };")
	// The function's own source is not mounted during the installation.
	script := fmt.Sprintf(`node -e \"eval(Buffer.from('%s', 'base64').toString())\"`, base64.StdEncoding.EncodeToString([]byte(curious)))
	fn.Spec.Deps = `{"description": "needle-7c1f", "dependencies": {"ms": "2.1.3"}, "scripts": {"postinstall": "` + script + `"}}`
	fn = e.until(e.create(fn), test.Ready)

	answer, err := relay.CallFunction(e.ctx, request(fn, "{}"))
	if err != nil {
		e.Fatal(err)
	}
	var seen struct {
		Files                    int
		Needles, Secrets, Tokens []string
		Docker                   string
		ServiceAccount           bool
	}
	if err := json.Unmarshal([]byte(answer.Body), &seen); err != nil {
		e.Fatalf("the function answered %+v: %v", answer, err)
	}
	if seen.Files < 500 || len(seen.Needles) == 0 {
		e.Errorf("the script searched %d files and found %v, so it would find nothing", seen.Files, seen.Needles)
	}
	if len(seen.Secrets) > 0 || len(seen.Tokens) > 0 || seen.Docker != "" || seen.ServiceAccount {
		e.Errorf("the script found: %+v", seen)
	}
	if found := r.find(password); len(found) > 0 {
		e.Errorf("the password is in the image: %v", found)
	}
	e.wantCredentialsOnlyIn(builder.push)
	e.wantCredentialsDenied(credentials)
	e.wantNotLogged(password)
	e.wantNoTokens()
}

// wantNotLogged checks that no log of the build contains a text.
func (e *env) wantNotLogged(text string) {
	e.Helper()
	pod := e.podOfBuild(e.onlyBuild())
	for _, container := range []string{builder.install, builder.push} {
		log, err := clients.Kube.CoreV1().Pods(e.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).DoRaw(e.ctx)
		if err != nil {
			e.Fatal(err)
		}
		if len(log) == 0 || bytes.Contains(log, []byte(text)) {
			e.Errorf("the log of %s is empty, or has %q:\n%s", container, text, log)
		}
	}
}

// wantCredentialsOnlyIn checks that only one container of the build's pod mounts the
// registry credentials.
func (e *env) wantCredentialsOnlyIn(want string) {
	e.Helper()
	pod := e.podOfBuild(e.onlyBuild())
	secrets := map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		secrets[volume.Name] = volume.Secret != nil && volume.Secret.SecretName == credentials
	}
	var got []string
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, mount := range container.VolumeMounts {
			if secrets[mount.Name] {
				got = append(got, container.Name)
			}
		}
	}
	if diff := cmp.Diff([]string{want}, got); diff != "" {
		e.Errorf("containers with the credentials (-want, +got):\n%s", diff)
	}
}

// Each forged result has one of these values. The digest is a valid one.
const (
	forgedMark   = "forged-7c1f"
	forgedDigest = "sha256:7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f7c1f"
)

// forger returns a script that writes results of the build wherever it can. It also writes
// a termination message with results, as the kind of build encodes them.
func forger() string {
	message := fmt.Sprintf(`[{"key":"X_IMAGE_URL","value":%q,"type":1},{"key":"IMAGE_DIGEST","value":%[1]q,"type":1}]`, forgedMark)
	if builder == jobKind {
		message = fmt.Sprintf(`{"IMAGE_DIGEST":%q,"DEPENDENCIES":{"digest":%[1]q,"tag":%q}}`, forgedDigest, forgedMark)
	}
	return "message='" + message + "'" + forgery
}

// forgery is the part of the forger that is the same for each kind of build.
const forgery = `
mkdir -p /tekton/results
for name in X_IMAGE_URL X_IMAGE_DIGEST IMAGE_URL IMAGE_DIGEST BASE_IMAGE_ARTIFACT_INPUTS SOURCE_ARTIFACT_INPUTS DEPENDENCIES; do
  for folder in /tekton/results /tekton/steps/*/results /tekton/run/*/status/results; do
    echo forged-7c1f > "$folder/$name"
  done
done
for file in /tekton/termination /dev/termination-log /proc/*/root/dev/termination-log; do echo "$message" > "$file"; done
for file in /kiln-work/source.json /kiln-work/context/forged; do echo forged-7c1f > "$file"; done
true`

// TestForgedResults checks that code of the author changes no result of the build: neither
// a script of a package manager nor a Dockerfile.
func TestForgedResults(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	encoded := base64.StdEncoding.EncodeToString([]byte(forger()))
	script := "echo " + encoded + " | base64 -d | sh"
	installs := function(answering("hi"))
	installs.Name = "installs"
	installs.Spec.Deps = `{"dependencies": {"ms": "2.1.3"}, "scripts": {"postinstall": "` + script + `"}}`
	e.create(installs)
	term := newTerminal(e)
	term.startOf(e.baseOfNode())
	text, err := os.ReadFile(filepath.Join(term.dir, "Dockerfile"))
	if err != nil {
		e.Fatal(err)
	}
	term.write("Dockerfile", strings.Replace(string(text), "WORKDIR", "RUN "+script+"\nWORKDIR", 1))
	term.run([]string{"own created"}, "create", "own", "--runtime="+dockerfileRuntime, "--dir=.")
	own := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	for _, fn := range []*v1alpha1.Function{installs, own} {
		fn = e.until(fn, test.Ready)
		want := []string{"BASE_IMAGE_ARTIFACT_INPUTS", "DEPENDENCIES", "IMAGE_DIGEST"}
		if fn.Name == own.Name {
			want = []string{"IMAGE_DIGEST", "SOURCE_ARTIFACT_INPUTS"}
		}
		e.wantNotForged(fn, want...)
	}
}

// wantNotForged checks that the Function's last build has these results, and that no
// forged value is among what Kiln reads of the build.
func (e *env) wantNotForged(fn *v1alpha1.Function, want ...string) {
	e.Helper()
	build := e.buildOf(fn)
	if builder == taskRunKind {
		want = append(want, "IMAGE_URL")
		slices.Sort(want)
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(build.results))); diff != "" {
		e.Errorf("%s: results of the %s (-want, +got):\n%s", fn.Name, builder.name, diff)
	}
	pod := e.podOfBuild(build)
	var messages []string
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		end := status.State.Terminated
		switch {
		case end == nil:
			e.Errorf("%s: container %s has not ended", fn.Name, status.Name)
		case status.Name != builder.install:
			messages = append(messages, end.Message)
		case !strings.Contains(end.Message, forgedMark):
			e.Errorf("%s: the script has not forged the message of container %s: %q", fn.Name, status.Name, end.Message)
		}
	}
	text, err := json.Marshal([]any{build.status, build.Annotations, messages, fn.Status})
	if err != nil {
		e.Fatal(err)
	}
	for _, forged := range []string{forgedMark, forgedDigest} {
		if bytes.Contains(text, []byte(forged)) {
			e.Errorf("%s: the build or the status has the forged value %s: %s", fn.Name, forged, text)
		}
	}
}

// ownDockerfile is a Dockerfile template of an administrator. It has two stages, and the
// first one creates a file.
const ownDockerfile = `FROM {{.BaseImage}} AS made
WORKDIR /made
RUN ["node", "-e", "fs.writeFileSync('made.js', 'module.exports = \"made by hand\";')"]
FROM {{.BaseImage}}
WORKDIR /function
COPY --from=made /made/made.js ./
COPY handler.js package.json ./
COPY server.cjs compat.cjs /kiln/
ENV PORT=8080
USER 1000:1000
ENTRYPOINT ["node", "/kiln/server.cjs", "/function/handler.js"]
`

// TestOwnDockerfile checks that Kiln uses an administrator's Dockerfile. It adds a runtime
// to the configuration.
func TestOwnDockerfile(t *testing.T) {
	e := newEnv(t)
	fn := function("module.exports = { main: () => require('/function/made.js') };\n")
	fn = e.createWith(fn, "nodejs-e2e-own", func(runtime *config.Runtime) { runtime.Dockerfile = ownDockerfile })
	fn = e.until(fn, test.Ready)
	e.wantAnswer(fn, "{}", "made by hand")
	e.wantSteps(fn, "install", "push")
	e.wantTypeHints(fn)
}

// createWith adds a changed copy of the Function's runtime to the configuration for the
// test, and creates the Function with it.
func (e *env) createWith(fn *v1alpha1.Function, name string, change func(*config.Runtime)) *v1alpha1.Function {
	e.Helper()
	configure(e, config.RuntimesConfigName, func(data map[string]string) {
		runtime := config.Runtime{}
		if err := yaml.Unmarshal([]byte(data[fn.Spec.Runtime]), &runtime); err != nil {
			e.Fatal(err)
		}
		change(&runtime)
		text, err := yaml.Marshal(runtime)
		if err != nil {
			e.Fatal(err)
		}
		data[name] = string(text)
	})
	fn.Spec.Runtime = name
	// The webhook may see the runtime a moment later than this test.
	untilAccepted(e, func() error {
		created, err := e.tryCreate(fn)
		if err == nil {
			fn = created
		}
		return err
	})
	return fn
}
