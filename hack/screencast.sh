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

# Plays the session of docs/guides/terminal.md on the cluster that KUBECONFIG names,
# and prints it. It replaces what differs between runs, such as digests, and leaves
# out what depends on the cluster's speed: the steps of a deployment, and pods.
# TestScreencast compares the output with the page.
#
#   PATH="$PWD/build:$PATH" hack/screencast.sh [NAMESPACE]

set -o errexit -o nounset -o pipefail

namespace=${1:-default}
folder=$(mktemp -d)
trap 'rm -rf "${folder}"' EXIT
kubectl config view --raw --flatten >"${folder}/kubeconfig"
export KUBECONFIG=${folder}/kubeconfig
kubectl config set-context --current --namespace="${namespace}" >/dev/null
cd "${folder}"

normalise() {
  sed -u -E \
    -e '/^(Initializing|Building|Deploying|Running|Failed): |^Kiln has not processed/d' \
    -e '/^(Pods|Last events)$/,/^$/d' \
    -e "s/${namespace}/default/g" \
    -e 's#(on base image ).*#\1node@sha256:0123…#' \
    -e 's#[^ ]+/greeter([:@])#registry.example.com/default/greeter\1#g' \
    -e 's/sha256:[0-9a-f]{64}/sha256:0123…/g' \
    -e 's/:[0-9a-f]{32}/:0123…/g' \
    -e 's/greeter-[0-9a-f]{10}-/greeter-0123456789-/g' \
    -e 's/ in [0-9.]+m?s$/ in 9ms/' \
    -e 's/[0-9dhms]+ old$/9s old/' \
    -e 's/AGE +REASON/AGE   REASON/' \
    -e 's/(True +)[0-9dhms]+ +/\19s    /' \
    -e 's/ +$//'
}

# play prints a command and what it prints, whether it succeeds or not.
play() {
  echo "\$ $1"
  eval "$1" > >(normalise) 2>&1 || true
  wait $!
}

play 'kubectl fn init greeter --runtime=nodejs24'
play 'cd greeter && cat handler.js'
play 'kubectl fn deploy greeter'
play "kubectl fn invoke greeter -d '{\"name\": \"world\"}'"
play "sed -i s/hello/welcome/ handler.js && kubectl fn deploy greeter"
play 'kubectl fn status greeter'
play 'kubectl fn traffic greeter 1=90,latest=10'
play 'kubectl wait --for=condition=Ready fn/greeter --timeout=5m'
play 'kubectl fn revisions greeter'
play "echo 'oops(' >>handler.js; kubectl fn deploy greeter"
play 'kubectl fn rollback greeter --to=1'
play 'kubectl fn delete greeter'
