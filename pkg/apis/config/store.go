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
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/configmap"
)

// Config is Kiln's configuration at one moment.
//
// +k8s:deepcopy-gen=false
type Config struct {
	Functions *Functions
	// Runtimes is nil if the configuration is unknown, as in a client.
	Runtimes Runtimes
	Build    *Build
	Registry *Registry
}

type configKey struct{}

// FromContext returns the Config in the context, or nil.
func FromContext(ctx context.Context) *Config {
	cfg, _ := ctx.Value(configKey{}).(*Config)
	return cfg
}

// FromContextOrDefaults returns the Config in the context. Missing parts have the values of
// an empty ConfigMap, except Runtimes, which has no default.
func FromContextOrDefaults(ctx context.Context) *Config {
	var cfg Config
	if have := FromContext(ctx); have != nil {
		cfg = *have
	}
	if cfg.Functions == nil {
		cfg.Functions = defaultFunctions()
	}
	if cfg.Build == nil {
		cfg.Build = defaultBuild()
	}
	if cfg.Registry == nil {
		cfg.Registry = &Registry{}
	}
	return &cfg
}

// ToContext returns a context with the Config.
func ToContext(ctx context.Context, cfg *Config) context.Context {
	return context.WithValue(ctx, configKey{}, cfg)
}

// Constructors returns the parser of each of Kiln's own ConfigMaps.
func Constructors() configmap.Constructors {
	return configmap.Constructors{
		FunctionsConfigName: NewFunctionsFromConfigMap,
		RuntimesConfigName:  NewRuntimesFromConfigMap,
		BuildConfigName:     NewBuildFromConfigMap,
		RegistryConfigName:  NewRegistryFromConfigMap,
	}
}

// Check returns the error that the store would find in one of Kiln's own ConfigMaps. It
// accepts all other ConfigMaps.
func Check(configMap *corev1.ConfigMap) error {
	constructor, ok := Constructors()[configMap.Name]
	if !ok {
		return nil
	}
	// The store has checked the types of the constructors.
	results := reflect.ValueOf(constructor).Call([]reflect.Value{reflect.ValueOf(configMap)})
	err, _ := reflect.TypeAssert[error](results[1])
	return err
}

// Store keeps the current Config.
//
// +k8s:deepcopy-gen=false
type Store struct {
	*configmap.UntypedStore
}

// NewStore returns a Store that calls onAfterStore for each ConfigMap that was
// read or changed.
func NewStore(logger configmap.Logger, onAfterStore ...func(name string, value any)) *Store {
	return &Store{
		UntypedStore: configmap.NewUntypedStore("kiln", logger, Constructors(), onAfterStore...),
	}
}

// ToContext returns a context with the current Config.
func (s *Store) ToContext(ctx context.Context) context.Context {
	return ToContext(ctx, s.Load())
}

// Load returns a copy of the current Config.
func (s *Store) Load() *Config {
	cfg := &Config{}
	if functions, ok := s.UntypedLoad(FunctionsConfigName).(*Functions); ok {
		cfg.Functions = functions.DeepCopy()
	}
	if runtimes, ok := s.UntypedLoad(RuntimesConfigName).(Runtimes); ok {
		cfg.Runtimes = runtimes.DeepCopy()
	}
	if build, ok := s.UntypedLoad(BuildConfigName).(*Build); ok {
		cfg.Build = build.DeepCopy()
	}
	if registry, ok := s.UntypedLoad(RegistryConfigName).(*Registry); ok {
		cfg.Registry = registry.DeepCopy()
	}
	return cfg
}
