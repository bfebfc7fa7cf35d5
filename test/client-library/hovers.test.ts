/** What an editor shows of the client library: each exported name and each member says what it means. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';

const LIB = join(import.meta.dirname, '../../lib');

/** The declaration that begins with `head`, from its own line to the line that closes it. */
function declaration(file: string, head: string): { readonly before: string; readonly lines: string[] } {
  const text = readFileSync(join(LIB, file), 'utf8');
  const at = text.indexOf(`\nexport ${head}`);
  assert.notEqual(at, -1, `${file} has no ${head}`);
  const rest = text.slice(at + 1);
  const end = rest.search(/^\}|^.*;$/m);
  return {
    before: text.slice(0, at).split('\n').at(-1) ?? '',
    lines: rest.slice(0, rest.startsWith('export type') ? end : rest.search(/^\}/m)).split('\n'),
  };
}

/** Members of the first and second level, public ones, without a comment above them. */
const bare = (lines: readonly string[]): string[] =>
  lines.flatMap((line, i) => {
    const member = /^ {2}(?: {2,6})?(?:declare |readonly |override |get |async )*(\w+)[?]?[:(]/.exec(
      line,
    )?.[1];
    const isMember =
      /^\s+(?:declare |override )*(?:readonly|get) /.test(line) ||
      /^ {2}(?:async |override )?\w+\(.*[;{(]$/.test(line);
    const isOwn = member === 'constructor' || member === 'super' || member === 'name';
    return member !== undefined && isMember && !isOwn && !/\*\/$/.test(lines[i - 1] ?? '') ? [member] : [];
  });

const EXPORTED: [file: string, head: string][] = [
  ['client-library/options.ts', 'interface PrivatemodeOptions'],
  ['client-library/options.ts', 'interface Protection'],
  ['client-library/options.ts', 'type ClientVerdict'],
  ['client-library/options.ts', 'interface Verification'],
  ['client-library/fetch.ts', 'interface PrivatemodeFetch'],
  ['client-library/fetch.ts', 'function createPrivatemodeFetch'],
  ['client-library/privatemode-ai.ts', 'class PrivatemodeAI'],
  ['client-library/privatemode-ai.ts', 'type PrivatemodeAIOptions'],
  ['client-library/remedies.ts', 'const ERRORS'],
  ['client-library/verification.ts', 'class VerificationError'],
  ['verdict/verdict.ts', 'interface VerdictReport'],
  ['errors.ts', 'class PrivatemodeError'],
  ['errors.ts', 'type ErrorCode'],
  ['errors.ts', 'type Blame'],
];

describe('the hover text of the client library', () => {
  for (const [file, head] of EXPORTED) {
    it(`describes ${head}, and each of its members`, () => {
      const { before, lines } = declaration(file, head);
      assert.match(before, /\*\/$/, `${head} has no comment`);
      if (/^(?:interface|class)/.test(head)) assert.deepEqual(bare(lines), [], 'members without a comment');
    });
  }

  it('says of a member not only how it is encoded', () => {
    const ENCODING = /\/\*\* (?:Standard base64|Lower-case hex|Parsed)\. \*\//;
    for (const [file] of EXPORTED) assert.doesNotMatch(readFileSync(join(LIB, file), 'utf8'), ENCODING, file);
  });

  it('is reported as missing for a member without a comment', () =>
    assert.deepEqual(
      bare([
        '  /** Meaning. */',
        '  readonly a: string;',
        '  readonly b: string;',
        '  get c(): number {',
        '  close(): void;',
      ]),
      ['b', 'c', 'close'],
    ));
});
