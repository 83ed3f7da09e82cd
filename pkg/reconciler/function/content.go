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
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// digestKey is the only key of the data of a ConfigMap in the cache, where its
// value stands for all that there was. No ConfigMap of the API server can have it.
const digestKey = ""

// withoutContent keeps of a ConfigMap a digest in place of its content, which is
// most of what there would be to keep of a Function: each has the wrapper of its
// runtime.
func withoutContent(obj any) (any, error) {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj, nil
	}
	cm.ManagedFields = nil
	cm.Data, cm.BinaryData = map[string]string{digestKey: digestOfContent(cm)}, nil
	return cm, nil
}

// digestOfContent returns a digest of the content of a ConfigMap, as it is in the
// cache or as the API server has it.
func digestOfContent(cm *corev1.ConfigMap) string {
	if digest, ok := cm.Data[digestKey]; ok {
		return digest
	}
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		for _, text := range []string{key, cm.Data[key]} {
			// The length keeps apart what belongs to one and to the next.
			_ = binary.Write(hash, binary.BigEndian, uint64(len(text)))
			hash.Write([]byte(text))
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// healConfigMap puts back what somebody has taken from the metadata of the ConfigMap.
// What is written then is what the API server has, not what the cache keeps of it.
func (r *Reconciler) healConfigMap(ctx context.Context, existing *corev1.ConfigMap, heal func(*corev1.ConfigMap) bool) error {
	if !heal(existing.DeepCopy()) {
		return nil
	}
	client := r.kube.CoreV1().ConfigMaps(existing.Namespace)
	live, err := client.Get(ctx, existing.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to get ConfigMap: %w", err)
	}
	if live.UID != existing.UID || !heal(live) {
		// The watch will tell of it.
		return nil
	}
	if _, err := client.Update(ctx, live, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to update ConfigMap: %w", err)
	}
	return nil
}
