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
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pipelineclient "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"knative.dev/serving/pkg/apis/serving"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	kilnclient "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	"github.com/kiln-dev/kiln/pkg/observe"
)

// SystemNamespace is the namespace that Kiln is installed in.
const SystemNamespace = "kiln-system"

// Clients talk to the cluster.
type Clients struct {
	Kube    kubernetes.Interface
	Kiln    kilnclient.Interface
	Tekton  pipelineclient.Interface
	Serving servingclient.Interface

	// Config is the configuration of the connection to the cluster.
	Config *rest.Config

	// Namespace is the namespace that the commands work in.
	Namespace string
}

func newClients(flags *genericclioptions.ConfigFlags, warnings rest.WarningHandler) (*Clients, error) {
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("failed to read kubeconfig: %w", err)
	}
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("failed to read kubeconfig: %w", err)
	}
	config.WarningHandler = warnings
	c := &Clients{Config: config, Namespace: namespace}
	kube, errKube := kubernetes.NewForConfig(config)
	kiln, errKiln := kilnclient.NewForConfig(config)
	tekton, errTekton := pipelineclient.NewForConfig(config)
	serving, errServing := servingclient.NewForConfig(config)
	c.Kube, c.Kiln, c.Tekton, c.Serving = kube, kiln, tekton, serving
	if err := errors.Join(errKube, errKiln, errTekton, errServing); err != nil {
		return nil, fmt.Errorf("failed to create clients: %w", err)
	}
	return c, nil
}

func (c *cli) function(ctx context.Context, name string) (*Clients, *v1alpha1.Function, error) {
	clients, err := c.connect()
	if err != nil {
		return nil, nil, err
	}
	fn, err := clients.function(ctx, name)
	return clients, fn, err
}

func (c *Clients) function(ctx context.Context, name string) (*v1alpha1.Function, error) {
	fn, err := c.Kiln.ServerlessV1alpha1().Functions(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrs.IsNotFound(err) && isOfObject(err):
		return nil, try(c.noFunction(name), listAll)
	case err != nil:
		return nil, fmt.Errorf("failed to get Function %s: %w", name, err)
	}
	return fn, nil
}

func (c *Clients) noFunction(name string) error {
	return fmt.Errorf("there is no Function %s in namespace %s", name, c.Namespace)
}

// listAll is the advice for a Function that does not exist.
const listAll = "kubectl fn list --all-namespaces"

// isOfObject reports whether one object was not found, rather than its kind.
func isOfObject(err error) bool {
	status := apierrs.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

func (c *Clients) pods(ctx context.Context, fn *v1alpha1.Function) ([]*corev1.Pod, error) {
	list, err := c.Kube.CoreV1().Pods(fn.Namespace).List(ctx, podsOf(fn))
	if err != nil {
		return nil, fmt.Errorf("failed to list pods: %w", err)
	}
	return sortPods(list), nil
}

// podsOf selects the pods that run a Function. Only those have a revision: the pods
// of builds have none.
func podsOf(fn *v1alpha1.Function) metav1.ListOptions {
	key := serving.RevisionLabelKey
	if isDeployment(fn) {
		key = serverless.RevisionLabelKey
	}
	return metav1.ListOptions{LabelSelector: labels.Set{serverless.FunctionUIDLabelKey: string(fn.UID)}.String() + "," + key}
}

// isDeployment reports whether a Deployment serves the Function.
func isDeployment(fn *v1alpha1.Function) bool {
	return fn.Status.Serving == string(config.KubernetesServer)
}

// revisionOf returns the name of the revision that the pod runs, or "".
func revisionOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Labels[serving.RevisionLabelKey], pod.Labels[serverless.RevisionLabelKey])
}

func sortPods(list *corev1.PodList) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return pods
}

func onlyOne(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

func (c *Clients) observe(ctx context.Context, fn *v1alpha1.Function) (observe.Observed, error) {
	seen := observe.Observed{Function: fn, Container: children.FunctionContainer}
	var err error
	if seen.Pods, err = c.pods(ctx, fn); err != nil {
		return seen, err
	}
	build, err := c.buildOf(ctx, fn)
	if build == nil || err != nil {
		return seen, err
	}
	seen.Build.Exists = true
	if build.pod == "" {
		return seen, nil
	}
	pod, err := c.Kube.CoreV1().Pods(fn.Namespace).Get(ctx, build.pod, metav1.GetOptions{})
	switch {
	case apierrs.IsNotFound(err):
	case err != nil:
		return seen, fmt.Errorf("failed to get pod %s: %w", build.pod, err)
	default:
		seen.Build.Pod = pod
	}
	return seen, nil
}

// edit changes a Function. It retries when another client changes it at the same
// time.
func (c *Clients) edit(ctx context.Context, name string, change func(*v1alpha1.Function)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fn, err := c.function(ctx, name)
		if err != nil {
			return err
		}
		change(fn)
		_, err = c.Kiln.ServerlessV1alpha1().Functions(c.Namespace).Update(ctx, fn, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !errors.As(err, new(advisedError)) {
		return fmt.Errorf("failed to update Function %s: %w", name, err)
	}
	return err
}
