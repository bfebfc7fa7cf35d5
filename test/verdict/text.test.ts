/** How a verdict is told: to a person, and to a program. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { MESH_ROWS, SECRET_ROWS } from '../../lib/attestation/mesh.ts';
import { type Check, ROWS_OF, verify } from '../../lib/attestation/verify-evidence.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { evidenceVerdict } from '../../lib/verdict/judge.ts';
import { type Report, renderText } from '../../lib/verdict/text.ts';
import { failedCheck, failureOf, type Verdict, verdictText } from '../../lib/verdict/verdict.ts';
import { attestedBy } from '../support/evidence/snp-platform.ts';
import { recordOf, savedFlags, verifyCommand } from '../support/evidence/verify.ts';

const check = (id: string, outcome: Check['outcome'], found: string): Check => ({
  ...{ id, outcome, expected: 'what should be', found, source: 'attestation.md 8' },
  ...(outcome === 'fail' ? { code: 'attestation_failed' } : {}),
});

function judgement(checks: readonly Check[], change: Partial<Verdict> = {}): Verdict {
  const failed = checks.find(({ outcome }) => outcome === 'fail');
  return {
    outcome: failed === undefined ? 'accepted' : 'rejected',
    ...{ tee: 'snp', manifestSha256: 'ab'.repeat(32), at: '2026-12-01T00:00:00.000Z', roots: 'vendor' },
    checks,
    failure: failed === undefined ? null : failedCheck(failed),
    ...change,
  };
}

const REPORT: Report = { mode: 'static', subject: 'https://api.example:443', manifest: 'manifest.json' };
const shown = (verdict: Verdict, change: Partial<Report> = {}, verbose = true): string =>
  renderText(verdict, { ...REPORT, ...change }, false, verbose);

const HOSTILE = 'a\u001b[2J\u009b31m\r\nb\u202ec\u2028d\u0007';

describe('the verdict for a person', () => {
  it('begins with the result, goes on with the chain of trust, and ends with what it does not prove', () => {
    const ids = 'secret.form manifest.valid snp.measurement snp.crl.age mesh.identity.common_name'.split(' ');
    const told = judgement(ids.map((id) => check(id, 'pass', 'found')));
    const parts = shown(told, {}, false).trimEnd().split('\n\n');
    const [result, heading, links, more, open] = parts.map((part) => part.split('\n'));
    assert.equal(parts.length, 5, parts.join('|'));
    const head = ['✓ ACCEPTED: every check that applies held.', '5 checks: 5 pass.'];
    assert.deepEqual(result?.slice(0, 2), head);
    assert.match(heading?.[0] ?? '', /^Subject {3}https:/);
    const titles = ['Chain of trust', '✓ Hardware', '✓ Manifest', '✓ Coordinator', '✓ Mesh', '✓ Secret'];
    const begin = links?.map((line) => /^(?:✓ )?(?:Chain of trust|\w+(?= +1 check ))/.exec(line)?.[0]);
    assert.deepEqual(begin, titles);
    assert.deepEqual(more, ['Each check: --verbose, or --json for a program.']);
    assert.equal(open?.[0], 'This does not prove');
    assert.ok(open?.some((line) => /GPU/.test(line)));
  });

  it('says that it proves nothing about real hardware, under custom roots', () => {
    const open = (change: Partial<Verdict>): string | undefined =>
      shown(judgement([], change)).split('This does not prove\n')[1];
    assert.match(open({ roots: 'custom' }) ?? '', /^ {2}- anything about real hardware/);
    assert.doesNotMatch(open({}) ?? 'missing', /real hardware|missing/);
    assert.equal(open({ outcome: 'rejected' }), undefined);
  });

  it('says what the failed check is and why it matters before it shows any value', () => {
    const checks = [check('nonce.length', 'pass', '32 bytes'), check('snp.policy.debug', 'fail', 'set')];
    const [first = '', failed = ''] = shown(judgement(checks)).split('\n\n');
    assert.match(first, /^✗ REJECTED: .*\n.*\nDo not trust the remote;/);
    for (const words of [
      /^✗ Guest policy: DEBUG\n {2}why it matters/,
      /\n {2}expected +what should be\n {2}found +set\n/,
      /check +snp\.policy\.debug \(attestation\.md 8\) \[attestation_failed\]$/,
    ])
      assert.match(failed, words);
  });

  it('asks to check the clock of this machine first, but only about the live service', () => {
    const failed = { ...check('x.y', 'fail', 'early'), detail: { clock: 'early' } } as const;
    const text = shown(judgement([failed]), { mode: 'managed' });
    assert.match(text, /^Check the clock of this machine first; if it is right, do not trust the remote/m);
    assert.doesNotMatch(shown(judgement([failed]), { mode: 'record' }), /clock/);
  });

  it('advises to update after an SEV-SNP report of version 6', async () => {
    const input = attestedBy({ report: { version: 6 } });
    const verdict = evidenceVerdict(await verify(input), input.roots);
    assert.deepEqual([verdict.outcome, verdict.failure?.id], ['rejected', 'snp.report.version']);
    for (const mode of ['managed', 'record'] as const)
      assert.match(shown(verdict, { mode }), /^Update this program to its latest version, .* do not trust/m);
  });

  it('uses colours on a terminal, and nowhere else', async () => {
    const argv = savedFlags(recordOf('synthetic_v158'));
    const coloured = await verifyCommand(argv, { terminal: { isTTY: true } });
    assert.ok(coloured.stdout.includes('\u001b[33m!'));
    for (const [env, terminal] of [
      [{}, { isTTY: false }],
      [{ NO_COLOR: '1' }, { isTTY: true }],
    ] as const) {
      const { stdout } = await verifyCommand(argv, { env, terminal });
      assert.ok(!stdout.includes('\u001b'), JSON.stringify(env));
    }
  });

  it('shows nothing of the remote that could steer a terminal', () => {
    for (const outcome of ['pass', 'fail', 'not-applicable'] as const) {
      const text = shown(judgement([check('mesh.identity.common_name', outcome, HOSTILE)]));
      assert.doesNotMatch(text, /[\u001b\u009b\u202e\u2028\u0007\r]/);
    }
    const error = new PrivatemodeError('control_api_failed', HOSTILE);
    const told = judgement([], { outcome: 'unavailable', failure: failureOf(error) });
    const report = { subject: HOSTILE, manifest: HOSTILE, roots: HOSTILE };
    assert.doesNotMatch(shown(told, report), /[\u001b\u009b\u202e\u2028\u0007\r]/);
  });
});

const jsonVerdict = (judged: Verdict): Verdict => JSON.parse(verdictText(judged)) as Verdict;

describe('the first line of the verdict', () => {
  const first = (outcome: Verdict['outcome'], roots: Verdict['roots'] = 'vendor'): string =>
    shown(judgement([], { outcome, roots })).split('\n')[0] as string;

  it('has a check mark only for evidence that was accepted under the roots of AMD and Intel', () => {
    assert.match(first('accepted'), /^✓ ACCEPTED: /);
    assert.match(first('accepted', 'custom'), /^! ACCEPTED under custom roots: /);
    for (const outcome of ['rejected', 'unsupported', 'malformed', 'unavailable'] as const) {
      assert.match(first(outcome), /^✗ /, outcome);
    }
  });
});

describe('the verdict for a program', () => {
  it('has the documented members, whatever the outcome', async () => {
    const accepted = (await verifyCommand([...savedFlags(recordOf('synthetic_v158')), '--json'])).json();
    const members = ['outcome', 'tee', 'manifestSha256', 'at', 'roots', 'checks', 'failure'];
    assert.deepEqual(Object.keys(accepted), members);
    assert.deepEqual(
      [accepted.outcome, accepted.tee, accepted.at, accepted.roots, accepted.failure],
      ['accepted', 'snp', '2026-12-01T00:00:00.000Z', 'custom', null],
    );
    assert.match(accepted.manifestSha256 ?? '', /^[0-9a-f]{64}$/);
    const rows = [...ROWS_OF.snp, ...MESH_ROWS, ...SECRET_ROWS];
    assert.deepEqual(
      accepted.checks.map(({ id }) => id),
      rows.map(({ id }) => id),
    );
    for (const each of accepted.checks) {
      const age = each.id === 'snp.crl.available' ? ['age'] : [];
      assert.deepEqual(Object.keys(each), ['id', 'outcome', 'expected', 'found', 'source', ...age]);
      assert.ok(['pass', 'not-applicable'].includes(each.outcome));
    }
    // From the thisUpdate of the list in the evidence to the time that was given.
    assert.equal(accepted.checks.find(({ id }) => id === 'snp.crl.available')?.age, 30 * 86_400);
    const failure = failureOf(new PrivatemodeError('upstream_unreachable', 'no route'));
    const change = { outcome: 'unavailable', tee: null, manifestSha256: null, failure } as const;
    const none = jsonVerdict(judgement([], change));
    assert.deepEqual(Object.keys(none), members);
    assert.deepEqual([none.tee, none.manifestSha256], [null, null]);
    assert.deepEqual(none.failure, failure);
  });

  it('keeps values exactly, and is safe to show on a terminal', () => {
    const text = verdictText(judgement([check('mesh.identity.common_name', 'pass', HOSTILE)]));
    assert.doesNotMatch(text, /[\u001b\u009b\u202e\u2028\u0007\r]/);
    assert.equal((JSON.parse(text) as { checks: { found: string }[] }).checks[0]?.found, HOSTILE);
  });
});
