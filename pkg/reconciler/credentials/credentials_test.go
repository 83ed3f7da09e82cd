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

package credentials

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	fakekubeclientset "k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"knative.dev/pkg/controller"
	rtesting "knative.dev/pkg/reconciler/testing"
	"knative.dev/pkg/system"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

const (
	namespace  = "tenant"
	secretName = "kiln-registry-credentials"

	passwordA = `{"auths":{"registry.example.com:5000":{"username":"kiln","password":"A"}}}`
	passwordB = `{"auths":{"registry.example.com:5000":{"username":"kiln","password":"B"}}}`
)

// A keyOf a row's OtherTestData.
const (
	// nameKey holds the configured name.
	nameKey = "name"
	// errorKey holds the error with which listing Secrets fails.
	errorKey = "error"
)

func secret(namespace, data string, options ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName, UID: "uid-1"},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)},
	}
	for _, option := range options {
		option(s)
	}
	return s
}

func source(data string, options ...func(*corev1.Secret)) *corev1.Secret {
	return secret(system.Namespace(), data, options...)
}

// duplicate returns a copy as the API server has it.
func duplicate(data string, options ...func(*corev1.Secret)) *corev1.Secret {
	return secret(namespace, data, append([]func(*corev1.Secret){func(s *corev1.Secret) {
		s.Labels = map[string]string{"app.kubernetes.io/managed-by": "kiln", "serverless.kiln.dev/credentials": "copy"}
	}}, options...)...)
}

func unsaved(s *corev1.Secret)  { s.UID = "" }
func opaque(s *corev1.Secret)   { s.Type = corev1.SecretTypeOpaque }
func renamed(s *corev1.Secret)  { s.Name = "another" }
func helmOwns(s *corev1.Secret) { s.Labels["app.kubernetes.io/managed-by"] = "Helm" }
func unlabelled(s *corev1.Secret) {
	delete(s.Labels, "serverless.kiln.dev/credentials")
}

func function() *v1alpha1.Function {
	return &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "greeter"}}
}

// noon is when the rows take place.
var noon = time.Date(2026, time.November, 24, 12, 0, 0, 0, time.UTC)

// until marks a copy that Kiln deletes at that time.
func until(end string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Annotations = map[string]string{"serverless.kiln.dev/delete-after": end} }
}

func missing(why string) []string {
	return []string{rtesting.Eventf("Warning", "CredentialsMissing", why+
		" Kiln deletes this copy at 2026-11-24T13:00:00Z. Builds cannot push, and nodes may be unable to pull, from then on.")}
}

func updated(s *corev1.Secret) []clientgotesting.UpdateActionImpl {
	return []clientgotesting.UpdateActionImpl{{Object: s}}
}

func deleted(name string) []clientgotesting.DeleteActionImpl {
	return []clientgotesting.DeleteActionImpl{{
		ActionImpl: clientgotesting.ActionImpl{
			Namespace: namespace, Verb: "delete", Resource: corev1.SchemeGroupVersion.WithResource("secrets"),
		},
		Name: name,
	}}
}

// refusing fails a verb.
func refusing(verb string, err error) []clientgotesting.ReactionFunc {
	return []clientgotesting.ReactionFunc{func(action clientgotesting.Action) (bool, runtime.Object, error) {
		return action.Matches(verb, "secrets"), nil, err
	}}
}

var (
	errNamespaceLeaving = &apierrs.StatusError{ErrStatus: metav1.Status{
		Reason: metav1.StatusReasonForbidden,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
			{Type: corev1.NamespaceTerminatingCause},
		}},
	}}
	secrets     = corev1.Resource("secrets")
	errConflict = apierrs.NewConflict(secrets, secretName, errors.New("it is another"))
	errNotFound = apierrs.NewNotFound(secrets, secretName)
	errExists   = apierrs.NewAlreadyExists(secrets, secretName)
	errServer   = errors.New("the server is on fire")
)

func TestReconcile(t *testing.T) {
	table := rtesting.TableTest{{
		Name:        "the first Function of a namespace brings a copy",
		Objects:     []runtime.Object{source(passwordA), function()},
		WantCreates: []runtime.Object{duplicate(passwordA, unsaved)},
	}, {
		Name:    "steady state",
		Objects: []runtime.Object{source(passwordA), function(), duplicate(passwordA)},
	}, {
		Name:        "changed credentials reach the copy",
		Objects:     []runtime.Object{source(passwordB), function(), duplicate(passwordA)},
		WantUpdates: updated(duplicate(passwordB)),
	}, {
		Name:        "an edited copy heals",
		Objects:     []runtime.Object{source(passwordA), function(), duplicate("{}")},
		WantUpdates: updated(duplicate(passwordA)),
	}, {
		Name:        "the last Function takes the copy along",
		Objects:     []runtime.Object{source(passwordA), duplicate(passwordA)},
		WantDeletes: deleted(secretName),
	}, {
		Name:        "the copy outlives its source by a grace period",
		Objects:     []runtime.Object{function(), duplicate(passwordA)},
		WantUpdates: updated(duplicate(passwordA, until("2026-11-24T13:00:00Z"))),
		WantEvents:  missing("Secret " + system.Namespace() + "/" + secretName + " does not exist any more."),
		WantErr:     true, // It is requeued.
	}, {
		Name:    "steady state: the copy waits, also after a restart",
		Objects: []runtime.Object{function(), duplicate(passwordA, until("2026-11-24T12:00:01Z"))},
		WantErr: true,
	}, {
		Name:         "a crash before the end is remembered",
		Objects:      []runtime.Object{function(), duplicate(passwordA)},
		WantUpdates:  updated(duplicate(passwordA, until("2026-11-24T13:00:00Z"))),
		WithReactors: refusing("update", errServer),
		WantErr:      true,
	}, {
		Name:        "the grace period is over",
		Objects:     []runtime.Object{function(), duplicate(passwordA, until("2026-11-24T12:00:00Z"))},
		WantDeletes: deleted(secretName),
	}, {
		Name:        "the source is back in time",
		Objects:     []runtime.Object{source(passwordA), function(), duplicate(passwordA, until("2026-11-24T12:00:01Z"))},
		WantUpdates: updated(duplicate(passwordA, until(""), func(s *corev1.Secret) { delete(s.Annotations, "serverless.kiln.dev/delete-after") })),
	}, {
		Name:        "the source is back in time with another password, although the end has passed",
		Objects:     []runtime.Object{source(passwordB), function(), duplicate(passwordA, until("2026-11-24T11:00:00Z"))},
		WantUpdates: updated(duplicate(passwordB, until(""), func(s *corev1.Secret) { delete(s.Annotations, "serverless.kiln.dev/delete-after") })),
	}, {
		Name:        "somebody has broken the annotation",
		Objects:     []runtime.Object{function(), duplicate(passwordA, until("tomorrow"))},
		WantUpdates: updated(duplicate(passwordA, until("2026-11-24T13:00:00Z"))),
		WantEvents:  missing("Secret " + system.Namespace() + "/" + secretName + " does not exist any more."),
		WantErr:     true,
	}, {
		Name:        "nobody can keep the copy for longer",
		Objects:     []runtime.Object{function(), duplicate(passwordA, until("2027-11-24T13:00:00Z"))},
		WantUpdates: updated(duplicate(passwordA, until("2026-11-24T13:00:00Z"))),
		WantEvents:  missing("Secret " + system.Namespace() + "/" + secretName + " does not exist any more."),
		WantErr:     true,
	}, {
		Name:        "without a Function nobody needs the copy",
		Objects:     []runtime.Object{duplicate(passwordA, until("2026-11-24T12:30:00Z"))},
		WantDeletes: deleted(secretName),
	}, {
		Name:    "no Secret, no copy",
		Objects: []runtime.Object{function()},
	}, {
		Name:    "no Function, no copy",
		Objects: []runtime.Object{source(passwordA)},
	}, {
		Name:    "a Secret of the namespace's own wins",
		Objects: []runtime.Object{source(passwordA), function(), secret(namespace, passwordB)},
	}, {
		Name:    "and stays when the last Function goes",
		Objects: []runtime.Object{source(passwordA), secret(namespace, passwordB)},
	}, {
		Name:    "a copy without Kiln's label is the namespace's own",
		Objects: []runtime.Object{source(passwordA), function(), duplicate(passwordB, unlabelled)},
	}, {
		Name:    "so is one that another tool manages",
		Objects: []runtime.Object{source(passwordA), duplicate(passwordB, helmOwns)},
	}, {
		Name:        "a Secret of the namespace's own that the watch has not shown yet wins",
		Objects:     []runtime.Object{source(passwordA), function()},
		WantCreates: []runtime.Object{duplicate(passwordA, unsaved)},
		OtherTestData: map[string]any{
			ktesting.Unlisted: []runtime.Object{secret(namespace, passwordB)},
		},
		WithReactors: refusing("create", errExists),
	}, {
		Name:          "copies of an earlier name wait, too",
		Objects:       []runtime.Object{source(passwordA), source(passwordA, renamed), function(), duplicate(passwordA)},
		OtherTestData: map[string]any{nameKey: "another"},
		WantCreates:   []runtime.Object{duplicate(passwordA, renamed, unsaved)},
		WantUpdates:   updated(duplicate(passwordA, until("2026-11-24T13:00:00Z"))),
		WantEvents:    missing("The ConfigMap config-registry does not name this Secret any more."),
		WantErr:       true,
	}, {
		Name:          "so do they without a name",
		Objects:       []runtime.Object{source(passwordA), function(), duplicate(passwordA)},
		OtherTestData: map[string]any{nameKey: ""},
		WantUpdates:   updated(duplicate(passwordA, until("2026-11-24T13:00:00Z"))),
		WantEvents:    missing("The ConfigMap config-registry does not name this Secret any more."),
		WantErr:       true,
	}, {
		Name:    "what is no credentials is not copied",
		Objects: []runtime.Object{source(passwordA, opaque), function()},
	}, {
		Name:    "and leaves the copies of before",
		Objects: []runtime.Object{source(`{"auths":{"host":{"auth":"?"}}}`), function(), duplicate(passwordA)},
	}, {
		Name:       "who looks after it is told",
		Key:        system.Namespace(),
		Objects:    []runtime.Object{source(passwordA, opaque)},
		WantEvents: []string{rtesting.Eventf("Warning", "CredentialsIgnored", "It is not used, and copies of what it was before stay: its type must be kubernetes.io/dockerconfigjson: it is Opaque")},
	}, {
		Name:    "the source is not copied over itself, nor deleted",
		Key:     system.Namespace(),
		Objects: []runtime.Object{source(passwordA)},
	}, {
		Name:         "the namespace is being deleted",
		Objects:      []runtime.Object{source(passwordA), function()},
		WantCreates:  []runtime.Object{duplicate(passwordA, unsaved)},
		WithReactors: refusing("create", errNamespaceLeaving),
	}, {
		Name:         "the copy is gone already",
		Objects:      []runtime.Object{duplicate(passwordA)},
		WantDeletes:  deleted(secretName),
		WithReactors: refusing("delete", errNotFound),
	}, {
		Name:         "the copy is another by now",
		Objects:      []runtime.Object{duplicate(passwordA)},
		WantDeletes:  deleted(secretName),
		WithReactors: refusing("delete", errConflict),
	}, {
		Name:         "create fails",
		Objects:      []runtime.Object{source(passwordA), function()},
		WantCreates:  []runtime.Object{duplicate(passwordA, unsaved)},
		WithReactors: refusing("create", errServer),
		WantErr:      true,
	}, {
		Name:         "update fails",
		Objects:      []runtime.Object{source(passwordB), function(), duplicate(passwordA)},
		WantUpdates:  updated(duplicate(passwordB)),
		WithReactors: refusing("update", errConflict),
		WantErr:      true,
	}, {
		Name:         "delete fails",
		Objects:      []runtime.Object{duplicate(passwordA)},
		WantDeletes:  deleted(secretName),
		WithReactors: refusing("delete", errServer),
		WantErr:      true,
	}, {
		Name:          "the role does not know the name",
		Objects:       []runtime.Object{source(passwordA), function()},
		OtherTestData: map[string]any{errorKey: errServer},
		WantErr:       true,
	}}
	for i := range table {
		table[i].SkipNamespaceValidation = true
		if table[i].Key == "" {
			table[i].Key = namespace
		}
	}
	table.Test(t, ktesting.Factory(controllerRoles(t), func(_ context.Context, w *ktesting.World) controller.Reconciler {
		return &Reconciler{
			secrets:        fakeSecrets(w),
			functionLister: w.FunctionLister,
			store:          fixedStore(configuredName(w.Row)),
			recorder:       w.Recorder,
			now:            func() time.Time { return noon },
		}
	}))
}

// TestFormerName checks that the copy of a name that is not reserved any more goes at once:
// a Function may name it. The shipped role does not cover such a name.
func TestFormerName(t *testing.T) {
	former := duplicate(passwordA, renamed)
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, secret := range []*corev1.Secret{former, source(passwordA, renamed)} {
		if err := indexer.Add(secret); err != nil {
			t.Fatal(err)
		}
	}
	kube := fakekubeclientset.NewSimpleClientset(former)
	r := &Reconciler{secrets: secretsOf(kube, corev1listers.NewSecretLister(indexer), nil)}
	if err := r.reconcileFormer(t.Context(), former.Name, namespace, true); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets(namespace).Get(t.Context(), former.Name, metav1.GetOptions{}); !apierrs.IsNotFound(err) {
		t.Errorf("the copy is still there: %v", err)
	}
}

// controllerRoles are those of the shipped manifests.
func controllerRoles(t *testing.T) *ktesting.Roles {
	t.Helper()
	roles, err := ktesting.LoadRoles("../../../config", "controller")
	if err != nil {
		t.Fatal(err)
	}
	return roles
}

// fixedStore is a config that never changes: the name of the Secret.
type fixedStore string

func (s fixedStore) ToContext(ctx context.Context) context.Context {
	return config.ToContext(ctx, &config.Config{Registry: &config.Registry{Credentials: string(s)}})
}

func configuredName(row *rtesting.TableRow) string {
	if name, ok := row.OtherTestData[nameKey].(string); ok {
		return name
	}
	return secretName
}

// fakeSecrets shows what the row holds.
func fakeSecrets(w *ktesting.World) *Secrets {
	err, _ := w.Row.OtherTestData[errorKey].(error)
	s := secretsOf(w.Kube, w.SecretLister, err)
	s.kiln = w.Kiln
	s.AddFind((&knative.Server{Client: w.Serving}).FindSecret)
	s.AddFind((&tekton.Builder{Client: w.Tekton}).FindSecret)
	return s
}

func secretsOf(kube kubernetes.Interface, lister corev1listers.SecretLister, err error) *Secrets {
	s := &Secrets{kube: kube, watches: map[string]*watch{}, seen: map[types.NamespacedName]*corev1.Secret{}, referenced: map[types.NamespacedName]reference{}}
	for _, name := range []string{secretName, "another"} {
		s.watches[name] = &watch{lister: lister, hasSynced: func() bool { return err == nil }, err: err}
	}
	return s
}

func TestFollowerWritesNothing(t *testing.T) {
	r := &Reconciler{}
	if err := r.Reconcile(t.Context(), namespace); !controller.IsSkipKey(err) {
		t.Errorf("Reconcile = %v, want the key skipped", err)
	}
}

// TestIgnoredIsToldOnce checks that an unusable Secret causes one event for each new reason,
// and none at later looks.
func TestIgnoredIsToldOnce(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	recorder := record.NewFakeRecorder(10)
	r := &Reconciler{secrets: secretsOf(nil, corev1listers.NewSecretLister(indexer), nil), recorder: recorder}
	for _, step := range []struct {
		what   string
		secret *corev1.Secret
		want   int
	}{
		{"of a wrong type", source(passwordA, opaque), 1},
		{"looked at again", source(passwordA, opaque), 0},
		{"with wrong content", source("{"), 1},
		{"corrected", source(passwordA), 0},
		{"of a wrong type again", source(passwordA, opaque), 1},
	} {
		if err := indexer.Update(step.secret); err != nil {
			t.Fatal(err)
		}
		if err := r.checkSource(t.Context(), secretName); err != nil {
			t.Fatal(err)
		}
		if got := len(recorder.Events); got != step.want {
			t.Errorf("%s: %d events, want %d", step.what, got, step.want)
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
}

// ensure is the reconciler of a table that has Ensure called.
type ensure struct {
	*Secrets
	name string
	row  *rtesting.TableRow
}

const gotKey = "got"

func (e ensure) Reconcile(ctx context.Context, key string) error {
	secret, err := e.Ensure(ctx, e.name, key)
	if e.row.OtherTestData == nil {
		e.row.OtherTestData = map[string]any{}
	}
	e.row.OtherTestData[gotKey] = secret
	return err
}

func TestEnsure(t *testing.T) {
	returns := func(want *corev1.Secret) []func(*testing.T, *rtesting.TableRow) {
		return []func(*testing.T, *rtesting.TableRow){func(t *testing.T, row *rtesting.TableRow) {
			if diff := cmp.Diff(want, row.OtherTestData[gotKey]); diff != "" {
				t.Errorf("the Secret (-want +got):\n%s", diff)
			}
		}}
	}
	table := rtesting.TableTest{{
		Name:           "there is none",
		PostConditions: returns(nil),
	}, {
		Name:           "nor a name",
		Objects:        []runtime.Object{source(passwordA)},
		OtherTestData:  map[string]any{nameKey: ""},
		PostConditions: returns(nil),
	}, {
		Name:           "the copy comes before the build",
		Objects:        []runtime.Object{source(passwordA)},
		WantCreates:    []runtime.Object{duplicate(passwordA, unsaved)},
		PostConditions: returns(duplicate(passwordA, unsaved)),
	}, {
		Name:           "steady state",
		Objects:        []runtime.Object{source(passwordB), duplicate(passwordA)},
		PostConditions: returns(duplicate(passwordA)),
	}, {
		Name:           "the namespace's own",
		Objects:        []runtime.Object{source(passwordA), secret(namespace, passwordB)},
		PostConditions: returns(secret(namespace, passwordB)),
	}, {
		Name:           "the namespace's own, which the watch has not shown yet",
		Objects:        []runtime.Object{source(passwordA)},
		OtherTestData:  map[string]any{ktesting.Unlisted: []runtime.Object{secret(namespace, passwordB)}},
		WantCreates:    []runtime.Object{duplicate(passwordA, unsaved)},
		WithReactors:   refusing("create", errExists),
		PostConditions: returns(secret(namespace, passwordB)),
	}, {
		Name:           "the source is no credentials",
		Objects:        []runtime.Object{source("[]")},
		PostConditions: returns(nil),
	}, {
		Name:         "create fails",
		Objects:      []runtime.Object{source(passwordA)},
		WantCreates:  []runtime.Object{duplicate(passwordA, unsaved)},
		WithReactors: refusing("create", errServer),
		WantErr:      true,
	}, {
		Name:          "the role does not know the name",
		Objects:       []runtime.Object{source(passwordA)},
		OtherTestData: map[string]any{errorKey: errServer},
		WantErr:       true,
	}}
	for i := range table {
		table[i].SkipNamespaceValidation, table[i].Key = true, namespace
	}
	table.Test(t, ktesting.Factory(controllerRoles(t), func(_ context.Context, w *ktesting.World) controller.Reconciler {
		return ensure{fakeSecrets(w), configuredName(w.Row), w.Row}
	}))
}

// TestVersion checks that a version changes only with the content, and does not reveal
// it.
func TestVersion(t *testing.T) {
	version := func(v string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.ResourceVersion = v }
	}
	lister := corev1listers.NewSecretLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
	s := secretsOf(nil, lister, nil)
	for _, step := range []struct {
		what   string
		secret *corev1.Secret
		want   string
	}{
		{"the first", secret("a", passwordA, version("1")), "1"},
		{"again", secret("a", passwordA, version("1")), "1"},
		{"with a label", secret("a", passwordA, version("2"), func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} }), "1"},
		{"made anew", secret("a", passwordA, version("3"), func(s *corev1.Secret) { s.UID = "uid-2" }), "1"},
		{"of another namespace", secret("b", passwordA, version("4")), "4"},
		{"with another password", secret("a", passwordB, version("5")), "5"},
		{"with one more key", secret("a", passwordB, version("6"), func(s *corev1.Secret) { s.Data["more"] = nil }), "6"},
		{"with the first password", secret("a", passwordA, version("7")), "7"},
		{"the other namespace's, still", secret("b", passwordA, version("8")), "4"},
	} {
		if got := s.Version(step.secret); got != step.want {
			t.Errorf("%s: version %s, want %s", step.what, got, step.want)
		}
	}
	if _, err := s.get(t.Context(), secretName, "a"); err != nil {
		t.Fatal(err)
	}
	if len(s.seen) != 1 {
		t.Errorf("a Secret that is gone is remembered: %v", s.seen)
	}
}

// TestCheck checks that every error is reported, and nothing else.
func TestCheck(t *testing.T) {
	const hidden = "c2VjcmV0"
	for name, row := range map[string]struct {
		secret *corev1.Secret
		want   string
	}{
		"good":         {secret(namespace, passwordA), ""},
		"empty":        {secret(namespace, "{}"), ""},
		"type":         {secret(namespace, passwordA, opaque), "type must be kubernetes.io/dockerconfigjson"},
		"no key":       {secret(namespace, passwordA, func(s *corev1.Secret) { s.Data = nil }), ".dockerconfigjson must be JSON"},
		"not JSON":     {secret(namespace, hidden), ".dockerconfigjson must be JSON"},
		"not auths":    {secret(namespace, `{"auths":"`+hidden+`"}`), "in the format of docker login"},
		"not base64":   {secret(namespace, `{"auths":{"host":{"auth":"?`+hidden+`"}}}`), "decode auth"},
		"not a couple": {secret(namespace, `{"auths":{"host":{"auth":"`+hidden+`"}}}`), "username:password"},
	} {
		err := Check(row.secret)
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: the error is %v, want it to say %q", name, err, row.want)
		case err != nil && strings.Contains(err.Error(), hidden):
			t.Errorf("%s: the error tells what is in the Secret: %v", name, err)
		}
	}
}
