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

package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/cli/tunnel"
	kilnfake "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/fake"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	namespace = "default"
	patience  = time.Minute
)

// screen is a terminal that can be read while it is written.
type screen struct {
	lock sync.Mutex
	text bytes.Buffer
	read int
}

func (s *screen) Write(data []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.Write(data)
}

// find reports whether the text appears after what earlier calls have found.
func (s *screen) find(text string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	i := bytes.Index(s.text.Bytes()[s.read:], []byte(text))
	if i < 0 {
		return false
	}
	s.read += i + len(text)
	return true
}

func (s *screen) String() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.String()
}

// cluster is a cluster in memory whose pods are processes of this machine.
type cluster struct {
	*testing.T
	*Session
	kube *kubefake.Clientset
	kiln *kilnfake.Clientset
	// image is the folder of the function in the image, and wrapper that of the wrapper.
	image, wrapper string
	messages, log  *screen

	lock sync.Mutex
	pods map[string]*process
}

type process struct {
	*exec.Cmd
	settings settings
	ended    chan struct{}
}

func (p *process) kill() error { return syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }

func newFunction(runtime string) *v1alpha1.Function {
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: "fn", Namespace: namespace, UID: "uid-of-fn"},
		Spec:       v1alpha1.FunctionSpec{Runtime: runtime, Source: "deployed"},
	}
	fn.Status.Image = "registry.example/fn@sha256:01"
	return fn
}

// newCluster returns a cluster with a Function, and a session with a folder that has the
// files.
func newCluster(t *testing.T, language string, files map[string]string) *cluster {
	t.Helper()
	known, ok := runtimes.For(language)
	if !ok {
		t.Fatal("there is no language ", language)
	}
	c := &cluster{
		T: t, kube: kubefake.NewClientset(), kiln: kilnfake.NewSimpleClientset(), image: t.TempDir(), wrapper: t.TempDir(),
		messages: &screen{}, log: &screen{}, pods: map[string]*process{},
	}
	c.Session = &Session{
		Kube: c.kube, Kiln: c.kiln, Forward: c.forward, Function: newFunction(language), Language: known, Dir: t.TempDir(),
		Out: c.log, ErrOut: c.messages,
		Built: func(context.Context, *v1alpha1.Function) (*v1alpha1.Function, error) {
			return nil, errors.New("the build failed")
		},
	}
	c.Dependencies = func() (string, error) {
		text, err := os.ReadFile(filepath.Join(c.Dir, known.DependencyFile))
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return string(text), err
	}
	inImage, err := known.BuildContext(runtimes.Function{})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range inImage {
		c.put(c.wrapper, name, text)
	}
	for name, text := range files {
		c.put(c.Dir, name, text)
	}
	c.kube.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.UID = types.UID("uid-of-" + pod.Name)
		pod.Status.Phase = corev1.PodRunning
		return false, nil, c.start(pod)
	})
	c.kube.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.stop(action.(clienttesting.DeleteAction).GetName())
		return false, nil, nil
	})
	return c
}

func (c *cluster) put(dir, name, text string) {
	c.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
}

// save saves a file of the author, and waits for the message.
func (c *cluster) save(name, text, message string) {
	c.Helper()
	c.put(c.Dir, name, text)
	c.await(c.messages, message)
}

func (c *cluster) await(on *screen, text string) {
	c.Helper()
	for deadline := time.Now().Add(patience); !on.find(text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatalf("no %q on:\n%s\nlog:\n%s", text, on, c.log)
		}
	}
}

// start runs the command of a pod, with folders and ports of this machine.
func (c *cluster) start(pod *corev1.Pod) error {
	words := slices.Clone(pod.Spec.Containers[0].Command)
	last := len(words) - 1
	p := &process{ended: make(chan struct{})}
	if err := json.Unmarshal([]byte(words[last]), &p.settings); err != nil {
		return err
	}
	s := &p.settings
	folder := c.TempDir()
	for i, word := range s.Command {
		if rest, ok := strings.CutPrefix(word, runtimes.WrapperFolder+"/"); ok {
			s.Command[i] = filepath.Join(c.wrapper, rest)
		}
		if rest, ok := strings.CutPrefix(word, s.Source+"/"); ok {
			s.Command[i] = filepath.Join(folder, rest)
		}
	}
	if words[0] == "python3" {
		words[0] = python(c.T)
		s.Command[0] = words[0]
	}
	s.Source, s.Image, s.ControlPort, s.FunctionPort = folder, c.image, freePort(c.T), freePort(c.T)
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	words[last] = string(text)
	p.Cmd = exec.CommandContext(c.Context(), words[0], words[1:]...)
	p.Stdout, p.Stderr = c.log, c.log
	p.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "NODE_") || strings.HasPrefix(variable, "PYTHON")
	})
	p.Env = append(p.Env, "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1")
	p.WaitDelay = time.Second
	// The end of a container ends all of its processes.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Cancel = p.kill
	if err := p.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.Wait()
		close(p.ended)
	}()
	c.lock.Lock()
	defer c.lock.Unlock()
	c.pods[pod.Name] = p
	return nil
}

func (c *cluster) process(name string) *process {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.pods[name]
}

func (c *cluster) stop(name string) {
	if p := c.process(name); p != nil {
		_ = p.kill()
		<-p.ended
	}
}

func (c *cluster) forward(_ context.Context, _, pod string, _ ...int) (*tunnel.Tunnel, error) {
	p := c.process(pod)
	address := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	return &tunnel.Tunnel{Addresses: []string{address(p.settings.ControlPort), address(p.settings.FunctionPort)}, Ended: p.ended, Close: func() {}}, nil
}

// run runs the session until the returned function interrupts it.
func (c *cluster) run() (interrupt func() error) {
	ctx, cancel := context.WithCancel(c.Context())
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(gone)
		ended <- c.Session.Run(ctx)
	}()
	c.Cleanup(func() {
		cancel()
		<-gone
	})
	return func() error {
		cancel()
		return <-ended
	}
}

var address = regexp.MustCompile(`answers at (http://127\.0\.0\.1:\d+)\. `)

// url waits until the session prints its URL.
func (c *cluster) url() string {
	c.Helper()
	c.await(c.messages, "Press ctrl-C to end it.")
	return address.FindStringSubmatch(c.messages.String())[1]
}

// call calls the URL, and returns the status and the body.
func (c *cluster) call(url string) (int, string) {
	c.Helper()
	answer, err := http.Get(url)
	if err != nil {
		c.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func (c *cluster) wantAnswer(url, want string) {
	c.Helper()
	if status, got := c.call(url); status != http.StatusOK || got != want {
		c.Errorf("it answers %d %q, want %q; log:\n%s", status, got, want, c.log)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// python returns a Python that can run the wrapper.
func python(t *testing.T) string {
	t.Helper()
	names := []string{os.Getenv("KILN_PYTHON"), "python3.13", "python3", "/usr/bin/python3"}
	i := slices.IndexFunc(names, func(name string) bool {
		return name != "" && exec.Command(name, "-c", "import uvicorn, uvloop, httptools").Run() == nil
	})
	if i < 0 {
		t.Fatal("no Python of these has uvicorn, uvloop and httptools: ", names)
	}
	return names[i]
}

// code is the same function in each language.
type code struct {
	language, file string
	// answers returns a function that answers with the text, or exits with ?crash.
	answers func(text string) string
	// imports returns a function that answers with the text of the module lib.
	imports string
	lib     string
	libText string
	port    string
}

var codes = []code{
	{
		language: "nodejs", file: "handler.js",
		answers: func(text string) string {
			return fmt.Sprintf("module.exports = { main: (event) => { if ('crash' in event.extensions.request.query) process.exit(3); return %q; } };\n", text)
		},
		imports: "const text = require('./lib/text.js');\nmodule.exports = { main: () => text };\n", lib: "lib/text.js", libText: "module.exports = %q;\n",
		port: "module.exports = { main: () => process.env.PORT };\n",
	},
	{
		language: "python", file: "handler.py",
		answers: func(text string) string {
			return fmt.Sprintf("import os\n\ndef main(event, context):\n    if 'crash' in event['extensions']['request'].query_string:\n        os._exit(3)\n    return %q\n", text)
		},
		imports: "from lib.text import TEXT\n\ndef main(event, context):\n    return TEXT\n", lib: "lib/text.py", libText: "TEXT = %q\n",
		port: "import os\n\ndef main(event, context):\n    return os.environ['PORT']\n",
	},
}

// TestSession edits code while it runs, as an author does.
func TestSession(t *testing.T) {
	for _, of := range codes {
		t.Run(of.language, func(t *testing.T) {
			c := newCluster(t, of.language, map[string]string{of.file: of.answers("one")})
			interrupt := c.run()
			url := c.url()
			c.wantAnswer(url, "one")

			c.save(of.file, of.answers("two"), of.file+" has changed: the new code answers after ")
			c.wantAnswer(url, "two")
			c.save(of.file, "syntax (", of.file+" has changed: the code does not start, as the log shows. The previous code still answers.\n")
			c.await(c.log, of.file+":1")
			c.wantAnswer(url, "two")
			c.save(of.file, of.answers("three"), "the new code answers")
			c.wantAnswer(url, "three")

			if status, _ := c.call(url + "?crash"); status < http.StatusInternalServerError {
				t.Errorf("a function that exits answers %d", status)
			}
			c.await(c.log, "The function has exited. It starts again when a file changes.\n")
			if status, body := c.call(url); status < http.StatusInternalServerError {
				t.Errorf("a function that has exited answers %d %s", status, body)
			}
			c.save(of.file, "syntax (", "The code does not start, as the log shows. It starts again when a file changes.\n")
			c.save(of.file, of.answers("four"), "the new code answers")
			c.wantAnswer(url, "four")

			c.put(c.Dir, of.lib, fmt.Sprintf(of.libText, "five"))
			c.save(of.file, of.imports, "answers")
			for wait := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
				if _, got := c.call(url); got == "five" || time.Now().After(wait) {
					break
				}
			}
			c.wantAnswer(url, "five")
			if err := os.Remove(filepath.Join(c.Dir, of.lib)); err != nil {
				t.Fatal(err)
			}
			c.await(c.messages, of.lib+" has changed: the code does not start")

			if err := interrupt(); err != nil {
				t.Errorf("Run() = %v after an interrupt", err)
			}
			c.wantNothingLeft()
		})
	}
}

// TestSlowStart checks that code still gets the requests if a file that is not sent is saved
// while the code starts.
func TestSlowStart(t *testing.T) {
	c := newCluster(t, "nodejs", map[string]string{"handler.js": codes[0].answers("one"), ".gitignore": "notes.txt\n"})
	c.run()
	url := c.url()
	slow := "console.log('loading'); for (const end = Date.now() + 700; Date.now() < end; ) ;\n"
	c.put(c.Dir, "handler.js", slow+codes[0].answers("two"))
	c.await(c.log, "loading")
	c.put(c.Dir, "notes.txt", "later")
	c.await(c.messages, "handler.js has changed: the new code answers")
	c.wantAnswer(url, "two")
}

// wantNothingLeft checks that the session has deleted its objects and changed no other.
func (c *cluster) wantNothingLeft() {
	c.Helper()
	pods, err := c.kube.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		c.Errorf("%d pods are left, %v", len(pods.Items), err)
	}
	functions, err := c.kiln.ServerlessV1alpha1().Functions(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil || len(functions.Items) > 0 {
		c.Errorf("%d Functions are left, %v", len(functions.Items), err)
	}
	for _, action := range append(c.kube.Actions(), c.kiln.Actions()...) {
		if verb := action.GetVerb(); !slices.Contains([]string{"get", "list", "create", "delete"}, verb) {
			c.Errorf("the session calls %s %s", verb, action.GetResource().Resource)
		}
	}
}

// TestPrivate checks that neither the function nor the launcher can be called from other
// machines, and that the launcher obeys only the session.
func TestPrivate(t *testing.T) {
	for _, of := range codes {
		t.Run(of.language, func(t *testing.T) {
			c := newCluster(t, of.language, map[string]string{of.file: of.port})
			c.run()
			_, port := c.call(c.url())
			p := c.process(c.pod.name)
			host := hostAddress(t)
			for _, port := range []string{port, strconv.Itoa(p.settings.ControlPort), strconv.Itoa(p.settings.FunctionPort)} {
				if connection, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), patience); err != nil {
					t.Errorf("port %s of the loopback interface: %v", port, err)
				} else {
					connection.Close()
				}
				if connection, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), patience); err == nil {
					connection.Close()
					t.Errorf("others can connect to port %s", port)
				}
			}
			stranger := remote{address: c.pod.launcher.address, token: "guess"}
			if err := stranger.write(t.Context(), of.file, nil, false); err == nil || !strings.Contains(err.Error(), "403") {
				t.Errorf("a request with another token: %v", err)
			}
			stranger.token = p.settings.TokenHash
			if stranger.ping(t.Context()) {
				t.Error("the hash of the token authorizes a request")
			}
			// The launcher may refuse it.
			_ = c.pod.launcher.write(t.Context(), "../escaped", nil, false)
			if _, err := os.Stat(filepath.Join(p.settings.Source, "..", "escaped")); err == nil {
				t.Error("a file is written above the folder")
			}
		})
	}
}

// hostAddress returns an address of this machine that is not of the loopback interface.
func hostAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	t.Skip("this machine has only the loopback interface")
	return ""
}

// TestModules checks that code finds the packages of the image.
func TestModules(t *testing.T) {
	c := newCluster(t, "nodejs", map[string]string{
		"handler.js":   "module.exports = { main: () => require('ms') };\n",
		"package.json": `{"dependencies": {"ms": "2"}, "scripts": {"test": "node --test"}}`,
		// Packages of the author's machine are not those of the image.
		"node_modules/ms/index.js": "module.exports = 'of the author';\n",
	})
	c.put(c.image, "package.json", `{"dependencies": {"ms": "2"}}`)
	c.put(c.image, "node_modules/ms/index.js", "module.exports = 'of the image';\n")
	c.run()
	c.wantAnswer(c.url(), "of the image")
	if slices.ContainsFunc(c.kiln.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "create" }) {
		t.Error("equal dependencies start a build")
	}
}

// TestRebuild changes the dependencies of code that runs.
func TestRebuild(t *testing.T) {
	answer := "module.exports = { main: () => %q };\n"
	c := newCluster(t, "nodejs", map[string]string{"handler.js": fmt.Sprintf(answer, "one"), "package.json": "{}"})
	c.Function.Spec.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "s3cret"}}
	c.Function.Spec.Build = &v1alpha1.BuildSpec{SecretName: "npm"}
	interrupt := c.run()
	url := c.url()
	first := c.pod.name

	const deps = `{"dependencies": {"ms": "2"}}`
	c.save("package.json", deps, "The code runs without the new dependencies, because their image was not built. the build failed\n")
	c.await(c.messages, "the new code answers")

	// A quota has room for one pod.
	c.kube.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case <-c.process(first).ended:
			return false, nil, nil
		default:
			return true, nil, errors.New("exceeded quota")
		}
	})
	var built *v1alpha1.Function
	c.Built = func(_ context.Context, fn *v1alpha1.Function) (*v1alpha1.Function, error) {
		c.wantAnswer(url, "one")
		built = fn.DeepCopy()
		fn = fn.DeepCopy()
		fn.Status.Image = "registry.example/fn-dev@sha256:02"
		return fn, nil
	}
	c.put(c.Dir, "handler.js", fmt.Sprintf(answer, "two"))
	c.save("package.json", deps+"\n", "package.json has other dependencies than the image. ")
	c.await(c.messages, "The previous pod makes room: failed to create pod: exceeded quota\n")
	c.await(c.messages, "All files were sent")
	c.wantAnswer(url, "two")
	if built.Spec.Deps != deps+"\n" || built.Spec.Build.SecretName != "npm" || built.Spec.Source == "" {
		t.Errorf("it built %+v", built.Spec)
	}
	if len(built.Spec.Env) > 0 || strings.Contains(built.Spec.Source, "two") {
		t.Errorf("others can reach the environment or the code in the Function %+v", built.Spec)
	}
	pods, err := c.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Name == first || pods.Items[0].Spec.Containers[0].Image != "registry.example/fn-dev@sha256:02" {
		t.Errorf("%d pods, %v", len(pods.Items), err)
	}
	if err := interrupt(); err != nil {
		t.Error(err)
	}
	c.wantNothingLeft()
}

// TestLockFile checks that a lock file alone changes the dependencies.
func TestLockFile(t *testing.T) {
	const deps = `{"dependencies": {"ms": "2"}}`
	for _, lock := range []string{"package-lock.json", "npm-shrinkwrap.json"} {
		t.Run(lock, func(t *testing.T) {
			c := newCluster(t, "nodejs", map[string]string{"handler.js": codes[0].answers("one"), "package.json": deps})
			c.put(c.image, "package.json", deps)
			c.Function.Spec.Source = ""
			c.Dependencies = func() (string, error) {
				text, err := os.ReadFile(filepath.Join(c.Dir, lock))
				if errors.Is(err, fs.ErrNotExist) {
					return deps, nil
				}
				return runtimes.JoinDependencies(deps, string(text)), err
			}
			c.run()
			c.url()
			c.save(lock, `{"lockfileVersion": 3, "packages": {}}`, "package.json has other dependencies than the image. ")
			c.await(c.messages, lock+" has changed: the new code answers")
		})
	}
}

// A Function of somebody else that has the name of a build stays as it is.
func TestBuildRefusesAnother(t *testing.T) {
	c := newCluster(t, "nodejs", nil)
	another := c.newBuild("{}")
	another.OwnerReferences[0].UID = "another"
	if _, err := c.kiln.ServerlessV1alpha1().Functions(namespace).Create(t.Context(), another, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.build(t.Context(), "{}"); err == nil || !strings.Contains(err.Error(), "exists and is not of kubectl fn dev") {
		t.Errorf("build() = %v", err)
	}
	if _, err := c.kiln.ServerlessV1alpha1().Functions(namespace).Get(t.Context(), another.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the Function of somebody else: %v", err)
	}
}

// TestRemoveLost checks which Functions of builds a session deletes at its start.
func TestRemoveLost(t *testing.T) {
	for name, test := range map[string]struct {
		age  time.Duration
		edit func(*v1alpha1.Function)
		gone bool
	}{
		"of a lost terminal": {age: maxBuildAge + time.Minute, gone: true},
		"of a terminal":      {age: maxBuildAge - time.Minute},
		"with a longer timeout": {age: maxBuildAge + time.Minute, edit: func(fn *v1alpha1.Function) {
			fn.Spec.Build = &v1alpha1.BuildSpec{Timeout: &metav1.Duration{Duration: 2 * maxBuildAge}}
		}},
		"of an older Function": {age: maxBuildAge + time.Minute, edit: func(fn *v1alpha1.Function) { fn.OwnerReferences[0].UID = "another" }},
		"of another Function":  {age: maxBuildAge + time.Minute, edit: func(fn *v1alpha1.Function) { fn.Labels = nil }},
		"with code":            {age: maxBuildAge + time.Minute, edit: func(fn *v1alpha1.Function) { fn.Spec.Source = "code" }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "nodejs", nil)
			fn := c.newBuild("{}")
			fn.CreationTimestamp = metav1.NewTime(time.Now().Add(-test.age))
			if test.edit != nil {
				test.edit(fn)
			}
			if err := c.kiln.Tracker().Add(fn); err != nil {
				t.Fatal(err)
			}
			c.removeLost(t.Context())
			if _, err := c.functions().Get(t.Context(), fn.Name, metav1.GetOptions{}); apierrs.IsNotFound(err) != test.gone {
				t.Errorf("Get() = %v, want it gone: %t", err, test.gone)
			}
		})
	}
}

// TestLost checks that a broken connection is opened again, and that the end of the pod is
// reported.
func TestLost(t *testing.T) {
	c := newCluster(t, "nodejs", map[string]string{"handler.js": codes[0].answers("one")})
	broken := make(chan struct{})
	c.Forward = func(ctx context.Context, namespace, pod string, ports ...int) (*tunnel.Tunnel, error) {
		to, err := c.forward(ctx, namespace, pod, ports...)
		select {
		case <-broken:
		default:
			to.Ended = broken
		}
		return to, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Session.Run(ctx) }()
	url := c.url()
	close(broken)
	// Code that runs must not start again.
	time.Sleep(500 * time.Millisecond)
	c.save("handler.js", codes[0].answers("two"), "the new code answers")
	c.wantAnswer(url, "two")
	if strings.Contains(c.messages.String(), "All files were sent") {
		t.Errorf("the code started again:\n%s", c.messages)
	}
	if err := c.kube.CoreV1().Pods(namespace).Delete(t.Context(), c.pod.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), " has ended: it was deleted\nTry: kubectl fn status fn") {
		t.Errorf("Run() = %v", err)
	}
}

// A pod that is not created is not left either, and neither are those of lost terminals.
func TestOpenFails(t *testing.T) {
	c := newCluster(t, "nodejs", map[string]string{"handler.js": ""})
	for name, of := range map[string]struct {
		phase corev1.PodPhase
		age   time.Duration
	}{
		"ended":             {corev1.PodFailed, time.Minute},
		"never-started":     {corev1.PodPending, maxAge + time.Minute},
		"of-another-author": {corev1.PodRunning, maxAge - time.Minute},
	} {
		pod, err := c.newPod("image", "token")
		if err != nil {
			t.Fatal(err)
		}
		pod.Name, pod.Status.Phase, pod.CreationTimestamp = name, of.phase, metav1.NewTime(time.Now().Add(-of.age))
		if err := c.kube.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	c.Forward = func(context.Context, string, string, ...int) (*tunnel.Tunnel, error) {
		return nil, errors.New(`pods "fn" is forbidden`)
	}
	if err := c.Session.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Try: kubectl auth can-i create pods/portforward --namespace=default") {
		t.Errorf("Run() = %v", err)
	}
	pods, err := c.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "of-another-author" {
		t.Errorf("%d pods, %v", len(pods.Items), err)
	}
}
