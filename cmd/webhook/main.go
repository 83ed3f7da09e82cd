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

// Command webhook sets defaults in Functions. It denies invalid Functions and invalid
// configuration.
package main

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection/sharedmain"
	"knative.dev/pkg/leaderelection"
	"knative.dev/pkg/logging"
	o11yconfigmap "knative.dev/pkg/observability/configmap"
	"knative.dev/pkg/reconciler"
	"knative.dev/pkg/signals"
	"knative.dev/pkg/webhook"
	"knative.dev/pkg/webhook/certificates"
	"knative.dev/pkg/webhook/configmaps"
	"knative.dev/pkg/webhook/resourcesemantics"
	"knative.dev/pkg/webhook/resourcesemantics/defaulting"
	"knative.dev/pkg/webhook/resourcesemantics/validation"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// The manifests in config/ have the same names and port.
const (
	serviceName = "webhook"
	secretName  = "webhook-certs"
	port        = 8443

	defaultingName       = "webhook.serverless.kiln.dev"
	validationName       = "validation.webhook.serverless.kiln.dev"
	configValidationName = "config.webhook.serverless.kiln.dev"
)

// function is a Function whose status and deletion are not validated. Deletion must
// work without a webhook.
type function struct {
	v1alpha1.Function
}

var (
	_ resourcesemantics.VerbLimited        = (*function)(nil)
	_ resourcesemantics.SubResourceLimited = (*function)(nil)
)

// SupportedVerbs implements resourcesemantics.VerbLimited.
func (*function) SupportedVerbs() []admissionregistrationv1.OperationType {
	return []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
}

// SupportedSubResources implements resourcesemantics.SubResourceLimited.
func (*function) SupportedSubResources() []string {
	return []string{""}
}

var types = map[schema.GroupVersionKind]resourcesemantics.GenericCRD{
	v1alpha1.SchemeGroupVersion.WithKind("Function"): &function{},
}

func newDefaulting(ctx context.Context, cmw configmap.Watcher) *controller.Impl {
	// The CRD's schema already drops unknown fields.
	const disallowUnknownFields = false
	return defaulting.NewAdmissionController(ctx, defaultingName, "/defaulting",
		types, watchConfig(ctx, cmw), disallowUnknownFields)
}

func newValidation(ctx context.Context, cmw configmap.Watcher) *controller.Impl {
	const disallowUnknownFields = false
	return validation.NewAdmissionController(ctx, validationName, "/validation",
		types, watchConfig(ctx, cmw), disallowUnknownFields)
}

func newConfigValidation(ctx context.Context, _ configmap.Watcher) *controller.Impl {
	constructors := config.Constructors()
	constructors[logging.ConfigMapName()] = logging.NewConfigFromConfigMap
	constructors[o11yconfigmap.Name()] = o11yconfigmap.Parse
	constructors[leaderelection.ConfigMapName()] = newLeaderElection
	impl := configmaps.NewAdmissionController(ctx, configValidationName, "/config-validation", constructors)
	impl.Reconciler = &configAdmission{impl.Reconciler.(configReconciler)}
	return impl
}

type configReconciler interface {
	controller.Reconciler
	reconciler.LeaderAware
	webhook.AdmissionController
	webhook.StatelessAdmissionController
}

// maxConfigBytes limits the data of a ConfigMap. Parsed YAML takes a hundred times as much
// memory as its text.
const maxConfigBytes = 128 << 10

// configAdmission denies ConfigMaps that are too large to parse, and adds warnings about
// admitted configuration that has no effect.
type configAdmission struct {
	configReconciler
}

// Admit implements webhook.AdmissionController.
func (a *configAdmission) Admit(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	configMap := &corev1.ConfigMap{}
	if json.Unmarshal(request.Object.Raw, configMap) != nil {
		// It is a deletion, or Knative's webhook denies it.
		return a.configReconciler.Admit(ctx, request)
	}
	size := 0
	for _, value := range configMap.Data {
		size += len(value)
	}
	if size > maxConfigBytes {
		return webhook.MakeErrorStatus("ConfigMap %s has %d bytes of data, more than the limit of %d", configMap.Name, size, maxConfigBytes)
	}
	response := a.configReconciler.Admit(ctx, request)
	if !response.Allowed || configMap.Name != config.RuntimesConfigName {
		return response
	}
	// Data that cannot be parsed is already denied.
	if known, err := config.NewRuntimesFromConfigMap(configMap); err == nil {
		response.Warnings = append(response.Warnings, known.Warnings()...)
	}
	return response
}

// newLeaderElection parses the ConfigMap config-leader-election. Only one bucket is
// valid: one leader must own the queue of builds.
func newLeaderElection(configMap *corev1.ConfigMap) (*leaderelection.Config, error) {
	cfg, err := leaderelection.NewConfigFromConfigMap(configMap)
	if err == nil && cfg.Buckets > 1 {
		err = fmt.Errorf("buckets is %d and must be 1: builds wait in one queue, which has one leader", cfg.Buckets)
	}
	return cfg, err
}

func watchConfig(ctx context.Context, cmw configmap.Watcher) func(context.Context) context.Context {
	store := config.NewStore(logging.FromContext(ctx).Named("config-store"))
	store.WatchConfigs(cmw)
	return store.ToContext
}

func main() {
	ctx := webhook.WithOptions(signals.NewContext(), webhook.Options{
		ServiceName: serviceName,
		SecretName:  secretName,
		Port:        webhook.PortFromEnv(port),
	})
	// The webhook's own port serves the probes.
	ctx = sharedmain.WithHealthProbesDisabled(ctx)
	ctx = sharedmain.WithOTelViews(ctx, durations)
	front := &front{}
	admissions := front.constructors(newDefaulting, newValidation, newConfigValidation)
	sharedmain.MainWithContext(ctx, "webhook", append(admissions, certificates.NewController)...)
	front.wait()
}
