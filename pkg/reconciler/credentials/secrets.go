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
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/kmeta"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/system"

	clientset "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	kilnclient "github.com/kiln-dev/kiln/pkg/client/injection/client"
)

func init() {
	injection.Default.RegisterInformerFactory(withSecrets)
	injection.Fake.RegisterInformerFactory(withSecrets)
}

type secretsKey struct{}

func withSecrets(ctx context.Context) context.Context {
	return context.WithValue(ctx, secretsKey{}, &Secrets{
		ctx:     ctx,
		kube:    kubeclient.Get(ctx),
		kiln:    kilnclient.Get(ctx),
		watches: map[string]*watch{},
		seen:    map[types.NamespacedName]*corev1.Secret{},

		referenced: map[types.NamespacedName]reference{},
	})
}

// Get returns the Secrets that all controllers of the process share.
func Get(ctx context.Context) *Secrets {
	s, ok := ctx.Value(secretsKey{}).(*Secrets)
	if !ok {
		logging.FromContext(ctx).Panic("Unable to fetch Secrets with credentials from context.")
	}
	return s
}

// Secrets are the Secrets with registry credentials, in all namespaces. It watches each
// requested name from then on, and no other Secret, so roles can name them.
type Secrets struct {
	ctx  context.Context
	kube kubernetes.Interface
	kiln clientset.Interface

	mu        sync.Mutex
	watches   map[string]*watch
	listeners []func(obj any)

	// seen are the Secrets of calls of Version, as they were when they got their content.
	seen map[types.NamespacedName]*corev1.Secret

	// finds find objects that name a Secret, and referenced is what they have found.
	finds      []Find
	referenced map[types.NamespacedName]reference
}

// OnChange calls f with each Secret that was added, changed or deleted, or with its
// tombstone. It must be called before the first Ensure.
func (s *Secrets) OnChange(f func(obj any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
}

// Ensure returns the Secret that builds and pods of a namespace use: its own, or a copy of
// the one in Kiln's namespace, which it creates. It returns nil without either, or without
// a name. It returns a ReferencedError if the namespace must not have a copy.
func (s *Secrets) Ensure(ctx context.Context, name, namespace string) (*corev1.Secret, error) {
	secret, err := s.get(ctx, name, namespace)
	if secret != nil || err != nil {
		return secret, err
	}
	source, err := s.get(ctx, name, system.Namespace())
	if source == nil || err != nil {
		return nil, err
	}
	if Check(source) != nil {
		// Reconciler emits an event about it.
		return nil, nil
	}
	return s.create(ctx, makeCopy(source, namespace))
}

// Version identifies the content of a Secret: it is the resourceVersion in which this
// process first saw that content. Labels and annotations change it only across a restart.
// It may be public. A hash may not, because it helps to guess a password.
func (s *Secrets) Version(secret *corev1.Secret) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}
	first, ok := s.seen[key]
	if !ok || !maps.EqualFunc(first.Data, secret.Data, bytes.Equal) {
		first = secret
		s.seen[key] = secret
	}
	return first.ResourceVersion
}

func (s *Secrets) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, key)
}

func (s *Secrets) create(ctx context.Context, desired *corev1.Secret) (*corev1.Secret, error) {
	if err := s.checkReferences(ctx, desired.Name, desired.Namespace); err != nil {
		return nil, err
	}
	client := s.kube.CoreV1().Secrets(desired.Namespace)
	secret, err := client.Create(ctx, desired, metav1.CreateOptions{})
	if err == nil {
		return secret, nil
	}
	if !apierrs.IsAlreadyExists(err) {
		return nil, fmt.Errorf("failed to create Secret: %w", err)
	}
	if secret, err = client.Get(ctx, desired.Name, metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("failed to get Secret: %w", err)
	}
	return secret, nil
}

func (s *Secrets) get(ctx context.Context, name, namespace string) (*corev1.Secret, error) {
	if name == "" {
		return nil, nil
	}
	lister, err := s.watch(name).synced(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to watch Secrets named %s: %w", name, err)
	}
	secret, err := lister.Secrets(namespace).Get(name)
	if apierrs.IsNotFound(err) {
		s.forget(types.NamespacedName{Namespace: namespace, Name: name})
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to get Secret: %w", err)
	}
	return secret, nil
}

// Names returns the watched names. Copies may have a name that is no longer configured.
func (s *Secrets) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.watches)), func(name string) bool {
		return !s.watches[name].hasSynced()
	})
}

func (s *Secrets) namespaces() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var namespaces []string
	for _, w := range s.watches {
		secrets, err := w.lister.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("failed to list Secrets: %w", err)
		}
		for _, secret := range secrets {
			namespaces = append(namespaces, secret.Namespace)
		}
	}
	return namespaces, nil
}

func (s *Secrets) watch(name string) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.watches[name]
	if !ok {
		w = newWatch(s.ctx, s.kube, name, s.listeners)
		s.watches[name] = w
	}
	return w
}

type watch struct {
	lister    corev1listers.SecretLister
	hasSynced cache.InformerSynced

	mu  sync.Mutex
	err error
}

func newWatch(ctx context.Context, kube kubernetes.Interface, name string, listeners []func(any)) *watch {
	informer := corev1informers.NewFilteredSecretInformer(kube, metav1.NamespaceAll, controller.GetResyncPeriod(ctx),
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		})
	w := &watch{lister: corev1listers.NewSecretLister(informer.GetIndexer()), hasSynced: informer.HasSynced}
	logger := logging.FromContext(ctx)
	if err := informer.SetWatchErrorHandlerWithContext(w.failed); err != nil {
		logger.Panicw("Failed to set the error handler of an informer", "error", err)
	}
	for _, f := range listeners {
		if _, err := informer.AddEventHandler(controller.HandleAll(f)); err != nil {
			logger.Panicw("Failed to watch an informer", "error", err)
		}
	}
	go informer.RunWithContext(ctx)
	return w
}

func (w *watch) failed(ctx context.Context, r *cache.Reflector, err error) {
	cache.DefaultWatchErrorHandler(ctx, r, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *watch) lastError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// synced waits until all Secrets are listed, and returns the lister. If the list fails, it
// returns the error, and the caller retries.
func (w *watch) synced(ctx context.Context) (corev1listers.SecretLister, error) {
	isDecided := func() bool { return w.hasSynced() || w.lastError() != nil }
	if !controller.WaitForCacheSyncQuick(ctx.Done(), isDecided) {
		return nil, context.Cause(ctx)
	}
	if !w.hasSynced() {
		return nil, w.lastError()
	}
	return w.lister, nil
}

func namespaceOf(obj any) string {
	object, err := kmeta.DeletionHandlingAccessor(obj)
	if err != nil {
		return ""
	}
	return object.GetNamespace()
}
