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

package function

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/apis"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// namedServer records the calls that write objects.
type namedServer struct {
	name   config.Server
	serves bool
	err    error
	calls  []string
}

func (s *namedServer) Name() config.Server { return s.name }

func (s *namedServer) Serves(*v1alpha1.Function) (bool, error) { return s.serves, s.err }

func (s *namedServer) Apply(_ context.Context, fn *v1alpha1.Function) error {
	s.calls = append(s.calls, "Apply")
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonDeploymentCreated, "Deployment %s was created.", fn.Name)
	return nil
}

func (s *namedServer) Hold(context.Context, *v1alpha1.Function) error {
	s.calls = append(s.calls, "Hold")
	return nil
}

func servedBy(name config.Server) functionOption {
	return func(fn *v1alpha1.Function) { fn.Status.Serving = string(name) }
}

func withDefaultServer(name config.Server) *config.Config {
	return testConfig(func(c *config.Config) { c.Functions.Server = name })
}

func servingUnavailable(format string, args ...any) functionOption {
	return marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkRunningFailed(v1alpha1.ReasonServingUnavailable, format, args...)
	})
}

const (
	lacksChosen = `The ConfigMap config-functions sets serving to %q, and this cluster does not have its API. Install it, or set another server.`
	lacksSticky = "The Function is served by %s, and this cluster no longer has its API. Install it again, or create the Function again."
)

func TestServersOf(t *testing.T) {
	const both, plain = true, false
	deployed := func(fn *v1alpha1.Function) { fn.Status.TemplateHash = "a.b" }
	created := func(fn *v1alpha1.Function) { fn.Status.LatestCreatedRevisionName = "greeter-00001" }
	for _, test := range []struct {
		name       string
		hasServing bool
		setting    config.Server
		fn         []functionOption
		serves     config.Server
		want       config.Server
		stored     config.Server
		condition  functionOption
	}{
		{name: "auto prefers Knative", hasServing: both, setting: config.AutoServer, want: config.KnativeServer},
		{name: "auto without Knative", hasServing: plain, setting: config.AutoServer, want: config.KubernetesServer, stored: config.KubernetesServer},
		{name: "knative is chosen", hasServing: both, setting: config.KnativeServer, want: config.KnativeServer},
		{name: "kubernetes is chosen", hasServing: both, setting: config.KubernetesServer, want: config.KubernetesServer, stored: config.KubernetesServer},
		{
			name: "a chosen API that is absent is never replaced", hasServing: plain, setting: config.KnativeServer,
			condition: servingUnavailable(lacksChosen, config.KnativeServer),
		},
		{
			name: "a new default changes nothing under Knative", hasServing: both, setting: config.KubernetesServer,
			fn: []functionOption{deployed}, want: config.KnativeServer,
		},
		{
			name: "a Service that was only created is Knative's", hasServing: both, setting: config.KubernetesServer,
			fn: []functionOption{created}, want: config.KnativeServer,
		},
		{
			name: "a new default changes nothing of a Deployment", hasServing: both, setting: config.KnativeServer,
			fn: []functionOption{deployed, servedBy(config.KubernetesServer)}, want: config.KubernetesServer, stored: config.KubernetesServer,
		},
		{
			name: "a choice without an object stays", hasServing: both, setting: config.KnativeServer,
			fn: []functionOption{servedBy(config.KubernetesServer)}, want: config.KubernetesServer, stored: config.KubernetesServer,
		},
		{
			name: "a crash has lost the status of a Service", hasServing: both, setting: config.KubernetesServer,
			serves: config.KnativeServer, want: config.KnativeServer,
		},
		{
			name: "somebody has removed the status of a Deployment", hasServing: both, setting: config.AutoServer,
			serves: config.KubernetesServer, want: config.KubernetesServer, stored: config.KubernetesServer,
		},
		{
			name: "a crash has lost the status of a Service, and another choice was recorded before the cache had it", hasServing: both,
			setting: config.KubernetesServer, fn: []functionOption{servedBy(config.KubernetesServer)},
			serves: config.KnativeServer, want: config.KnativeServer,
		},
		{
			name: "a Deployment serves beside a Service of the same Function", hasServing: both, setting: config.KnativeServer,
			fn: []functionOption{deployed, servedBy(config.KubernetesServer)}, serves: config.KnativeServer,
			want: config.KubernetesServer, stored: config.KubernetesServer,
		},
		{
			name: "Knative has gone", hasServing: plain, setting: config.AutoServer, fn: []functionOption{deployed},
			condition: servingUnavailable(lacksSticky, config.KnativeServer),
		},
		{
			name: "Knative has gone, and the default is another", hasServing: plain, setting: config.KubernetesServer, fn: []functionOption{created},
			condition: servingUnavailable(lacksSticky, config.KnativeServer),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			servers := Servers{&namedServer{name: config.KubernetesServer, serves: test.serves == config.KubernetesServer}}
			if test.hasServing {
				servers = append(Servers{&namedServer{name: config.KnativeServer, serves: test.serves == config.KnativeServer}}, servers...)
			}
			want := function(test.fn...)
			if test.condition != nil {
				test.condition(want)
			}
			want.Status.Serving = string(test.stored)
			fn := function(test.fn...)
			server, ok, err := servers.of(config.ToContext(t.Context(), withDefaultServer(test.setting)), fn)
			if err != nil || ok != (test.want != "") || ok && server.Name() != test.want {
				t.Errorf("of() = %v, %t, %v, want %q", server, ok, err, test.want)
			}
			if diff := cmp.Diff(want.Status, fn.Status, cmpopts.IgnoreTypes(apis.VolatileTime{})); diff != "" {
				t.Errorf("The status (-want +got):\n%s", diff)
			}
		})
	}
}

// A cache that cannot be read must not make Kiln choose another server.
func TestServersOfBroken(t *testing.T) {
	fn := function()
	servers := Servers{&namedServer{name: config.KnativeServer, err: errors.New("no cache")}, &namedServer{name: config.KubernetesServer}}
	if _, ok, err := servers.of(config.ToContext(t.Context(), testConfig()), fn); ok || err == nil || fn.Status.Serving != "" {
		t.Errorf("of() = %t, %v, and the status has %q, want the error", ok, err, fn.Status.Serving)
	}
}

func TestReconcileServing(t *testing.T) {
	deployments := &namedServer{name: config.KubernetesServer}
	beside := func(knative Server) Servers { return Servers{knative, deployments} }
	alone := func(Server) Servers { return Servers{deployments} }
	row := func(servers func(Server) Servers, setting config.Server) map[string]any {
		return map[string]any{serversKey: servers, configKey: withDefaultServer(setting)}
	}
	changed := func(setting, former config.Server) map[string]any {
		return map[string]any{serversKey: beside, configKey: withDefaultServer(setting), formerServerKey: former}
	}
	calls := func(want ...string) []func(*testing.T, *rtesting.TableRow) {
		return []func(*testing.T, *rtesting.TableRow){func(t *testing.T, _ *rtesting.TableRow) {
			if diff := cmp.Diff(want, deployments.calls); diff != "" {
				t.Errorf("The calls of the server of Deployments (-want +got):\n%s", diff)
			}
			deployments.calls = nil
		}}
	}
	deploying := function(observed(configured, built(tr1, digestA), serviceCreated))
	new1 := function(observed(configured, built(tr1, digestA)))
	chosen := function(observed(configured, built(tr1, digestA), servedBy(config.KubernetesServer)))
	created := function(observed(configured, built(tr1, digestA), servedBy(config.KubernetesServer), marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkRunningUnknown(v1alpha1.ReasonDeploymentCreated, "Deployment greeter was created.")
	})))
	unavailable := function(observed(configured, built(tr1, digestA), servingUnavailable(lacksChosen, config.KnativeServer)))
	newer := func(fn *v1alpha1.Function) *v1alpha1.Function {
		fn = fn.DeepCopy()
		fn.ResourceVersion = "newer"
		return fn
	}
	buildingRun := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
	building1 := function(observed(configured, buildRunning(buildingRun)))
	rebuildingRun := taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged, taskRunRunning)
	rebuilding := edited(withSource(sourceB), observed(reconfigured, built(tr1, digestA), buildRunning(rebuildingRun)), func(fn *v1alpha1.Function) {
		fn.Status.TemplateHash, fn.Status.LatestCreatedRevisionName, fn.Status.LatestReadyRevisionName = "", "", ""
	})
	gone := running1.DeepCopy()
	servingUnavailable(lacksSticky, config.KnativeServer)(gone)
	gone.Status.UpdatePhase()
	objects := func(fn *v1alpha1.Function, more ...runtime.Object) []runtime.Object {
		return append([]runtime.Object{fn, configMap(fn), tr1}, more...)
	}

	rtesting.TableTest{{
		Name: "a new default writes nothing to a Function that Knative serves, and reads nothing",
		Key:  key, Objects: objects(running1, svc1),
		WithReactors:   []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "functions")},
		OtherTestData:  row(beside, config.KubernetesServer),
		PostConditions: calls(),
	}, {
		Name: "the choice is in the status before an object exists",
		Key:  key, Objects: objects(new1),
		OtherTestData:     row(beside, config.KubernetesServer),
		WantStatusUpdates: statusUpdate(chosen),
		PostConditions:    calls(),
	}, {
		Name: "nothing is created while the choice cannot be written",
		Key:  key, Objects: objects(new1),
		OtherTestData:     row(beside, config.KubernetesServer),
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("update", "functions")},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(chosen),
		PostConditions:    calls(),
	}, {
		Name: "the next reconcile creates it, whatever the default is by then",
		Key:  key, Objects: objects(chosen),
		OtherTestData:     row(beside, config.KnativeServer),
		WantStatusUpdates: statusUpdate(created),
		WantEvents:        []string{"Normal DeploymentCreated Deployment greeter was created."},
		PostConditions:    calls("Apply"),
	}, {
		Name: "the cache lags behind the choice of Deployments: Knative gets no Service",
		Key:  key, Objects: objects(new1),
		OtherTestData:  changed(config.KnativeServer, config.KubernetesServer),
		WithReactors:   []clientgotesting.ReactionFunc{answer("get", "functions", newer(chosen))},
		PostConditions: calls(),
	}, {
		Name: "the same while the next image is built, and the first was never deployed",
		Key:  key, Objects: []runtime.Object{rebuilding, configMap(rebuilding), rebuildingRun},
		OtherTestData:  changed(config.KnativeServer, config.KubernetesServer),
		WithReactors:   []clientgotesting.ReactionFunc{answer("get", "functions", newer(chosen))},
		PostConditions: calls(),
	}, {
		Name: "nothing is created while the choice cannot be read",
		Key:  key, Objects: objects(new1),
		OtherTestData:  changed(config.KnativeServer, config.KubernetesServer),
		WithReactors:   []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "functions")},
		WantErr:        true,
		PostConditions: calls(),
	}, {
		Name: "nobody has changed the choice: nothing is read",
		Key:  key, Objects: objects(new1),
		OtherTestData:     row(beside, config.KnativeServer),
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "functions")},
		WantCreates:       []runtime.Object{knative.MakeService(deploying, deploying.Status.Image)},
		WantStatusUpdates: statusUpdate(deploying),
		WantEvents:        []string{"Normal ServiceCreated Service greeter was created."},
		PostConditions:    calls(),
	}, {
		Name: "the first build reads nothing",
		Key:  key, Objects: []runtime.Object{building1, configMap(building1), buildingRun},
		OtherTestData:  changed(config.KnativeServer, config.KubernetesServer),
		WithReactors:   []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "functions")},
		PostConditions: calls(),
	}, {
		Name: "the chosen API is absent",
		Key:  key, Objects: objects(new1),
		OtherTestData:     row(alone, config.KnativeServer),
		WantStatusUpdates: statusUpdate(unavailable),
		WantEvents:        []string{`Warning ServingUnavailable The ConfigMap config-functions sets serving to "knative", and this cluster does not have its API. Install it, or set another server.`},
		PostConditions:    calls(),
	}, {
		Name: "the API of what serves has gone",
		Key:  key, Objects: objects(running1),
		OtherTestData:     row(alone, config.AutoServer),
		WantStatusUpdates: statusUpdate(gone),
		WantEvents:        []string{"Warning ServingUnavailable The Function is served by knative, and this cluster no longer has its API. Install it again, or create the Function again."},
		PostConditions:    calls(),
	}}.Test(t, factory())
}

// A running build must not choose the server: the default may change until there is an image.
func TestHoldDoesNotChoose(t *testing.T) {
	for _, test := range []struct {
		name   string
		fn     *v1alpha1.Function
		want   []string
		stored config.Server
	}{
		{name: "new", fn: function()},
		{name: "chosen", fn: function(servedBy(config.KubernetesServer)), want: []string{"Hold"}, stored: config.KubernetesServer},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := &namedServer{name: config.KubernetesServer}
			r := &Reconciler{servers: Servers{server}}
			err := r.hold(config.ToContext(t.Context(), withDefaultServer(config.AutoServer)), test.fn)
			if diff := cmp.Diff(test.want, server.calls); err != nil || diff != "" || test.fn.Status.Serving != string(test.stored) {
				t.Errorf("hold() of %s = %v, and the status has %q, want %q; calls (-want +got):\n%s", children.KeyOf(test.fn), err, test.fn.Status.Serving, test.stored, diff)
			}
		})
	}
}
