import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { CHECK_SECTIONS, type Check } from '../../lib/attestation/verify.ts';
import { manifestChanges } from '../../lib/transparency/manifest-changes.ts';
import { manifestHistory } from '../../lib/transparency/manifest-history.ts';
import { createManifestLog } from '../../lib/transparency/manifest-log.ts';
import { chainOfTrust, linkOf } from '../../lib/verdict/chain-of-trust.ts';

describe('the chain of trust', () => {
  const ids = CHECK_SECTIONS.flatMap(({ rows }) => rows.map(({ id }) => id));
  const checks = (outcome: (id: string) => Check['outcome']): Check[] =>
    ids.map((id) => ({ id, source: 's', expected: 'e', found: 'f', outcome: outcome(id) }));
  const outcomes = (outcome: (id: string) => Check['outcome']) =>
    chainOfTrust(checks(outcome), 'vendor').map((link) => `${link.id} ${link.outcome}`);

  it('has every check of the program in exactly one link', () => {
    const links = chainOfTrust(
      checks(() => 'pass'),
      'vendor',
    );
    assert.deepEqual(links.flatMap((link) => link.checks.map(({ id }) => id)).toSorted(), ids.toSorted());
    for (const id of ids) assert.notEqual(linkOf(id), undefined, id);
  });

  for (const [id, link] of [
    ['snp.report.signature', 'hardware'],
    ['snp.tcb.reported', 'hardware'],
    ['tdx.quote.signature', 'hardware'],
    ['tdx.tcb.platform_status', 'hardware'],
    ['evidence.form', 'hardware'],
    ['manifest.expected', 'manifest'],
    ['document.policies', 'manifest'],
    ['snp.measurement', 'coordinator'],
    ['snp.report_data', 'coordinator'],
    ['snp.policy.debug', 'coordinator'],
    ['tdx.policy.mrtd', 'coordinator'],
    ['nonce.length', 'coordinator'],
    ['document.mesh_ca', 'mesh'],
    ['mesh.certificate.signature', 'mesh'],
    ['secret.signature', 'secret'],
  ] as const) {
    it(`has ${id} in the link ${link}`, () => assert.equal(linkOf(id), link));
  }

  it('passes a link only where no check of it failed or is open', () => {
    assert.deepEqual(
      outcomes((id) =>
        id === 'snp.measurement' ? 'fail' : id.startsWith('mesh.') ? 'not-evaluated' : 'pass',
      ),
      ['hardware pass', 'manifest pass', 'coordinator fail', 'mesh unknown', 'secret unknown'],
    );
    assert.deepEqual(
      outcomes((id) => (id.startsWith('tdx.') ? 'not-applicable' : 'pass')),
      ['hardware pass', 'manifest pass', 'coordinator pass', 'mesh pass', 'secret pass'],
    );
  });

  it('does not pass a link by its preliminaries: a mesh CA without a mesh certificate', () => {
    const links = chainOfTrust(
      checks(() => 'pass').filter(({ id }) => !/^(?:mesh|snp|tdx)\./.test(id)),
      'vendor',
    );
    assert.deepEqual(
      links.map((link) => `${link.id} ${link.outcome}`),
      ['hardware unknown', 'manifest unknown', 'coordinator unknown', 'mesh unknown', 'secret unknown'],
    );
  });

  it('passes no link behind one that does not, for nothing vouches for it', () => {
    assert.deepEqual(
      outcomes((id) => (id === 'snp.tcb.reported' ? 'fail' : 'pass')),
      ['hardware fail', 'manifest unknown', 'coordinator unknown', 'mesh unknown', 'secret unknown'],
    );
  });

  it('says under custom roots, and under no others, that no genuine hardware is shown, in the link of the hardware alone', () => {
    const meanings = (roots: 'vendor' | 'custom') =>
      chainOfTrust(
        checks(() => 'pass'),
        roots,
      ).map(({ meaning }) => meaning);
    const [hardware, ...others] = meanings('custom');
    assert.match(hardware ?? '', /^NOT genuine AMD or Intel hardware.*custom roots are trusted.*simulator/);
    assert.deepEqual(others, meanings('vendor').slice(1));
    assert.match(meanings('vendor')[0] ?? '', /^A genuine AMD or Intel processor/);
  });

  it('knows nothing of a link whose checks were not made', () => {
    const links = chainOfTrust(
      checks(() => 'pass').filter(({ id }) => !id.startsWith('secret.')),
      'vendor',
    );
    assert.deepEqual(links.at(-1)?.outcome, 'unknown');
    assert.deepEqual(links.at(-1)?.checks, []);
  });
});

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
