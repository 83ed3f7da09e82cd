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

// Reports phrases that a plainer word can replace. The list is Kiln's style: each
// entry is a pattern and the advice that the linter prints. A pattern may span a
// line break, so a blank in it stands for any white space.

export const phrases = [
  [/\bsays? (whether|if)\b/i, 'write "reports whether"'],
  [/\btells? (of|whether|which|what|why|how|since when)\b/i, 'write "names", "describes", "reports" or "explains"'],
  [/\bsee to (it|that)\b/i, 'write "make sure", or name the action'],
  [/\bso that (it|they) (is|are)\b/i, 'write "to" and a verb'],
  [/\b(is|are|was|were) (not |nowhere )?to be\b/i, 'write "must be", "will be" or "is available"'],
  [/\b(is|are|was|were) not to\b(?! be\b)/i, 'write "must not"'],
  [/\b(be|is|are|was|were) had by\b/i, 'use an active verb'],
  [/\b(have|has|having) (it|them|(the|a|an|its|their|your) \w+) be\b/i, 'write "make", "let" or "set"'],
  [/\bbe it\b/i, 'write "whether"'],
  [/\bas the API server has it\b/i, 'write "on the API server"'],
  [/\b(come|comes|came) to lead\b/i, 'write "becomes the leader"'],
  [/\bpatience\b/i, 'write "timeout"'],
  [/\b(heal|heals|healed|healing)\b/i, 'write "restore", "adopt" or "fix"'],
  [/\b(a|the|its|their|your|his) (wish|wishes|want|wants)\b/i, 'write "desired state"'],
  [/\b(find|finds|finding|found) out\b/i, 'write "resolve", "look up" or "fetch"'],
  [/\banew\b/i, 'write "again"'],
  [/\bupon\b/i, 'write "on"'],
  [/\bwhoever\b/i, 'name the person or the program'],
  [/\bwhose time is over\b/i, 'write "expired"'],
  [/\bof (its|their|your|his) own\b(?! namespace)/i, 'write "its own" before the noun, or "separate"'],
  [/\bof such\b/i, 'repeat the noun'],
  [/\bthat which\b/i, 'name the thing'],
  [/\bnobody but\b|\bnone but\b|\bnothing but\b/i, 'write "only"'],
  [/\bmends?\b|\bmended\b/i, 'write "fix" or "correct"'],
  [/\bbears?\b(?! (in mind|with))/i, 'write "has" or "shows"'],
  [/\bwithout more ado\b/i, 'leave it out'],
  [/\bfor want of\b/i, 'name what is missing'],
  [/\bwhat becomes of\b/i, 'write "what happens to"'],
  [/\b(is|are|was|were) told( apart)?\b/i, 'write "is reported" or "is distinguished"'],
  [/\bshall\b/i, 'write "must" or "will"'],
];

// Sentences that begin with one of these words as a relative clause: "What is pushed
// is …", "Who may edit Functions can …". A question may begin so.
const relative = /^(What|Who|Whatever)\b(?! (is|are|it|they|to|can go|what|who)\b[^.]*:?$)/;

function spaced(pattern) {
  return new RegExp(pattern.source.replaceAll(' ', '\\s+'), 'gi');
}

export default function plainWords(context) {
  const { Syntax, RuleError, report, getSource, locator } = context;
  return {
    [Syntax.Str](node) {
      const text = getSource(node);
      for (const [pattern, advice] of phrases) {
        for (const match of text.matchAll(spaced(pattern))) {
          const padding = locator.range([match.index, match.index + match[0].length]);
          report(node, new RuleError(`"${match[0].replace(/\s+/g, ' ')}": ${advice}`, { padding }));
        }
      }
    },
    [Syntax.Paragraph](node) {
      const text = getSource(node);
      if (relative.test(text) && !/\?/.test(text.split(/\.\s/)[0])) {
        report(node, new RuleError(`"${text.match(relative)[0]} …": begin the sentence with its subject`));
      }
    },
  };
}
