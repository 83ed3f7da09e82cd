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

# Fails when hack/update-codegen.sh would change anything. It works on a copy,
# so the work tree stays as it is.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

copy=$(mktemp -d)
trap 'rm -rf "${copy}"' EXIT

cp -R go.mod go.sum hack pkg config "${copy}"
(cd "${copy}" && bash hack/update-codegen.sh >/dev/null)

stale=0
for dir in pkg config; do
  diff --recursive --unified "${dir}" "${copy}/${dir}" || stale=1
done
if [[ "${stale}" == 1 ]]; then
  echo >&2 "Generated files are out of date. Run hack/update-codegen.sh and commit what it changes."
  exit 1
fi
echo "Generated files are up to date."
