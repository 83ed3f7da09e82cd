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

# Checks the prose of the Markdown pages: their words, the length of their sentences,
# and their links to files and headings. It needs Node 20.18 or newer, and npm, which
# installs the linter once, and again when hack/prose/package-lock.json changes.
#
#   hack/prose/check.sh           # all pages of the repository
#   hack/prose/check.sh FILE…     # these pages
#   hack/prose/check.sh --test    # the tests of the rules

set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# The folder begins with a dot, so Go does not look for packages in its node_modules.
installed=${root}/.cache/prose

if ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 18) ? 0 : 1)'; then
  echo >&2 "Node $(node --version) is too old; the linter needs 20.18 or newer."
  exit 1
fi
mkdir -p "${installed}"
if ! cmp -s "${root}/hack/prose/package-lock.json" "${installed}/node_modules/of-package-lock.json"; then
  cp "${root}"/hack/prose/{package.json,package-lock.json,.npmrc} "${installed}"
  npm ci --prefix "${installed}" --loglevel=error --no-audit --no-fund --ignore-scripts >/dev/null
  cp "${root}/hack/prose/package-lock.json" "${installed}/node_modules/of-package-lock.json"
fi
# The rules import packages, which Node looks for beside them.
rm -rf "${installed:?}"/{words,links,test}
cp -r "${root}"/hack/prose/{words,links,test} "${installed}"

if [[ "${1:-}" == --test ]]; then
  cd "${installed}" && exec node --test test/*.test.js
fi

# lint RULES FILE… lints pages with all rules of a folder.
lint() {
  local rules=$1
  shift
  "${installed}/node_modules/.bin/textlint" --no-color --no-textlintrc --format unix --rulesdir "${installed}/${rules}" "$@"
}

cd "${root}"
if [[ $# -gt 0 ]]; then
  pages=("$@")
else
  mapfile -d '' -t pages < <(git ls-files -z --deduplicate --cached --others --exclude-standard -- '*.md' ':!third_party' ':!*/testdata/*')
fi
# Pages whose words are not checked yet. Their links are.
mapfile -t later < <(grep -v '^#' hack/prose/later.txt)
words=()
for page in "${pages[@]}"; do
  if [[ ! " ${later[*]} " == *" ${page} "* ]]; then words+=("${page}"); fi
done

status=0
lint links "${pages[@]}" || status=1
if [[ ${#words[@]} -gt 0 ]]; then
  lint words "${words[@]}" || status=1
fi
exit "${status}"
