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

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { fragments, slug } from '../links/local-links.js';
import { phrases } from '../words/plain-words.js';

const installed = fileURLToPath(new URL('..', import.meta.url));

// lint returns what the rules of a folder say of a page, as "line: message".
function lint(rules, markdown) {
  const folder = mkdtempSync(join(tmpdir(), 'prose-'));
  try {
    const page = join(folder, 'page.md');
    writeFileSync(page, markdown);
    writeFileSync(join(folder, 'other.md'), '# Other page\n\n## It is `here`, twice\n\n## It is `here`, twice\n');
    const flags = ['--no-textlintrc', '--format', 'json', '--rulesdir', join(installed, rules), page];
    let printed;
    try {
      printed = execFileSync(join(installed, 'node_modules/.bin/textlint'), flags, { encoding: 'utf8' });
    } catch (failure) {
      printed = failure.stdout;
    }
    return JSON.parse(printed).flatMap((result) => result.messages.map(({ line, message }) => `${line}: ${message}`));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('each phrase is found, also across a line break', () => {
  const seeded = [
    'The status says whether it runs.', 'The page tells\nof every field.', 'See to it that it runs.',
    'Label it so that it is found.', 'The image is to be pushed.', 'The source was not to be had.', 'It is not to run.', 'It is had by name.', 'Have the pod be ready.',
    'Any edit, be it of a label.', 'The object as the API server has it.', 'A replica came to lead.',
    'Its patience ends.', 'The Service heals.', 'It follows its wish.', 'It finds out the commit.', 'It is built anew.',
    'It is built upon an image.', 'Whoever edits it.', 'A lease whose time is over.', 'It has a queue of its own.',
    'It is made of such.', 'It is that which runs.', 'It needs nothing but a key.', 'An edit mends it.', 'The log bears the name.',
    'It works without more ado.',
    'It ends for want of memory.', 'It is what becomes of the pod.', 'The reason is told.', 'It shall serve.',
  ];
  const found = lint('words', seeded.join('\n\n'));
  let line = 1;
  for (const sentence of seeded) {
    const here = sentence.split('\n').map((_, i) => `${line + i}: `);
    assert.ok(found.some((message) => here.some((at) => message.startsWith(at))), `nothing found in: ${sentence}`);
    line += here.length + 1;
  }
  assert.ok(seeded.length >= phrases.length);
});

test('a sentence that begins with a relative clause is found', () => {
  assert.equal(lint('words', 'What is pushed is the image of the Function.\n\nWho may edit Functions can read Secrets.').length, 2);
});

test('a question, code and plain sentences pass', () => {
  const page = '# What is in an image\n\nThe controller reports whether the image exists.\n\n`kubectl anew` prints it.\n\n```sh\nheal anew\n```\n';
  assert.deepEqual(lint('words', page), []);
});

test('a sentence of more than 30 words is found, and its parts are not', () => {
  const words = (n) => Array.from({ length: n }, (_, i) => `word${i}`).join(' ');
  const found = lint('words', `Short one. A ${words(30)}.\n\n${words(20)}. ${words(20)}.\n\n- ${words(15)} [${words(14)}](other.md) \`a b c d\`.\n`);
  assert.equal(found.length, 1);
  assert.match(found[0], /^1: a sentence of 31 words/);
});

test('a dead link is found, and a good one is not', () => {
  const page = '# Page\n\n[a](other.md#it-is-here-twice-1) [b](#page) [c](https://example.com/none)\n\n[d](none.md)\n\n[e](other.md#none)\n\n![f](none.svg)\n';
  assert.deepEqual(lint('links', page).map((message) => message.split(': ')[0]), ['5', '7', '9']);
});

test('fragments are those of GitHub', () => {
  assert.equal(slug("Kiln's `fn`: a [link](x.md), and more"), 'kilns-fn-a-link-and-more');
  assert.deepEqual([...fragments('# A\n```\n# B\n```\n## A\n')], ['a', 'a-1']);
});
