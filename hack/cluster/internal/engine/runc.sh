#!/bin/sh
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

# Stands in for runc where root lacks CAP_SYS_RESOURCE: takes that capability,
# resource limits and scores that only it could set out of what is to be run.
set -eu

score=$(cat /proc/self/oom_score_adj)

adapt() {
  # A bundle's config.json has the process inside, exec's file is the process.
  jq --argjson score "$score" '
    def adapted:
      if .capabilities then .capabilities |= map_values(map(select(. != "CAP_SYS_RESOURCE"))) else . end
      | if .oomScoreAdj then .oomScoreAdj = ([.oomScoreAdj, $score] | max) else . end
      | del(.rlimits);
    if has("process") then .process |= adapted else adapted end
  ' "$1" >"$1.kiln"
  mv "$1.kiln" "$1"
}

previous=
for argument in "$@"; do
  case $previous in
    --bundle | -b) adapt "$argument/config.json" ;;
    --process | -p) adapt "$argument" ;;
  esac
  case $argument in
    --bundle=*) adapt "${argument#*=}/config.json" ;;
    --process=*) adapt "${argument#*=}" ;;
  esac
  previous=$argument
done
exec runc "$@"
