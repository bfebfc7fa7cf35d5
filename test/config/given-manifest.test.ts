/** The file of --manifest-path, which is followed. */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { parseConfig } from '../../lib/config/config.ts';
import { givenManifest } from '../../lib/config/files.ts';
import { refused } from '../support/doors/config.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const VALID = readFileSync(
  new URL('../vectors/attestation/contrast/privatemode_manifest_v1.58.0.json', import.meta.url),
  'utf8',
);

it('the manifest of --manifest-path is that of its file, as long as this holds a valid one', async () => {
  const path = join(temporaryDirectory('manifest-'), 'manifest.json');
  writeFileSync(path, VALID);
  const given = await givenManifest(path);
  const told: string[] = [];
  const watch = given.watch({
    clock: createFakeClock(),
    changed: () => told.push('changed'),
    failed: ({ code }) => told.push(code),
    usable: () => told.push('usable'),
  });
  const current = async (): Promise<string> => Buffer.from(await given.current()).toString();
  const later = `${VALID}\n`;
  for (const [content, wanted, news] of [
    [VALID, VALID, ['usable']],
    [later, later, ['usable', 'changed']],
    ['<html>', later, ['manifest_invalid']],
    [VALID.replace('{', '{"Unknown": 1,'), later, ['manifest_unsupported']],
    ['', later, ['manifest_invalid']],
    [undefined, later, ['config_invalid']],
    [VALID, VALID, ['usable', 'changed']],
  ] as const) {
    if (content === undefined) rmSync(path);
    else writeFileSync(path, content);
    await watch.reload();
    assert.equal(await current(), wanted);
    assert.deepEqual(told.splice(0), news);
  }
  watch.close();
});

it('a file of --manifest-path that cannot be a manifest is refused at the start', async () => {
  const path = join(temporaryDirectory('manifest-'), 'manifest.json');
  writeFileSync(path, ' '.repeat(1_048_577));
  for (const [bad, words] of [
    [path, /it has more than 1048576 bytes/],
    [`${path}missing`, /ENOENT: no such file/],
    [join(path, '..'), /EISDIR/],
    ['/dev/zero', /it is not a regular file/],
  ] as const) {
    refused(() => parseConfig([`--manifest-path=${bad}`], {}), ['failed to read manifest file', words]);
    await assert.rejects(givenManifest(bad), { code: 'config_invalid', message: words });
  }
});
