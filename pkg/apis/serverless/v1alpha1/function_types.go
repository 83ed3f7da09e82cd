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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/kmeta"
)

// Function is a few lines of code and their dependencies that Kiln builds into
// an image and runs as an HTTP service inside the cluster.
//
// +genclient
// +genreconciler
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name is at most 63 of a-z, 0-9 and -, and begins with a letter and does not end with -"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.traffic) || self.spec.traffic.all(t, !has(t.tag) || size(t.tag) == 0 || size(t.tag) + 1 + size(self.metadata.name) <= 63)",message="a tag, - and the name of the Function are together at most 63 characters"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) > 52 || !has(self.spec.traffic) || self.spec.traffic.all(t, !has(t.revisionName) || size(t.revisionName) == 0 || t.revisionName.substring(0, t.revisionName.lastIndexOf('-')) == self.metadata.name)",message="traffic goes to revisions of the Function itself: their names are its name, - and a number"
type Function struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the author of the function wants.
	// +required
	Spec FunctionSpec `json:"spec,omitempty"`

	// Status is what Kiln has made of it so far.
	// +optional
	Status FunctionStatus `json:"status,omitempty"`
}

var (
	_ apis.Validatable   = (*Function)(nil)
	_ apis.Defaultable   = (*Function)(nil)
	_ kmeta.OwnerRefable = (*Function)(nil)
	_ duckv1.KRShaped    = (*Function)(nil)
	_ runtime.Object     = (*Function)(nil)
)

// FunctionSpec is what the author of a function wants. A change of runtime,
// source, git, archive or deps causes a build. A change of visibility or traffic only changes
// the route, and one of build nothing until the next build. A change of any other
// field causes a new revision without a build.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas == 0 || self.minReplicas <= self.maxReplicas",message="minReplicas must not be more than maxReplicas"
// +kubebuilder:validation:XValidation:rule="[has(self.source), has(self.git), has(self.archive)].exists_one(x, x)",message="say exactly one of source, git and archive"
// +kubebuilder:validation:XValidation:rule="!has(self.deps) || size(self.deps) == 0 || has(self.source)",message="deps go with source: the dependency file of a repository or an archive is in it"
// +kubebuilder:validation:XValidation:rule="(has(self.source) ? size(bytes(self.source)) : 0) + (has(self.deps) ? size(bytes(self.deps)) : 0) <= 1048576",message="source and deps together must not be more than 1048576 bytes, which is as much as a ConfigMap holds"
type FunctionSpec struct {
	// Runtime is the language and version that runs the function: a key of the
	// ConfigMap config-runtimes, such as nodejs24. Left out, it is the
	// default-runtime of config-functions.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Runtime string `json:"runtime,omitempty"`

	// Source is the function's code. For Node it is a module that exports
	// main: (event, context) => result. A Function has one of source, git
	// and archive.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	// +kubebuilder:validation:Pattern=`[^\s\v\p{Z}\x{85}\x{feff}]`
	Source string `json:"source,omitempty"`

	// Git is the repository with the function's code and its dependency file, if that
	// is not in source.
	// +optional
	Git *GitSource `json:"git,omitempty"`

	// Archive is where the function's code is, with its dependency file, if it is
	// not in source.
	// +optional
	Archive *ArchiveSource `json:"archive,omitempty"`

	// Deps is the content of the runtime's dependency file: package.json for
	// Node. Left out, the function has no dependencies. It goes with source.
	// +optional
	// +kubebuilder:validation:MaxLength=1048576
	Deps string `json:"deps,omitempty"`

	// Env is the environment of the function's container. It is not seen by
	// builds.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(e, !(e.name in ['', 'PORT', 'K_SERVICE', 'K_CONFIGURATION', 'K_REVISION', 'FUNC_NAME', 'FUNC_NAMESPACE', 'FUNC_RUNTIME', 'FUNC_TIMEOUT', 'FUNC_MEMORY_LIMIT']))",message="Knative sets PORT, K_SERVICE, K_CONFIGURATION and K_REVISION, Kiln sets FUNC_NAME, FUNC_NAMESPACE, FUNC_RUNTIME, FUNC_TIMEOUT and FUNC_MEMORY_LIMIT"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.valueFrom) || has(e.valueFrom.secretKeyRef) != has(e.valueFrom.configMapKeyRef) && !has(e.valueFrom.fieldRef) && !has(e.valueFrom.resourceFieldRef) && !has(e.valueFrom.fileKeyRef) && (!has(e.value) || size(e.value) == 0))",message="a variable has a value, or it has valueFrom with either secretKeyRef or configMapKeyRef"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef) || has(e.valueFrom.secretKeyRef.name) && size(e.valueFrom.secretKeyRef.name) > 0 && size(e.valueFrom.secretKeyRef.key) > 0)",message="secretKeyRef needs a name and a key"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.valueFrom) || !has(e.valueFrom.configMapKeyRef) || has(e.valueFrom.configMapKeyRef.name) && size(e.valueFrom.configMapKeyRef.name) > 0 && size(e.valueFrom.configMapKeyRef.key) > 0)",message="configMapKeyRef needs a name and a key"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// EnvFrom adds all entries of ConfigMaps and Secrets of the Function's
	// namespace to the environment of the function's container. What env says
	// wins. A change of theirs reaches pods that start after it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, has(e.secretRef) != has(e.configMapRef))",message="say either secretRef or configMapRef"
	// +kubebuilder:validation:XValidation:rule="self.all(e, (!has(e.secretRef) || has(e.secretRef.name) && size(e.secretRef.name) > 0) && (!has(e.configMapRef) || has(e.configMapRef.name) && size(e.configMapRef.name) > 0))",message="the name is required"
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// SecretMounts are Secrets that the function's container sees as folders,
	// read-only.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(a, !self.exists(b, b.mountPath.startsWith(a.mountPath + '/')))",message="no mountPath can be below another"
	SecretMounts []SecretMount `json:"secretMounts,omitempty"`

	// ServiceAccountName is the service account of the function's pods, of the
	// Function's namespace. Pods get its token only where it is named here. Builds
	// do not use it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// NodeSelector are labels that a node must have to run the function's pods.
	// It needs Serving's feature kubernetes.podspec-nodeselector.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations are the taints of nodes that the function's pods tolerate. They
	// need Serving's feature kubernetes.podspec-tolerations.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['', 'Equal', 'Exists'])",message="operator is Equal or Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.key) && size(t.key) > 0 || has(t.operator) && t.operator == 'Exists')",message="operator must be Exists where there is no key"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || size(t.value) == 0)",message="value must be empty where the operator is Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect is NoSchedule, PreferNoSchedule or NoExecute"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')",message="effect must be NoExecute where there are tolerationSeconds"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// MinReplicas is the least number of pods that are kept running; 0 lets the
	// function scale to zero while nobody calls it. Left out, it is the
	// default-min-replicas of config-functions.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the greatest number of pods; 0 means no limit. Left out, it is
	// the default-max-replicas of config-functions.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Concurrency is the greatest number of requests that one pod handles at the
	// same time; 0 means no limit, as in Knative. Left out, it is Serving's default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Concurrency *int64 `json:"concurrency,omitempty"`

	// TimeoutSeconds is how long the function may take to answer a request, in
	// seconds, from its arrival to the end of the answer. Left out, it is the
	// default-timeout of config-functions.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int64 `json:"timeoutSeconds,omitempty"`

	// Resources are the compute resources that each of the function's pods
	// requests and may use at most. What is left out is as config-functions says.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="claims are not supported"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || type(self.requests[k]) == int || isQuantity(self.requests[k]))",message="requests are quantities such as 100m or 64Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.all(k, k == 'cpu' || k == 'memory' || k == 'ephemeral-storage' || type(self.requests[k]) == int || size(self.requests[k]) <= 3)",message="requests of devices are whole numbers; above 999 without quotes"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.limits) || type(self.limits[k]) == int || isQuantity(self.limits[k]))",message="limits are quantities such as 100m or 64Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || self.limits.all(k, k == 'cpu' || k == 'memory' || k == 'ephemeral-storage' || type(self.limits[k]) == int || size(self.limits[k]) <= 3)",message="limits of devices are whole numbers; above 999 without quotes"
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// Labels are added to the function's pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('serverless.kiln.dev/') && !k.startsWith('serving.knative.dev/') && !k.startsWith('autoscaling.knative.dev/') && !k.startsWith('networking.knative.dev/'))",message="Kiln and Knative set labels of their prefixes"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations are added to the function's pods. Of Knative's own, those of
	// autoscaling.knative.dev, features.knative.dev and
	// queue.sidecar.serving.knative.dev can be set, and
	// serving.knative.dev/progress-deadline for functions that start slowly.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'serving.knative.dev/progress-deadline' || !k.startsWith('serverless.kiln.dev/') && !k.startsWith('serving.knative.dev/') && !k.startsWith('networking.knative.dev'))",message="Kiln and Knative set annotations of their prefixes"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['autoscaling.knative.dev/min-scale', 'autoscaling.knative.dev/minScale', 'autoscaling.knative.dev/max-scale', 'autoscaling.knative.dev/maxScale']))",message="use minReplicas and maxReplicas"
	Annotations map[string]string `json:"annotations,omitempty"`

	// Visibility tells who can call the function: cluster-local, the default, is
	// for callers inside the cluster; public is for everyone who reaches Serving's
	// ingress.
	// +optional
	Visibility Visibility `json:"visibility,omitempty"`

	// Traffic tells how requests are split between revisions. Left out, the newest
	// ready revision gets all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.map(t, has(t.percent) ? t.percent : 0).sum() == 100",message="the percentages must add up to 100"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tag) || size(t.tag) == 0 || self.exists_one(u, has(u.tag) && u.tag == t.tag))",message="a tag can be used once"
	Traffic []TrafficTarget `json:"traffic,omitempty"`

	// Build tells how the function's builds run. A change takes effect with the
	// next build.
	// +optional
	Build *BuildSpec `json:"build,omitempty"`
}

// GitSource is a revision of a Git repository with the code of a function: in its
// folder, it has the file that the runtime begins with, such as handler.js, and its
// dependency file, if it has dependencies.
//
// +kubebuilder:validation:XValidation:rule="!has(self.contextDir) || !self.contextDir.split('/').exists(p, p in ['.', '..'])",message="contextDir is a folder of the repository, without . and .."
type GitSource struct {
	// URL is where the repository is: by https, by ssh such as
	// ssh://git@example.com/a/b.git or git@example.com:a/b.git, or by http inside the
	// cluster. It has no password: that is in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://[^/?#@$\\\s\x00-\x1f\x7f]+/|ssh://([0-9A-Za-z_.-]+@)?[^/?#@$\\\s\x00-\x1f\x7f]+/|[0-9A-Za-z_.-]+@[0-9A-Za-z.-]+:)[^?#$\\\s\x00-\x1f\x7f]+$`
	URL string `json:"url"`

	// Revision is a branch, a tag or the 40 digits of a commit. Left out, it is the
	// branch that the repository is on. What it means is found out by each build, and
	// status tells the commit.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([0-9A-Za-z_][0-9A-Za-z_./+@#=,-]*)?$`
	Revision string `json:"revision,omitempty"`

	// ContextDir is the folder of the repository that is the function. Left out, it is
	// all of it.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([0-9A-Za-z_.@+-]+(/[0-9A-Za-z_.@+-]+)*)?$`
	ContextDir string `json:"contextDir,omitempty"`

	// SecretName is the name of a Secret of the Function's namespace with the
	// credentials of the repository's server: username and password, or token, and
	// ca.crt, where its certificate is not generally trusted; by ssh ssh-privatekey
	// and known_hosts. Its content causes no build.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	SecretName string `json:"secretName,omitempty"`
}

// ArchiveSource is an archive, .zip or .tar.gz, with the code of a function: at its
// top, or in the only folder there, it has the file that the runtime begins with,
// such as handler.js, and its dependency file, if it has dependencies.
//
// +kubebuilder:validation:XValidation:rule="!has(self.s3) || self.url.startsWith('s3://')",message="s3 goes with a URL such as s3://bucket/key"
type ArchiveSource struct {
	// URL is where the archive is: by https; by http inside the cluster; in a
	// registry, as the only layer of an artifact, such as
	// oci://registry.example.com/team/greeter:1; or in a bucket, such as
	// s3://bucket/key. It has neither user nor password: these are in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://[^/?#@$\\\s\x00-\x1f\x7f]+/[^#$\\\s\x00-\x1f\x7f]*|oci://([0-9A-Za-z-]+(\.[0-9A-Za-z-]+)+(:[0-9]+)?|[0-9A-Za-z-]+:[0-9]+)(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^?#%$\\\s\x00-\x1f\x7f]+)$`
	URL string `json:"url"`

	// SHA256 is what the sha256 of the archive must be, in hexadecimal. With it, the
	// URL is only where the archive is to be had, and another causes no build. Left
	// out, the URL is taken to name one archive: status tells the sha256 that it had.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{64})?$`
	SHA256 string `json:"sha256,omitempty"`

	// SecretName is the name of a Secret of the Function's namespace with the
	// credentials of the archive's server: username and password, or token, or of
	// registries .dockerconfigjson, or of a bucket accessKeyId, secretAccessKey and, if
	// there is one, sessionToken; and ca.crt, where its certificate is not generally
	// trusted. Its content causes no build.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	SecretName string `json:"secretName,omitempty"`

	// S3 tells where the bucket is, for a URL such as s3://bucket/key. Left out, it is
	// Amazon's, in us-east-1.
	// +optional
	S3 *S3Store `json:"s3,omitempty"`
}

// S3Store is a store that speaks S3.
type S3Store struct {
	// Endpoint is the URL of the store, such as https://minio.example.com:9000. Left
	// out, it is Amazon's in the region.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(https?://[^/?#@$\\\s\x00-\x1f\x7f]+)?$`
	Endpoint string `json:"endpoint,omitempty"`

	// Region is the region of the bucket. Left out, it is us-east-1, which most stores
	// take that have none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[0-9a-z-]*$`
	Region string `json:"region,omitempty"`

	// PathStyle says whether the bucket is named in the path, as in
	// https://minio.example.com/bucket/key, and not in the host. Left out, it is so
	// where there is an endpoint.
	// +optional
	PathStyle *bool `json:"pathStyle,omitempty"`
}

// SecretMount is a Secret that the function's container sees as a folder.
//
// +kubebuilder:validation:XValidation:rule="!['/dev', '/proc', '/sys', '/tmp', '/function', '/kiln', '/etc/hosts', '/etc/hostname', '/etc/resolv.conf', '/var/run/secrets/kubernetes.io', '/run/secrets/kubernetes.io'].exists(r, r == self.mountPath || self.mountPath.startsWith(r + '/') || r.startsWith(self.mountPath + '/'))",message="this mountPath would get in the way of /dev, /proc, /sys, /tmp, /function, /kiln, or of what Kubernetes mounts in /etc, /run and /var/run"
type SecretMount struct {
	// SecretName is the name of a Secret of the Function's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	SecretName string `json:"secretName"`

	// MountPath is the absolute path of the folder. Each key of the Secret is a
	// file in it.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(/([^/:.\x00-\x1f][^/:\x00-\x1f]*|\.[^/:.\x00-\x1f][^/:\x00-\x1f]*|\.\.[^/:\x00-\x1f]+))+$`
	MountPath string `json:"mountPath"`
}

// Visibility tells who can call a function.
//
// +kubebuilder:validation:Enum=cluster-local;public
type Visibility string

const (
	// VisibilityClusterLocal is for callers inside the cluster.
	VisibilityClusterLocal Visibility = "cluster-local"
	// VisibilityPublic is for everyone who reaches Serving's ingress.
	VisibilityPublic Visibility = "public"
)

// TrafficTarget is a share of a function's requests.
//
// +kubebuilder:validation:XValidation:rule="(has(self.revisionName) && size(self.revisionName) > 0) != (has(self.latestRevision) && self.latestRevision)",message="say either revisionName or latestRevision: true"
// +kubebuilder:validation:XValidation:rule="has(self.percent) || has(self.tag) && size(self.tag) > 0",message="say a percent, a tag, or both"
type TrafficTarget struct {
	// RevisionName is the revision that gets the requests.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z]([-a-z0-9]*[a-z0-9])?-[0-9]{5,10})?$`
	RevisionName string `json:"revisionName,omitempty"`

	// LatestRevision has the newest ready revision get the requests.
	// +optional
	LatestRevision *bool `json:"latestRevision,omitempty"`

	// Percent is the share of the requests. All shares together are 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int64 `json:"percent,omitempty"`

	// Tag gives the revision a URL of its own, whatever its share.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z]([-a-z0-9]*[a-z0-9])?)?$`
	Tag string `json:"tag,omitempty"`
}

// BuildSpec tells how a function's builds run.
type BuildSpec struct {
	// Resources are the compute resources that a build requests and may use at
	// most. What is left out is as config-build says, which also has a ceiling.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="claims are not supported"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || type(self.requests[k]) == int || isQuantity(self.requests[k]))",message="requests are quantities such as 100m or 64Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.all(k, k == 'cpu' || k == 'memory' || k == 'ephemeral-storage' || type(self.requests[k]) == int || size(self.requests[k]) <= 3)",message="requests of devices are whole numbers; above 999 without quotes"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.limits) || type(self.limits[k]) == int || isQuantity(self.limits[k]))",message="limits are quantities such as 100m or 64Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || self.limits.all(k, k == 'cpu' || k == 'memory' || k == 'ephemeral-storage' || type(self.limits[k]) == int || size(self.limits[k]) <= 3)",message="limits of devices are whole numbers; above 999 without quotes"
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// Timeout is how long a build may take, such as 10m. Left out, it is the
	// timeout of config-build, which also has a ceiling.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="timeout is a duration such as 10m, and at least 10s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Env is the environment of the package manager, such as HTTPS_PROXY. It does
	// not get into the image. Secrets belong into the Secret that secretName names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []BuildEnvVar `json:"env,omitempty"`

	// SecretName is the name of a Secret of the Function's namespace with the
	// credentials of package registries: its keys are files such as .npmrc or
	// pip.conf. Left out, it is the one that config-build names, if it exists. It
	// does not get into the image.
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
	// +kubebuilder:validation:XValidation:rule="!(self in ['PATH', 'HOME', 'PWD', 'SHELL', 'USER', 'TMPDIR', 'IFS', 'ENV', 'BASH_ENV', 'DOCKER_CONFIG', 'SSL_CERT_DIR', 'SSL_CERT_FILE']) && !self.startsWith('LD_') && !self.startsWith('KANIKO_') && !self.startsWith('TEKTON_')",message="the build's own tools need this variable as it is"
	Name string `json:"name"`

	// Value is its value, as it is: nothing in it is expanded.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Value string `json:"value,omitempty"`
}

// FunctionPhase is a one-word summary of a Function's conditions.
type FunctionPhase string

const (
	// FunctionInitializing says that the configuration of the current
	// generation is not yet written.
	FunctionInitializing FunctionPhase = "Initializing"
	// FunctionBuilding says that the function is configured and has no image yet.
	FunctionBuilding FunctionPhase = "Building"
	// FunctionDeploying says that the image is there and its service is not ready.
	FunctionDeploying FunctionPhase = "Deploying"
	// FunctionRunning says that the current generation serves.
	FunctionRunning FunctionPhase = "Running"
	// FunctionFailed says that one of the conditions is False.
	FunctionFailed FunctionPhase = "Failed"
)

// FunctionStatus is what Kiln has made of a Function so far.
type FunctionStatus struct {
	duckv1.Status `json:",inline"`

	// Phase summarizes the conditions in one word.
	// +optional
	// +kubebuilder:validation:Enum=Initializing;Building;Deploying;Running;Failed
	Phase FunctionPhase `json:"phase,omitempty"`

	// URL is where the function answers.
	// +optional
	URL *apis.URL `json:"url,omitempty"`

	// Address makes a Function a sink for Knative Eventing.
	// +optional
	Address *duckv1.Addressable `json:"address,omitempty"`

	// AcceptedGeneration is the newest generation whose spec was found to be valid.
	// It stays so when the configuration becomes stricter.
	// +optional
	AcceptedGeneration int64 `json:"acceptedGeneration,omitempty"`

	// Image is the reference by digest of the image that was built last with
	// success and is, or is about to be, deployed.
	// +optional
	Image string `json:"image,omitempty"`

	// ImageTag is the tag of Image; it carries the hash of the build's inputs.
	// +optional
	ImageTag string `json:"imageTag,omitempty"`

	// Source tells which code Image is made of, where it is not in the Function.
	// +optional
	Source *SourceStatus `json:"source,omitempty"`

	// VersionTag is the tag by which the registry knows the image of the newest
	// generation that was deployed: "g" and the generation, which kubectl get shows
	// as VERSION. It is absent while the registry has not been told of Image.
	// +optional
	VersionTag string `json:"versionTag,omitempty"`

	// Build describes the current or the last build.
	// +optional
	Build *BuildStatus `json:"build,omitempty"`

	// LatestCreatedRevisionName is the newest revision of the function's service.
	// +optional
	LatestCreatedRevisionName string `json:"latestCreatedRevisionName,omitempty"`

	// LatestReadyRevisionName is the newest revision that became ready.
	// +optional
	LatestReadyRevisionName string `json:"latestReadyRevisionName,omitempty"`

	// TemplateHash is two hashes of what the function's revisions are made of: as
	// Kiln wrote it last, and as the API server then had it. Where it has another,
	// somebody else has changed it.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`

	// Traffic tells how requests are split between revisions now.
	// +optional
	// +listType=atomic
	Traffic []TrafficStatus `json:"traffic,omitempty"`
}

// SourceStatus tells which code an image is made of.
type SourceStatus struct {
	// SHA256 is the sha256 of the archive, in hexadecimal.
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// Commit is the hash of the commit of the repository.
	// +optional
	Commit string `json:"commit,omitempty"`
}

// TrafficStatus is the share of a function's requests that a revision gets.
type TrafficStatus struct {
	// RevisionName is the revision that gets the requests.
	// +optional
	RevisionName string `json:"revisionName,omitempty"`

	// LatestRevision says that another revision gets the requests once it is
	// newer and ready.
	// +optional
	LatestRevision *bool `json:"latestRevision,omitempty"`

	// Percent is the share of the requests.
	// +optional
	Percent *int64 `json:"percent,omitempty"`

	// Tag is the tag of the revision.
	// +optional
	Tag string `json:"tag,omitempty"`

	// URL is where the revision of the tag answers.
	// +optional
	URL *apis.URL `json:"url,omitempty"`
}

// BuildStatus describes a build: why it ran and how it went.
type BuildStatus struct {
	// Ref names the object in the Function's namespace that runs, or ran, the
	// build. It is absent while no such object exists.
	// +optional
	Ref *BuildReference `json:"ref,omitempty"`

	// Reason tells in one CamelCase word why the build was started.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Generation is the newest generation of the Function that the build was to
	// serve: the one that asked for it, or a later one that did not change what
	// is built.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// ImageTag is the tag of the image that the build makes.
	// +optional
	ImageTag string `json:"imageTag,omitempty"`

	// Inputs is a digest of each input of the build, by which the next build tells
	// what has changed.
	// +optional
	Inputs string `json:"inputs,omitempty"`

	// Rebuild is the value of the annotation serverless.kiln.dev/rebuild that
	// the build has answered.
	// +optional
	Rebuild string `json:"rebuild,omitempty"`

	// Commit is the commit of the repository that the build has fetched. Until that is
	// known, it is the one that the branch was found at, if that is why it is built.
	// +optional
	Commit string `json:"commit,omitempty"`

	// CredentialsVersion tells two versions of the registry's credentials that
	// builds were given apart; it is "" where there were none.
	// +optional
	CredentialsVersion string `json:"credentialsVersion,omitempty"`

	// Attempts counts how often this build was started.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// QueuedTime is when the build began to wait for its turn. It is absent while
	// the build does not wait.
	// +optional
	QueuedTime *metav1.MicroTime `json:"queuedTime,omitempty"`

	// StartTime is when the build's TaskRun was created.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// CompletionTime is when the build's TaskRun ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// Log holds the last lines of the log of the step that installs dependencies, as
	// far as they could be read when the build succeeded: at most 4 KiB, with what
	// Kiln knows for a secret replaced by [redacted]. A build that failed has them in
	// its failure.
	// +optional
	Log string `json:"log,omitempty"`

	// Failure tells why the build failed; it is absent otherwise.
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

// BuildFailure tells why a build failed.
type BuildFailure struct {
	// Reason is the reason of the condition BuildReady.
	Reason string `json:"reason"`

	// Message says what went wrong and what to fix.
	// +optional
	Message string `json:"message,omitempty"`

	// Transient says that the same build may succeed later: that something failed
	// which is not the Function's. Kiln tries such a build again, some times.
	// +optional
	Transient bool `json:"transient,omitempty"`

	// Log holds the last lines of the build's log, at most 4 KiB, with what Kiln
	// knows for a secret replaced by [redacted].
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

// IsFetched says whether the source is not in the Function, but fetched by its
// builds.
func (fs *FunctionSpec) IsFetched() bool {
	return fs.Git != nil || fs.Archive != nil
}

// GetStatus returns the duck-typed part of the Function's status. It implements
// duckv1.KRShaped.
func (fn *Function) GetStatus() *duckv1.Status {
	return &fn.Status.Status
}
