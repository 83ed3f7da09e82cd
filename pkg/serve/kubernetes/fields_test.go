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

package kubernetes

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"knative.dev/pkg/apis"
	servingconfig "knative.dev/serving/pkg/apis/config"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// These tests compare the table "Fields" of docs/platforms.md with what both servers do. Each
// field of spec works the same on both, has a row of the table, or does not concern servers.

// sameParts have the fields that work the same on both. The test removes each field in turn.
var sameParts = []string{
	`{runtime: nodejs22}`,
	`{env: [{name: A, value: "1"}]}`,
	`{env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]}`,
	`{env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k, optional: true}}}]}`,
	`{envFrom: [{prefix: P, secretRef: {name: s, optional: true}}]}`,
	`{envFrom: [{prefix: P, configMapRef: {name: c, optional: true}}]}`,
	`{secretMounts: [{secretName: s, mountPath: /s}]}`,
	`{configMapMounts: [{configMapName: c, mountPath: /c}]}`,
	`{emptyDirMounts: [{mountPath: /e, sizeLimit: 1Mi}]}`,
	`{serviceAccountName: robot}`,
	`{labels: {app.kubernetes.io/part-of: shop}}`,
	`{resources: {limits: {memory: 1Gi}}}`,
}

// idleParts have the fields that change nothing that serves.
var idleParts = []struct{ part, why string }{
	{`{source: x}`, "the image has it"},
	{`{source: x, deps: "{}"}`, "the image has it"},
	{`{git: {url: "https://example.com/a.git", revision: main, contextDir: a, secretName: s}}`, "builds fetch it"},
	{`{archive: {url: "https://example.com/a.zip", sha256: "` + strings.Repeat("0", 64) + `", secretName: s}}`, "builds fetch it"},
	{`{archive: {url: "s3://bucket/a.zip", s3: {endpoint: "https://example.com", region: a, pathStyle: true}}}`, "builds fetch it"},
	{`{build: {resources: {requests: {cpu: 50m}, limits: {memory: 1Gi}}, timeout: 10m, env: [{name: A, value: "1"}], secretName: s}}`, "it is for builds"},
}

// invalidParts have the fields of Kubernetes' types that no Function may have.
var invalidParts = []string{
	`{env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]}`,
	`{env: [{name: A, valueFrom: {resourceFieldRef: {containerName: a, resource: limits.cpu, divisor: 1}}}]}`,
	`{env: [{name: A, valueFrom: {fileKeyRef: {volumeName: a, path: a, key: a, optional: true}}}]}`,
	`{resources: {claims: [{name: a, request: a}]}}`,
	`{build: {resources: {claims: [{name: a, request: a}]}}}`,
}

// row is a row of the table, and what shows that it is right.
type row struct {
	knative, deployments string
	cases                []rowCase
}

// rowCase is an edit of a serving Function.
type rowCase struct {
	before, after        string
	options              options
	knative, deployments effect
	// knativeSays and deploymentsSay are in the messages of the condition Running.
	knativeSays, deploymentsSay string
}

const (
	minScale = "metadata.annotations[autoscaling.knative.dev/min-scale]"
	maxScale = "metadata.annotations[autoscaling.knative.dev/max-scale]"
	window   = "metadata.annotations[autoscaling.knative.dev/window]"
	deadline = "metadata.annotations[serving.knative.dev/progress-deadline]"
	timeout  = "spec.containers[function].env[FUNC_TIMEOUT].value"
	cpu      = "spec.containers[function].resources.requests.cpu"
	route    = "KnativeService.spec.traffic"
	pin      = "{traffic: [{revisionName: greeter-00001, percent: 100}]}"
)

func inPod(pairs ...string) effect { return effect{Pod: pairsOf(pairs)} }

func beside(pairs ...string) effect { return effect{Others: pairsOf(pairs)} }

func refused(reason string) effect { return effect{Reason: reason} }

func pairsOf(pairs []string) map[string]string {
	values := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		values[pair[0]] = pair[1]
	}
	return values
}

func mostAutoscaled(n int32) options {
	return options{functions: func(f *config.Functions) { f.MostAutoscaled = n }}
}

func publicDomain(f *config.Functions) { f.PublicDomain = "fn.example.com" }

var rows = map[string]row{
	"minReplicas": {"0 scales to zero", "0 keeps one pod, and the condition Running says so", []rowCase{
		{after: `{minReplicas: 0}`, knative: inPod(minScale, "0"), deploymentsSay: "One pod stays although minReplicas is 0"},
		{after: `{minReplicas: 2}`, knative: inPod(minScale, "2"), deployments: beside("HorizontalPodAutoscaler.spec.minReplicas", "2", "PodDisruptionBudget", "created")},
	}},
	"maxReplicas": {"0 means no limit", "0 means `kubernetes-max-replicas`", []rowCase{
		{
			before: `{maxReplicas: 3}`, after: `{maxReplicas: 0}`, options: mostAutoscaled(7),
			knative: inPod(maxScale, ""), deployments: beside("HorizontalPodAutoscaler.spec.maxReplicas", "7"),
		},
		{after: `{maxReplicas: 5}`, knative: inPod(maxScale, "5"), deployments: beside("HorizontalPodAutoscaler.spec.maxReplicas", "5")},
	}},
	"replicas": {"refused: Running is False with `ReplicasUnsupported`", "works; 0 stops the Function", []rowCase{
		{
			after: `{replicas: 2}`, knative: refused(v1alpha1.ReasonReplicasUnsupported),
			deployments: beside("Deployment.spec.replicas", "2", "HorizontalPodAutoscaler", "deleted", "PodDisruptionBudget", "created"),
		},
		{
			after: `{replicas: 0}`, knative: refused(v1alpha1.ReasonReplicasUnsupported),
			deployments: beside("Deployment.spec.replicas", "0", "HorizontalPodAutoscaler", "deleted"),
		},
	}},
	"concurrency": {"works", "not enforced, and the condition Running says so; edits get a warning, and with `serving: kubernetes` so do new Functions", []rowCase{
		{after: `{concurrency: 5}`, knative: inPod("spec.containerConcurrency", "5"), deploymentsSay: "Nothing enforces spec.concurrency"},
		{before: `{concurrency: 5}`, after: `{concurrency: 0}`, knative: inPod("spec.containerConcurrency", "0"), deploymentsSay: "One pod stays"},
	}},
	"timeoutSeconds": {"Serving enforces it", "Kiln's wrapper enforces it; an own Dockerfile must do so itself", []rowCase{
		{after: `{timeoutSeconds: 60}`, knative: inPod("spec.timeoutSeconds", "60", timeout, "60"), deployments: inPod("spec.terminationGracePeriodSeconds", "75", timeout, "60")},
	}},
	"resources": {"works", "works; the autoscaler needs a request of CPU", []rowCase{
		{
			before: `{resources: {}}`, after: `{resources: {requests: {cpu: 60m}}}`,
			knative: inPod(cpu, "60m"), deployments: effect{Pod: map[string]string{cpu: "60m"}, Others: map[string]string{"HorizontalPodAutoscaler": "created"}},
		},
	}},
	"traffic": {"works", "one target of 100 % works, and no other image starts meanwhile; all else is refused: Running is False with `TrafficUnsupported`", []rowCase{
		{
			after:   pin,
			knative: beside(route+"[0].revisionName", "greeter-00001", route+"[0].latestRevision", "false"),
		},
		{
			after:   `{traffic: [{latestRevision: true, percent: 90}, {revisionName: greeter-00001, percent: 10}]}`,
			knative: beside(route+"[0].percent", "90", route+"[1].percent", "10", route+"[1].revisionName", "greeter-00001", route+"[1].latestRevision", "false"), deployments: refused(v1alpha1.ReasonTrafficUnsupported),
		},
		{
			after:   `{traffic: [{latestRevision: true, percent: 100, tag: next}]}`,
			knative: beside(route+"[0].tag", "next"), deployments: refused(v1alpha1.ReasonTrafficUnsupported),
		},
	}},
	"visibility": {"`public` works", "`public` needs `public-domain`, or Running is False with `VisibilityUnsupported`", []rowCase{
		{
			after: `{visibility: public}`, options: options{functions: publicDomain},
			knative: beside("KnativeService.metadata.labels[networking.knative.dev/visibility]", ""), deployments: beside("Ingress", "created"),
		},
		{
			after:   `{visibility: public}`,
			knative: beside("KnativeService.metadata.labels[networking.knative.dev/visibility]", ""), deployments: refused(v1alpha1.ReasonVisibilityUnsupported),
		},
	}},
	"annotations": {"all of Knative's work", "of Knative's, only `serving.knative.dev/progress-deadline` has an effect", []rowCase{
		{after: `{annotations: {example.com/a: b}}`, knative: inPod("metadata.annotations[example.com/a]", "b"), deployments: inPod("metadata.annotations[example.com/a]", "b")},
		{after: `{annotations: {autoscaling.knative.dev/window: 60s}}`, knative: inPod(window, "60s"), deployments: inPod(window, "60s")},
		{
			after: `{annotations: {serving.knative.dev/progress-deadline: 300s}}`, knative: inPod(deadline, "300s"),
			deployments: effect{Pod: map[string]string{deadline: "300s"}, Others: map[string]string{"Deployment.spec.progressDeadlineSeconds": "300"}},
		},
	}},
	"nodeSelector": {"needs Serving's feature `kubernetes.podspec-nodeselector`", "works", []rowCase{
		{
			after: `{nodeSelector: {disk: ssd}}`, options: options{features: []string{servingconfig.FeaturePodSpecNodeSelector}},
			knative: inPod("spec.nodeSelector[disk]", "ssd"), deployments: inPod("spec.nodeSelector[disk]", "ssd"),
		},
		{
			after:   `{nodeSelector: {disk: ssd}}`,
			knative: refused(v1alpha1.ReasonServiceFailed), knativeSays: "kubernetes.podspec-nodeselector", deployments: inPod("spec.nodeSelector[disk]", "ssd"),
		},
	}},
	"tolerations": {"needs Serving's feature `kubernetes.podspec-tolerations`", "works", []rowCase{
		{
			after:   `{tolerations: [{key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 7}]}`,
			options: options{features: []string{servingconfig.FeaturePodSpecTolerations}},
			knative: tolerated, deployments: tolerated,
		},
		{
			after:   `{tolerations: [{operator: Exists}]}`,
			knative: refused(v1alpha1.ReasonServiceFailed), knativeSays: "kubernetes.podspec-tolerations", deployments: inPod("spec.tolerations[0].operator", "Exists"),
		},
	}},
	"persistentVolumeClaimMounts": {claimsUnderKnative, "works; group 1000 can write to the volume", []rowCase{
		{
			after:   `{persistentVolumeClaimMounts: [{claimName: data, mountPath: /data, readOnly: true}]}`,
			options: options{features: []string{servingconfig.FeaturePodSpecPVClaim}},
			knative: inPod(slices.Concat(claimed, claimedReadOnly)...), deployments: inPod(slices.Concat(claimed, claimedReadOnly, grouped)...),
		},
		{
			after:   `{persistentVolumeClaimMounts: [{claimName: data, mountPath: /data}]}`,
			options: options{features: []string{servingconfig.FeaturePodSpecPVClaim, "kubernetes.podspec-persistent-volume-write"}},
			knative: inPod(claimed...), deployments: inPod(slices.Concat(claimed, grouped)...),
		},
		{
			after:   `{persistentVolumeClaimMounts: [{claimName: data, mountPath: /data}]}`,
			options: options{features: []string{servingconfig.FeaturePodSpecPVClaim}},
			knative: refused(v1alpha1.ReasonServiceFailed), knativeSays: "Enable kubernetes.podspec-persistent-volume-write in Serving's",
			deployments: inPod(slices.Concat(claimed, grouped)...),
		},
		{
			after:   `{persistentVolumeClaimMounts: [{claimName: data, mountPath: /data, readOnly: true}]}`,
			knative: refused(v1alpha1.ReasonServiceFailed), knativeSays: "Enable kubernetes.podspec-persistent-volume-claim in Serving's",
			deployments: inPod(slices.Concat(claimed, claimedReadOnly, grouped)...),
		},
	}},
}

const (
	claimsUnderKnative = "needs Serving's features `kubernetes.podspec-persistent-volume-claim` and, to write, `kubernetes.podspec-persistent-volume-write`"

	claimVolume = "spec.volumes[persistent-volume-claim-0]"
	claimMount  = "spec.containers[function].volumeMounts[persistent-volume-claim-0]"
)

var (
	claimed         = []string{claimVolume + ".name", "persistent-volume-claim-0", claimVolume + ".persistentVolumeClaim.claimName", "data", claimMount + ".name", "persistent-volume-claim-0", claimMount + ".mountPath", "/data"}
	claimedReadOnly = []string{claimVolume + ".persistentVolumeClaim.readOnly", "true", claimMount + ".readOnly", "true"}
	grouped         = []string{"spec.securityContext.fsGroup", "1000", "spec.securityContext.fsGroupChangePolicy", "OnRootMismatch"}
)

var tolerated = inPod("spec.tolerations[0].key", "a", "spec.tolerations[0].operator", "Equal", "spec.tolerations[0].value", "b",
	"spec.tolerations[0].effect", "NoExecute", "spec.tolerations[0].tolerationSeconds", "7")

// TestEachField checks that each field of spec is in one of the lists above.
func TestEachField(t *testing.T) {
	spec := specSchema(t)
	covered := map[string]bool{}
	cover := func(text string) {
		for _, leaf := range spec.in(map[string]any(parsePart(t, text)), "") {
			covered[leaf] = true
		}
	}
	for _, text := range slices.Concat(sameParts, invalidParts) {
		cover(text)
	}
	for _, idle := range idleParts {
		cover(idle.part)
	}
	for _, row := range rows {
		for _, c := range row.cases {
			cover(c.after)
		}
	}
	leaves := spec.leaves("")
	if len(leaves) < 50 {
		t.Errorf("the CRD has only the fields %v", leaves)
	}
	for _, leaf := range leaves {
		if !covered[leaf] {
			t.Errorf("spec.%s is new: what does it do under Deployments and under Knative? Add it to one of the lists of this file, and to the table of docs/platforms.md if they differ", leaf)
		}
	}
}

// TestSameFields removes each field of the parts in turn.
func TestSameFields(t *testing.T) {
	spec := specSchema(t)
	for _, text := range sameParts {
		p := parsePart(t, text)
		if got := underKnative(t, part{}.function(t), p.function(t), options{}); got.Reason != "" {
			t.Errorf("Knative refuses %s: %s", text, got.message)
		}
		for _, leaf := range spec.in(map[string]any(p), "") {
			t.Run(text+" "+leaf, func(t *testing.T) {
				less := part(without(map[string]any(p), leaf).(map[string]any))
				// Serving admits the whole part. It need not admit what is left of it.
				want := underKnative(t, less.function(t), p.function(t), options{admitsAll: true})
				added := underDeployments(t, less.function(t), p.function(t), options{})
				if len(added.Pod) == 0 {
					t.Error("it has no effect on a Deployment")
				}
				if diff := gocmp.Diff(want, added, cmpopts.IgnoreUnexported(effect{})); diff != "" {
					t.Errorf("the effect (-Knative +Deployments):\n%s", diff)
				}
			})
		}
	}
}

// TestIdleFields edits fields that change nothing that serves.
func TestIdleFields(t *testing.T) {
	for _, idle := range idleParts {
		t.Run(idle.part, func(t *testing.T) {
			for name, side := range map[string]side{"Deployments": underDeployments, "Knative": underKnative} {
				got := side(t, part{}.function(t), parsePart(t, idle.part).function(t), options{})
				if diff := gocmp.Diff(effect{}, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(effect{})); diff != "" {
					t.Errorf("the effect under %s, where %s (-want +got):\n%s", name, idle.why, diff)
				}
			}
		})
	}
}

// TestInvalidFields checks that no Function can have the fields, and that it can have all others.
func TestInvalidFields(t *testing.T) {
	cfg := config.FromContextOrDefaults(t.Context())
	options{}.apply(cfg)
	cfg.Runtimes = config.Runtimes{"nodejs22": {BaseImage: "node", Language: "nodejs"}, "nodejs24": {BaseImage: "node", Language: "nodejs"}}
	validate := func(text string) *apis.FieldError {
		return parsePart(t, text).function(t).Validate(config.ToContext(t.Context(), cfg)).Filter(apis.ErrorLevel)
	}
	for _, text := range invalidParts {
		if validate(text) == nil {
			t.Errorf("a Function can have %s", text)
		}
	}
	valid := slices.Clone(sameParts)
	for _, idle := range idleParts {
		valid = append(valid, idle.part)
	}
	for _, row := range rows {
		for _, c := range row.cases {
			valid = append(valid, c.after)
		}
	}
	for _, text := range valid {
		if err := validate(text); err != nil {
			t.Errorf("a Function cannot have %s: %v", text, err)
		}
	}
}

var fieldRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*) \\| (.*) \\|$")

// TestFieldsTable compares the table with the rows above, and makes the edits of each row.
func TestFieldsTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/platforms.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Fields\n")
	section, _, _ = strings.Cut(section, "\n## ")
	table, want := map[string]string{}, map[string]string{}
	for _, cells := range fieldRow.FindAllStringSubmatch(section, -1) {
		table[cells[1]] = cells[2] + " | " + cells[3]
	}
	for field, row := range rows {
		want[field] = row.knative + " | " + row.deployments
	}
	if diff := gocmp.Diff(want, table); diff != "" {
		t.Errorf("the table of docs/platforms.md (-this test +page):\n%s", diff)
	}
	for _, field := range slices.Sorted(maps.Keys(rows)) {
		for _, c := range rows[field].cases {
			t.Run(field+" "+c.after, func(t *testing.T) { c.check(t) })
		}
	}
}

func (c rowCase) check(t *testing.T) {
	for _, s := range []struct {
		name string
		side side
		want effect
		says string
	}{{"Knative", underKnative, c.knative, c.knativeSays}, {"Deployments", underDeployments, c.deployments, c.deploymentsSay}} {
		before := part{}
		if c.before != "" {
			before = parsePart(t, c.before)
		}
		got := s.side(t, before.function(t), parsePart(t, c.after).function(t), c.options)
		if diff := gocmp.Diff(s.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(effect{})); diff != "" {
			t.Errorf("the effect under %s (-want +got):\n%s", s.name, diff)
		}
		if !strings.Contains(got.message, s.says) {
			t.Errorf("Running says under %s: %s; want %q", s.name, got.message, s.says)
		}
	}
}

// TestPinnedTraffic checks that one target of 100 % keeps back other edits.
func TestPinnedTraffic(t *testing.T) {
	edited := parsePart(t, `{env: [{name: A, value: "1"}], traffic: [{revisionName: greeter-00001, percent: 100}]}`)
	got := underDeployments(t, part{}.function(t), edited.function(t), options{})
	if diff := gocmp.Diff(effect{}, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(effect{})); diff != "" {
		t.Errorf("the effect (-want +got):\n%s", diff)
	}
}
