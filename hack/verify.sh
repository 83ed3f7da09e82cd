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

# Checks all that needs neither tests nor a cluster. It goes on after a failure
# and names at the end what has failed.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Fails here, and not in the middle of a pipe, where git does not work.
git rev-parse --is-inside-work-tree >/dev/null

# files prints the files of the repository that match the patterns, also those
# that are not committed yet, and ends each with a zero byte.
files() {
  local file
  git ls-files -z --deduplicate --cached --others --exclude-standard -- "$@" |
    while IFS= read -r -d '' file; do
      if [[ -e "${file}" ]]; then printf '%s\0' "${file}"; fi
    done
}

scripts() { files '*.sh' .ci/run; }

# The header of boilerplate/, whatever the language's comments look like.
check_boilerplate() {
  local missing
  missing=$(files '*.go' '*.sh' '*.yaml' '*.mjs' '*.cjs' '*.py' Makefile .ci/run ':!examples' ':!pkg/cli/starters' ':!third_party/*/*.yaml' ':!*/testdata/*' |
    xargs -0 grep --files-without-match 'Copyright 20[0-9][0-9] The Kiln Authors') || true
  if [[ -n "${missing}" ]]; then
    echo "Without the header of hack/boilerplate:"
    echo "${missing}"
    return 1
  fi
}

check_gofmt() {
  local unformatted
  unformatted=$(files '*.go' | xargs -0 gofmt -s -l) || return
  if [[ -n "${unformatted}" ]]; then
    echo "Not formatted by gofmt -s:"
    echo "${unformatted}"
    return 1
  fi
}

check_vet() {
  go vet ./... && go vet -tags=e2e ./test/... && go vet -C hack ./... && go vet -C test/performance ./...
}

check_lint() {
  local module
  for module in . hack test/performance; do
    (cd "${module}" && golangci-lint run) || return
  done
}

check_shellcheck() {
  scripts | xargs -0 shellcheck
}

check_codegen() {
  hack/verify-codegen.sh
}

# VULNDB names another database than the pinned one, such as the live one.
check_vulnerabilities() {
  go run -C hack ./vulncheck
}

# The linter's rules first: a rule that finds nothing would pass all pages.
check_prose() {
  local output
  if ! output=$(hack/prose/check.sh --test); then
    echo "${output}"
    return 1
  fi
  hack/prose/check.sh
}

failed=()
# check runs one check, and skips it when the tool it needs is not installed.
check() {
  local name=$1 tool=${2:-}
  if [[ -n "${tool}" ]] && ! command -v "${tool}" >/dev/null; then
    echo "--- ${name}: skipped, ${tool} is not installed"
    return
  fi
  local start=${SECONDS}
  if "check_${name}"; then
    echo "--- ${name}: ok ($((SECONDS - start))s)"
  else
    echo "--- ${name}: FAILED"
    failed+=("${name}")
  fi
}

check boilerplate
check gofmt
check shellcheck shellcheck
check vet
check lint golangci-lint
check codegen
check vulnerabilities
check prose npm

if [[ ${#failed[@]} -gt 0 ]]; then
  echo >&2 "verify failed: ${failed[*]}"
  exit 1
fi
