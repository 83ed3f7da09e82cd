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
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// kubelessSpec has the fields of a Function of Kubeless that Kiln has, too.
type kubelessSpec struct {
	Handler     string `json:"handler"`
	Function    string `json:"function"`
	ContentType string `json:"function-content-type"`
	Checksum    string `json:"checksum"`
	Runtime     string `json:"runtime"`
	Type        string `json:"type"`
	Topic       string `json:"topic"`
	Schedule    string `json:"schedule"`
	Timeout     string `json:"timeout"`
	Deps        string `json:"deps"`
	Service     struct {
		Type  string               `json:"type"`
		Ports []corev1.ServicePort `json:"ports"`

		// Selector is always that of the function's pods.
		Selector any `json:"selector"`
	} `json:"service"`
	Deployment struct {
		Metadata any `json:"metadata"`
		Spec     struct {
			Replicas *int32      `json:"replicas"`
			Template kubelessPod `json:"template"`
		} `json:"spec"`
	} `json:"deployment"`
	Autoscaler kubelessAutoscaler `json:"horizontalPodAutoscaler"`
}

type kubelessPod struct {
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers         []kubelessContainer `json:"containers"`
		Volumes            []corev1.Volume     `json:"volumes"`
		ServiceAccountName string              `json:"serviceAccountName"`
		NodeSelector       map[string]string   `json:"nodeSelector"`
		Tolerations        []corev1.Toleration `json:"tolerations"`
	} `json:"spec"`
}

type kubelessContainer struct {
	Name         string                      `json:"name"`
	Image        string                      `json:"image"`
	Env          []corev1.EnvVar             `json:"env"`
	EnvFrom      []corev1.EnvFromSource      `json:"envFrom"`
	Resources    corev1.ResourceRequirements `json:"resources"`
	VolumeMounts []corev1.VolumeMount        `json:"volumeMounts"`
}

// kubelessAutoscaler has fields of any type for what follows from the function.
type kubelessAutoscaler struct {
	APIVersion any `json:"apiVersion"`
	Kind       any `json:"kind"`
	Metadata   any `json:"metadata"`
	Spec       struct {
		MinReplicas *int32 `json:"minReplicas"`
		MaxReplicas int32  `json:"maxReplicas"`
		Target      any    `json:"scaleTargetRef"`
	} `json:"spec"`
}

const ofDeployment = "deployment.spec.template.spec."

var kubelessHints = map[string]string{
	"horizontalPodAutoscaler.spec.metrics": "left out: set annotations of autoscaling.knative.dev in spec.annotations",
	ofDeployment + "imagePullSecrets":      "left out: Kiln's images need none",
	ofDeployment + "initContainers":        "left out: pods of Kiln have one container. Install what it prepares by spec.deps",
	ofDeployment + "securityContext":       "left out: pods of Kiln always run restricted, as user 1000",
	ofDeployment + "affinity":              "left out: use spec.nodeSelector and spec.tolerations",
}

func fromKubeless(d *draft, data []byte) error {
	var from kubelessSpec
	if err := d.decode(data, &from, kubelessHints); err != nil {
		return err
	}
	d.setRuntime(from.Runtime)
	d.setKubelessSource(&from)
	if from.Timeout != "" {
		d.setTimeout("spec.timeout", from.Timeout)
	}
	if len(from.Service.Ports) > 0 || from.Service.Type != "" {
		d.note("spec.service", "left out: callers in the cluster use http://%s.NAMESPACE.svc.cluster.local, port 80. For others, set spec.visibility: public", d.Function.Name)
	}
	if from.Topic != "" || from.Schedule != "" {
		d.note("spec.topic, spec.schedule", "left out: create a Knative Trigger, source or PingSource (topic %q, schedule %q)", from.Topic, from.Schedule)
	}
	if from.Deployment.Metadata != nil {
		d.note("spec.deployment.metadata", "left out: only pods can have labels and annotations of their own")
	}
	most := &from.Autoscaler.Spec.MaxReplicas
	if *most == 0 {
		most = nil
	}
	d.setReplicas(from.Deployment.Spec.Replicas, from.Autoscaler.Spec.MinReplicas, most)
	d.setKubelessPod(&from.Deployment.Spec.Template)
	return nil
}

func (d *draft) setKubelessSource(from *kubelessSpec) {
	file, handler := "handler", from.Handler
	if dot := strings.LastIndex(handler, "."); dot >= 0 {
		file, handler = handler[:dot], handler[dot+1:]
	}
	if handler != "" && handler != "main" {
		d.Function.Spec.Env = append(d.Function.Spec.Env, corev1.EnvVar{Name: "FUNC_HANDLER", Value: handler})
	}
	switch from.ContentType {
	case "", "text":
		d.setInline(from.Function, from.Deps)
		return
	case "base64":
		source, err := base64.StdEncoding.DecodeString(strings.TrimSpace(from.Function))
		if err == nil && utf8.Valid(source) {
			d.setInline(string(source), from.Deps)
			return
		}
		d.note("spec.source", "the function is no text in base64")
	case "url+zip", "url+compressedtar":
		d.setKubelessArchive(from, file)
	case "url":
		d.note("spec.source", "put the content of %q here: a URL must be that of an archive", from.Function)
	default:
		d.note("spec.archive", "the function is an archive in the manifest (%q). Deploy its files with kubectl fn deploy --dir", from.ContentType)
	}
	if deps := strings.TrimSpace(from.Deps); deps != "" && deps != "{}" {
		d.note("spec.deps", "left out: the archive must have the dependency file %q", from.Deps)
	}
}

func (d *draft) setKubelessArchive(from *kubelessSpec, file string) {
	d.Function.Spec.Archive = &v1alpha1.ArchiveSource{URL: from.Function, SHA256: strings.TrimPrefix(from.Checksum, "sha256:")}
	if file != "handler" {
		d.note("spec.archive", "rename the file %q in the archive to handler, with the same extension", file)
	}
	address, err := url.Parse(from.Function)
	if err != nil {
		return
	}
	if name := path.Base(address.Path); from.ContentType == "url+compressedtar" && !strings.HasSuffix(name, ".tar.gz") && !strings.HasSuffix(name, ".tgz") {
		d.note("spec.archive.url", "the archive must be a .zip or a .tar.gz. Pack it again if it is another")
	}
}

func (d *draft) setKubelessPod(pod *kubelessPod) {
	spec := &d.Function.Spec
	d.addPodMetadata(pod.Metadata.Labels, pod.Metadata.Annotations)
	spec.ServiceAccountName, spec.NodeSelector, spec.Tolerations = pod.Spec.ServiceAccountName, pod.Spec.NodeSelector, pod.Spec.Tolerations
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		if i > 0 {
			d.note(fmt.Sprintf("spec.%scontainers[%d]", ofDeployment, i), "left out: pods of Kiln have one container")
			continue
		}
		if container.Image != "" {
			d.note("spec."+ofDeployment+"containers[0].image", "left out: an administrator can add a runtime with the base image %q to the ConfigMap config-runtimes. Name it in spec.runtime", container.Image)
		}
		d.addEnv(container.Env)
		spec.EnvFrom, spec.Resources = container.EnvFrom, container.Resources
		d.addMounts(container.VolumeMounts, pod.Spec.Volumes)
	}
}

func (d *draft) addMounts(mounts []corev1.VolumeMount, volumes []corev1.Volume) {
	sources := map[string]corev1.VolumeSource{}
	for i := range volumes {
		sources[volumes[i].Name] = volumes[i].VolumeSource
	}
	spec := &d.Function.Spec
	for _, mount := range mounts {
		to, field := v1alpha1.MountPath(path.Clean(mount.MountPath)), fmt.Sprintf("volume %q", mount.Name)
		source, ok := sources[mount.Name]
		if ok && source == (corev1.VolumeSource{}) {
			// Kubernetes' default.
			source.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
		switch {
		case source.Secret != nil:
			to = d.folderOf("spec.secretMounts, "+field, "Secret", source.Secret.SecretName, mount, source.Secret.Items)
			spec.SecretMounts = append(spec.SecretMounts, v1alpha1.SecretMount{SecretName: source.Secret.SecretName, MountPath: to})
		case source.ConfigMap != nil:
			to = d.folderOf("spec.configMapMounts, "+field, "ConfigMap", source.ConfigMap.Name, mount, source.ConfigMap.Items)
			spec.ConfigMapMounts = append(spec.ConfigMapMounts, v1alpha1.ConfigMapMount{ConfigMapName: source.ConfigMap.Name, MountPath: to})
		case source.EmptyDir != nil:
			if source.EmptyDir.Medium != "" {
				d.note("spec.emptyDirMounts, "+field, "the folder is on the disk of the node instead of the medium %q", source.EmptyDir.Medium)
			}
			spec.EmptyDirMounts = append(spec.EmptyDirMounts, v1alpha1.EmptyDirMount{MountPath: to, SizeLimit: source.EmptyDir.SizeLimit})
		case source.PersistentVolumeClaim != nil:
			d.addClaim("spec.persistentVolumeClaimMounts, "+field, mount, source.PersistentVolumeClaim)
		default:
			d.note("spec, "+field, "left out: only Secrets, ConfigMaps, PersistentVolumeClaims and emptyDir can be mounted")
		}
	}
}

// folderOf returns the path of the folder with all keys of the Secret or ConfigMap. Kiln mounts
// no single key.
func (d *draft) folderOf(field, kind, name string, mount corev1.VolumeMount, items []corev1.KeyToPath) v1alpha1.MountPath {
	if mount.SubPath != "" || mount.SubPathExpr != "" || len(items) > 0 {
		if path.Base(mount.MountPath) == mount.SubPath {
			mount.MountPath = path.Dir(mount.MountPath)
		}
		d.note(field, "all keys of %s %q are files in %q, under their own names", kind, name, mount.MountPath)
	}
	return v1alpha1.MountPath(path.Clean(mount.MountPath))
}

func (d *draft) addClaim(field string, mount corev1.VolumeMount, claim *corev1.PersistentVolumeClaimVolumeSource) {
	if mount.SubPath != "" || mount.SubPathExpr != "" {
		d.note(field, "the whole volume is at %q, not only its folder %q", mount.MountPath, mount.SubPath+mount.SubPathExpr)
	}
	if len(d.Function.Spec.PersistentVolumeClaimMounts) == 0 {
		d.note("spec.persistentVolumeClaimMounts", "Knative needs the features kubernetes.podspec-persistent-volume-claim and, to write, kubernetes.podspec-persistent-volume-write")
	}
	d.Function.Spec.PersistentVolumeClaimMounts = append(d.Function.Spec.PersistentVolumeClaimMounts, v1alpha1.PersistentVolumeClaimMount{
		ClaimName: claim.ClaimName, MountPath: v1alpha1.MountPath(path.Clean(mount.MountPath)), ReadOnly: claim.ReadOnly || mount.ReadOnly,
	})
}
