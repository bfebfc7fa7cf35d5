/**
 * The portable engine under the tests of what stands on it: a second process runs them with the condition `portable`, every vector
 * and every check of an attestation among them.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { cleanEnvironment } from '../support/processes/program.ts';

const ROOT = join(import.meta.dirname, '../..');
const DIRECTORIES = ['attestation', 'crypto', 'envelope', 'session', 'pipeline'];

/** Files that are not run again, each with its reason. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  'test/crypto/engines.test.ts': 'compares the two engines already',
  'test/crypto/portable-engine.test.ts': 'is this one',
  'test/pipeline/media-urls.test.ts': 'uses no cryptography',
  'test/pipeline/json/byte-chain.test.ts': 'uses no cryptography',
  'test/session/clock.test.ts': 'uses no cryptography',
  'test/attestation/protobuf.test.ts': 'uses no cryptography',
};

/** ms: the tests take two minutes of CPU, half of that on two idle cores. */
const WITHIN = 400_000;

describe('the portable engine', () => {
  it('passes the tests of attestation, envelope, session and pipeline', {
    timeout: WITHIN + 10_000,
  }, async (t) => {
    const files = DIRECTORIES.flatMap((name) => globSync(`test/${name}/**/*.test.ts`, { cwd: ROOT })).sort();
    for (const [file, reason] of Object.entries(LEFT_OUT)) {
      assert.ok(files.includes(file), file);
      t.diagnostic(`not run with the portable engine: ${file}, which ${reason}`);
    }
    const child = spawn(
      process.execPath,
      [
        ...['--conditions=portable', '--test', '--test-reporter=tap'],
        ...['--test-concurrency=3', '--test-timeout=120000'],
        ...files.filter((file) => !Object.hasOwn(LEFT_OUT, file)),
      ],
      { cwd: ROOT, env: cleanEnvironment({}, /^NODE_TEST_CONTEXT$/), stdio: ['ignore', 'pipe', 'inherit'] },
    );
    let tap = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      tap += text;
    });
    const late = setTimeout(() => child.kill('SIGTERM'), WITHIN);
    t.after(() => child.kill('SIGTERM'));
    const [code, signal] = await once(child, 'close');
    clearTimeout(late);
    assert.equal(signal, null, `the tests took longer than ${WITHIN / 1000} s`);
    const count = (what: string): number => Number(new RegExp(`^# ${what} (\\d+)$`, 'm').exec(tap)?.[1]);
    const failures = tap.split('\n').filter((line) => /^\s*not ok /.test(line));
    assert.equal(code, 0, failures.join('\n'));
    assert.ok(count('pass') > 2000, `${count('pass')} tests passed`);
    for (const skipped of tap.match(/^ *ok .* # SKIP .*$/gm) ?? []) {
      t.diagnostic(skipped.trim());
      assert.match(skipped, /# SKIP about node:crypto alone: /);
    }
    assert.ok(count('skipped') <= 5, `${count('skipped')} tests were skipped`);
  });
});
