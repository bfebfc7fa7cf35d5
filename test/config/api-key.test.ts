import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { configuredKey, readApiKey } from '../../lib/config/api-key.ts';
import { parseConfig } from '../../lib/config/config.ts';
import type { FileWatch } from '../../lib/watch-files.ts';
import { parsed, refused } from '../support/doors/config.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

describe('the API key', () => {
  it('is taken verbatim if it is a literal', () => {
    const { apiKey } = parsed(['--api-key=abc@def ghi']).config;
    assert.deepEqual(apiKey, { kind: 'literal', value: 'abc@def ghi' });
  });

  it('is read from a file without surrounding white space', () => {
    const { apiKey } = parsed(['--api-key=@k'], { k: '\n sk-1 \r\n' }).config;
    assert.ok(apiKey);
    assert.equal(
      readApiKey(apiKey, () => Buffer.from('\n sk-1 \r\n')),
      'sk-1',
    );
  });

  const unusable: [name: string, content: string, words: string[]][] = [
    ['empty', ' \n', ['is empty']],
    ['of two words', 'sk-CANARY old', ['contains more than one word: it must contain only the key']],
    ['of two lines', 'sk-CANARY\nsk-2', ['holds more than the key: leave only the key']],
    ['of JSON', '{"key":"sk-CANARY"}', ['holds more than the key: leave only the key']],
    ['not ASCII', 'sk-CANARY-ü', ['characters that an API key cannot have']],
  ];
  for (const [name, content, words] of unusable) {
    it(`is not taken from a file that is ${name}, and the error names the file and does not quote it`, () => {
      const message = refused(
        () => parsed(['--api-key=@k'], { k: content }),
        ['the API key file "k"', ...words],
      );
      assert.ok(!message.includes('CANARY'));
    });
  }

  it('is not taken from a file that cannot be read, and the error names the file and the reason', () =>
    void refused(
      () => parsed(['--api-key=@k']),
      ['failed to read API key file "k" of --api-key: ENOENT: no such file or directory; check the path'],
    ));
});

const NO_PIPE = /it is not a regular file; name one, because it is read again and again$/;

describe('a file that is read again', () => {
  for (const [flag, argv] of [
    ['--api-key', (path: string) => [`--api-key=@${path}`]],
    ['--manifest-path', (path: string) => [`--manifest-path=${path}`]],
  ] as const) {
    it(`${flag} does not wait at a pipe: the start refuses it`, async (t) => {
      const folder = await mkdtemp(join(tmpdir(), 'pipe-'));
      t.after(() => rm(folder, { recursive: true }));
      execFileSync('mkfifo', [join(folder, 'pipe')]);
      refused(() => parseConfig(argv(join(folder, 'pipe')), {}), [flag, NO_PIPE]);
    });
  }
});

describe('the origin of the API key', () => {
  for (const [what, argv, env, words] of [
    ['a file', ['--api-key=@k'], {}, /^--api-key @PATH, read at 20..-..-..T..:..:..\....Z$/],
    ['a literal', ['--api-key=sk-CANARY'], {}, /^--api-key, as it stands there$/],
    ['a variable', [], { PRIVATEMODE_API_KEY: 'sk-CANARY' }, /^PRIVATEMODE_API_KEY, as it stands there$/],
  ] as const)
    it(`is told without the key if it is ${what}`, () => {
      const { apiKey, apiKeySetting } = parsed(argv, { k: 'sk-CANARY' }, env).config;
      const path = join(temporaryDirectory('api-key-'), 'k');
      writeFileSync(path, 'sk-CANARY');
      const source = apiKey?.kind === 'file' ? { ...apiKey, path } : apiKey;
      const { origin } = configuredKey({ apiKey: source, apiKeySetting });
      assert.match(origin()?.replace(path, 'PATH') as string, words);
    });
});

describe('the watch of the key file', () => {
  let folder: string;
  let path: string;
  let watch: FileWatch;
  let keys: string[];
  let errors: string[];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'api-key-'));
    path = join(folder, 'key');
    keys = [];
    errors = [];
    await writeFile(path, 'first\n');
    const key = configuredKey({ apiKey: { kind: 'file', path }, apiKeySetting: '--api-key' });
    watch = key.watch({
      changed: (next) => keys.push(next),
      failed: (error) => errors.push(error.message),
      clock: clockOf({ keyFileLook: 5 }),
    })!;
  });
  afterEach(async () => {
    watch.close();
    await rm(folder, { recursive: true });
  });

  it('notices a new key without a signal, also if another file is renamed over the key file', async () => {
    await writeFile(join(folder, 'next'), ' second \n');
    await rename(join(folder, 'next'), path);
    await eventually('the next key', () => keys.length > 0);
    assert.deepEqual(keys, ['second']);
  });

  it('reads the file at once on a reload, and reports a key only if it has changed', async () => {
    await watch.reload();
    assert.deepEqual(keys, []);
    await writeFile(path, 'second');
    await watch.reload();
    await watch.reload();
    assert.deepEqual(keys, ['second']);
  });

  it('keeps the old key if the file is missing or empty, and reports that', async () => {
    await rm(path);
    await watch.reload();
    assert.match(errors.at(-1) as string, /failed to read API key file .*ENOENT/);
    await writeFile(path, '');
    await watch.reload();
    assert.match(errors.at(-1) as string, /is empty/);
    assert.deepEqual(keys, []);
    await writeFile(path, 'second');
    await watch.reload();
    assert.deepEqual(keys, ['second']);
  });

  it('does not wait at a pipe in place of the file: the old key stays, and the error says what to name', async () => {
    rmSync(path); // and no look of the watch between this and the next line
    execFileSync('mkfifo', [path]);
    await watch.reload();
    assert.match(errors.at(-1) as string, NO_PIPE);
    assert.deepEqual(keys, []);
  });

  it('reports no key after close', async () => {
    watch.close();
    await writeFile(path, 'second');
    await watch.reload();
    assert.deepEqual(keys, []);
  });
});
