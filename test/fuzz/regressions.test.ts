/** Failures that fuzzing has found are tried again; and fuzzing finds, saves and repeats a planted one. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { decode, encode, readRegression } from './regression.ts';
import { filesWithProperties, REGRESSIONS, ROOT, runProperties } from './run-properties.ts';

const saved = (directory: string): string[] =>
  readdirSync(directory)
    .filter((name) => name.endsWith('.json'))
    .map((name) => join(directory, name));

describe('saved failures', () => {
  for (const path of saved(REGRESSIONS)) {
    const { file, test, counterexample } = readRegression(path);
    it(`are fixed: ${file}, ${test}: ${counterexample.slice(0, 100)}`, async () => {
      const { code, output } = await runProperties(file, { FUZZ_REPLAY: path }, test);
      assert.match(output, /the saved failure is tried again/, 'neither file nor test has it any more');
      assert.equal(code, 0, output);
    });
  }
});

describe('fuzzing', () => {
  it('finds a planted defect, saves the smallest failure, and repeats it until the defect is fixed', async () => {
    const directory = temporaryDirectory('privatemode-fuzz-');
    const planted = 'test/fuzz/planted.ts';
    const fuzz = { FUZZ_REGRESSIONS: directory, FUZZ_MS: '500' };

    assert.equal((await runProperties(planted, fuzz)).code, 0);
    assert.deepEqual(saved(directory), []);

    // With time enough on a busy machine: the limit ends the search for the smallest one too.
    const found = await runProperties(planted, { ...fuzz, FUZZ_MS: '5000', PLANTED_DEFECT: 'yes' });
    assert.equal(found.code, 1, found.output);
    const [path = ''] = saved(directory);
    const regression = readRegression(path);
    assert.deepEqual(
      [regression.file, regression.test, regression.ordinal],
      [planted, 'planted > a property', 1],
    );
    assert.deepEqual(decode(regression.example), [new Uint8Array(3), 7]);

    const replay = { FUZZ_REPLAY: path };
    const again = await runProperties(planted, { ...replay, PLANTED_DEFECT: 'yes' }, regression.test);
    assert.equal(again.code, 1, again.output);
    const mended = await runProperties(planted, replay, regression.test);
    assert.equal(mended.code, 0, mended.output);
    assert.match(mended.output, /the saved failure is tried again/);
  });

  it('writes values that read back as the same values', () => {
    const values = [
      undefined,
      null,
      'text',
      Number.NaN,
      -0,
      2n ** 70n,
      new Uint8Array([1, 255]),
      Buffer.from([1, 255]),
      { a: [{}] },
    ];
    assert.deepStrictEqual(decode(JSON.parse(JSON.stringify(encode(values)))), values);
  });

  it('finds properties in each of nine directories of tests', () => {
    const rooms = new Set(filesWithProperties().map(({ file }) => file.split('/')[1]));
    for (const room of [
      'attestation',
      'config',
      'crypto',
      'envelope',
      'api',
      'gateway',
      'pipeline',
      'session',
      'fuzz',
    ]) {
      assert.ok(rooms.has(room), room);
    }
  });

  it('starts from committed seeds in npm test: every property names its seed', () => {
    for (const { file } of filesWithProperties()) {
      const source = readFileSync(join(ROOT, file), 'utf8');
      for (const call of source.split('fc.assert(').slice(1)) {
        const text = call.slice(0, endOfCall(call));
        assert.match(text, /\bseed\b|\bSEED\b|\bRUNS\b/, `${file}: ${text.slice(0, 80)}`);
      }
    }
  });
});

/** Where the brackets of a call close that begins before `text`. */
function endOfCall(text: string): number {
  let depth = 1;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === '(') depth += 1;
    else if (text[at] === ')' && --depth === 0) return at;
  }
  return text.length;
}
