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

package slim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	informers "github.com/kiln-dev/kiln/pkg/client/informers/externalversions"
)

const (
	// startFunctions have 96 MiB of source together.
	startFunctions = 96
	startSource    = 1 << 20

	// startLimit is more than a few objects need while they are decoded.
	startLimit = 48 << 20
)

// streaming is an API server that streams all Functions to a watch that asks for them. It
// allows no LIST, which would hold all of them at once.
type streaming struct {
	*testing.T
}

// ServeHTTP implements http.Handler.
func (s streaming) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if query := r.URL.Query(); query.Get("watch") == "" || query.Get("sendInitialEvents") != "true" {
		s.Errorf("the informer asks for %s", r.URL)
		w.WriteHeader(http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	events := json.NewEncoder(w)
	fn := function("", "")
	fn.APIVersion, fn.Kind = v1alpha1.SchemeGroupVersion.String(), "Function"
	for i := range startFunctions {
		fn.Name, fn.UID = fmt.Sprintf("fn-%d", i), types.UID(strconv.Itoa(i))
		fn.Spec.Source = strings.Repeat(fmt.Sprintf("// %8d\n", i), startSource/12)
		if err := events.Encode(map[string]any{"type": "ADDED", "object": fn}); err != nil {
			return
		}
	}
	fn.ObjectMeta = metav1.ObjectMeta{ResourceVersion: "8", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	fn.Spec = v1alpha1.FunctionSpec{}
	if err := events.Encode(map[string]any{"type": "BOOKMARK", "object": fn}); err != nil {
		return
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// TestStartMemory checks that an informer that starts holds few texts at a time, and none
// once it has started.
func TestStartMemory(t *testing.T) {
	server := httptest.NewServer(streaming{t})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	client, err := versioned.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(before + startLimit/2))
	var mu sync.Mutex
	seen, most := 0, int64(0)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Serverless().V1alpha1().Functions().Informer()
	err = informer.SetTransform(func(obj any) (any, error) {
		kept, err := Function(obj)
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen%16 == 0 {
			most = max(most, heap())
		}
		return kept, err
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if got := len(informer.GetStore().ListKeys()); got != startFunctions {
		t.Errorf("the cache has %d Functions, want %d", got, startFunctions)
	}
	if most -= before; most > startLimit {
		t.Errorf("%d Functions took up to %d MiB, want at most %d MiB", startFunctions, most>>20, startLimit>>20)
	}
	runtime.GC()
	if rested := heap() - before; rested > startLimit/4 {
		t.Errorf("the cache of %d Functions takes %d MiB", startFunctions, rested>>20)
	}
}

// heap returns the bytes of the heap, with garbage.
func heap() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
