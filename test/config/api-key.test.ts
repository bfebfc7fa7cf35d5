import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { configuredKey } from '../../lib/config/api-key.ts';
import { parseConfig } from '../../lib/config/config.ts';
import type { FileWatch } from '../../lib/watch-files.ts';
import { parsed, refused } from '../support/doors/config.ts';
import { eventually } from '../support/processes/eventually.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

describe('the API key', () => {
  for (const [name, content] of [
    ['white space around it', '\n sk-1 \r\n'],
    ['a byte order mark', '\ufeffsk-1\n'],
    ['UTF-16, as PowerShell writes it', Buffer.from('\ufeffsk-1\r\n', 'utf16le')],
  ] as const)
    it(`is read from a file with ${name}`, () =>
      assert.equal(parsed(['--api-key=@k'], { k: content }).config.apiKey?.key, 'sk-1'));

  const foreign = 'holds quotes, "Bearer", a name, a variable, a flag or other words: give the key alone';
  const odd = 'contains characters that an API key cannot have (one key, plain ASCII)';
  const unusable: [content: string, problem: string][] = [
    ['', 'is empty: it must hold the key'],
    ...['<CANARY>', '$CANARY', 'Bearer CANARY', '"CANARY', 'CANARY"', '--port=CANARY'].map(
      (content): [string, string] => [content, foreign],
    ),
    ...['{"key":"CANARY"}', 'export API_KEY=CANARY', 'API_KEY = CANARY', 'CANARY\nsk-2'].map(
      (content): [string, string] => [content, foreign],
    ),
    ['CANARY-ü', odd],
  ];
  for (const [content, problem] of unusable)
    it(`is not ${JSON.stringify(content)}: the error quotes nothing of it`, () => {
      const literal = refused(() => parsed([`--api-key=${content}`]), []);
      assert.equal(literal, `--api-key ${problem}`);
      const inFile = refused(() => parsed(['--api-key=@k'], { k: content }), []);
      assert.equal(inFile, `the API key file "k" ${problem}`);
    });

  it('is not taken from a file that cannot be read, and the error names the file and the reason', () =>
    void refused(
      () => parsed(['--api-key=@~/k']),
      ['failed to read API key file "~/k" of --api-key: ENOENT'],
    ));

  it('is not the name of a file', () =>
    void refused(
      () => parsed([`--api-key=${import.meta.filename}`]),
      [/^--api-key is the name of an existing file, not a key: write @ in front of it$/],
    ));
});

describe('the origin of the API key', () => {
  for (const [what, argv, env, words] of [
    ['a file', ['--api-key=@k'], {}, /^--api-key @k, read at 20..-..-..T..:..:..\....Z$/],
    ['a literal', ['--api-key=sk-CANARY'], {}, /^--api-key, as it stands there$/],
    ['a variable', [], { PRIVATEMODE_API_KEY: 'sk-CANARY' }, /^PRIVATEMODE_API_KEY, as it stands there$/],
  ] as const)
    it(`is told without the key if it is ${what}`, () => {
      const { apiKey } = parsed(argv, { k: 'sk-CANARY' }, env).config;
      assert.match(configuredKey(apiKey).origin(), words);
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
    const key = configuredKey(parseConfig([`--api-key=@${path}`], {}).config.apiKey);
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
    assert.match(errors.at(-1) as string, /it is not a regular file/);
    refused(() => parseConfig([`--api-key=@${path}`], {}), ['--api-key', /it is not a regular file/]);
    assert.deepEqual(keys, []);
  });
});
