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

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.uber.org/zap"

	apitypes "k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	secretinformer "knative.dev/pkg/injection/clients/namespacedkube/informers/core/v1/secret"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/network/handlers"
	knativetls "knative.dev/pkg/network/tls"
	"knative.dev/pkg/reconciler"
	"knative.dev/pkg/system"
	"knative.dev/pkg/webhook"
	"knative.dev/pkg/webhook/certificates/resources"

	"github.com/kiln-dev/kiln/pkg/bounded"
)

// shutdownTimeout is the time for the last responses. Together with the drain, which
// takes 45 s, it is within the pod's grace period.
const shutdownTimeout = 10 * time.Second

// durations is the view of the metric of admissions. It drops the labels whose values
// come from the request: a caller could fill the memory with them.
var durations = metric.NewView(
	metric.Instrument{Name: "kn.webhook.handler.duration"},
	metric.Stream{AttributeFilter: attribute.NewAllowKeysFilter(attribute.Key(webhook.WebhookTypeAttr), attribute.Key(webhook.StatusAttr))},
)

// front serves admission requests with Knative's handlers. Knative's own server limits
// neither the time of a request nor the memory of all requests.
type front struct {
	// awaited is the number of admission controllers.
	awaited    int
	admissions []any
	// synced lets the handlers begin. It may be called more than once.
	synced func()
	served sync.WaitGroup
}

type constructor = func(context.Context, configmap.Watcher) *controller.Impl

// elected is the part of an admission controller that sharedmain must see. If it saw the
// rest, it would start Knative's server.
type elected interface {
	controller.Reconciler
	reconciler.LeaderAware
}

// behind is a reconciler whose admissions the front serves. sharedmain starts reconcilers
// when all informers have synced.
type behind struct {
	elected
	front *front
}

// Reconcile implements controller.Reconciler.
func (b *behind) Reconcile(ctx context.Context, key string) error {
	b.front.synced()
	return b.elected.Reconcile(ctx, key)
}

// constructors returns constructors of admission controllers for sharedmain. The last one
// starts to serve.
func (f *front) constructors(admissions ...constructor) []injection.ControllerConstructor {
	f.awaited = len(admissions)
	constructors := make([]injection.ControllerConstructor, 0, len(admissions))
	for _, construct := range admissions {
		constructors = append(constructors, func(ctx context.Context, cmw configmap.Watcher) *controller.Impl {
			impl := construct(ctx, cmw)
			f.admissions = append(f.admissions, impl.Reconciler)
			if len(f.admissions) == f.awaited {
				f.start(ctx)
			}
			impl.Reconciler = &behind{impl.Reconciler.(elected), f}
			// The reconciler runs once also if it has nothing to reconcile.
			impl.EnqueueKey(apitypes.NamespacedName{Name: "synced"})
			return impl
		})
	}
	return constructors
}

func (f *front) start(ctx context.Context) {
	logger := logging.FromContext(ctx)
	admitter, err := webhook.New(ctx, f.admissions)
	if err != nil {
		logger.Fatalw("Failed to create the webhook", zap.Error(err))
	}
	f.synced = sync.OnceFunc(admitter.InformersHaveSynced)
	config, err := knativetls.DefaultConfigFromEnv("WEBHOOK_")
	if err != nil {
		logger.Fatalw("Failed to read the TLS configuration", zap.Error(err))
	}
	config.GetCertificate = certificateFrom(secretinformer.Get(ctx).Lister())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprint(":", webhook.GetOptions(ctx).Port))
	if err != nil {
		logger.Fatalw("Failed to listen", zap.Error(err))
	}
	f.served.Go(func() {
		if err := serve(ctx, listener, config, admitter); err != nil {
			logger.Fatalw("Failed to serve", zap.Error(err))
		}
	})
}

func (f *front) wait() { f.served.Wait() }

// serve answers until the context ends, and after that until no API server asks any more.
func serve(ctx context.Context, listener net.Listener, config *tls.Config, admitter http.Handler) error {
	limits := bounded.New()
	drainer := &handlers.Drainer{Inner: limits.Handler(admitter)}
	server := limits.Server(drainer)
	server.TLSConfig = config
	server.ErrorLog = log.New(errorLog{logging.FromContext(ctx)}, "", 0)
	stopped := make(chan error, 1)
	go func() { stopped <- server.ServeTLS(limits.Listener(listener), "", "") }()
	select {
	case err := <-stopped:
		return fmt.Errorf("failed to serve: %w", err)
	case <-ctx.Done():
	}
	drainer.Drain()
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("failed to shut down: %w", err)
	}
	return nil
}

type errorLog struct {
	logger *zap.SugaredLogger
}

// Write implements io.Writer.
func (l errorLog) Write(message []byte) (int, error) {
	if bytes.HasPrefix(message, []byte("http: panic")) {
		l.logger.Error(string(message))
	} else {
		l.logger.Debug(string(message))
	}
	return len(message), nil
}

func certificateFrom(secrets corev1listers.SecretLister) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		secret, err := secrets.Secrets(system.Namespace()).Get(secretName)
		if err != nil {
			return nil, fmt.Errorf("failed to get Secret: %w", err)
		}
		certificate, err := tls.X509KeyPair(secret.Data[resources.ServerCert], secret.Data[resources.ServerKey])
		if err != nil {
			return nil, fmt.Errorf("failed to parse certificate of Secret %s: %w", secretName, err)
		}
		return &certificate, nil
	}
}
