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
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/network"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
)

// servicePort is the port of the Function's address, as under Knative.
const servicePort = 80

// MakeService returns the Service with the Function's address inside the cluster.
func MakeService(fn *v1alpha1.Function) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: objectMeta(fn),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: podLabels(fn),
			Ports:    []corev1.ServicePort{{Name: portName, Port: servicePort, TargetPort: intstr.FromString(portName), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// address returns the Function's address inside the cluster.
func address(fn *v1alpha1.Function) *apis.URL {
	return apis.HTTP(network.GetServiceHostname(children.ServiceName(fn), fn.Namespace))
}

// publicHost returns the Function's public host name, or "".
func publicHost(ctx context.Context, fn *v1alpha1.Function) string {
	domain := config.FromContextOrDefaults(ctx).Functions.PublicDomain
	if domain == "" || fn.Spec.Visibility != v1alpha1.VisibilityPublic {
		return ""
	}
	return fn.Name + "." + fn.Namespace + "." + domain
}

// MakeIngress returns the Ingress of a public Function, or nil.
func MakeIngress(ctx context.Context, fn *v1alpha1.Function) *networkingv1.Ingress {
	host := publicHost(ctx, fn)
	if host == "" {
		return nil
	}
	ingress := &networkingv1.Ingress{
		ObjectMeta: objectMeta(fn),
		Spec: networkingv1.IngressSpec{
			Rules: []networkingv1.IngressRule{{
				Host: host,
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{{
						Path: "/", PathType: new(networkingv1.PathTypePrefix),
						Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
							Name: children.ServiceName(fn), Port: networkingv1.ServiceBackendPort{Name: portName},
						}},
					}},
				}},
			}},
		},
	}
	if class := config.FromContextOrDefaults(ctx).Functions.IngressClass; class != "" {
		ingress.Spec.IngressClassName = &class
	}
	return ingress
}
