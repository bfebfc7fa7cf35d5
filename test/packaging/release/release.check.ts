import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { appendFileSync, cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { RUNTIME_VERSION } from '../../../scripts/node-runtime.ts';
import { makeRelease } from '../../../scripts/release.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { ROOT, run } from '../../support/processes/tools.ts';
import { binary } from '../support/built.ts';
import { blockOf } from '../support/install-blocks.ts';

const EPOCH = 1_790_000_000;

interface Part {
  readonly name: string;
  readonly version?: string;
  readonly purl?: string;
}

describe('release', { timeout: 600_000 }, () => {
  let out: string;
  before(async () => {
    out = join(temporaryDirectory('release-'), 'files');
    await makeRelease({
      out,
      epoch: EPOCH,
      built: { amd64: binary('amd64'), arm64: binary('arm64') },
    });
  });
  const bytes = (name: string): Buffer => readFileSync(join(out, name));
  const digest = (name: string): string => createHash('sha256').update(bytes(name)).digest('hex');
  const sbom = (name: string) => JSON.parse(bytes(`${name}.cdx.json`).toString());
  const artefacts = (): string[] =>
    readdirSync(out).filter((name) => !/\.cdx\.json$|^SHA256SUMS$/.test(name));

  it('has each artefact, with its bill of materials, in the list of digests', () => {
    assert.deepEqual(
      artefacts().map((name) => name.replace(/\d+\.\d+\.\d+/, 'V').replace(/root-a\w+/, 'root-HOST')),
      [
        'image-root-HOST.tar.gz',
        'privatemode-ai-V.tgz',
        'privatemode-proxy-V.tgz',
        'privatemode-proxy-chart-V.tgz',
        'privatemode-proxy-linux-amd64',
        'privatemode-proxy-linux-arm64',
      ],
    );
    const listed = bytes('SHA256SUMS').toString().trim().split('\n');
    assert.equal(listed.length, 12);
    const { status, stdout } = run('sha256sum', ['--check', 'SHA256SUMS'], { cwd: out });
    assert.equal(status, 0, stdout);
  });

  it('is verified by the commands of docs/install.md: one download, with its bill of materials', () => {
    const place = temporaryDirectory('download-');
    const name = 'privatemode-proxy-linux-amd64';
    for (const file of ['SHA256SUMS', name, `${name}.cdx.json`]) cpSync(join(out, file), join(place, file));
    const lines = (block: string) => run('bash', ['-euc', blockOf('install.md', block)], { cwd: place });
    assert.deepEqual(lines('digests').stdout.trim().split('\n'), [`${name}: OK`, `${name}.cdx.json: OK`]);
    assert.equal(lines('bill').stdout, `${digest(name)}\n${digest(name)}  ${name}\n`);
    appendFileSync(join(place, name), 'more');
    const changed = lines('digests');
    assert.equal(changed.status, 1);
    assert.match(changed.stdout, /^privatemode-proxy-linux-amd64: FAILED$/m);
  });

  it('has in each bill of materials the digest of its file, the date and a serial number of its own', () => {
    const serials = artefacts().map((name) => {
      const { bomFormat, specVersion, serialNumber, metadata } = sbom(name);
      assert.deepEqual([bomFormat, specVersion], ['CycloneDX', '1.6']);
      assert.equal(metadata.component.hashes[0].content, digest(name));
      assert.equal(metadata.timestamp, '2026-09-21T14:13:20Z');
      assert.match(
        serialNumber,
        /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
      );
      return serialNumber;
    });
    assert.equal(new Set(serials).size, serials.length);
  });

  it('lists for an npm package exactly the parts whose licences are in it, and no build tool', () => {
    for (const [name, directories] of [
      ['privatemode-proxy-', ['dist/bin', 'dist/simulator']],
      ['privatemode-ai-', ['dist/privatemode-ai']],
    ] as const) {
      const file = artefacts().find((artefact) => artefact.startsWith(name) && artefact.endsWith('.tgz'))!;
      const licences = directories
        .map((directory) => readFileSync(join(ROOT, directory, 'licences.txt'), 'utf8'))
        .join('\n');
      const shipped = [...licences.matchAll(/^={78}\n(\S+)(?: \(Rust\))? (\d\S*)(?: \(.*\))?\n={78}$/gm)];
      const listed: string[] = sbom(file).components.map((part: Part) => `${part.name} ${part.version}`);
      assert.ok(listed.length > 5, file);
      assert.deepEqual(
        listed.toSorted(),
        [...new Set(shipped.map(([, part, version]) => `${part} ${version}`))].toSorted(),
      );
      assert.ok(!listed.some((part) => /^(esbuild|typescript|@biomejs)/.test(part)));
    }
  });

  it('lists Node and its OpenSSL for every artefact that contains Node', () => {
    for (const name of artefacts().filter((artefact) => /linux-|^image/.test(artefact))) {
      const parts: readonly Part[] = sbom(name).components;
      assert.ok(
        parts.some(({ purl }) => purl === `pkg:generic/node@${RUNTIME_VERSION}`),
        name,
      );
      const openssl = parts.find((part) => part.name === 'openssl');
      assert.equal(openssl?.version, process.versions.openssl, name);
    }
  });

  it('is not written into a directory that has files', async () => {
    const taken = temporaryDirectory('taken-');
    writeFileSync(join(taken, 'file'), '');
    await assert.rejects(makeRelease({ out: taken, epoch: EPOCH }), /is not empty/);
  });
});
