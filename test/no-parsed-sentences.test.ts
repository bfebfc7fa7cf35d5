/**
 * No sentence is parsed by the program: what code decides on is a field, and texts are for people. Else
 * whoever improves a message changes behaviour three rooms away. This lexes the sources, follows messages
 * into the functions that are given them, and finds where a word is looked for in one; and where a whole
 * sentence is looked for, in whatever text. Two messages may be compared with each other, to say the same
 * thing once.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, it } from 'node:test';

const ROOT = resolve(import.meta.dirname, '..');

/** Sentences of others, who give no code: `FILE PATTERN` → why the text decides. */
const OTHERS: Readonly<Record<string, string>> = {
  'lib/http-rules/retry.ts NO_SECRET':
    'The service: it says by this text alone, in clear, that it has lost the secret. What follows from it is bounded.',
  'lib/pipeline/context-overflow.ts LIMIT':
    'vLLM: its errors about a full window have no code of their own. Only the words of that error follow from it, once it is authentic.',
  'lib/network/client-too-old.ts MINIMUM':
    'The service: it says by this text alone, in clear, which client it wants. Only the response of that request follows from it.',
  'lib/limits/redis-connection.ts WRONG_TYPE':
    'Redis: the first word of an error reply is its code; older servers put it into the report of the script.',
  'lib/network/http2-only.ts REFUSED_BY_ALPN':
    'OpenSSL: the code is EPROTO where something was waiting to be written, whatever the alert was.',
};

/** Members and variables that hold a sentence wherever they stand. */
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

/** A declaration at the top of a file, and the names that hold sentences in it. */
interface Declaration {
  readonly file: string;
  readonly code: string;
  readonly sentences: Set<string>;
}

function declarationsIn(file: string, source: string): Declaration[] {
  const code = source.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$|\s\/\/ .*$/gm, '');
  const pieces = code.split(/^(?=(?:export|const|let|function|async|class|abstract)\b)/m);
  return pieces.map((piece) => ({ file, code: piece, sentences: new Set(SENTENCES) }));
}

/** What stands between the parenthesis at `open` and its counterpart, cut at the commas that separate it. */
function partsAt(code: string, open: number): string[] {
  const parts = [''];
  const quoted = new RegExp(LITERAL, 'y');
  let depth = 0;
  for (let at = open; at < code.length; ) {
    quoted.lastIndex = at;
    const token = quoted.exec(code)?.[0] ?? code.charAt(at);
    if ('([{'.includes(token)) depth++;
    if (')]}'.includes(token) && --depth === 0) break;
    if (token === ',' && depth === 1) parts.push('');
    else if (at > open) parts.push(`${parts.pop()}${token}`);
    at += token.length;
  }
  return parts.map((part) => part.trim());
}

interface Function {
  readonly declaration: Declaration;
  /** Their names; undefined for what is taken apart. */
  readonly parameters: readonly (string | undefined)[];
}

/** Functions by `FILE NAME`. */
function functionsIn(declarations: readonly Declaration[]): Map<string, Function> {
  const opening =
    /\bfunction (\w+)(?:<[^(]*>)?(?=\()|\b(\w+)(?:: [\w<>]+)? =\s+(?:async )?(?:<[^(]*>)?(?=\()|^ +(?:async )?(#?\w+)(?=\(.*\{$)/gm;
  const functions = new Map<string, Function>();
  for (const declaration of declarations) {
    const { file, code } = declaration;
    for (const { 0: whole, 1: named, 2: assigned, 3: method, index } of allOf(opening, code)) {
      const parts = partsAt(code, index + whole.length);
      const parameters = parts.map((part) => /^(\w+)(?=\??:|$| =)/.exec(part)?.[1]);
      functions.set(`${file} ${named ?? assigned ?? method}`, { declaration, parameters });
    }
  }
  return functions;
}

/** Files by `FILE NAME` of what they import. */
function importsIn(declarations: readonly Declaration[]): Map<string, string> {
  const imports = new Map<string, string>();
  for (const { file, code } of declarations) {
    for (const [, names = '', from = ''] of allOf(/import \{([^}]*)\} from '(\.[^']*)'/g, code))
      for (const name of names.split(',')) imports.set(`${file} ${name.trim()}`, join(dirname(file), from));
  }
  return imports;
}

const RENAMED = new RegExp(String.raw`\b(?:${SENTENCES.join('|')}): (\w+)(?=[^;()]*\} [=:])`, 'g');

/**
 * Marks what holds a sentence under another name: variables, members taken out, and parameters of functions
 * that are given one.
 */
function followSentences(declarations: readonly Declaration[]): void {
  const functions = functionsIn(declarations);
  const imports = importsIn(declarations);
  let grew: boolean;
  const mark = ({ sentences }: Declaration, name: string | undefined): void => {
    if (name === undefined || sentences.has(name)) return;
    sentences.add(name);
    grew = true;
  };
  do {
    grew = false;
    for (const declaration of declarations) {
      const { code, file, sentences } = declaration;
      const isSentence = (expression: string): boolean => {
        const [, dotted, name = ''] = /^(?:[\w.?!#]+(\.))?(\w+)!?$/.exec(expression) ?? [];
        return dotted === undefined ? sentences.has(name) : SENTENCES.includes(name);
      };
      for (const [, name, value = ''] of allOf(
        /\b(?:const|let) (\w+)(?:: \w+)? = ([\w.?!]+)(?= \?\?|;)/g,
        code,
      ))
        if (isSentence(value)) mark(declaration, name);
      for (const [, name] of allOf(RENAMED, code)) mark(declaration, name);
      for (const { 0: name, index } of allOf(/#?\b\w+(?=\()/g, code)) {
        const called = functions.get(`${imports.get(`${file} ${name}`) ?? file} ${name}`);
        if (called === undefined) continue;
        for (const [place, argument] of partsAt(code, index + name.length).entries())
          if (isSentence(argument)) mark(called.declaration, called.parameters[place]);
      }
    }
  } while (grew);
}

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
  const declarations = [...files].flatMap(([file, source]) => declarationsIn(file, source));
  followSentences(declarations);
  const constants = new Map<string, string>();
  const constant = new RegExp(String.raw`\bconst (\w+)(?:: \w+)? =\s+(${LITERAL}|${REGEX})`, 'g');
  for (const { file, code } of declarations)
    for (const [, name, value = ''] of allOf(constant, code)) constants.set(`${file} ${name}`, value);
  const parsed = new Set<string>();
  for (const { file, code, sentences } of declarations) {
    const look = (
      searches: readonly RegExp[],
      isParsed: (text: string, pattern: string) => boolean,
    ): void => {
      for (const { groups } of searches.flatMap((search) => allOf(search, code))) {
        const { text = '', pattern = '' } = groups ?? {};
        if (isParsed(text, constants.get(`${file} ${pattern}`) ?? pattern)) parsed.add(`${file} ${pattern}`);
      }
    };
    const isConstant = (pattern: string): boolean => /^[A-Z][A-Z_\d]+$/.test(pattern);
    const isWritten = (pattern: string): boolean => /^['"`/]/.test(pattern);
    look(SEARCHES, (text, pattern) =>
      isWritten(pattern)
        ? hasSentence(pattern) || (sentences.has(text) && hasWord(pattern))
        : sentences.has(text) && isConstant(pattern),
    );
    // A word alone may be a code: `reason === 'ENOENT'`.
    look(
      COMPARISONS,
      (text, pattern) =>
        sentences.has(text) && (hasSentence(pattern) || isConstant(pattern) || pattern === 'switch'),
    );
  }
  return [...parsed].sort();
}

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

  const imported = (source: string) =>
    new Map([
      ['planted/a.ts', `import { concernsClock } from './b.ts';\nif (concernsClock(failure.found)) return;`],
      ['planted/b.ts', source],
    ]);
  const one = (source: string) => new Map([['planted/b.ts', source]]);

  it('are found by this test however code parses them', () => {
    const rows: [files: Map<string, string>, pattern: string][] = [
      [one("if (message.startsWith('nothing listens')) return;"), "'nothing listens'"],
      [one("const isTwice = error?.message?.endsWith('twice');"), "'twice'"],
      [one('if (message === NEEDS_TLS) throw invalid();'), 'NEEDS_TLS'],
      [one("if ('not so' !== check.found) return;"), "'not so'"],
      [one('const early = found.includes(NOT_YET);'), 'NOT_YET'],
      [one('const MISSING = /no root for/;\nconst [root] = MISSING.exec(message) ?? [];'), 'MISSING'],
      [one('switch (error.reason) {\n}'), 'switch'],
      [one('return reason.replace(/at character (\\d+)$/, withLine);'), '/at character (\\d+)$/'],
      [one('const shown = /msg="(?:Request ended)/;\nconst f = (line) => shown.test(line);'), 'shown'],
      [one("const said = error.message;\nif (said.includes('clock')) return;"), "'clock'"],
      [one("const { message: said } = error;\nif (said.includes('clock')) return;"), "'clock'"],
      [one("const isOurs = owner.startsWith('program: alias of ');"), "'program: alias of '"],
      [
        one("function notJson(why: string) {\n  return why.endsWith('twice');\n}\nthrow notJson(reason);"),
        "'twice'",
      ],
      [
        imported(
          'export const concernsClock = (text: string): boolean =>\n  /, over at|not current/.test(text);',
        ),
        '/, over at|not current/',
      ],
      [imported('export function concernsClock(a: string) {\n  return /behind/.exec(a);\n}'), '/behind/'],
    ];
    for (const [files, pattern] of rows)
      assert.deepEqual(parsedIn(files), [`planted/b.ts ${pattern}`], `${files.get('planted/b.ts')}`);
  });

  it('may be written, cut and compared with each other, and codes and formats may be compared', () => {
    for (const source of [
      'if (error.message !== lastFailure) failed(error);',
      "if (reason === 'ENOENT' || reason === undefined) return;",
      "if (typeof message === 'string') return;",
      "const text = /[.!?]$/.test(message) ? message : message + '.';",
      "const message = found === undefined ? 'nothing was found' : shown(found);",
      "// if (message.includes('a sentence')) return;",
      "const swapped = pem.includes('-----BEGIN PRIVATE KEY-----');",
      "const isStream = type.includes('event-stream');",
      'const cut = message.slice(0, LONGEST);',
    ])
      assert.deepEqual(parsedIn(one(source)), [], source);
    const printable = "export const concernsClock = (text: string): string => text.replace(/[^ -~]+/g, '?');";
    assert.deepEqual(parsedIn(imported(printable)), []);
  });
});
