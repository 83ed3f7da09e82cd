// Copyright 2026 The Kiln Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

// Reports links to files of the repository that do not exist, and to headings that
// their page does not have. It asks nothing of the network, so it does not look at
// other URLs.

const external = /^([a-z][a-z0-9+.-]*:|\/\/)/i;

// slug turns a heading into the fragment that GitHub gives it.
export function slug(heading) {
  return heading
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
    .replace(/\s/g, '-');
}

// fragments returns the fragments of a page: those of its headings, and its anchors.
export function fragments(markdown) {
  const found = new Set();
  const times = new Map();
  let fence = '';
  for (const line of markdown.split('\n')) {
    const mark = line.match(/^\s*(```+|~~~+)/)?.[1];
    if (mark && (!fence || mark.startsWith(fence))) {
      fence = fence ? '' : mark;
      continue;
    }
    if (fence) {
      continue;
    }
    const heading = line.match(/^#{1,6}\s+(.*?)\s*#*$/)?.[1];
    if (heading !== undefined) {
      const name = slug(heading);
      const before = times.get(name) ?? 0;
      times.set(name, before + 1);
      found.add(before ? `${name}-${before}` : name);
    }
    for (const anchor of line.matchAll(/<a (?:id|name)="([^"]+)"/g)) {
      found.add(anchor[1]);
    }
  }
  return found;
}

export default function localLinks(context) {
  const { Syntax, RuleError, report, getFilePath } = context;
  const check = (node) => {
    const page = getFilePath();
    if (!page || !node.url || external.test(node.url)) {
      return;
    }
    const [path, fragment] = node.url.split('#');
    const file = path ? resolve(dirname(page), decodeURIComponent(path)) : page;
    if (!existsSync(file)) {
      report(node, new RuleError(`dead link: there is no file ${node.url}`));
    } else if (fragment && file.endsWith('.md') && statSync(file).isFile() && !fragments(readFileSync(file, 'utf8')).has(fragment)) {
      report(node, new RuleError(`dead link: ${path || 'this page'} has no heading for #${fragment}`));
    }
  };
  return { [Syntax.Link]: check, [Syntax.Image]: check, [Syntax.Definition]: check };
}
