/**
 * No sentence is parsed by the program: what code decides on is a field, and texts are for people. Else
 * whoever improves a message changes behaviour three rooms away. This finds where a word is looked for in a
 * member or variable that has the name of a message, and where a whole sentence is looked for, in whatever
 * text. Two messages may be compared with each other, to say the same thing once.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, it } from 'node:test';

const ROOT = resolve(import.meta.dirname, '..');

/** Sentences of others, who give no code: `FILE PATTERN` → why the text decides. */
const OTHERS: Readonly<Record<string, string>> = {
  "lib/http-rules/retry.ts 'no secret for ID'":
    'The service: it says by this text alone, in clear, that it has lost the secret. What follows from it is bounded.',
  'lib/pipeline/context-overflow.ts LIMIT':
    'vLLM: its errors about a full window have no code of their own. Only the words of that error follow from it, once it is authentic.',
  'lib/network/transport-errors.ts MINIMUM':
    'The service: it says by this text alone, in clear, which client it wants. Only the response of that request follows from it.',
};

/** Names of members and variables that hold a sentence. */
const SENTENCES = ['message', 'found', 'reason', 'remedy', 'expected', 'because'];

const LITERAL = String.raw`'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|\u0060(?:[^\u0060\\]|\\.)*\u0060`;
const REGEX = String.raw`\/(?![*/])(?:[^\/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[dgimsuvy]*`;
const PATTERN = String.raw`(?<pattern>${LITERAL}|${REGEX}|[A-Za-z_$][\w$.]*)`;
/** As in `error.message`, of which the last name counts. */
const TEXT = String.raw`(?:[\w$]+[?!]*\.)*(?<text>[\w$]+)`;
const LOOKS = 'startsWith|endsWith|includes|indexOf|match|matchAll|search|split|replace|replaceAll';

/** Where something is looked for in a text, and where a text is compared. */
const SEARCHES = [
  String.raw`(?<text>[\w$]+)\)*[?!]*\.(?:${LOOKS})\(\s*${PATTERN}`,
  String.raw`${PATTERN}\??\.(?:test|exec)\(\s*${TEXT}`,
].map((source) => new RegExp(source, 'g'));
const COMPARED = String.raw`(?<pattern>${LITERAL}|\b[A-Z][A-Z_\d]+\b(?![[.(]))`;
const COMPARISONS = [
  String.raw`(?<text>[\w$]+)\)*\s*[!=]==?\s*${COMPARED}`,
  String.raw`${COMPARED}\s*[!=]==?\s*${TEXT}`,
  String.raw`\b(?<pattern>switch)\s*\(\s*${TEXT}\)`,
].map((source) => new RegExp(source, 'g'));

const allOf = (pattern: RegExp, code: string): RegExpExecArray[] => [...code.matchAll(pattern)];

/**
 * Whether a pattern has a word in it. What a class or an escape stands for is none: `/[.!?]$/` looks at the
 * punctuation alone.
 */
const hasWord = (pattern: string): boolean =>
  /[A-Za-z]{3}/.test(pattern.replace(/\\[upP]\{\w*\}|\\./g, ' ').replace(/\[[^\]]*\]/g, ' '));

/** Whether it has two words with a blank between them, as sentences have; PEM and HTML have them too. */
const hasSentence = (pattern: string): boolean =>
  /[A-Za-z]{2,}:? [A-Za-z]{2,}/.test(pattern) && !/-----|</.test(pattern);

/** Each `FILE PATTERN` that is looked for in a sentence. */
function parsedIn(files: ReadonlyMap<string, string>): string[] {
  const parsed = new Set<string>();
  for (const [file, source] of files) {
    const code = source.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$|\s\/\/ .*$/gm, '');
    const constant = new RegExp(String.raw`\bconst (\w+)(?:: \w+)? =\s+(${LITERAL}|${REGEX})`, 'g');
    const constants = new Map(allOf(constant, code).map(([, name, value]) => [name, value]));
    const look = (searches: readonly RegExp[], isParsed: typeof isSearched): void => {
      for (const { groups } of searches.flatMap((search) => allOf(search, code))) {
        const { text = '', pattern = '' } = groups ?? {};
        const isSentence = SENTENCES.includes(text);
        if (isParsed(isSentence, constants.get(pattern) ?? pattern)) parsed.add(`${file} ${pattern}`);
      }
    };
    look(SEARCHES, isSearched);
    look(COMPARISONS, isCompared);
  }
  return [...parsed].sort();
}

const isConstant = (pattern: string): boolean => /^[A-Z][A-Z_\d]+$/.test(pattern);

const isSearched = (isSentence: boolean, pattern: string): boolean =>
  /^['"`/]/.test(pattern)
    ? hasSentence(pattern) || (isSentence && hasWord(pattern))
    : isSentence && isConstant(pattern);

/** A word alone may be a code: `reason === 'ENOENT'`. */
const isCompared = (isSentence: boolean, pattern: string): boolean =>
  isSentence && (hasSentence(pattern) || isConstant(pattern) || pattern === 'switch');

function sources(): Map<string, string> {
  const files = ['lib', 'bin'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((name) => `${folder}/${name}`),
  );
  const code = files.filter((name) => name.endsWith('.ts'));
  return new Map(code.map((name) => [name, readFileSync(join(ROOT, name), 'utf8')]));
}

describe('sentences in messages', () => {
  it('are parsed by lib only in the listed places, where other programs give nothing but a sentence', () => {
    assert.deepEqual(parsedIn(sources()), Object.keys(OTHERS).sort());
    assert.ok(Object.keys(OTHERS).length <= 5);
  });
});
