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

package nodeimage

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
)

// importScript loads an archive into the node's containerd.
//
//go:embed import.sh
var importScript string

// programs are the names of the Kubernetes binary on a node.
var programs = []string{"kubeadm", "kubectl", "kubelet"}

// components are the names of the Kubernetes binary in the control plane's images.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"}

// proxyTools are the programs that kube-proxy calls.
var proxyTools = []string{"/usr/sbin/nft", "/usr/sbin/xtables-nft-multi", "/usr/sbin/conntrack"}

// protocolNames is the file by which nft knows the names of protocols. Without it, nft
// lists numbers. kube-proxy does not recognize its own rules then, and deletes them.
const protocolNames = "/etc/protocols"

// units are the services that a node starts.
var units = []string{"containerd", "kubelet", "undo-mount-hacks"}

// removed are Debian's services that do not work in a container.
var removed = []string{
	"lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
	"lib/systemd/system/multi-user.target.wants/*",
	"etc/systemd/system/*.wants/*",
	"lib/systemd/system/local-fs.target.wants/*",
	"lib/systemd/system/sockets.target.wants/*udev*",
	"lib/systemd/system/sockets.target.wants/*initctl*",
	"lib/systemd/system/basic.target.wants/*",
}

// cniConfig is the pod network of a cluster with one node.
const cniConfig = `{
  "cniVersion": "0.4.0",
  "name": "kiln",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "10.244.0.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// storageClass makes volumes that live on the node.
const storageClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations:
    storageclass.kubernetes.io/is-default-class: "true"
provisioner: kubernetes.io/host-path
`

// registryConfig makes containerd look for a hosts.toml of each registry.
const registryConfig = `
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"
`

// assembly is an unfinished node image.
type assembly struct {
	arch      string
	root      string // The node's root file system.
	work      string // For files in between.
	bins      binaries
	kindFiles string
	log       io.Writer
}

// run makes a node image of the archived root file system.
func (a *assembly) run(ctx context.Context, rootFS, image string) error {
	if err := os.Mkdir(a.root, 0o755); err != nil {
		return fmt.Errorf("failed to create root: %w", err)
	}
	if err := command.New("tar", "-C", a.root, "--numeric-owner", "-xf", rootFS).Run(ctx, a.log); err != nil {
		return err
	}
	steps := []func(context.Context) error{a.addKindFiles, a.addPrograms, a.configure, a.configureContainerd, a.importImages}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := command.New("tar", "-C", a.root, "--numeric-owner", "-cf", image, ".").Run(ctx, a.log); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(a.root), os.RemoveAll(filepath.Join(a.work, "images")))
}

// addKindFiles copies the files of kind's own image. It makes those executable that
// kind's Dockerfile does.
func (a *assembly) addKindFiles(context.Context) error {
	return filepath.WalkDir(a.kindFiles, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(a.kindFiles, file)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("failed to read kind's %s: %w", rel, err)
		}
		mode := fs.FileMode(0o644)
		if dir := filepath.Dir(rel); dir == "usr/local/bin" || dir == "kind/bin" {
			mode = 0o755
		}
		return a.write("/"+filepath.ToSlash(rel), data, mode)
	})
}

func (a *assembly) addPrograms(context.Context) error {
	binary, err := os.ReadFile(a.bins.kubernetes)
	if err != nil {
		return fmt.Errorf("failed to read Kubernetes: %w", err)
	}
	if err := a.write("/usr/bin/kubernetes", binary, 0o755); err != nil {
		return err
	}
	for _, name := range programs {
		if err := a.link("kubernetes", "/usr/bin/"+name); err != nil {
			return err
		}
	}
	// kind's unit expects containerd where kind's image has it.
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		if err := a.link("/usr/bin/"+name, "/usr/local/bin/"+name); err != nil {
			return err
		}
	}
	return a.link("/usr/lib/cni", "/opt/cni/bin")
}

// configure does to Debian what kind's Dockerfile does.
func (a *assembly) configure(ctx context.Context) error {
	for _, pattern := range removed {
		matches, err := filepath.Glob(hostPath(a.root, pattern))
		if err != nil {
			return fmt.Errorf("failed to find %s: %w", pattern, err)
		}
		for _, m := range matches {
			if err := os.Remove(m); err != nil {
				return fmt.Errorf("failed to remove service: %w", err)
			}
		}
	}
	for _, unit := range units {
		service := unit + ".service"
		if err := a.link("/etc/systemd/system/"+service, "/etc/systemd/system/multi-user.target.wants/"+service); err != nil {
			return err
		}
	}
	links := map[string]string{
		"/etc/systemd/system/systemd-binfmt.service": "/dev/null", // It would change the host's kernel.
		"/sbin/init": "/lib/systemd/systemd",
	}
	for name, target := range links {
		if err := a.link(target, name); err != nil {
			return err
		}
	}
	version, err := a.chroot("kubeadm", "version", "--output=short").Output(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		a.write("/kind/version", []byte(version), 0o644),
		a.write("/kind/manifests/default-storage.yaml", []byte(storageClass), 0o644),
		a.write("/etc/cni/net.d/10-kiln.conflist", []byte(cniConfig), 0o644),
		a.write("/etc/systemd/journald.conf.d/kiln.conf", []byte("[Journal]\nReadKMsg=no\n"), 0o644),
		os.MkdirAll(hostPath(a.root, "/etc/kubernetes/manifests"), 0o755),
	)
}

func (a *assembly) configureContainerd(ctx context.Context) error {
	const file = "/etc/containerd/config.toml"
	config, err := os.ReadFile(hostPath(a.root, file))
	if err != nil {
		return fmt.Errorf("failed to read containerd's configuration: %w", err)
	}
	images, err := a.expectedImages(ctx)
	if err != nil {
		return err
	}
	text, err := containerdConfig(string(config), images["pause"])
	if err != nil {
		return err
	}
	spec, err := a.chroot("ctr", "oci", "spec").Output(ctx)
	if err != nil {
		return err
	}
	base, err := baseSpec([]byte(spec))
	if err != nil {
		return err
	}
	return errors.Join(
		a.write(file, []byte(text), 0o644),
		a.write("/etc/containerd/cri-base.json", base, 0o644),
	)
}

// containerdConfig adapts kind's configuration of containerd.
func containerdConfig(config, pause string) (string, error) {
	const (
		unrestricted = "restrict_oom_score_adj = false"
		sandbox      = "sandbox_image = "
	)
	if !strings.Contains(config, unrestricted) || !strings.Contains(config, sandbox) {
		return "", errors.New("kind's configuration of containerd has changed: a setting is missing")
	}
	lines := strings.Split(config, "\n")
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		switch text := strings.TrimSpace(line); {
		case text == unrestricted:
			// Without CAP_SYS_RESOURCE nothing can get a lower score than containerd.
			lines[i] = indent + "restrict_oom_score_adj = true"
		case strings.HasPrefix(text, sandbox):
			lines[i] = indent + sandbox + `"` + pause + `"`
		}
	}
	return strings.Join(lines, "\n") + registryConfig, nil
}

// baseSpec adapts the specification that every container starts from: kind's
// hook hides the host's product files, and limits are the node's.
func baseSpec(spec []byte) ([]byte, error) {
	var s map[string]any
	if err := json.Unmarshal(spec, &s); err != nil {
		return nil, fmt.Errorf("failed to decode container specification: %w", err)
	}
	if process, ok := s["process"].(map[string]any); ok {
		delete(process, "rlimits")
	}
	hooks, ok := s["hooks"].(map[string]any)
	if !ok {
		hooks = map[string]any{}
		s["hooks"] = hooks
	}
	create, _ := hooks["createContainer"].([]any)
	hooks["createContainer"] = append(create, map[string]any{"path": "/kind/bin/mount-product-files.sh"})
	return json.Marshal(s)
}

// expectedImages returns the images that kubeadm expects, by their short names.
func (a *assembly) expectedImages(ctx context.Context) (map[string]string, error) {
	version, err := a.chroot("kubeadm", "version", "--output=short").Output(ctx)
	if err != nil {
		return nil, err
	}
	list, err := a.chroot("kubeadm", "config", "images", "list", "--kubernetes-version="+version).Output(ctx)
	if err != nil {
		return nil, err
	}
	return byShortName(strings.Fields(list)), nil
}

// byShortName maps "etcd" to "registry.k8s.io/etcd:3.6.8-0", and so on.
func byShortName(refs []string) map[string]string {
	names := make(map[string]string, len(refs))
	for _, ref := range refs {
		name, _, _ := strings.Cut(path.Base(ref), ":")
		names[name] = ref
	}
	return names
}

// importImages puts the control plane's images into the node's containerd.
func (a *assembly) importImages(ctx context.Context) error {
	dir := filepath.Join(a.work, "images")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("failed to create directory of images: %w", err)
	}
	refs, err := a.expectedImages(ctx)
	if err != nil {
		return err
	}
	images, err := a.images(ctx, dir, refs)
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "images.tar")
	f, err := os.Create(archive)
	if err != nil {
		return fmt.Errorf("failed to create archive of images: %w", err)
	}
	if err := errors.Join(writeArchive(f, a.arch, images), f.Close()); err != nil {
		return err
	}
	if f, err = os.Open(archive); err != nil {
		return fmt.Errorf("failed to open archive of images: %w", err)
	}
	defer f.Close()
	// Separate namespaces leave no mounts and no containerd if the command is killed.
	return command.New("unshare", "--mount", "--pid", "--fork", "--kill-child",
		"chroot", a.root, "/bin/sh", "-euc", importScript).Reading(f).Run(ctx, a.log)
}

// images returns the images of the control plane, with the given references.
func (a *assembly) images(ctx context.Context, dir string, refs map[string]string) ([]containerImage, error) {
	tools, err := a.proxyFiles(ctx)
	if err != nil {
		return nil, err
	}
	kubernetes := []entry{{name: "usr/local/bin/kubernetes", source: a.bins.kubernetes}}
	for _, name := range components {
		kubernetes = append(kubernetes, entry{name: "usr/local/bin/" + name, link: "kubernetes"})
	}
	layers := map[string][]entry{
		"kubernetes": kubernetes,
		"tools":      tools,
		"etcd":       {{name: "usr/local/bin/etcd", source: a.bins.etcd}},
		"coredns":    {{name: "coredns", source: a.bins.coredns}},
		"pause":      {{name: "pause", source: a.bins.pause}},
	}
	file := func(layer string) string { return filepath.Join(dir, layer+".layer") }
	for layer, entries := range layers {
		if err := writeLayer(file(layer), entries); err != nil {
			return nil, err
		}
	}
	images := []containerImage{
		{ref: refs["etcd"], layers: []string{file("etcd")}, entrypoint: []string{"etcd"}},
		{ref: refs["coredns"], layers: []string{file("coredns")}, entrypoint: []string{"/coredns"}},
		{ref: refs["pause"], layers: []string{file("pause")}, entrypoint: []string{"/pause"}, user: "65535:65535"},
	}
	for _, name := range components {
		image := containerImage{ref: refs[name], layers: []string{file("kubernetes")}, entrypoint: []string{name}}
		if name == "kube-proxy" {
			image.layers = append(image.layers, file("tools"))
		}
		images = append(images, image)
	}
	if i := slices.IndexFunc(images, func(i containerImage) bool { return i.ref == "" }); i >= 0 {
		return nil, fmt.Errorf("failed to name image %v: kubeadm does not list it", images[i].entrypoint)
	}
	return images, nil
}

// proxyFiles returns the programs that kube-proxy calls, with their libraries.
func (a *assembly) proxyFiles(ctx context.Context) ([]entry, error) {
	list, err := a.chroot(append([]string{"ldd"}, proxyTools...)...).Output(ctx)
	if err != nil {
		return nil, err
	}
	// Plug-ins that are loaded by name.
	plugins, err := filepath.Glob(hostPath(a.root, "/usr/lib/*/xtables/*.so"))
	if err != nil {
		return nil, fmt.Errorf("failed to find firewall plug-ins: %w", err)
	}
	names := append(slices.Clone(proxyTools), protocolNames)
	names = append(names, sharedLibraries(list)...)
	for _, p := range plugins {
		names = append(names, strings.TrimPrefix(p, a.root))
	}
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		source, err := a.resolve(name)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: strings.TrimPrefix(name, "/"), source: source})
	}
	for _, name := range []string{"iptables", "ip6tables", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore"} {
		entries = append(entries, entry{name: "usr/sbin/" + name, link: "xtables-nft-multi"})
	}
	return entries, nil
}

// sharedLibraries returns the paths that ldd prints, each once.
func sharedLibraries(ldd string) []string {
	var libs []string
	for word := range strings.FieldsSeq(ldd) {
		if strings.HasPrefix(word, "/") && strings.Contains(word, ".so") && !slices.Contains(libs, word) {
			libs = append(libs, word)
		}
	}
	return libs
}

// resolve returns the real path of a file of the root on this machine. It follows links
// inside the root.
func (a *assembly) resolve(name string) (string, error) {
	for range 10 {
		file := hostPath(a.root, name)
		// /lib and the like are links to directories in /usr: relative, so that
		// the system resolves them inside the root.
		target, err := os.Readlink(file)
		if err != nil {
			return file, nil // Not a link.
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name), target)
		}
		name = target
	}
	return "", fmt.Errorf("failed to resolve %s: too many links", name)
}

func (a *assembly) chroot(args ...string) *command.Command {
	return command.New(append([]string{"chroot", a.root}, args...)...).With(searchPath)
}

// write writes a file of the root, with its directory.
func (a *assembly) write(name string, data []byte, mode fs.FileMode) error {
	file := hostPath(a.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("failed to create directory of %s: %w", name, err)
	}
	if err := os.WriteFile(file, data, mode); err != nil {
		return fmt.Errorf("failed to write %s: %w", name, err)
	}
	return nil
}

// link makes name in the root a symbolic link to target, and replaces an existing file.
func (a *assembly) link(target, name string) error {
	file := hostPath(a.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("failed to create directory of %s: %w", name, err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("failed to replace %s: %w", name, err)
	}
	if err := os.Symlink(target, file); err != nil {
		return fmt.Errorf("failed to link %s: %w", name, err)
	}
	return nil
}
