/** The search for prompts and keys finds them, in every form and wherever a run may have put them. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { assertNoCanary, canaryIn, KEY_MARK, MARK } from '../support/doors/canaries.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { ROOT } from '../support/processes/tools.ts';
import { canariesBelow } from './written.ts';

/** What is planted here must not be found by a run of the tests that is searched itself. */
const OUTSIDE = '/tmp';

const FORMS: readonly (readonly [form: string, write: (text: string) => string])[] = [
  ['plain', (text) => text],
  ['hex', (text) => Buffer.from(text).toString('hex')],
  ['upper-case hex', (text) => Buffer.from(text).toString('hex').toUpperCase()],
  ['base64', (text) => Buffer.from(text).toString('base64')],
  ['base64, one byte further', (text) => Buffer.from(`>${text}`).toString('base64')],
  ['base64, two bytes further', (text) => Buffer.from(`>>${text}`).toString('base64url')],
  ['percent-encoded', (text) => Buffer.from(text).toString('hex').replace(/../g, '%$&')],
  ['escaped as in JSON', (text) => Buffer.from(text).toString('hex').replace(/../g, '\\u00$&')],
];

describe('the search for prompts and keys', () => {
  for (const [form, write] of FORMS) {
    it(`finds a prompt or a key that is written in this form: ${form}`, () => {
      for (const mark of [MARK, KEY_MARK]) {
        assert.ok(canaryIn(Buffer.from(`before ${write(`${mark}1`)} after`), mark) >= 7);
        assert.equal(canaryIn(Buffer.from(`before ${write(`${mark.slice(0, -2)}_1`)} after`), mark), -1);
      }
      const log = `${write(`${MARK}1`)}`;
      assert.throws(
        () => assertNoCanary(`{"msg":"one"}\n{"msg":"two ${log}"}\n`, 'a test'),
        (error: Error) => error.message.includes('two') && !error.message.includes(log),
      );
    });
  }
});

describe('the search for prompts and keys in files', () => {
  it('allows a prompt only in a dump, and a key only in its own file', () => {
    const directory = mkdtempSync(join(OUTSIDE, 'privatemode-planted-'));
    const write = (path: string, text: string): void => {
      mkdirSync(join(directory, path, '..'), { recursive: true });
      writeFileSync(join(directory, path), text);
    };
    try {
      write('left/w/requests/2026-11-21/2026-11-21_210658.125392_63_req.txt', `${MARK}1`);
      write('left/w/requests/2026-11-21/2026-11-21_210658.125392_64_req.txt', `${KEY_MARK}1`);
      write('left/w/requests/other.txt', `${MARK}1`);
      write('left/privatemode-key-aB3x/key', `${KEY_MARK}1`);
      write('left/privatemode-key-aB3x/log', `${KEY_MARK}1`);
      assert.deepEqual(
        canariesBelow(directory).map((found) => found.split(',')[0]),
        [
          'left/privatemode-key-aB3x/log',
          'left/w/requests/2026-11-21/2026-11-21_210658.125392_64_req.txt',
          'left/w/requests/other.txt',
        ],
      );
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});

/** Runs scripts/hygiene.ts around a program. */
async function searched(program: string): Promise<{ code: number; found: string[] }> {
  const { NODE_OPTIONS: _, KEPT_FILES: __, ...env } = cleanEnvironment({ TMPDIR: OUTSIDE });
  const { promise, resolve } = Promise.withResolvers<{ code: number; found: string[] }>();
  execFile(
    process.execPath,
    [join(ROOT, 'scripts/hygiene.ts'), process.execPath, '--input-type=module', '-e', program],
    { env },
    (error, stdout) =>
      resolve({
        code: error === null ? 0 : Number(error.code),
        found: stdout.split('\n').filter((line) => line.startsWith('a prompt or a key was written: ')),
      }),
  );
  return promise;
}

const IMPORTS = `
  import { mkdtempSync, rm, rmSync, unlinkSync, writeFileSync } from 'node:fs';
  import * as promises from 'node:fs/promises';
  import { tmpdir } from 'node:os';
  const directory = mkdtempSync(tmpdir() + '/planted-');
  const file = directory + '/file';
`;
const WRITE = `writeFileSync(file, '${MARK}1');`;

describe('a test run that is searched for prompts and keys', () => {
  const PLANTED: Readonly<Record<string, readonly [program: string, where: RegExp]>> = {
    'its output': [`console.log('${MARK}1')`, / output,/],
    'its error output': [`console.error(Buffer.from('${KEY_MARK}1').toString('base64'))`, / output,/],
    'a file that is left': [WRITE, / left\/planted-\w+\/file,/],
    'a file deleted by unlinkSync': [`${WRITE} unlinkSync(file);`, / deleted\/[\d-]+\/planted-\w+\/file,/],
    'a file deleted by unlink': [`${WRITE} await promises.unlink(file);`, / deleted\/.*\/file,/],
    'a directory deleted by rmSync': [
      `${WRITE} rmSync(directory, { recursive: true });`,
      / deleted\/.*\/file,/,
    ],
    'a directory deleted by rm': [
      `${WRITE} await promises.rm(directory, { recursive: true }); rm(file, { force: true }, (e) => { if (e) throw e; });`,
      / deleted\/.*\/file,/,
    ],
  };
  for (const [where, [program, told]] of Object.entries(PLANTED)) {
    it(`fails if a prompt or a key is in ${where}`, async () => {
      const { code, found } = await searched(IMPORTS + program);
      assert.equal(code, 1);
      assert.equal(found.length, 1);
      assert.match(found[0] as string, told);
    });
  }

  it('lets the program delete files as usual, and ends with the exit code of the program', async () => {
    const { code, found } = await searched(`${IMPORTS}
      import { existsSync, readdirSync } from 'node:fs';
      writeFileSync(file, 'x');
      unlinkSync(file);
      let thrown;
      try { unlinkSync(file); } catch (error) { thrown = error.code; }
      rmSync(file, { force: true });
      rmSync(directory, { recursive: true });
      process.exit(thrown === 'ENOENT' && !existsSync(directory) && readdirSync(tmpdir()).length === 0 ? 7 : 8);
    `);
    assert.deepEqual({ code, found }, { code: 7, found: [] });
  });
});
