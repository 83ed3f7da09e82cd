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

package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kiln-dev/kiln/pkg/cli/advice"
)

type advisedError = advice.Error

func try(err error, format string, args ...any) error {
	return advice.Try(err, format, args...)
}

// Explain adds advice to the error, unless it has some.
func Explain(err error) error {
	if err == nil || errors.As(err, new(advisedError)) {
		return err
	}
	switch {
	case errors.Is(err, clientcmd.ErrEmptyConfig), clientcmd.IsContextNotFound(err):
		return try(err, "set KUBECONFIG, or: kubectl config get-contexts")
	case apierrs.IsForbidden(err):
		return try(err, "kubectl auth can-i --list, and ask an administrator of the cluster for the role edit in the namespace")
	case apierrs.IsUnauthorized(err):
		return try(err, "log in to the cluster again, or: kubectl config current-context")
	case apierrs.IsNotFound(err) && !isOfObject(err):
		return try(fmt.Errorf("%w; Kiln is probably not installed on this cluster", err), "kubectl config current-context")
	case apierrs.IsConflict(err):
		return try(err, "the same command again, because another client changed the Function")
	case apierrs.IsInvalid(err), apierrs.IsBadRequest(err):
		return try(err, "kubectl explain fn.spec")
	case errors.As(err, new(*url.Error)), errors.As(err, new(*net.OpError)):
		return try(err, "kubectl cluster-info")
	}
	return try(err, "the command with --help")
}
