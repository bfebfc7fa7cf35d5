/**
 * Whether the tests bite: takes one defence after the other out of a copy of the tree and expects the tests that name it to
 * go red. `npm run mutation`; exit code 1 where one stays green, is red without a mutation, or no longer applies.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { run } from 'node:test';

export interface Mutation {
  readonly defence: string;
  readonly file: string;
  /** Each `find` occurs exactly once in the file. */
  readonly edits: readonly { readonly find: string; readonly replace: string }[];
  /** Full names of tests, with those of their suites; each must go red. */
  readonly tests: readonly { readonly file: string; readonly names: readonly string[] }[];
}

const MATRIX = 'test/faults/matrix.test.ts';
const DEFENCES = 'test/faults/defences.test.ts';

/** The names of a row's streaming cells, as matrix.test.ts makes them. */
const streamed = (row: string, outcome: string): string[] =>
  ['openai', 'anthropic'].map((dialect) => `the fault matrix ${row} ${dialect} stream: ${outcome}`);

const FORGED = '200 error event response_not_authentic, broken';
const UNFINISHED = '200 error event stream_unfinished, broken';

export const MUTATIONS: readonly Mutation[] = [
  {
    defence: 'the sequence check: messages are accepted in any order',
    file: 'lib/envelope/request-cipher.ts',
    edits: [
      {
        find: 'const plaintext = aead.decrypt(ivView, aadFor(received), ciphertext, tagView);',
        replace:
          'let plaintext: Buffer | undefined;' +
          'for (let any = 0; any < 500 && !plaintext; any++) plaintext = aead.decrypt(ivView, aadFor(any), ciphertext, tagView);',
      },
      {
        find: 'if (found.size > SHORT_BYTES || options.engine !== undefined) {',
        replace: 'if (found.size >= 0) {',
      },
    ],
    tests: [
      {
        file: MATRIX,
        names: [
          ...streamed('replay: an event comes twice', FORGED),
          ...streamed('reorder: two events are swapped', FORGED),
          ...streamed('drop: an event is left out', FORGED),
        ],
      },
    ],
  },
  {
    defence: 'the tag of a short message: what was changed on the way is opened',
    file: 'lib/envelope/short-messages.ts',
    edits: [{ find: 'return difference === 0;', replace: 'return difference >= 0;' }],
    tests: [{ file: MATRIX, names: streamed('flip_tag: one bit of a tag is flipped', FORGED) }],
  },
  {
    defence: 'the terminal-event check: a stream may end anywhere',
    file: 'lib/pipeline/open-sse.ts',
    edits: [
      {
        find: 'if (opener.failure === undefined && !ended && !errorSeen) {',
        replace: 'if (Date.now() < 0) {',
      },
    ],
    tests: [
      {
        file: MATRIX,
        names: [
          ...streamed('missing_terminal: the terminal event is missing', UNFINISHED),
          ...streamed('truncate: the stream ends cleanly in the middle', UNFINISHED),
        ],
      },
    ],
  },
  {
    defence: 'the authenticated finish: a terminal event alone is believed',
    file: 'lib/pipeline/open-sse.ts',
    edits: [{ find: 'if (!order.complete && !errorSeen) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: MATRIX,
        names: streamed(
          'forged_terminal: the stream ends in the middle, with a forged terminal event',
          UNFINISHED,
        ),
      },
    ],
  },
  {
    defence: 'the header allow-list: whatever the client sends goes on',
    file: 'lib/gateway/headers.ts',
    edits: [
      {
        find: 'if (!allowed || perConnection.has(name) || !isSafeValue(value)) continue;',
        replace: 'if (perConnection.has(name) || !isSafeValue(value)) continue;',
      },
    ],
    tests: [{ file: DEFENCES, names: ['the defences headers that tell who asks do not reach the service'] }],
  },
  {
    defence: 'the origin check: any web page may ask',
    file: 'lib/gateway/gateway.ts',
    edits: [{ find: 'if (origin.refusal !== undefined) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: DEFENCES,
        names: ['the defences a web page of another origin spends no key: 403, and nothing leaves'],
      },
    ],
  },
];

const ROOT = join(import.meta.dirname, '..');
/** What the tests need of the tree. */
const COPIED = ['lib', 'bin', 'docs', 'scripts', 'test', 'package.json', 'tsconfig.json'];

function copyTree(): string {
  const copy = mkdtempSync(join(tmpdir(), 'privatemode-mutation-'));
  for (const name of COPIED) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

/** Runs the named tests of a tree; resolves with the full names that passed and that failed. */
async function runTests(
  tree: string,
  tests: Mutation['tests'],
): Promise<Record<'passed' | 'failed', Set<string>>> {
  const outcome = { passed: new Set<string>(), failed: new Set<string>() };
  for (const { file, names } of tests) {
    const patterns = names.map((name) => new RegExp(`^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`));
    const path: string[] = [];
    const stream = run({ files: [join(tree, file)], cwd: tree, testNamePatterns: patterns });
    stream.on('test:start', ({ name, nesting }) => path.splice(nesting, Number.POSITIVE_INFINITY, name));
    const note =
      (set: Set<string>) => (event: { name: string; nesting: number; details: { type?: string } }) => {
        if (event.details.type !== 'suite') set.add([...path.slice(0, event.nesting), event.name].join(' '));
      };
    stream.on('test:pass', note(outcome.passed));
    stream.on('test:fail', note(outcome.failed));
    for await (const _ of stream);
  }
  return outcome;
}

/** The source with the mutation in it. Throws where it does not apply any more. */
export function mutated(source: string, { file, edits }: Mutation): string {
  return edits.reduce((text, { find, replace }) => {
    if (text.split(find).length !== 2) throw new Error(`${file} does not contain this exactly once: ${find}`);
    return text.replace(find, () => replace);
  }, source);
}

function mutate(tree: string, mutation: Mutation): () => void {
  const path = join(tree, mutation.file);
  const source = readFileSync(path, 'utf8');
  writeFileSync(path, mutated(source, mutation));
  return () => writeFileSync(path, source);
}

const namesOf = ({ tests }: Mutation): string[] => tests.flatMap(({ names }) => names);

/** What is wrong with a mutation and its tests; empty if they bite. */
async function check(tree: string, mutation: Mutation): Promise<string[]> {
  const names = namesOf(mutation);
  const before = await runTests(tree, mutation.tests);
  const notGreen = names.filter((name) => !before.passed.has(name));
  if (notGreen.length > 0) return notGreen.map((name) => `not green without the mutation: ${name}`);
  let restore: () => void;
  try {
    restore = mutate(tree, mutation);
  } catch (error) {
    return [(error as Error).message];
  }
  const after = await runTests(tree, mutation.tests);
  restore();
  return names.filter((name) => !after.failed.has(name)).map((name) => `stays green: ${name}`);
}

async function main(): Promise<number> {
  const tree = copyTree();
  let wrong = 0;
  try {
    for (const mutation of MUTATIONS) {
      const findings = await check(tree, mutation);
      console.log(`${findings.length === 0 ? 'noticed ' : 'MISSED  '} ${mutation.defence}`);
      for (const finding of findings) console.log(`         ${finding}`);
      if (findings.length === 0) {
        for (const { file, names } of mutation.tests) {
          console.log(`         ${names.length} tests of ${relative('.', file)} go red`);
        }
      }
      wrong += findings.length;
    }
  } finally {
    rmSync(tree, { recursive: true, force: true });
  }
  return wrong === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = await main();
