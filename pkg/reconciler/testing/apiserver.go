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

package testing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineclientset "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"
	fakepipelineclientset "github.com/tektoncd/pipeline/pkg/client/clientset/versioned/fake"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	fakekubeclientset "k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
	networkingclientset "knative.dev/networking/pkg/client/clientset/versioned"
	fakenetworkingclientset "knative.dev/networking/pkg/client/clientset/versioned/fake"
	"knative.dev/pkg/apis"
	servingclientset "knative.dev/serving/pkg/client/clientset/versioned"
	fakeservingclientset "knative.dev/serving/pkg/client/clientset/versioned/fake"

	clientset "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	fakeclientset "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/fake"
)

// Object is an object that an APIServer stores.
type Object interface {
	metav1.Object
	runtime.Object
}

// Ref names an object.
type Ref struct {
	schema.GroupResource
	types.NamespacedName
}

// String implements fmt.Stringer.
func (r Ref) String() string {
	return r.GroupResource.String() + " " + r.NamespacedName.String()
}

// Change is one write. Old is nil for a creation, New is nil for a deletion.
type Change struct {
	Ref
	Old, New Object
}

// Latest returns the object after the change, or its last state if it was deleted.
func (c Change) Latest() Object {
	if c.New == nil {
		return c.Old
	}
	return c.New
}

// APIServer is an API server in memory. Unlike the trackers of fake clients, it
// implements conflicts, generations, status subresources, preconditions, finalizers,
// owners and immutable ConfigMaps. It runs the webhooks of Tekton, Serving and Kiln. It
// is not safe for concurrent use.
type APIServer struct {
	// Now returns the time for the creation and deletion of objects.
	Now time.Time

	// OnChange, if set, is called after each change.
	OnChange func(Change)

	// admission is the context of the webhooks.
	admission context.Context
	scheme    *runtime.Scheme

	// objects must not be changed in place.
	objects map[Ref]Object
	// names are the sorted names of the objects.
	names   []Ref
	changes []Change
	births  map[string]int
}

// NewAPIServer returns an APIServer without objects. Its webhooks use the context.
func NewAPIServer(ctx context.Context) *APIServer {
	s := &APIServer{
		admission: apis.WithUserInfo(ctx, &authenticationv1.UserInfo{Username: "controller"}),
		scheme:    runtime.NewScheme(),
		objects:   map[Ref]Object{},
		births:    map[string]int{},
	}
	for _, add := range addToSchemes {
		if err := add(s.scheme); err != nil {
			panic(err)
		}
	}
	return s
}

// Clone returns an independent copy, without OnChange.
func (s *APIServer) Clone() *APIServer {
	clone := *s
	clone.OnChange = nil
	clone.objects, clone.names = maps.Clone(s.objects), slices.Clone(s.names)
	clone.changes = slices.Clone(s.changes)
	clone.births = maps.Clone(s.births)
	return &clone
}

// Clients are the clients of one process.
type Clients struct {
	Kiln       clientset.Interface
	Kube       kubernetes.Interface
	Tekton     pipelineclientset.Interface
	Serving    servingclientset.Interface
	Networking networkingclientset.Interface
}

// Call runs the request of a client.
type Call func() (runtime.Object, error)

// Clients returns clients whose requests pass through intercept. It may run the request or
// not, and may return another result.
func (s *APIServer) Clients(intercept func(clientgotesting.Action, Call) (runtime.Object, error)) Clients {
	kiln, kube := &fakeclientset.Clientset{}, &fakekubeclientset.Clientset{}
	tekton, serving := &fakepipelineclientset.Clientset{}, &fakeservingclientset.Clientset{}
	networking := &fakenetworkingclientset.Clientset{}
	for _, fake := range []*clientgotesting.Fake{&kiln.Fake, &kube.Fake, &tekton.Fake, &serving.Fake, &networking.Fake} {
		fake.AddReactor("*", "*", func(action clientgotesting.Action) (bool, runtime.Object, error) {
			obj, err := intercept(action, func() (runtime.Object, error) { return s.do(action) })
			return true, obj, err
		})
	}
	return Clients{Kiln: kiln, Kube: kube, Tekton: tekton, Serving: serving, Networking: networking}
}

func (s *APIServer) do(action clientgotesting.Action) (runtime.Object, error) {
	ref := Ref{action.GetResource().GroupResource(), types.NamespacedName{Namespace: action.GetNamespace()}}
	switch action := action.(type) {
	case clientgotesting.GetActionImpl:
		ref.Name = action.Name
		if obj, ok := s.objects[ref]; ok {
			return obj.DeepCopyObject(), nil
		}
		return nil, apierrs.NewNotFound(ref.GroupResource, ref.Name)
	case clientgotesting.ListActionImpl:
		return s.list(ref, action.Kind)
	case clientgotesting.CreateActionImpl:
		return result(s.Create(action.Object.(Object)))
	case clientgotesting.UpdateActionImpl:
		if action.Subresource == "status" {
			return result(s.UpdateStatus(action.Object.(Object)))
		}
		return result(s.Update(action.Object.(Object)))
	case clientgotesting.PatchActionImpl:
		ref.Name = action.Name
		return result(s.Patch(ref, action.Patch))
	case clientgotesting.DeleteActionImpl:
		ref.Name = action.Name
		return nil, s.Delete(ref, action.DeleteOptions)
	}
	panic(fmt.Sprintf("the API server in memory does not know how to %s %s", action.GetVerb(), ref.GroupResource))
}

func result(obj Object, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return obj.DeepCopyObject(), nil
}

func (s *APIServer) list(in Ref, kind schema.GroupVersionKind) (runtime.Object, error) {
	kind.Kind += "List"
	list, err := s.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	var found []runtime.Object
	for _, obj := range s.Objects() {
		if s.RefOf(obj).GroupResource == in.GroupResource && (in.Namespace == "" || obj.GetNamespace() == in.Namespace) {
			found = append(found, obj.DeepCopyObject())
		}
	}
	return list, meta.SetList(list, found)
}

// RefOf returns the name of the object.
func (s *APIServer) RefOf(obj Object) Ref {
	kinds, _, err := s.scheme.ObjectKinds(obj)
	if err != nil {
		panic(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	return Ref{resource.GroupResource(), types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}}
}

// Objects returns all objects, sorted by name. The caller must not change them.
func (s *APIServer) Objects() []Object {
	objects := make([]Object, 0, len(s.names))
	for _, ref := range s.names {
		objects = append(objects, s.objects[ref])
	}
	return objects
}

// Changes returns all changes so far. The caller must not change them.
func (s *APIServer) Changes() []Change {
	return s.changes
}

// Create stores a new object and returns the stored object.
func (s *APIServer) Create(obj Object) (Object, error) {
	ref := s.RefOf(obj)
	if _, ok := s.objects[ref]; ok {
		return nil, apierrs.NewAlreadyExists(ref.GroupResource, ref.Name)
	}
	obj = obj.DeepCopyObject().(Object)
	if err := admitted(apis.WithinCreate(s.admission), obj); err != nil {
		return nil, err
	}
	if status := part(obj, "Status"); status.IsValid() {
		status.SetZero()
	}
	// Services are of two groups, and no two objects may have the same UID.
	born := ref.Resource + "-" + ref.Name
	s.births[born]++
	obj.SetUID(types.UID(fmt.Sprintf("%s-%d", born, s.births[born])))
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(s.Now))
	return s.store(ref, obj), nil
}

// Update changes all of an object except its status, and returns the stored object.
func (s *APIServer) Update(obj Object) (Object, error) {
	stored, err := s.existing(obj)
	if err != nil {
		return nil, err
	}
	obj = obj.DeepCopyObject().(Object)
	if status := part(obj, "Status"); status.IsValid() {
		status.Set(part(stored.DeepCopyObject().(Object), "Status"))
	}
	keepSystemFields(obj, stored)
	// The validation of a TaskRun is most of the cost of a simulation, and its immutable
	// spec was validated at the creation.
	if _, ok := stored.(*pipelinev1.TaskRun); !ok || !equality.Semantic.DeepEqual(part(obj, "Spec").Interface(), part(stored, "Spec").Interface()) {
		if err := admitted(apis.WithinUpdate(s.admission, stored.DeepCopyObject()), obj); err != nil {
			return nil, err
		}
	}
	if cm, ok := stored.(*corev1.ConfigMap); ok && cm.Immutable != nil && *cm.Immutable &&
		!maps.Equal(cm.Data, obj.(*corev1.ConfigMap).Data) {
		return nil, apierrs.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), cm.Name, nil)
	}
	if spec := part(obj, "Spec"); spec.IsValid() && !equality.Semantic.DeepEqual(spec.Interface(), part(stored, "Spec").Interface()) {
		obj.SetGeneration(stored.GetGeneration() + 1)
	}
	return s.replace(stored, obj), nil
}

// Patch applies a strategic merge patch to all of an object except its status, and returns
// the stored object. A patch of another UID is invalid.
func (s *APIServer) Patch(ref Ref, patch []byte) (Object, error) {
	stored, ok := s.objects[ref]
	if !ok {
		return nil, apierrs.NewNotFound(ref.GroupResource, ref.Name)
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	obj := reflect.New(reflect.TypeOf(stored).Elem()).Interface().(Object)
	after, err := strategicpatch.StrategicMergePatch(before, patch, obj)
	if err != nil {
		return nil, apierrs.NewBadRequest(err.Error())
	}
	if err := json.Unmarshal(after, obj); err != nil {
		return nil, apierrs.NewBadRequest(err.Error())
	}
	if obj.GetUID() != stored.GetUID() {
		return nil, apierrs.NewInvalid(schema.GroupKind{Group: ref.Group, Kind: ref.Resource}, ref.Name, nil)
	}
	return s.Update(obj)
}

// UpdateStatus changes only the status of an object, and returns the stored object.
func (s *APIServer) UpdateStatus(obj Object) (Object, error) {
	stored, err := s.existing(obj)
	if err != nil {
		return nil, err
	}
	updated := stored.DeepCopyObject().(Object)
	part(updated, "Status").Set(part(obj.DeepCopyObject().(Object), "Status"))
	return s.replace(stored, updated), nil
}

// Delete deletes the object when it has no finalizers. CollectGarbage deletes its
// dependents, unless the policy orphans them. Without a policy, Jobs orphan their pods.
func (s *APIServer) Delete(ref Ref, options metav1.DeleteOptions) error {
	obj, ok := s.objects[ref]
	if !ok {
		return apierrs.NewNotFound(ref.GroupResource, ref.Name)
	}
	if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != obj.GetUID() ||
		p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion()) {
		return conflict(ref)
	}
	if _, isJob := obj.(*batchv1.Job); isJob && options.PropagationPolicy == nil {
		s.orphan(obj)
	}
	if policy := options.PropagationPolicy; policy != nil && *policy == metav1.DeletePropagationForeground && obj.GetDeletionTimestamp() == nil {
		obj = obj.DeepCopyObject().(Object)
		obj.SetFinalizers(append(obj.GetFinalizers(), metav1.FinalizerDeleteDependents))
		s.objects[ref] = obj
	}
	if len(obj.GetFinalizers()) == 0 {
		s.remove(ref)
		return nil
	}
	if obj.GetDeletionTimestamp() == nil {
		obj = obj.DeepCopyObject().(Object)
		obj.SetDeletionTimestamp(new(metav1.NewTime(s.Now)))
		s.store(ref, obj)
	}
	return nil
}

// orphan removes the owner references to the object.
func (s *APIServer) orphan(owner Object) {
	for _, obj := range s.Objects() {
		owners := slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() })
		if len(owners) != len(obj.GetOwnerReferences()) {
			obj = obj.DeepCopyObject().(Object)
			obj.SetOwnerReferences(owners)
			s.store(s.RefOf(obj), obj)
		}
	}
}

// CollectGarbage deletes one object without remaining owners, or one that only waits for
// its dependents. It reports whether there was one.
func (s *APIServer) CollectGarbage() bool {
	alive, owning := map[types.UID]bool{}, map[types.UID]bool{}
	for _, obj := range s.objects {
		foreground := slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents)
		alive[obj.GetUID()] = !foreground
		for _, owner := range obj.GetOwnerReferences() {
			owning[owner.UID] = true
		}
	}
	for _, obj := range s.Objects() {
		if i := slices.Index(obj.GetFinalizers(), metav1.FinalizerDeleteDependents); i >= 0 && !owning[obj.GetUID()] {
			obj = obj.DeepCopyObject().(Object)
			obj.SetFinalizers(slices.Delete(obj.GetFinalizers(), i, i+1))
			s.replace(s.objects[s.RefOf(obj)], obj)
			return true
		}
		owners := obj.GetOwnerReferences()
		if len(owners) == 0 || obj.GetDeletionTimestamp() != nil ||
			slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool { return alive[owner.UID] }) {
			continue
		}
		// The object was listed, so this cannot fail.
		return s.Delete(s.RefOf(obj), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}) == nil
	}
	return false
}

// existing returns the stored object with that name. It returns an error if the
// resourceVersion differs.
func (s *APIServer) existing(obj Object) (Object, error) {
	ref := s.RefOf(obj)
	stored, ok := s.objects[ref]
	if !ok {
		return nil, apierrs.NewNotFound(ref.GroupResource, ref.Name)
	}
	if uid := obj.GetUID(); uid != "" && uid != stored.GetUID() {
		return nil, conflict(ref)
	}
	if version := obj.GetResourceVersion(); version != "" && version != stored.GetResourceVersion() {
		return nil, conflict(ref)
	}
	return stored, nil
}

func conflict(ref Ref) error {
	return apierrs.NewConflict(ref.GroupResource, ref.Name, errors.New("the object has been modified"))
}

func (s *APIServer) replace(stored, obj Object) Object {
	if equality.Semantic.DeepEqual(stored, obj) {
		return stored
	}
	ref := s.RefOf(obj)
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		s.remove(ref)
		return obj
	}
	return s.store(ref, obj)
}

func (s *APIServer) store(ref Ref, obj Object) Object {
	obj.SetResourceVersion(strconv.Itoa(len(s.changes) + 1))
	old, ok := s.objects[ref]
	s.objects[ref] = obj
	if !ok {
		at, _ := slices.BinarySearchFunc(s.names, ref, compareRefs)
		s.names = slices.Insert(s.names, at, ref)
	}
	s.record(Change{Ref: ref, Old: old, New: obj})
	return obj
}

func (s *APIServer) remove(ref Ref) {
	old := s.objects[ref]
	delete(s.objects, ref)
	if at, ok := slices.BinarySearchFunc(s.names, ref, compareRefs); ok {
		s.names = slices.Delete(s.names, at, at+1)
	}
	s.record(Change{Ref: ref, Old: old})
}

func (s *APIServer) record(change Change) {
	s.changes = append(s.changes, change)
	if s.OnChange != nil {
		s.OnChange(change)
	}
}

func compareRefs(a, b Ref) int { return cmp.Compare(a.String(), b.String()) }

func admitted(ctx context.Context, obj Object) error {
	SetDefaults(obj)
	if d, ok := obj.(apis.Defaultable); ok {
		d.SetDefaults(ctx)
	}
	if v, ok := obj.(apis.Validatable); ok {
		if err := v.Validate(ctx).Filter(apis.ErrorLevel); err != nil {
			return apierrs.NewBadRequest("admission webhook denied the request: " + err.Error())
		}
	}
	return nil
}

func keepSystemFields(obj, stored Object) {
	obj.SetUID(stored.GetUID())
	obj.SetResourceVersion(stored.GetResourceVersion())
	obj.SetGeneration(stored.GetGeneration())
	obj.SetCreationTimestamp(stored.GetCreationTimestamp())
	obj.SetDeletionTimestamp(stored.GetDeletionTimestamp())
}

func part(obj Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}
