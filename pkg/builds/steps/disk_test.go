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

package steps

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

// diskOf returns the disk of a build: request/limit of each container, and the size of each
// volume that takes disk.
func diskOf(made Steps) map[string]string {
	disk := map[string]string{}
	add := func(name string, r corev1.ResourceRequirements) {
		disk[name] = r.Requests.StorageEphemeral().String() + "/" + r.Limits.StorageEphemeral().String()
	}
	for name, c := range containersOf(made) {
		add(name, c.Resources)
	}
	for _, volume := range made.Volumes {
		if volume.EmptyDir != nil {
			disk["volume "+volume.Name] = "none"
			if size := volume.EmptyDir.SizeLimit; size != nil {
				disk["volume "+volume.Name] = size.String()
			}
		}
	}
	return disk
}

func TestDiskLimits(t *testing.T) {
	gib := func(limit string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	shipped := func(b *config.Build) {
		b.Resources = corev1.ResourceRequirements{Requests: gib("512Mi"), Limits: gib("4Gi")}
		b.MaxResources = gib("16Gi")
		b.Sources = sources.Limits{Download: 100 << 20, Size: 500 << 20, Files: 16 << 10}
	}
	for name, tc := range map[string]struct {
		configure func(*config.Build)
		said      corev1.ResourceRequirements
		without   string
		want      map[string]string
		inTurn    string // of the push step, where the containers run in turn
	}{
		"default": {
			configure: shipped,
			want: map[string]string{
				"fetch": "16Mi/856Mi", "install": "512Mi/4Gi", "push": "16Mi/64Mi",
				"volume work": "792Mi", "volume kaniko": "4Gi", "volume layers": "4Gi",
			},
			inTurn: "16Mi/5016Mi",
		},
		"the Function's own": {
			configure: shipped, said: corev1.ResourceRequirements{Limits: gib("20Mi")},
			want: map[string]string{
				"fetch": "16Mi/856Mi", "install": "20Mi/20Mi", "push": "16Mi/64Mi",
				"volume work": "792Mi", "volume kaniko": "20Mi", "volume layers": "20Mi",
			},
			inTurn: "16Mi/940Mi",
		},
		"above the maximum": {
			configure: shipped, said: corev1.ResourceRequirements{Requests: gib("1Ti"), Limits: gib("1Ti")},
			want: map[string]string{
				"fetch": "16Mi/856Mi", "install": "16Gi/16Gi", "push": "16Mi/64Mi",
				"volume work": "792Mi", "volume kaniko": "16Gi", "volume layers": "16Gi",
			},
			inTurn: "16Mi/17304Mi",
		},
		"nothing to install": {
			configure: shipped, without: "Dockerfile",
			want:   map[string]string{"fetch": "16Mi/856Mi", "push": "16Mi/64Mi", "volume work": "792Mi"},
			inTurn: "16Mi/920Mi",
		},
		// Nodes without isolation of local storage run no pod that requests it.
		"no limit": {
			want: map[string]string{
				"fetch": "0/0", "install": "0/0", "push": "0/0",
				"volume work": "none", "volume kaniko": "none", "volume layers": "none",
			},
			inTurn: "0/0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, build := testConfig(), testBuild()
			if tc.configure != nil {
				tc.configure(cfg.Build)
			}
			build.Files = map[string]string{"Dockerfile": "FROM node:24", "server.cjs": "x", "layout.json": "{}"}
			delete(build.Files, tc.without)
			build.Runtime, _ = runtimes.For("nodejs")
			fn := function(func(fn *v1alpha1.Function) {
				fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: "https://example.com/a.zip", SHA256: archiveHash}
				fn.Spec.Build = &v1alpha1.BuildSpec{Resources: tc.said}
			})
			got := diskOf(Make(fn, cfg, build, inFiles))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("disk (-want, +got):\n%s", diff)
			}
			tc.want["push"] = tc.inTurn
			if diff := cmp.Diff(tc.want, diskOf(Make(fn, cfg, build, Target{InTurn: true}))); diff != "" {
				t.Errorf("disk in turn (-want, +got):\n%s", diff)
			}
		})
	}
}
