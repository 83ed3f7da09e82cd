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
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/types"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

const (
	// credentials is the name of the Secret that Kiln's roles may read.
	credentials = "kiln-registry-credentials"
	// copyLabel is the label of Kiln's copies of the Secret.
	copyLabel = "serverless.kiln.dev/credentials"

	// These are the ports of test/images/registries on its node. Nodes access it as
	// 127.0.0.1, for which container runtimes use plain HTTP. Pods access it by the address
	// of the node.
	imagesPort   = 31500
	packagesPort = 31501
	controlPort  = 31502
	storePort    = 31503
	passwordPort = 31504
)

// registries is a pod with an image registry that needs a password, and a package registry
// that needs a token.
type registries struct {
	*env
	address string
}

// startRegistries starts the pod and configures Kiln to push to it until the test ends. The
// tests that use it do not run in parallel, because config-registry applies to the whole
// cluster.
func (e *env) startRegistries() *registries {
	e.Helper()
	if registriesImage == "" || htpasswdImage == "" {
		e.Fatal("-registries-image and -htpasswd-image are not both set; make test-e2e sets them")
	}
	pods := clients.Kube.CoreV1().Pods(toolNamespace)
	ports := []string{
		"-images-port=" + strconv.Itoa(imagesPort), "-packages-port=" + strconv.Itoa(packagesPort), "-control-port=" + strconv.Itoa(controlPort),
		"-store-port=" + strconv.Itoa(storePort), "-password-port=" + strconv.Itoa(passwordPort),
	}
	pod, err := pods.Create(e.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "registries-"},
		Spec: corev1.PodSpec{
			HostNetwork:                   true,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			// A pod that pulls from 127.0.0.1 must run on the same node.
			ActiveDeadlineSeconds: new(int64(time.Hour.Seconds())),
			Containers: []corev1.Container{
				registryContainer("registries", registriesImage, controlPort, ports...),
				registryContainer("htpasswd", htpasswdImage, passwordPort,
					fmt.Sprintf("-addr=127.0.0.1:%d", storePort), fmt.Sprintf("-control=:%d", passwordPort)),
			},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := pods.Delete(e.after(), pod.Name, metav1.DeleteOptions{}); err != nil {
			e.Error(err)
		}
		// The next test needs the ports.
		if err := test.Until(e.after(), pods, test.Named(pod.Name), gone[*corev1.Pod]); err != nil {
			e.Error(err)
		}
	})
	r := &registries{env: e}
	if err := test.Until(e.ctx, pods, test.Named(pod.Name), func(found []*corev1.Pod) error {
		for _, pod := range found {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					r.address = pod.Status.HostIP
					return nil
				}
			}
		}
		return fmt.Errorf("pod %s is not ready", pod.Name)
	}); err != nil {
		e.Fatal(err)
	}
	e.setRegistry(r)
	return r
}

// registryContainer returns a container that is ready when its control port answers. It
// mounts the folder with the images.
func registryContainer(name, image string, control int32, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: image, Args: args,
		ReadinessProbe: &corev1.Probe{
			PeriodSeconds: 1,
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(control)}},
		},
		SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(0))},
		VolumeMounts:    []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
	}
}

// after returns a context for cleanup after the test.
func (e *env) after() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), time.Minute)
	e.Cleanup(cancel)
	return ctx
}

// setRegistry sets the address for pushes and the address for pulls, until the test ends.
func (e *env) setRegistry(r *registries) {
	e.Helper()
	configMaps := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace)
	was, err := configMaps.Get(e.ctx, config.RegistryConfigName, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	push := fmt.Sprintf("%s:%d", r.address, imagesPort)
	edit(e, configMaps, config.RegistryConfigName, func(cm *corev1.ConfigMap) {
		cm.Data["push"] = push
		cm.Data["pull"] = fmt.Sprintf("127.0.0.1:%d", imagesPort)
		cm.Data["insecure"] = strings.Trim(was.Data["insecure"]+","+push, ",")
		cm.Data["credentials"] = credentials
	})
	e.Cleanup(func() {
		if !e.Failed() {
			// Otherwise Kiln would build them for the other registry.
			functions := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace)
			if err := functions.DeleteCollection(e.after(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				e.Error(err)
			}
		}
		cm, err := configMaps.Get(e.after(), config.RegistryConfigName, metav1.GetOptions{})
		if err == nil {
			cm.Data = was.Data
			_, err = configMaps.Update(e.after(), cm, metav1.UpdateOptions{})
		}
		if err != nil {
			e.Error("failed to restore config-registry:", err)
		}
	})
}

// want sets the state of one registry: its password, its token, or whether the image
// registry is up, down or full.
func (r *registries) want(what, secret string) {
	r.Helper()
	if answer := r.control("/"+what, secret); answer.Status != http.StatusOK {
		r.Fatalf("failed to set the %s: %+v", what, answer)
	}
}

// untilTag waits until the image registry has a tag of the Function's image.
func (r *registries) untilTag(fn *v1alpha1.Function, tag, password string) {
	r.Helper()
	_, repository, _ := strings.Cut(fn.Status.Image, "/")
	repository, digest, _ := strings.Cut(repository, "@")
	url := fmt.Sprintf("http://kiln:%s@%s:%d/v2/%s/manifests/%s", password, r.address, imagesPort, repository, tag)
	for {
		answer, err := relay.Call(r.ctx, api.Request{
			Method: http.MethodGet, URL: url, Accept: fmt.Sprintf("%s, %s", types.OCIManifestSchema1, types.DockerManifestSchema2),
		})
		if err != nil {
			r.Fatalf("failed to wait for tag %s: %v", tag, err)
		}
		if answer.Status == http.StatusNotFound {
			continue
		}
		sum := sha256.Sum256([]byte(answer.Body))
		if got := "sha256:" + hex.EncodeToString(sum[:]); answer.Status != http.StatusOK || got != digest {
			r.Errorf("tag %s has digest %s (status %d), want %s", tag, got, answer.Status, digest)
		}
		return
	}
}

// find returns where the images contain a text.
func (r *registries) find(text string) (found []string) {
	r.Helper()
	answer := r.control("/find", text)
	if answer.Status != http.StatusOK {
		r.Fatalf("failed to search the images: %+v", answer)
	}
	if err := json.Unmarshal([]byte(answer.Body), &found); err != nil {
		r.Fatal(err)
	}
	return found
}

func (r *registries) control(path, body string) api.Answer {
	r.Helper()
	answer, err := relay.Call(r.ctx, api.Request{
		Method: http.MethodPost, URL: fmt.Sprintf("http://%s:%d%s", r.address, controlPort, path), Body: []byte(body),
	})
	if err != nil {
		r.Fatal(err)
	}
	return answer
}

// secret returns credentials for both addresses of the registry.
func (r *registries) secret(password string) *corev1.Secret {
	auth := map[string]string{"username": "kiln", "password": password}
	data, err := json.Marshal(map[string]any{"auths": map[string]any{
		fmt.Sprintf("%s:%d", r.address, imagesPort): auth,
		fmt.Sprintf("127.0.0.1:%d", imagesPort):     auth,
	}})
	if err != nil {
		r.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: credentials},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: data},
	}
}

// createSource creates the Secret in Kiln's namespace until the test ends.
func (r *registries) createSource(password string) {
	r.Helper()
	secrets := clients.Kube.CoreV1().Secrets(test.SystemNamespace)
	if _, err := secrets.Create(r.ctx, r.secret(password), metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := secrets.Delete(r.after(), credentials, metav1.DeleteOptions{}); err != nil {
			r.Error(err)
		}
	})
}

func (r *registries) editSource(password string) {
	r.Helper()
	edit(r.env, clients.Kube.CoreV1().Secrets(test.SystemNamespace), credentials, func(secret *corev1.Secret) {
		secret.Data = r.secret(password).Data
	})
}

// gone returns an error while there are objects.
func gone[T metav1.Object](found []T) error {
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s still exists", found[0].GetName())
}

// untilCopy waits until the namespace has a copy with that password.
func (r *registries) untilCopy(e *env, password string) {
	r.Helper()
	untilObjects(e, clients.Kube.CoreV1().Secrets(e.namespace), func(found []*corev1.Secret) error {
		for _, secret := range found {
			if secret.Name == credentials && secret.Labels[copyLabel] != "" &&
				string(secret.Data[corev1.DockerConfigJsonKey]) == string(r.secret(password).Data[corev1.DockerConfigJsonKey]) {
				return nil
			}
		}
		return fmt.Errorf("none of %d Secrets is a copy with the password", len(found))
	})
}

var unauthorized = apis.Condition{
	Type:   v1alpha1.FunctionConditionBuildReady,
	Status: corev1.ConditionFalse,
	Reason: v1alpha1.ReasonRegistryUnauthorized,
}

// TestRegistryCredentials checks that the status reports a wrong password and that the
// Function recovers with the right one. A rotation needs no build and no revision. The copy
// is deleted with the last Function.
func TestRegistryCredentials(t *testing.T) {
	e := newEnv(t)
	r := e.startRegistries()
	r.want("password", "first")
	r.createSource("wrong")

	fn := e.create(function(answering("one")))
	fn, condition := e.untilCondition(fn, unauthorized)
	wantWords(t, condition.Message, "credentials")
	r.untilCopy(e, "wrong")
	e.wantBuilds(1)

	r.editSource("first")
	fn = e.until(fn, test.Healed)
	e.wantAnswer(fn, "{}", "one")
	r.untilCopy(e, "first")
	e.wantBuilds(2)
	if got, want := fn.Status.Image, fmt.Sprintf("127.0.0.1:%d/", imagesPort); !strings.HasPrefix(got, want) {
		e.Errorf("the image is %s, want one from %s", got, want)
	}

	// Only the next build and the node that pulls its image need the new password.
	r.want("password", "second")
	r.editSource("second")
	r.untilCopy(e, "second")
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("two") })
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "two")
	e.wantBuilds(3)
	e.wantRevisions(2)

	if err := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace).Delete(e.ctx, fn.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	untilObjects(e, clients.Kube.CoreV1().Secrets(e.namespace), gone[*corev1.Secret])
}

// TestOwnRegistryCredentials checks that Kiln uses a namespace's own Secret and never
// changes it.
func TestOwnRegistryCredentials(t *testing.T) {
	e := newEnv(t)
	r := e.startRegistries()
	r.want("password", "own")
	secrets := clients.Kube.CoreV1().Secrets(e.namespace)
	own, err := secrets.Create(e.ctx, r.secret("own"), metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	r.createSource("wrong")

	fn := e.until(e.create(function(answering("mine"))), test.Ready)
	e.wantAnswer(fn, "{}", "mine")
	r.editSource("wrong again")
	// Another namespace shows when Kiln has seen the change.
	other := newEnv(t)
	other.create(function(answering("theirs")))
	r.untilCopy(other, "wrong again")

	if err := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace).Delete(e.ctx, fn.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	if err := clients.Kiln.ServerlessV1alpha1().Functions(other.namespace).Delete(e.ctx, fn.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	untilObjects(other, clients.Kube.CoreV1().Secrets(other.namespace), gone[*corev1.Secret])
	left, err := secrets.Get(e.ctx, credentials, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	if left.ResourceVersion != own.ResourceVersion {
		e.Errorf("the namespace's own Secret was changed: %+v", left.ObjectMeta)
	}
}

// TestArtifactCredentials checks that Kiln uses the credentials of a namespace's images for
// an artifact beside them, but not for an artifact of another namespace.
func TestArtifactCredentials(t *testing.T) {
	e := newEnv(t)
	r := e.startRegistries()
	r.want("password", "first")
	r.createSource("first")
	server := e.startSources()
	login := string(r.secret("first").Data[corev1.DockerConfigJsonKey])
	own, _ := e.pushArtifact(server, e.namespace, login, "nodejs-1.zip")
	others, _ := e.pushArtifact(server, "somebody-else", login, "nodejs-1.zip")

	fn := e.until(e.create(archived("nodejs24", v1alpha1.ArchiveSource{URL: own + ":1"})), test.Ready)
	e.wantAnswer(fn, "{}", "1 7200000")

	thief := archived("nodejs24", v1alpha1.ArchiveSource{URL: others + ":1"})
	thief.Name = "thief"
	thief, condition := e.untilCondition(e.create(thief), apis.Condition{
		Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonSourceUpdateFailed,
	})
	wantWords(t, condition.Message, "401 Unauthorized", "secretName")
	// A Function with a Secret of its own may fetch it.
	if _, err := clients.Kube.CoreV1().Secrets(e.namespace).Create(e.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "given"}, Type: corev1.SecretTypeDockerConfigJson, Data: r.secret("first").Data,
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.until(e.edit(thief, func(fn *v1alpha1.Function) { fn.Spec.Archive.SecretName = "given" }), test.Ready)
}

// hostile are values with a meaning for a shell or a Dockerfile.
var hostile = map[string]string{
	"HOSTILE_SHELL":      "'; touch /function/node_modules/kiln-broken; $(touch /function/kiln-broken) `touch kiln-broken` \"",
	"HOSTILE_DOCKERFILE": "x\nRUN touch /kiln-broken\nENV A=kiln-broken\n",
	"HOSTILE_FLAG":       "--destination=evil.example.com/x $(params.x) $HOME",
}

// TestPackageRegistry checks that a build installs a package that needs a token, with
// spec.build.env. Neither the token nor the environment gets into the image.
func TestPackageRegistry(t *testing.T) {
	const token, packagesSecret = "npm-token-5fdb13", "npm"
	e := newEnv(t)
	r := e.startRegistries()
	r.want("password", "any")
	r.createSource("any")
	r.want("token", token)

	fn := function("module.exports = { main: () => require('kiln-private') };\n")
	fn.Spec.Deps = `{"dependencies": {"kiln-private": "1.0.0"}}`
	fn.Spec.Build = &v1alpha1.BuildSpec{SecretName: packagesSecret}
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		fn.Spec.Build.Env = append(fn.Spec.Build.Env, v1alpha1.BuildEnvVar{Name: name, Value: hostile[name]})
	}
	fn = e.create(fn)
	// The build waits for the Secret, and the status says so.
	fn = e.until(fn, func(fn *v1alpha1.Function) error {
		condition := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady)
		if condition.IsUnknown() && strings.Contains(condition.GetMessage(), fmt.Sprintf("secret %q not found", packagesSecret)) {
			return nil
		}
		return fmt.Errorf("BuildReady is %v, want Secret %s in its message", condition, packagesSecret)
	})
	npmrc := fmt.Sprintf("registry=http://%[1]s:%[2]d/\n//%[1]s:%[2]d/:_authToken=%[3]s\n", r.address, packagesPort, token)
	pipConf := fmt.Sprintf("[global]\nindex-url = http://any:%[3]s@%[1]s:%[2]d/simple\ntrusted-host = %[1]s\n", r.address, packagesPort, token)
	secrets := clients.Kube.CoreV1().Secrets(e.namespace)
	if _, err := secrets.Create(e.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: packagesSecret},
		StringData: map[string]string{".npmrc": npmrc, "pip.conf": pipConf},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	python := function("import kiln_private\ndef main(event, context): return kiln_private.MARKER\n")
	python.Name, python.Spec.Runtime, python.Spec.Deps = "python", "python313", "kiln-private==1.0.0"
	python.Spec.Build = &v1alpha1.BuildSpec{SecretName: packagesSecret}
	python = e.create(python)
	fn = e.until(fn, test.Ready)
	e.wantHashes(fn)
	e.wantAnswer(e.until(python, test.Ready), "{}", "kiln-private-wheel")

	for _, marker := range []string{"kiln-private-marker", "kiln-private-wheel"} {
		if found := r.find(marker); len(found) == 0 {
			e.Errorf("the search did not find the package with %s in the image, so it would find nothing", marker)
		}
	}
	for _, absent := range append(slices.Collect(maps.Values(hostile)), token, "kiln-packages", "kiln-env", "kiln-credentials", "kiln-broken") {
		if found := r.find(absent); len(found) > 0 {
			e.Errorf("%q is in the image: %v", absent, found)
		}
	}

	// Neither a new token nor a new environment starts a build.
	edit(e, secrets, packagesSecret, func(secret *corev1.Secret) { secret.Data[".npmrc"] = []byte("registry=http://127.0.0.1:1/\n") })
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Build.Env = nil })
	fn = e.edit(fn, setEnv("A", "b"))
	e.until(fn, test.Ready)
	e.wantBuilds(2)
	e.wantRevisions(3)
}

// wantHashes checks that the installation received each hostile value unchanged.
func (e *env) wantHashes(fn *v1alpha1.Function) {
	e.Helper()
	answer, err := relay.CallFunction(e.ctx, request(fn, "{}"))
	if err != nil {
		e.Fatal(err)
	}
	seen := map[string]string{}
	if err := json.Unmarshal([]byte(answer.Body), &seen); err != nil {
		e.Fatalf("the function answered %+v: %v", answer, err)
	}
	for name, value := range hostile {
		sum := sha256.Sum256([]byte(value))
		if got, want := seen[name], hex.EncodeToString(sum[:]); got != want {
			e.Errorf("the hash of %s is %q, want %q", name, got, want)
		}
	}
}
