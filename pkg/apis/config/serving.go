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

package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Server names what serves Functions.
type Server string

const (
	// AutoServer is KnativeServer if the cluster has the API of Knative Services, and
	// KubernetesServer otherwise.
	AutoServer Server = "auto"

	// KnativeServer serves with Knative Services.
	KnativeServer Server = "knative"

	// KubernetesServer serves with Deployments, Services and HorizontalPodAutoscalers.
	KubernetesServer Server = "kubernetes"
)

// parseServer parses the name of a server. A blank value means AutoServer.
func parseServer(s string) (Server, error) {
	switch server := Server(strings.TrimSpace(s)); server {
	case AutoServer, KnativeServer, KubernetesServer:
		return server, nil
	case "":
		return AutoServer, nil
	}
	return "", fmt.Errorf("it is %q, and must be one of %s, %s, %s", s, AutoServer, KnativeServer, KubernetesServer)
}

// parseDomain parses a domain for public Functions. A blank value means none.
func parseDomain(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", nil
	}
	if problems := validation.IsDNS1123Subdomain(s); len(problems) > 0 {
		return "", fmt.Errorf("it is %q: %s", s, strings.Join(problems, ", "))
	}
	return s, nil
}
