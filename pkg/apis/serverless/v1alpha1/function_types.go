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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// Function is code with dependencies. Kiln builds it into an image and runs it as an
// HTTP service.
//
// +genclient
// +genreconciler
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be at most 63 of a-z, 0-9 and -, must begin with a letter and must not end with -"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.traffic) || self.spec.traffic.all(t, !has(t.tag) || size(t.tag) == 0 || size(t.tag) + 1 + size(self.metadata.name) <= 63)",message="a tag, - and the name of the Function must be together at most 63 characters"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) > 52 || !has(self.spec.traffic) || self.spec.traffic.all(t, !has(t.revisionName) || size(t.revisionName) == 0 || t.revisionName.substring(0, t.revisionName.lastIndexOf('-')) == self.metadata.name)",message="traffic must go to revisions of the Function itself: their names are its name, - and a number"
type Function struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired function.
	// +required
	Spec FunctionSpec `json:"spec,omitempty"`

	// Status is the observed state of the function.
	// +optional
	Status FunctionStatus `json:"status,omitempty"`

	// Digests replaces spec.source and spec.deps of a Function in the controller's cache.
	// It is in no other Function: it has no JSON form.
	Digests *runtimes.Digests `json:"-"`
}

var (
	_ apis.Validatable   = (*Function)(nil)
	_ apis.Defaultable   = (*Function)(nil)
	_ kmeta.OwnerRefable = (*Function)(nil)
	_ duckv1.KRShaped    = (*Function)(nil)
	_ runtime.Object     = (*Function)(nil)
)

// FunctionSpec is the desired state of a function. A change of runtime, source, git,
// archive or deps causes a build. A change of visibility or traffic changes only the
// route. A change of build takes effect with the next build. A change of any other
// field causes a new revision without a build.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas == 0 || self.minReplicas <= self.maxReplicas",message="minReplicas must not be more than maxReplicas"
// +kubebuilder:validation:XValidation:rule="[has(self.source), has(self.git), has(self.archive)].exists_one(x, x)",message="exactly one of source, git, archive must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.deps) || size(self.deps) == 0 || has(self.source)",message="deps must not be set without source: a repository or an archive contains its dependency file"
// +kubebuilder:validation:XValidation:rule="(has(self.source) ? size(bytes(self.source)) : 0) + (has(self.deps) ? size(bytes(self.deps)) : 0) <= 1048576",message="source and deps together must not be more than 1048576 bytes, which is as much as a ConfigMap holds"
// +kubebuilder:validation:XValidation:rule="!has(self.configMapMounts) || self.configMapMounts.all(a, (!has(self.secretMounts) || !self.secretMounts.exists(b, ((a.mountPath + '/').startsWith(b.mountPath + '/') || (b.mountPath + '/').startsWith(a.mountPath + '/')))))",message="the mountPaths of secretMounts, configMapMounts, emptyDirMounts and persistentVolumeClaimMounts must not overlap"
// +kubebuilder:validation:XValidation:rule="!has(self.emptyDirMounts) || self.emptyDirMounts.all(a, (!has(self.secretMounts) || !self.secretMounts.exists(b, ((a.mountPath + '/').startsWith(b.mountPath + '/') || (b.mountPath + '/').startsWith(a.mountPath + '/')))) && (!has(self.configMapMounts) || !self.configMapMounts.exists(b, ((a.mountPath + '/').startsWith(b.mountPath + '/') || (b.mountPath + '/').startsWith(a.mountPath + '/')))))",message="the mountPaths of secretMounts, configMapMounts, emptyDirMounts and persistentVolumeClaimMounts must not overlap"
// +kubebuilder:validation:XValidation:rule="!has(self.persistentVolumeClaimMounts) || self.persistentVolumeClaimMounts.all(a, (!has(self.secretMounts) || !self.secretMounts.exists(b, ((a.mountPath + '/').startsWith(b.mountPath + '/') || (b.mountPath + '/').startsWith(a.mountPath + '/')))) && (!has(self.configMapMounts) || !self.configMapMounts.exists(b, ((a.mountPath + '/').startsWith(b.mountPath + '/') || (b.mountPath + '/').startsWith(a.mountPath + '/')))) && (!has(self.emptyDirMounts) || !self.emptyDirMounts.exists(b, ((a.mountPath + '/').startsWith(b.mountPath + '/') || (b.mountPath + '/').startsWith(a.mountPath + '/')))))",message="the mountPaths of secretMounts, configMapMounts, emptyDirMounts and persistentVolumeClaimMounts must not overlap"
type FunctionSpec struct {
	// Runtime is the language and version of the function: a key of the ConfigMap
	// config-runtimes, such as nodejs24. It defaults to the default-runtime of
	// config-functions.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Runtime string `json:"runtime,omitempty"`

	// Source is the function's code. For Node it is a module that exports main: (event,
	// context) => result. A Function has exactly one of source, git and archive.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	// +kubebuilder:validation:Pattern=`[^\s\v\p{Z}\x{85}\x{feff}]`
	Source string `json:"source,omitempty"`

	// Git is the Git repository with the function's code and its dependency file.
	// +optional
	Git *GitSource `json:"git,omitempty"`

	// Archive is the archive with the function's code and its dependency file.
	// +optional
	Archive *ArchiveSource `json:"archive,omitempty"`

	// Deps is the content of the runtime's dependency file, which is package.json for
	// Node. There, the content of package-lock.json may follow it. Without deps, the
	// function has no dependencies. It is only allowed with source.
	// +optional
	// +kubebuilder:validation:MaxLength=1048576
	Deps string `json:"deps,omitempty"`

	// Env is the environment of the function's container. Builds do not see it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(e, !(e.name in ['', 'PORT', 'K_SERVICE', 'K_CONFIGURATION', 'K_REVISION', 'FUNC_NAME', 'FUNC_NAMESPACE', 'FUNC_RUNTIME', 'FUNC_TIMEOUT', 'FUNC_MEMORY_LIMIT']))",message="Knative sets PORT, K_SERVICE, K_CONFIGURATION and K_REVISION, Kiln sets FUNC_NAME, FUNC_NAMESPACE, FUNC_RUNTIME, FUNC_TIMEOUT and FUNC_MEMORY_LIMIT"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.valueFrom) || has(e.valueFrom.secretKeyRef) != has(e.valueFrom.configMapKeyRef) && !has(e.valueFrom.fieldRef) && !has(e.valueFrom.resourceFieldRef) && !has(e.valueFrom.fileKeyRef) && (!has(e.value) || size(e.value) == 0))",message="valueFrom must set exactly one of secretKeyRef, configMapKeyRef, and must not be set together with value"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef) || has(e.valueFrom.secretKeyRef.name) && size(e.valueFrom.secretKeyRef.name) > 0 && size(e.valueFrom.secretKeyRef.key) > 0)",message="secretKeyRef must set name and key"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.valueFrom) || !has(e.valueFrom.configMapKeyRef) || has(e.valueFrom.configMapKeyRef.name) && size(e.valueFrom.configMapKeyRef.name) > 0 && size(e.valueFrom.configMapKeyRef.key) > 0)",message="configMapKeyRef must set name and key"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// EnvFrom adds all entries of ConfigMaps and Secrets of the Function's namespace to
	// the environment of the function's container. Variables of env take precedence.
	// Pods read the entries when they start.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, has(e.secretRef) != has(e.configMapRef))",message="exactly one of secretRef, configMapRef must be set"
	// +kubebuilder:validation:XValidation:rule="self.all(e, (!has(e.secretRef) || has(e.secretRef.name) && size(e.secretRef.name) > 0) && (!has(e.configMapRef) || has(e.configMapRef.name) && size(e.configMapRef.name) > 0))",message="name must be set"
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// SecretMounts are Secrets that are mounted into the function's container,
	// read-only.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(a, !self.exists(b, b.mountPath.startsWith(a.mountPath + '/')))",message="a mountPath must not be below another"
	SecretMounts []SecretMount `json:"secretMounts,omitempty"`

	// ConfigMapMounts are ConfigMaps that are mounted into the function's container,
	// read-only.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(a, !self.exists(b, b.mountPath.startsWith(a.mountPath + '/')))",message="a mountPath must not be below another"
	ConfigMapMounts []ConfigMapMount `json:"configMapMounts,omitempty"`

	// EmptyDirMounts are folders on the disk of the node that the function can write to.
	// They are empty when a pod starts, and go with it.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(a, !self.exists(b, b.mountPath.startsWith(a.mountPath + '/')))",message="a mountPath must not be below another"
	EmptyDirMounts []EmptyDirMount `json:"emptyDirMounts,omitempty"`

	// PersistentVolumeClaimMounts are PersistentVolumeClaims that are mounted into the
	// function's container. They need Serving's feature
	// kubernetes.podspec-persistent-volume-claim.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(a, !self.exists(b, b.mountPath.startsWith(a.mountPath + '/')))",message="a mountPath must not be below another"
	PersistentVolumeClaimMounts []PersistentVolumeClaimMount `json:"persistentVolumeClaimMounts,omitempty"`

	// ServiceAccountName is the service account of the function's pods, in the
	// Function's namespace. Pods get a token only if it is set. Builds do not use it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// NodeSelector has the labels that a node must have to run the function's pods. It
	// needs Serving's feature kubernetes.podspec-nodeselector.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations are the taints of nodes that the function's pods tolerate. They need
	// Serving's feature kubernetes.podspec-tolerations.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['', 'Equal', 'Exists'])",message="operator must be Equal or Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.key) && size(t.key) > 0 || has(t.operator) && t.operator == 'Exists')",message="operator must be Exists if key is not set"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || size(t.value) == 0)",message="value must not be set together with operator Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect must be NoSchedule, PreferNoSchedule or NoExecute"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')",message="effect must be NoExecute if tolerationSeconds is set"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// MinReplicas is the minimum number of pods. With 0, the function scales to zero
	// while it gets no requests. It defaults to the default-min-replicas of
	// config-functions.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the maximum number of pods; 0 means no limit. It defaults to the
	// default-max-replicas of config-functions.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Replicas is the exact number of pods, instead of minReplicas and maxReplicas. kubectl
	// scale and external autoscalers set it. Knative does not support it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// Concurrency is the maximum number of concurrent requests of one pod; 0 means no
	// limit. It defaults to Serving's default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Concurrency *int64 `json:"concurrency,omitempty"`

	// TimeoutSeconds is the maximum time, in seconds, from the arrival of a request to the end
	// of its response. It defaults to the default-timeout of config-functions.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int64 `json:"timeoutSeconds,omitempty"`

	// Resources are the compute resources of each of the function's pods.
	// config-functions has the defaults.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="claims are not supported"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || type(self.requests[k]) == int || isQuantity(self.requests[k]))",message="requests must be quantities such as 100m or 64Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.all(k, k == 'cpu' || k == 'memory' || k == 'ephemeral-storage' || type(self.requests[k]) == int || size(self.requests[k]) <= 3)",message="requests of devices must be whole numbers, above 999 without quotes"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.limits) || type(self.limits[k]) == int || isQuantity(self.limits[k]))",message="limits must be quantities such as 100m or 64Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || self.limits.all(k, k == 'cpu' || k == 'memory' || k == 'ephemeral-storage' || type(self.limits[k]) == int || size(self.limits[k]) <= 3)",message="limits of devices must be whole numbers, above 999 without quotes"
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// Labels are added to the function's pods. The allowed-pod-labels of config-functions
	// lists the keys with a prefix that are allowed.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('serverless.kiln.dev/') && !k.startsWith('serving.knative.dev/') && !k.startsWith('autoscaling.knative.dev/') && !k.startsWith('networking.knative.dev/'))",message="Kiln and Knative set labels of their prefixes"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations are added to the function's pods. Of Knative's annotations, these are
	// allowed: those of autoscaling.knative.dev, features.knative.dev and
	// queue.sidecar.serving.knative.dev, and serving.knative.dev/progress-deadline for
	// functions that start slowly. Of others, the allowed-pod-annotations of
	// config-functions lists the keys with a prefix that are allowed.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'serving.knative.dev/progress-deadline' || !k.startsWith('serverless.kiln.dev/') && !k.startsWith('serving.knative.dev/') && !k.startsWith('networking.knative.dev'))",message="Kiln and Knative set annotations of their prefixes"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['autoscaling.knative.dev/min-scale', 'autoscaling.knative.dev/minScale', 'autoscaling.knative.dev/max-scale', 'autoscaling.knative.dev/maxScale']))",message="use minReplicas and maxReplicas"
	Annotations map[string]string `json:"annotations,omitempty"`

	// Visibility is who can call the function: cluster-local, the default, admits
	// callers inside the cluster. public admits everyone who can reach Serving's
	// ingress.
	// +optional
	Visibility Visibility `json:"visibility,omitempty"`

	// Traffic splits the requests between revisions. By default the newest ready
	// revision gets all requests.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.map(t, has(t.percent) ? t.percent : 0).sum() == 100",message="the percentages must add up to 100"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tag) || size(t.tag) == 0 || self.exists_one(u, has(u.tag) && u.tag == t.tag))",message="a tag must be used only once"
	Traffic []TrafficTarget `json:"traffic,omitempty"`

	// Build configures the function's builds. A change takes effect with the next build.
	// +optional
	Build *BuildSpec `json:"build,omitempty"`
}

// GitSource is a revision of a Git repository with the code of a function. Its folder
// has the file that the runtime starts, such as handler.js, and the dependency file, if
// there are dependencies.
//
// +kubebuilder:validation:XValidation:rule="!has(self.contextDir) || !self.contextDir.split('/').exists(p, p in ['.', '..'])",message="contextDir must be a folder of the repository, without . and .."
type GitSource struct {
	// URL is the address of the repository: https, ssh such as
	// ssh://git@example.com/a/b.git or git@example.com:a/b.git, or http inside the
	// cluster. It contains no password; the Secret does.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://[^/?#@$\\\s\x00-\x1f\x7f]+/|ssh://([0-9A-Za-z_.-]+@)?[^/?#@$\\\s\x00-\x1f\x7f]+/|[0-9A-Za-z_.-]+@[0-9A-Za-z.-]+:)[^?#$\\\s\x00-\x1f\x7f]+$`
	URL string `json:"url"`

	// Revision is a branch, a tag or a commit of 40 digits. It defaults to the default
	// branch of the repository. Each build resolves it, and the status has the commit.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([0-9A-Za-z_][0-9A-Za-z_./+@#=,-]*)?$`
	Revision string `json:"revision,omitempty"`

	// ContextDir is the folder of the function in the repository. It defaults to the
	// root.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([0-9A-Za-z_.@+-]+(/[0-9A-Za-z_.@+-]+)*)?$`
	ContextDir string `json:"contextDir,omitempty"`

	// SecretName is the name of a Secret in the Function's namespace with credentials
	// for the Git server: username and password, or token; for ssh, ssh-privatekey and
	// known_hosts. ca.crt is the server's CA, if it is private. A change of the Secret
	// causes no build.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	SecretName string `json:"secretName,omitempty"`
}

// ArchiveSource is a .zip or .tar.gz archive with the code of a function. Its root, or
// the only folder there, has the file that the runtime starts, such as handler.js, and
// the dependency file, if there are dependencies.
//
// +kubebuilder:validation:XValidation:rule="!has(self.s3) || self.url.startsWith('s3://')",message="s3 must not be set unless url is such as s3://bucket/key"
type ArchiveSource struct {
	// URL is the address of the archive: https; http inside the cluster; the only layer
	// of an artifact in a registry, such as oci://registry.example.com/team/greeter:1;
	// or an object in a bucket, such as s3://bucket/key. It contains no user and no
	// password; the Secret does.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://[^/?#@$\\\s\x00-\x1f\x7f]+/[^#$\\\s\x00-\x1f\x7f]*|oci://([0-9A-Za-z-]+(\.[0-9A-Za-z-]+)+(:[0-9]+)?|[0-9A-Za-z-]+:[0-9]+)(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^?#%$\\\s\x00-\x1f\x7f]+)$`
	URL string `json:"url"`

	// SHA256 is the expected sha256 of the archive, in hexadecimal. With it, a change of
	// the URL alone causes no build. Without it, the URL identifies the archive, and the
	// status has its sha256.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{64})?$`
	SHA256 string `json:"sha256,omitempty"`

	// SecretName is the name of a Secret in the Function's namespace with credentials
	// for the archive's server: username and password, or token; .dockerconfigjson for a
	// registry; accessKeyId, secretAccessKey and optionally sessionToken for a bucket.
	// ca.crt is the server's CA, if it is private. A change of the Secret causes no
	// build.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	SecretName string `json:"secretName,omitempty"`

	// S3 is the store of the bucket, for a URL such as s3://bucket/key. It defaults to
	// Amazon S3 in us-east-1.
	// +optional
	S3 *S3Store `json:"s3,omitempty"`
}

// S3Store is a store with the API of Amazon S3.
type S3Store struct {
	// Endpoint is the URL of the store, such as https://minio.example.com:9000. It
	// defaults to Amazon's endpoint of the region.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(https?://[^/?#@$\\\s\x00-\x1f\x7f]+)?$`
	Endpoint string `json:"endpoint,omitempty"`

	// Region is the region of the bucket. It defaults to us-east-1, which most stores
	// without regions accept.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[0-9a-z-]*$`
	Region string `json:"region,omitempty"`

	// PathStyle puts the bucket into the path, as in
	// https://minio.example.com/bucket/key, instead of the host. It defaults to true
	// with an endpoint, and to false without.
	// +optional
	PathStyle *bool `json:"pathStyle,omitempty"`
}

// MountPath is the absolute path of a folder in the function's container. It has nothing to
// shorten, such as a double slash.
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^(/([^/:.\x00-\x1f][^/:\x00-\x1f]*|\.[^/:.\x00-\x1f][^/:\x00-\x1f]*|\.\.[^/:\x00-\x1f]+))+$`
// +kubebuilder:validation:XValidation:rule="!['/dev', '/proc', '/sys', '/tmp', '/function', '/kiln', '/etc/hosts', '/etc/hostname', '/etc/resolv.conf', '/var/run/secrets/kubernetes.io', '/run/secrets/kubernetes.io'].exists(r, r == self || self.startsWith(r + '/') || r.startsWith(self + '/'))",message="mountPath must not overlap /dev, /proc, /sys, /tmp, /function, /kiln, or what Kubernetes mounts in /etc, /run and /var/run"
type MountPath string

// SecretMount mounts a Secret into the function's container.
type SecretMount struct {
	// SecretName is the name of a Secret in the Function's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	SecretName string `json:"secretName"`

	// MountPath is the absolute path of the folder. Each key of the Secret is a
	// file in it.
	MountPath MountPath `json:"mountPath"`
}

// ConfigMapMount mounts a ConfigMap into the function's container.
type ConfigMapMount struct {
	// ConfigMapName is the name of a ConfigMap in the Function's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	ConfigMapName string `json:"configMapName"`

	// MountPath is the absolute path of the folder. Each key of the ConfigMap is a
	// file in it.
	MountPath MountPath `json:"mountPath"`
}

// EmptyDirMount mounts an empty folder into the function's container.
type EmptyDirMount struct {
	// MountPath is the absolute path of the folder.
	MountPath MountPath `json:"mountPath"`

	// SizeLimit is the size of the folder. A pod that writes more is evicted. It defaults
	// to the default-empty-dir-size of config-functions. The limits of all folders together
	// must not be more than its max-empty-dir-size.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",message="sizeLimit must be a quantity above 0, such as 64Mi"
	SizeLimit *resource.Quantity `json:"sizeLimit,omitempty"`
}

// PersistentVolumeClaimMount mounts a PersistentVolumeClaim into the function's container.
type PersistentVolumeClaimMount struct {
	// ClaimName is the name of a PersistentVolumeClaim in the Function's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	ClaimName string `json:"claimName"`

	// MountPath is the absolute path of the folder.
	MountPath MountPath `json:"mountPath"`

	// ReadOnly keeps the function from writing to the volume. Without it, the mount needs
	// Serving's feature kubernetes.podspec-persistent-volume-write.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Visibility is who can call a function.
//
// +kubebuilder:validation:Enum=cluster-local;public
type Visibility string

const (
	// VisibilityClusterLocal admits callers inside the cluster.
	VisibilityClusterLocal Visibility = "cluster-local"
	// VisibilityPublic admits everyone who can reach Serving's ingress.
	VisibilityPublic Visibility = "public"
)

// TrafficTarget is a share of a function's requests.
//
// +kubebuilder:validation:XValidation:rule="(has(self.revisionName) && size(self.revisionName) > 0) != (has(self.latestRevision) && self.latestRevision)",message="exactly one of revisionName, latestRevision: true must be set"
// +kubebuilder:validation:XValidation:rule="has(self.percent) || has(self.tag) && size(self.tag) > 0",message="at least one of percent, tag must be set"
type TrafficTarget struct {
	// RevisionName is the revision that gets the requests.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z]([-a-z0-9]*[a-z0-9])?-[0-9]{5,10})?$`
	RevisionName string `json:"revisionName,omitempty"`

	// LatestRevision sends the requests to the newest ready revision.
	// +optional
	LatestRevision *bool `json:"latestRevision,omitempty"`

	// Percent is the share of the requests. All shares must add up to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int64 `json:"percent,omitempty"`

	// Tag gives the revision an additional URL, whatever its share.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z]([-a-z0-9]*[a-z0-9])?)?$`
	Tag string `json:"tag,omitempty"`
}

// BuildSpec configures the builds of a function.
type BuildSpec struct {
	// Resources are the compute resources of a build. config-build has the defaults and
	// the maximum.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="claims are not supported"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || type(self.requests[k]) == int || isQuantity(self.requests[k]))",message="requests must be quantities such as 100m or 64Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.all(k, k == 'cpu' || k == 'memory' || k == 'ephemeral-storage' || type(self.requests[k]) == int || size(self.requests[k]) <= 3)",message="requests of devices must be whole numbers, above 999 without quotes"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.limits) || type(self.limits[k]) == int || isQuantity(self.limits[k]))",message="limits must be quantities such as 100m or 64Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || self.limits.all(k, k == 'cpu' || k == 'memory' || k == 'ephemeral-storage' || type(self.limits[k]) == int || size(self.limits[k]) <= 3)",message="limits of devices must be whole numbers, above 999 without quotes"
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// Timeout is the maximum duration of a build, such as 10m. config-build has the
	// default and the maximum.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="timeout must be a duration of at least 10s, such as 10m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Env is the environment of the package manager, such as HTTPS_PROXY. It is not part
	// of the image. Secrets belong in the Secret that secretName names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []BuildEnvVar `json:"env,omitempty"`

	// SecretName is the name of a Secret in the Function's namespace with credentials
	// for package registries. Its keys are files such as .npmrc or pip.conf. It defaults
	// to the Secret that config-build names, if that exists. It is not part of the
	// image.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	SecretName string `json:"secretName,omitempty"`
}

// BuildEnvVar is a variable of the environment of a build.
type BuildEnvVar struct {
	// Name is the name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['PATH', 'HOME', 'PWD', 'SHELL', 'USER', 'TMPDIR', 'IFS', 'ENV', 'BASH_ENV', 'DOCKER_CONFIG', 'SSL_CERT_DIR', 'SSL_CERT_FILE']) && !self.startsWith('LD_') && !self.startsWith('KANIKO_') && !self.startsWith('TEKTON_')",message="this variable must not be set: the build's own tools need it as it is"
	Name string `json:"name"`

	// Value is the literal value of the variable. Nothing in it is expanded.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Value string `json:"value,omitempty"`
}

// FunctionPhase is a one-word summary of a Function's conditions.
type FunctionPhase string

const (
	// FunctionInitializing means that the configuration of the current generation is not
	// written yet.
	FunctionInitializing FunctionPhase = "Initializing"
	// FunctionBuilding means that the function is configured and has no image yet.
	FunctionBuilding FunctionPhase = "Building"
	// FunctionDeploying means that the image is available and its service is not ready.
	FunctionDeploying FunctionPhase = "Deploying"
	// FunctionRunning means that the current generation serves.
	FunctionRunning FunctionPhase = "Running"
	// FunctionFailed means that one of the conditions is False.
	FunctionFailed FunctionPhase = "Failed"
)

// FunctionStatus is the observed state of a Function.
type FunctionStatus struct {
	duckv1.Status `json:",inline"`

	// Phase summarizes the conditions in one word.
	// +optional
	// +kubebuilder:validation:Enum=Initializing;Building;Deploying;Running;Failed
	Phase FunctionPhase `json:"phase,omitempty"`

	// URL is the address of the function.
	// +optional
	URL *apis.URL `json:"url,omitempty"`

	// Address makes a Function a sink for Knative Eventing.
	// +optional
	Address *duckv1.Addressable `json:"address,omitempty"`

	// Serving is what serves the function: kubernetes, a Deployment. Absent in a deployed
	// Function, it is knative, a Knative Service. It does not change while the Function
	// exists.
	// +optional
	// +kubebuilder:validation:Enum=knative;kubernetes
	Serving string `json:"serving,omitempty"`

	// Replicas is the number of pods of a Deployment that serves the function.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Selector selects the pods of a Deployment that serves the function.
	// +optional
	Selector string `json:"selector,omitempty"`

	// AcceptedGeneration is the newest generation with a valid spec. A stricter
	// configuration does not change it.
	// +optional
	AcceptedGeneration int64 `json:"acceptedGeneration,omitempty"`

	// Image is the last image that was built, by digest. It is deployed, or will be.
	// +optional
	Image string `json:"image,omitempty"`

	// ImageTag is the tag of Image: a hash of the build's inputs.
	// +optional
	ImageTag string `json:"imageTag,omitempty"`

	// Source identifies the code of Image, if a build fetched it.
	// +optional
	Source *SourceStatus `json:"source,omitempty"`

	// BuiltImages are the newest images that the Function's builds have pushed, the newest
	// first. Only these are reused.
	// +optional
	// +listType=map
	// +listMapKey=tag
	// +kubebuilder:validation:MaxItems=5
	BuiltImages []BuiltImage `json:"builtImages,omitempty"`

	// DependencyImages are the newest images with installed dependencies that the
	// Function's builds have pushed, the newest first. Only these are reused.
	// +optional
	// +listType=map
	// +listMapKey=tag
	// +kubebuilder:validation:MaxItems=3
	DependencyImages []DependencyImage `json:"dependencyImages,omitempty"`

	// VersionTag is the tag of the image of the newest deployed generation in the
	// registry: "g" and the generation. It is absent until the registry has that tag. A
	// generation that changes only the number of pods gets none.
	// +optional
	VersionTag string `json:"versionTag,omitempty"`

	// VersionHash is a hash of the generation of VersionTag, without the number of pods.
	// +optional
	VersionHash string `json:"versionHash,omitempty"`

	// Build describes the current or the last build.
	// +optional
	Build *BuildStatus `json:"build,omitempty"`

	// LatestCreatedRevisionName is the newest revision.
	// +optional
	LatestCreatedRevisionName string `json:"latestCreatedRevisionName,omitempty"`

	// LatestReadyRevisionName is the newest revision that became ready.
	// +optional
	LatestReadyRevisionName string `json:"latestReadyRevisionName,omitempty"`

	// TemplateHash has two hashes of the revision template: as Kiln wrote it last, and
	// as the API server stored it. Another hash of the stored template means that
	// somebody else has changed it.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`

	// ContentHash has two hashes: of the names of the Function's Secrets and ConfigMaps, and
	// of their contents. It is absent unless the annotation
	// serverless.kiln.dev/rollout-on-change was set.
	// +optional
	ContentHash string `json:"contentHash,omitempty"`

	// Traffic is the current split of the requests between revisions.
	// +optional
	// +listType=atomic
	Traffic []TrafficStatus `json:"traffic,omitempty"`
}

const (
	// MaxBuiltImages is the maximum number of BuiltImages.
	MaxBuiltImages = 5

	// MaxDependencyImages is the maximum number of DependencyImages.
	MaxDependencyImages = 3
)

// BuiltImage is an image in the Function's repository that a build has pushed.
type BuiltImage struct {
	// Tag identifies the image: a hash of the build's inputs.
	Tag string `json:"tag"`

	// Digest is the digest of the image, as its build has reported it.
	Digest string `json:"digest"`

	// BaseDigest is the digest of the base image. It is absent if the Function's own
	// Dockerfile names the base image.
	// +optional
	BaseDigest string `json:"baseDigest,omitempty"`
}

// DependencyImage is an image in the Function's repository with only a base image and
// installed dependencies.
type DependencyImage struct {
	// Tag identifies the image: deps-, a hash of the inputs of the installation, and one
	// of the base image.
	Tag string `json:"tag"`

	// Digest is the digest of the image, as its build has reported it.
	Digest string `json:"digest"`

	// PackagesDigest is the digest of the list of its packages. It is absent if the
	// registry has rejected the list.
	// +optional
	PackagesDigest string `json:"packagesDigest,omitempty"`
}

// SourceStatus identifies the code of an image.
type SourceStatus struct {
	// SHA256 is the sha256 of the archive, in hexadecimal.
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// Commit is the commit of the repository.
	// +optional
	Commit string `json:"commit,omitempty"`
}

// TrafficStatus is the share of a function's requests that a revision gets.
type TrafficStatus struct {
	// RevisionName is the revision that gets the requests.
	// +optional
	RevisionName string `json:"revisionName,omitempty"`

	// LatestRevision reports that a newer revision gets the requests once it is ready.
	// +optional
	LatestRevision *bool `json:"latestRevision,omitempty"`

	// Percent is the share of the requests.
	// +optional
	Percent *int64 `json:"percent,omitempty"`

	// Tag is the tag of the revision.
	// +optional
	Tag string `json:"tag,omitempty"`

	// URL is the address of the tag.
	// +optional
	URL *apis.URL `json:"url,omitempty"`
}

// BuildStatus is the state of a build.
type BuildStatus struct {
	// Ref names the object that runs the build, in the Function's namespace. It is
	// absent until the object exists.
	// +optional
	Ref *BuildReference `json:"ref,omitempty"`

	// Reason is why the build was started, in one CamelCase word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Generation is the newest generation of the Function that the build serves: the one
	// that started it, or a later one with the same inputs.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// ImageTag is the tag of the image.
	// +optional
	ImageTag string `json:"imageTag,omitempty"`

	// Inputs has a digest of each input of the build. The next build compares them to
	// find its reason.
	// +optional
	Inputs string `json:"inputs,omitempty"`

	// Rebuild is the value of the annotation serverless.kiln.dev/rebuild that the build
	// answers.
	// +optional
	Rebuild string `json:"rebuild,omitempty"`

	// Commit is the commit that the build fetched. Before that it is the commit that the
	// build was started for, if a moved branch started it.
	// +optional
	Commit string `json:"commit,omitempty"`

	// CredentialsVersion is the version of the registry credentials of the build. It is
	// absent if there were none.
	// +optional
	CredentialsVersion string `json:"credentialsVersion,omitempty"`

	// Attempts is how often this build was started.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// QueuedTime is when the build began to wait for a slot. It is absent while the
	// build does not wait.
	// +optional
	QueuedTime *metav1.MicroTime `json:"queuedTime,omitempty"`

	// StartTime is when the object that runs the build was created.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// CompletionTime is when the build ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// Log has the last lines of the log of the installed dependencies, if they could be
	// read when the build succeeded: at most 4 KiB, with known secrets replaced by
	// [redacted]. A failed build has its log in failure.
	// +optional
	Log string `json:"log,omitempty"`

	// Failure is why the build failed. It is absent otherwise.
	// +optional
	Failure *BuildFailure `json:"failure,omitempty"`
}

// BuildReference names the object that runs a build, in the Function's namespace.
type BuildReference struct {
	// APIVersion is the API version of the object, for example tekton.dev/v1.
	APIVersion string `json:"apiVersion"`

	// Kind is the kind of the object, for example TaskRun.
	Kind string `json:"kind"`

	// Name is the name of the object.
	Name string `json:"name"`
}

// BuildName returns the name of the object that runs the build. It is "" while no
// such object exists, and where b is nil.
func (b *BuildStatus) BuildName() string {
	if b == nil || b.Ref == nil {
		return ""
	}
	return b.Ref.Name
}

// BuildFailure is why a build failed.
type BuildFailure struct {
	// Reason is the reason of the condition BuildReady.
	Reason string `json:"reason"`

	// Message is what went wrong and what to do.
	// +optional
	Message string `json:"message,omitempty"`

	// Transient reports that the same build may succeed later, because something outside
	// the Function failed. Kiln retries such a build up to six times.
	// +optional
	Transient bool `json:"transient,omitempty"`

	// Log has the last lines of the build's log: at most 4 KiB, with known secrets
	// replaced by [redacted].
	// +optional
	Log string `json:"log,omitempty"`
}

// FunctionList is a list of Functions.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type FunctionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Function `json:"items"`
}

// GetGroupVersionKind returns the kind of a Function, for owner references.
func (*Function) GetGroupVersionKind() schema.GroupVersionKind {
	return SchemeGroupVersion.WithKind("Function")
}

// IsFetched reports whether builds fetch the source from Git or an archive.
func (fs *FunctionSpec) IsFetched() bool {
	return fs.Git != nil || fs.Archive != nil
}

// GetStatus returns the duck-typed part of the Function's status. It implements
// duckv1.KRShaped.
func (fn *Function) GetStatus() *duckv1.Status {
	return &fn.Status.Status
}
