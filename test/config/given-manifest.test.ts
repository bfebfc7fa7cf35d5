import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { givenManifest } from '../../lib/config/input-files.ts';
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
    ['<html>', later, ['config_invalid']],
    [VALID.replace('{', '{"Unknown": 1,'), later, ['manifest_unsupported']],
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

it('a file of --manifest-path that holds no manifest is refused at the start, by its own reason', async () => {
  const directory = temporaryDirectory('manifest-');
  const path = join(directory, 'manifest.json');
  for (const [content, code, message] of [
    [
      ' '.repeat(1_048_577),
      'config_invalid',
      /manifest.json" of --manifest-path: it has more than 1048576 bytes/,
    ],
    ...['<!DOCTYPE html>', '', '[]', '{"Policies":', '{"name":"x"}', '\ufeff{}'].map(
      (content) =>
        [
          content,
          'config_invalid',
          /json" of --manifest-path is no JSON object .*: not a manifest$/,
        ] as const,
    ),
    [VALID.replace('{', '{"Unknown": 1,'), 'manifest_unsupported', /Unknown/],
  ] as const) {
    writeFileSync(path, content);
    await assert.rejects(givenManifest(path), { code, message });
  }
  for (const [bad, message] of [
    [`${path}missing`, /^failed to read the file ".*" of --manifest-path: ENOENT: no such file/],
    [directory, /EISDIR/],
    ['/dev/zero', /it is not a regular file/],
  ] as const)
    await assert.rejects(givenManifest(bad), { code: 'config_invalid', message });
});
