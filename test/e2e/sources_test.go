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
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// startSources starts the server of archives in the test's namespace and returns its URL.
func (e *env) startSources() string {
	e.Helper()
	return e.startServer("sources", sourcesImage, 8080)
}

// startServer starts a pod in the test's namespace that is ready when the port answers. It
// returns its URL.
func (e *env) startServer(name, image string, port int32, args ...string) string {
	e.Helper()
	if image == "" {
		e.Fatalf("-%s-image is not set; make test-e2e sets it", name)
	}
	pods := clients.Kube.CoreV1().Pods(e.namespace)
	pod, err := pods.Create(e.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: name, Image: image, Args: args,
				ReadinessProbe: &corev1.Probe{
					PeriodSeconds: 1,
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(port)}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	address := ""
	if err := test.Until(e.ctx, pods, test.Named(pod.Name), func(found []*corev1.Pod) error {
		for _, pod := range found {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					address = "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))
					return nil
				}
			}
		}
		return fmt.Errorf("pod %s is not ready", pod.Name)
	}); err != nil {
		e.Fatal(err)
	}
	return address
}

// archived returns a Function whose source is in an archive.
func archived(runtime string, archive v1alpha1.ArchiveSource) *v1alpha1.Function {
	fn := function("")
	fn.Spec.Runtime, fn.Spec.Archive = runtime, &archive
	return fn
}

func hashOf(archive []byte) string {
	sum := sha256.Sum256(archive)
	return hex.EncodeToString(sum[:])
}

// TestSources builds a function from each kind of source in each runtime.
func TestSources(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	server := e.startSources()
	gitServer, gitHost := e.startGit()
	e.createSSHKeys(gitServer, gitHost)
	e.setToken(gitServer, "t0ken")
	e.createSecretOf("token", map[string]string{"token": "t0ken"})
	archives := []string{"nodejs-1.zip", "python-1.tar.gz"}
	inPath, inHost := e.startStore(server, archives...)
	artifact, _ := e.pushArtifact(server, e.namespace, e.registryCredentials(), archives[0])
	ofPython, _ := e.pushArtifact(server, e.namespace+"/python", e.registryCredentials(), archives[1])

	of := func(url string) v1alpha1.FunctionSpec {
		return v1alpha1.FunctionSpec{Archive: &v1alpha1.ArchiveSource{URL: url}}
	}
	inBucket := func(name string, s3 v1alpha1.S3Store) v1alpha1.FunctionSpec {
		return v1alpha1.FunctionSpec{Archive: &v1alpha1.ArchiveSource{URL: "s3://code/" + name, SecretName: "keys", S3: &s3}}
	}
	inGit := func(url, language, secret string) v1alpha1.FunctionSpec {
		return v1alpha1.FunctionSpec{Git: &v1alpha1.GitSource{URL: url, Revision: "main", ContextDir: "functions/" + language, SecretName: secret}}
	}
	for kind, tc := range map[string]struct{ nodejs, python v1alpha1.FunctionSpec }{
		"zip":      {of(server + "/good/nodejs-1.zip"), of(server + "/good/python-1.zip")},
		"tar":      {of(server + "/good/nodejs-1.tar.gz"), of(server + "/good/python-1.tar.gz")},
		"s3":       {inBucket(archives[0], v1alpha1.S3Store{Endpoint: inPath}), inBucket(archives[1], v1alpha1.S3Store{Endpoint: inHost, PathStyle: new(false)})},
		"oci":      {of(artifact + ":1"), of(ofPython + ":1")},
		"git-http": {inGit(gitServer+"/private/code", "nodejs", "token"), inGit(gitServer+"/code", "python", "")},
		"git-ssh":  {inGit("ssh://git@"+gitHost+"/srv/git/code", "nodejs", "ssh"), inGit("git@"+gitHost+":/srv/git/code", "python", "ssh")},
	} {
		created := map[string]*v1alpha1.Function{}
		for runtime, source := range map[string]v1alpha1.FunctionSpec{"nodejs22": tc.nodejs, "nodejs24": tc.nodejs, "python313": tc.python} {
			fn := function("")
			fn.Name = kind + "-" + runtime
			fn.Spec.Runtime, fn.Spec.Archive, fn.Spec.Git = runtime, source.Archive, source.Git
			created[fn.Name] = e.create(fn)
		}
		for name, fn := range created {
			fn = e.until(fn, test.Ready)
			e.wantAnswer(fn, "{}", "1 7200000")
			if source := fn.Status.Source; source == nil || (fn.Spec.Git != nil) != (len(source.Commit) == 40) || (fn.Spec.Archive != nil) != (len(source.SHA256) == 64) {
				e.Errorf("%s: status.source is %+v", name, source)
			}
			if got := fn.Status.Build.Attempts; got != 1 {
				e.Errorf("%s was built %d times", name, got)
			}
			// All at once would leave no room on the node for other tests.
			if err := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace).Delete(e.ctx, name, metav1.DeleteOptions{}); err != nil {
				e.Fatal(err)
			}
		}
	}
}

// TestArchive builds a function from an archive, and then from a different archive in
// another format. An archive with a known hash is not built again.
func TestArchive(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	packed := sourcestest.Functions()
	server := e.startSources() + "/good/"
	const first, second = "python-1.tar.gz", "python-2.zip"

	fn := e.until(e.create(archived("python313", v1alpha1.ArchiveSource{URL: server + first})), test.Ready)
	e.wantAnswer(fn, "{}", "1 7200000")
	e.wantSource(fn, packed[first])

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Archive.URL = server + second }), test.Ready)
	e.wantAnswerSoon(fn, "2 7200000")
	e.wantSource(fn, packed[second])
	e.wantBuilds(2)
	if fn.Status.Build.Reason != builds.ReasonSourceChanged {
		e.Errorf("the reason of the build is %s", fn.Status.Build.Reason)
	}
	// The hash identifies the archive, whatever its URL is.
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Archive.SHA256 = hashOf(packed[second]) }), test.Ready)
	image := fn.Status.Image
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Archive.URL = server + "nowhere?signature=2" }), test.Ready)
	e.wantBuilds(3)
	if fn.Status.Image != image {
		e.Errorf("image changed to %s from %s", fn.Status.Image, image)
	}
}

// setToken sets the token that the server of sources requires.
func (e *env) setToken(server, token string) {
	e.Helper()
	e.post(server+"/token?token="+url.QueryEscape(token), "")
}

// post sends a command to a server of sources and returns its answer.
func (e *env) post(address, body string) string {
	e.Helper()
	answer, err := relay.Call(e.ctx, api.Request{Method: http.MethodPost, URL: address, Body: []byte(body)})
	if err != nil || answer.Status != http.StatusOK {
		e.Fatalf("failed to post to %s: %+v, %v", address, answer, err)
	}
	return answer.Body
}

// pushArtifact pushes archives as one artifact to Kiln's registry, below the images of a
// namespace. It returns its URL without the tag 1, and its digest.
func (e *env) pushArtifact(server, namespace, credentials string, archives ...string) (artifact, digest string) {
	e.Helper()
	registry := e.registry()
	artifact = registry.PushRepository(namespace, "code")
	query := url.Values{"to": {artifact + ":1"}, "name": archives}
	return "oci://" + artifact, e.post(server+"/push?"+query.Encode(), credentials)
}

// registry returns the configuration of Kiln's registry.
func (e *env) registry() *config.Registry {
	e.Helper()
	configMap, err := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace).Get(e.ctx, config.RegistryConfigName, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	registry, err := config.NewRegistryFromConfigMap(configMap)
	if err != nil {
		e.Fatal(err)
	}
	return registry
}

// registryCredentials returns Kiln's credentials for its registry, or "".
func (e *env) registryCredentials() string {
	e.Helper()
	name := e.registry().Credentials
	if name == "" {
		return ""
	}
	secret, err := clients.Kube.CoreV1().Secrets(test.SystemNamespace).Get(e.ctx, name, metav1.GetOptions{})
	if err != nil && !apierrs.IsNotFound(err) {
		e.Fatal(err)
	}
	return string(secret.Data[corev1.DockerConfigJsonKey])
}

// TestArtifact builds a function from an artifact in the registry, by tag and by digest.
func TestArtifact(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	packed := sourcestest.Functions()
	server := e.startSources()
	archives := [2]string{"nodejs-1.zip", "nodejs-2.tar.gz"}
	artifact, first := e.pushArtifact(server, e.namespace, e.registryCredentials(), archives[0])
	fn := e.until(e.create(archived("nodejs24", v1alpha1.ArchiveSource{URL: artifact + ":1"})), test.Ready)
	e.wantAnswer(fn, "{}", "1 7200000")
	e.wantSource(fn, packed[archives[0]])

	_, second := e.pushArtifact(server, e.namespace, e.registryCredentials(), archives[1])
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: artifact + "@" + second, SHA256: hashOf(packed[archives[1]])}
	}), test.Ready)
	e.wantAnswerSoon(fn, "2 7200000")
	e.wantSource(fn, packed[archives[1]])
	// The tag has moved. The digest still names the old artifact.
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: artifact + "@" + first} }), test.Ready)
	e.wantAnswerSoon(fn, "1 7200000")
	e.wantBuilds(3)
}

// TestArtifactRefused checks that the status reports why an artifact cannot be used.
func TestArtifactRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	server := e.startSources()
	artifact, digest := e.pushArtifact(server, e.namespace, e.registryCredentials(), "nodejs-1.zip")
	e.pushArtifact(server, e.namespace+"/two", e.registryCredentials(), "nodejs-1.zip", "nodejs-2.zip")
	e.pushArtifact(server, e.namespace+"/page", e.registryCredentials(), "page.zip")
	refused := map[string]struct {
		archive v1alpha1.ArchiveSource
		words   string
	}{
		"absent": {v1alpha1.ArchiveSource{URL: artifact + ":9"}, "its server answered 404 Not Found"},
		"sha256": {v1alpha1.ArchiveSource{URL: artifact + "@" + digest, SHA256: strings.Repeat("0", 64)}, "its sha256 is " + hashOf(sourcestest.Functions()["nodejs-1.zip"])},
		"layers": {v1alpha1.ArchiveSource{URL: strings.TrimSuffix(artifact, "/code") + "/two/code:1"}, "it has 2 layers, and must have one"},
		"page":   {v1alpha1.ArchiveSource{URL: strings.TrimSuffix(artifact, "/code") + "/page/code:1"}, "it is not a .zip or .tar.gz: its first bytes are those of text/html"},
	}
	created := map[string]*v1alpha1.Function{}
	for name, tc := range refused {
		fn := archived("nodejs24", tc.archive)
		fn.Name = name
		created[name] = e.create(fn)
	}
	for name, fn := range created {
		e.untilRefused(fn, refused[name].words)
	}
	e.wantBuilds(len(refused))
}

// untilRefused waits until the build fails because of the source, with these words. It
// checks that Kiln does not fetch the source again.
func (e *env) untilRefused(fn *v1alpha1.Function, words string) {
	e.Helper()
	fn, condition := e.untilCondition(fn, apis.Condition{
		Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonSourceUpdateFailed,
	})
	if !strings.Contains(condition.Message, words) {
		e.Errorf("%s: the message is %q, want %q", fn.Name, condition.Message, words)
	}
	if fn.Status.Build.Failure == nil || fn.Status.Build.Failure.Transient || fn.Status.Build.Attempts != 1 {
		e.Errorf("%s: the build is %+v", fn.Name, fn.Status.Build)
	}
}

// createSecretOf creates a Secret with these values.
func (e *env) createSecretOf(name string, values map[string]string) {
	e.Helper()
	if _, err := clients.Kube.CoreV1().Secrets(e.namespace).Create(e.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: values,
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// startStore starts an S3 store and fills its bucket code from the server of archives. It
// returns the endpoint for bucket names in the path, and the one for bucket names in the
// host. The Secret keys has valid credentials, and wrong-keys has others.
func (e *env) startStore(server string, archives ...string) (inPath, inHost string) {
	e.Helper()
	const bucket, access, secret = "code", "kiln", "s3cret-key"
	const port = 7070
	domain := e.namespace + ".svc"
	inPath = e.startServer("versitygw", versitygwImage, port, "-access="+access, "-secret="+secret, "-domain="+domain)
	if _, err := clients.Kube.CoreV1().Services(e.namespace).Create(e.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: bucket},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "versitygw"},
			Ports:    []corev1.ServicePort{{Port: port}},
		},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	for name, keys := range map[string][2]string{"keys": {access, secret}, "wrong-keys": {access, "other"}} {
		e.createSecretOf(name, map[string]string{"accessKeyId": keys[0], "secretAccessKey": keys[1]})
	}
	for _, archive := range archives {
		query := url.Values{"endpoint": {inPath}, "bucket": {bucket}, "name": {archive}, "access": {access}, "secret": {secret}}
		e.post(server+"/store?"+query.Encode(), "")
	}
	return inPath, fmt.Sprintf("http://%s:%d", domain, port)
}

// TestBucketRefused checks that the status reports why an object of a bucket cannot be
// fetched.
func TestBucketRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	endpoint, _ := e.startStore(e.startSources(), "nodejs-1.zip")
	created := map[*v1alpha1.Function]string{}
	for name, tc := range map[string]struct {
		archive v1alpha1.ArchiveSource
		words   string
	}{
		"absent":     {v1alpha1.ArchiveSource{URL: "s3://code/absent.zip", SecretName: "keys"}, "404 Not Found, NoSuchKey"},
		"nowhere":    {v1alpha1.ArchiveSource{URL: "s3://nowhere/nodejs-1.zip", SecretName: "keys"}, "404 Not Found, NoSuchBucket"},
		"no-keys":    {v1alpha1.ArchiveSource{URL: "s3://code/nodejs-1.zip"}, "secretName"},
		"wrong-keys": {v1alpha1.ArchiveSource{URL: "s3://code/nodejs-1.zip", SecretName: "wrong-keys"}, "403 Forbidden, SignatureDoesNotMatch"},
	} {
		fn := archived("nodejs24", tc.archive)
		fn.Name, fn.Spec.Archive.S3 = name, &v1alpha1.S3Store{Endpoint: endpoint}
		created[e.create(fn)] = tc.words
	}
	for fn, words := range created {
		e.untilRefused(fn, words)
	}
	e.wantBuilds(len(created))
}

// wantSource checks that the status has the hash of the archive.
func (e *env) wantSource(fn *v1alpha1.Function, archive []byte) {
	e.Helper()
	if source := fn.Status.Source; source == nil || source.SHA256 != hashOf(archive) {
		e.Errorf("status.source is %+v, want %s", source, hashOf(archive))
	}
}

// TestHostileArchives checks that each hostile archive is refused with its own message and
// not fetched again.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	server := e.startSources()
	hostile := sourcestest.HostileArchives(20000)
	refused := map[string]struct {
		archive v1alpha1.ArchiveSource
		words   string
	}{
		"absent": {v1alpha1.ArchiveSource{URL: server + "/good/absent.zip"}, "its server answered 404 Not Found"},
		"sha256": {v1alpha1.ArchiveSource{URL: server + "/good/nodejs-1.zip", SHA256: strings.Repeat("0", 64)}, "its sha256 is " + hashOf(sourcestest.Functions()["nodejs-1.zip"])},
	}
	for name, archive := range hostile {
		refused[name] = struct {
			archive v1alpha1.ArchiveSource
			words   string
		}{v1alpha1.ArchiveSource{URL: server + "/hostile/" + name}, archive.Want}
	}
	created := map[string]*v1alpha1.Function{}
	for name, tc := range refused {
		fn := archived("nodejs24", tc.archive)
		fn.Name = strings.ReplaceAll(name, ".", "-")
		created[name] = e.create(fn)
	}
	for _, name := range slices.Sorted(maps.Keys(created)) {
		e.untilRefused(created[name], refused[name].words)
	}
	e.wantBuilds(len(refused))
}

// TestArchiveServerFails checks that Kiln retries the build after a failure of the archive
// server.
func TestArchiveServerFails(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	server := e.startSources()
	fn := e.create(archived("nodejs24", v1alpha1.ArchiveSource{URL: server + "/flaky/1/nodejs-1.zip"}))
	_, condition := e.untilCondition(fn, apis.Condition{
		Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonBuildRetrying,
	})
	wantWords(t, condition.Message, v1alpha1.ReasonSourceUpdateFailed, "503 Service Unavailable")
	fn = e.until(fn, test.Ready)
	e.wantAnswer(fn, "{}", "1 7200000")
	e.wantBuilds(2)
}

// TestArchiveCredentials checks that a build waits for its Secret and uses its current
// data. A change of the Secret starts no build.
func TestArchiveCredentials(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	server := e.startSources()
	e.setToken(server, "first-t0ken")
	without := archived("nodejs24", v1alpha1.ArchiveSource{URL: server + "/private/nodejs-1.zip"})
	without.Name = "without"
	_, condition := e.untilCondition(e.create(without), apis.Condition{
		Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonSourceUpdateFailed,
	})
	wantWords(t, condition.Message, "401 Unauthorized", "secretName")

	fn := e.create(archived("nodejs24", v1alpha1.ArchiveSource{URL: server + "/private/nodejs-1.zip", SecretName: "store"}))
	e.until(fn, func(fn *v1alpha1.Function) error {
		if message := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).GetMessage(); !strings.Contains(message, `secret "store" not found`) {
			return fmt.Errorf("the message is %q", message)
		}
		return nil
	})
	secrets := clients.Kube.CoreV1().Secrets(e.namespace)
	e.createSecretOf("store", map[string]string{"token": "first-t0ken\n"})
	fn = e.until(fn, test.Ready)
	e.wantAnswer(fn, "{}", "1 7200000")
	e.wantBuilds(2)

	e.setToken(server, "second-t0ken")
	edit(e, secrets, "store", func(secret *corev1.Secret) { secret.Data = map[string][]byte{"token": []byte("second-t0ken")} })
	// This edit would use the new token, but it needs no build.
	fn = e.until(e.edit(fn, setEnv("A", "b")), test.Ready)
	e.wantBuilds(2)
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Archive.URL = server + "/private/nodejs-2.zip" }), test.Ready)
	e.wantAnswerSoon(fn, "2 7200000")
	e.wantBuilds(3)
}
