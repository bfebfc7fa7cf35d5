import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { appendFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { manifestChanges, manifestHistory } from '../../lib/manifest-log/manifest-changes.ts';
import { createManifestLog } from '../../lib/manifest-log/manifest-log.ts';
import { parseStrictJson } from '../../lib/strict-json.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const changesOf = (before: string, after: string) => {
  const [left, right] = [before, after].map((text) =>
    parseStrictJson(Buffer.from(text), { depth: 16, values: 20_000 }, (reason) => new Error(reason)),
  );
  return manifestChanges(left ?? null, right ?? null);
};
const changes = (before: unknown, after: unknown) => changesOf(JSON.stringify(before), JSON.stringify(after));

describe('the comparison of two manifests', () => {
  const before = {
    Policies: { aa: { SANs: ['one', 'two'], Role: 'coordinator' }, bb: { SANs: [] } },
    ReferenceValues: {
      snp: [{ TrustedMeasurement: '11', MinimumTCB: { BootloaderVersion: 3, TEEVersion: 0 } }],
    },
  };
  const TABLE = [
    ['no change between equal manifests', {}, []],
    [
      'a policy that was added, and one that was removed',
      { Policies: { aa: before.Policies.aa, cc: { SANs: [] } } },
      [
        { path: '/Policies/cc', concerns: 'policies', after: { SANs: [] } },
        { path: '/Policies/bb', concerns: 'policies', before: { SANs: [] } },
      ],
    ],
    [
      'a changed name of a policy',
      { Policies: { ...before.Policies, aa: { SANs: ['one', '2/~'], Role: 'coordinator' } } },
      [{ path: '/Policies/aa/SANs/1', concerns: 'policies', before: 'two', after: '2/~' }],
    ],
    [
      'a changed measurement and a changed TCB minimum',
      {
        ReferenceValues: {
          snp: [{ TrustedMeasurement: '22', MinimumTCB: { BootloaderVersion: 4, TEEVersion: 0 } }],
        },
      },
      [
        {
          ...{ path: '/ReferenceValues/snp/0/TrustedMeasurement', concerns: 'measurements' },
          ...{ before: '11', after: '22' },
        },
        {
          ...{ path: '/ReferenceValues/snp/0/MinimumTCB/BootloaderVersion', concerns: 'tcb' },
          ...{ before: 3, after: 4 },
        },
      ],
    ],
    [
      'an added member that concerns neither policies nor reference values, with its name escaped in the path',
      { 'a/~b': null },
      [{ path: '/a~1~0b', concerns: 'other', after: null }],
    ],
    [
      'an array in the place of an object',
      { Policies: [] },
      [{ path: '/Policies', concerns: 'policies', before: before.Policies, after: [] }],
    ],
  ] as const;
  for (const [what, change, expected] of TABLE) {
    it(`names ${what}`, () => assert.deepEqual(changes(before, { ...before, ...change }), expected));
  }

  it('tells numbers apart that a double does not, and shows them as text, also inside of a value that was added', () => {
    const vector = (text: string) => `{"ReferenceValues":{"MinimumMitigationVector":${text}}}`;
    const [large, larger] = ['18446744073709551104', '18446744073709551615'];
    const path = '/ReferenceValues/MinimumMitigationVector';
    assert.deepEqual(changesOf(vector(larger), vector(large)), [
      { path, concerns: 'tcb', before: larger, after: large },
    ]);
    assert.deepEqual(changesOf(vector(larger), vector(`"${larger}"`)).length, 1);
    assert.deepEqual(changesOf(vector(larger), vector(larger)), []);
    assert.deepEqual(changesOf('{}', `{"a":[{"b":${larger}}]}`), [
      { path: '/a', concerns: 'other', after: [{ b: larger }] },
    ]);
  });

  it('stops after 500 changes', () => {
    const many = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`m${i}`, i]));
    assert.equal(changes({}, many).length, 500);
  });
});

describe('the history of enforced manifests', () => {
  it('is the log, newest first, with the changes from each manifest to the next', async () => {
    const workspace = temporaryDirectory();
    assert.deepEqual(await manifestHistory(workspace), []);
    const log = createManifestLog(workspace);
    const manifests = ['{"Policies":{"a":1}}', '{"Policies":{"a":2}}', '{"Policies":{"a":1}}'];
    for (const [i, text] of manifests.entries()) {
      await log.record(Buffer.from(text), Date.UTC(2026, 11, 1 + i, 12));
    }
    appendFileSync(join(workspace, 'manifests/log.txt'), 'no line of the log\n');
    const sha256 = (text: string | undefined) =>
      createHash('sha256')
        .update(text ?? '')
        .digest('hex');
    const change = (before: number, after: number) => [
      { path: '/Policies/a', concerns: 'policies', before, after },
    ];
    const history = await manifestHistory(workspace);
    assert.deepEqual(
      history.map(({ since, ...entry }) => [new Date(since).toISOString(), entry]),
      [
        ['2026-12-03T12:00:00.000Z', { file: '3.json', sha256: sha256(manifests[0]), changes: change(2, 1) }],
        ['2026-12-02T12:00:00.000Z', { file: '2.json', sha256: sha256(manifests[1]), changes: change(1, 2) }],
        ['2026-12-01T12:00:00.000Z', { file: '1.json', sha256: sha256(manifests[0]), changes: undefined }],
      ],
    );
    assert.deepEqual(
      (await manifestHistory(workspace, 1)).map(({ file, changes }) => [file, changes?.length]),
      [['3.json', 1]],
    );
    rmSync(join(workspace, 'manifests/2.json'));
    assert.deepEqual(
      (await manifestHistory(workspace)).map(({ sha256: digest, changes }) => [digest === null, changes]),
      [
        [false, undefined],
        [true, undefined],
        [false, undefined],
      ],
    );
  });
});
