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

import { splitAST, SentenceSplitterSyntax } from 'sentence-splitter';
import { StringSource } from 'textlint-util-to-string';

// Reports sentences of more words than a reader follows at the first reading. What
// is between backticks is one word, a link counts as its text, and a colon, a
// semicolon or a dash between words ends nothing. Cells of tables are left out.

const max = 30;

export default function sentenceWords(context) {
  const { Syntax, RuleError, report, locator } = context;
  return {
    [Syntax.Paragraph](node) {
      for (const sentence of splitAST(node).children) {
        if (sentence.type !== SentenceSplitterSyntax.Sentence) {
          continue;
        }
        const text = new StringSource(sentence, {
          replacer({ node: part, maskValue }) {
            return part.type === Syntax.Code ? maskValue('x') : undefined;
          },
        }).toString();
        const words = text.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word));
        if (words.length > max) {
          const padding = locator.at(sentence.range[0] - node.range[0]);
          report(node, new RuleError(`a sentence of ${words.length} words; at most ${max}: "${words.slice(0, 6).join(' ')} …"`, { padding }));
        }
      }
    },
  };
}
