# shellcheck shell=sh
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

# Runs in the root file system of a node, in namespaces of its own: loads the
# archive on stdin into the node's containerd.
mount -t proc proc /proc
# No node boots: containerd only keeps what it is given.
run=/run/kiln-import
mkdir -p "$run"
containerd --config /dev/null --root /var/lib/containerd --state "$run/state" --address "$run/sock" &
containerd=$!
export CONTAINERD_ADDRESS="$run/sock"
i=0
until ctr version >/dev/null 2>&1; do
  i=$((i + 1))
  [ "$i" -lt 100 ] || exit 1
  sleep 0.1
done
ctr --namespace k8s.io images import --no-unpack -
kill "$containerd"
wait "$containerd" || true
umount /proc
rm -rf "$run"
