import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { type Check, verify } from '../../lib/attestation/verify.ts';
import { manifestChanges, manifestHistory } from '../../lib/transparency/manifest-changes.ts';
import { createManifestLog } from '../../lib/transparency/manifest-log.ts';
import { verificationDocument, verificationText } from '../../lib/transparency/verification-document.ts';
import { syntheticInput } from '../support/attestation-vectors.ts';

describe('what changed between two manifests', () => {
  const before = {
    Policies: { aa: { SANs: ['one', 'two'], Role: 'coordinator' }, bb: { SANs: [] } },
    ReferenceValues: {
      snp: [{ TrustedMeasurement: '11', MinimumTCB: { BootloaderVersion: 3, TEEVersion: 0 } }],
    },
  };
  const TABLE = [
    ['nothing', {}, []],
    [
      'a policy that was added, and one that was removed',
      { Policies: { aa: before.Policies.aa, cc: { SANs: [] } } },
      [
        { path: '/Policies/cc', concerns: 'policies', after: { SANs: [] } },
        { path: '/Policies/bb', concerns: 'policies', before: { SANs: [] } },
      ],
    ],
    [
      'a name of a policy',
      { Policies: { ...before.Policies, aa: { SANs: ['one', '2/~'], Role: 'coordinator' } } },
      [{ path: '/Policies/aa/SANs/1', concerns: 'policies', before: 'two', after: '2/~' }],
    ],
    [
      'a measurement and a TCB floor',
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
      'another member, with its name escaped',
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
    it(`names ${what}`, () => assert.deepEqual(manifestChanges(before, { ...before, ...change }), expected));
  }

  it('stops after 500 changes', () => {
    const many = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`m${i}`, i]));
    assert.equal(manifestChanges({}, many).length, 500);
  });
});

describe('the history of enforced manifests', () => {
  it('is the log, newest first, with what changed from each to the next', async () => {
    const workspace = mkdtempSync(join(tmpdir(), 'history-'));
    try {
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
        history.map(({ since, ...entry }) => [since.slice(0, 10), entry]),
        [
          ['2026-12-03', { file: '3.json', sha256: sha256(manifests[0]), changes: change(2, 1) }],
          ['2026-12-02', { file: '2.json', sha256: sha256(manifests[1]), changes: change(1, 2) }],
          ['2026-12-01', { file: '1.json', sha256: sha256(manifests[0]), changes: undefined }],
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
    } finally {
      rmSync(workspace, { recursive: true });
    }
  });
});

describe('what the verification document leaves out', () => {
  const EPOCH = {
    ...{ secretId: 'of the epoch', manifestSha256: 'aa', verdictSha256: 'bb' },
    ...{ attestedAt: 1, renewAt: 2, expiresAt: 3, key: 'the key of the epoch', jitter: 4 },
  };
  const about = { version: '1', protocol: 'v1', now: new Date(0), epoch: EPOCH, manifests: [] };
  const NONCE = Buffer.from(syntheticInput('synthetic_v158').nonce);
  const OTHER = Buffer.alloc(32, 7);
  const isDigest = (text: string): boolean => /^[0-9a-f]{128}$/.test(text);

  for (const [outcome, nonce, found] of [
    ['accepted', NONCE, 'that digest'],
    ['rejected', OTHER, 'another digest'],
  ] as const) {
    it(`is the nonce and what is hashed with it, where the evidence is ${outcome}`, async () => {
      const input = { ...syntheticInput('synthetic_v158'), nonce };
      const verdict = await verify(input);
      const judged = verdict.checks.find(({ id }) => id === 'snp.report_data');
      assert.equal(verdict.outcome, outcome);
      assert.ok(judged !== undefined && isDigest(judged.found) && isDigest(judged.expected));
      const document = verificationDocument({ ...about, verdict, roots: input.roots });
      const text = verificationText(document);
      for (const digest of [judged.found, judged.expected]) {
        for (const encoding of ['hex', 'base64'] as const) {
          assert.ok(!text.includes(Buffer.from(digest, 'hex').toString(encoding)), encoding);
          assert.ok(!text.includes(nonce.toString(encoding)), encoding);
        }
      }
      const shown = document.verdict?.checks.find(({ id }) => id === 'snp.report_data');
      assert.deepEqual(
        [shown?.expected, shown?.found],
        ['the digest over nonce, manifest and both CA certificates', found],
      );
      const others = verdict.checks.filter(({ id }) => id !== 'snp.report_data');
      for (const { id, found } of others) {
        assert.equal(document.verdict?.checks.find((check) => check.id === id)?.found, found, id);
      }
      if (outcome === 'rejected') assert.equal(document.verdict?.failure?.found, found);
    });
  }

  it('is the same of a quote, and nothing where the check was not made', () => {
    const digests = { expected: 'e1'.repeat(64), found: 'f1'.repeat(64) };
    const check = (outcome: Check['outcome'], members = digests): Check => ({
      ...{ id: 'tdx.policy.report_data', source: 's', outcome, ...members },
    });
    const shown = (made: Check) => {
      const failure = made.outcome === 'fail' ? made : undefined;
      const verdict = {
        ...({ outcome: 'rejected', tee: 'tdx', manifestSha256: 'cc', at: new Date(0) } as const),
        ...{ checks: [made], failure, meshCaPem: undefined },
      };
      const { roots } = syntheticInput('synthetic');
      return verificationText(verificationDocument({ ...about, verdict, roots }));
    };
    for (const outcome of ['pass', 'fail'] as const) assert.doesNotMatch(shown(check(outcome)), /e1e1|f1f1/);
    assert.match(shown(check('not-evaluated', { expected: 'a digest', found: 'not made' })), /not made/);
  });

  it('is every member of the epoch but its names and times', () => {
    const { roots } = syntheticInput('synthetic');
    const { epoch } = verificationDocument({ ...about, verdict: undefined, roots });
    const time = (ms: number): string => `1970-01-01T00:00:00.00${ms}Z`;
    assert.deepEqual(epoch, {
      ...{ secretId: 'of the epoch', manifestSha256: 'aa', verdictSha256: 'bb' },
      ...{ attestedAt: time(1), renewAt: time(2), expiresAt: time(3) },
    });
  });
});
