#!/usr/bin/env bash

# Copyright 2026 The Kiln Authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# Writes everything in this repository that is generated: deep copies, client,
# listers, informers, injection, the CRD's schema and the checksums of the
# ConfigMaps' examples. The generators are the tools that hack/tools/go.mod pins.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

module=$(go list -m)
readonly module
readonly header=hack/boilerplate/boilerplate.go.txt
readonly api=${module}/pkg/apis/serverless/v1alpha1
readonly client=${module}/pkg/client

echo "deep copies"
go tool -modfile=hack/tools/go.mod deepcopy-gen --go-header-file "${header}" --output-file zz_generated.deepcopy.go \
  "${api}" "${module}/pkg/apis/config"

# Stale files of a renamed type must not survive.
rm -rf pkg/client

echo "clientset"
go tool -modfile=hack/tools/go.mod client-gen --go-header-file "${header}" --clientset-name versioned --input-base "" --input "${api}" \
  --output-dir pkg/client/clientset --output-pkg "${client}/clientset"

echo "listers"
go tool -modfile=hack/tools/go.mod lister-gen --go-header-file "${header}" --output-dir pkg/client/listers --output-pkg "${client}/listers" "${api}"

echo "informers"
go tool -modfile=hack/tools/go.mod informer-gen --go-header-file "${header}" --output-dir pkg/client/informers --output-pkg "${client}/informers" \
  --versioned-clientset-package "${client}/clientset/versioned" --listers-package "${client}/listers" "${api}"

echo "injection"
go tool -modfile=hack/tools/go.mod injection-gen --go-header-file "${header}" --input-dirs "${api}" \
  --versioned-clientset-package "${client}/clientset/versioned" \
  --external-versions-informers-package "${client}/informers/externalversions" \
  --listers-package "${client}/listers" \
  --output-package "${client}/injection" --output-dir pkg/client/injection

echo "CRD schema"
go tool -modfile=hack/tools/go.mod controller-gen schemapatch:manifests=config output:dir=config paths=./pkg/apis/serverless/...

echo "ConfigMap checksums"
go tool -modfile=hack/tools/go.mod hash-gen config/config-*.yaml
