/**
 * The verdict itself: what the checks of the secret exchange, and errors of it, make of accepted evidence,
 * and with which moment its dates are compared.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Check, verify } from '../../lib/attestation/verify-evidence.ts';
import { toApplication } from '../../lib/client-library/remedies.ts';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { attest } from '../../lib/session/epoch.ts';
import { adviceFor } from '../../lib/verdict/advice.ts';
import { SECRET_EXCHANGE_ROWS } from '../../lib/verdict/checks.ts';
import { endedBy, evidenceVerdict, judge, withOpenRows, withSecretChecks } from '../../lib/verdict/judge.ts';
import type { Verdict } from '../../lib/verdict/verdict.ts';
import { syntheticInput } from '../support/evidence/attestation-vectors.ts';
import { attestedBy, issueArkCrl, issueVcek } from '../support/evidence/snp-platform.ts';

async function accepted(): Promise<Verdict> {
  const input = syntheticInput('synthetic_v158');
  const verdict = evidenceVerdict(await verify(input), input);
  assert.equal(verdict.outcome, 'accepted');
  return verdict;
}

const check = (id: string, outcome: Check['outcome'], code?: ErrorCode): Check => ({
  ...{ id, outcome, expected: 'e', found: 'f', source: 's' },
  ...(code === undefined ? {} : { code }),
});

describe('the error of a verdict that rejects', () => {
  const input = syntheticInput('synthetic_v158');
  it('says what the check says, and asks to check the clock first if that may be the cause', async () => {
    const failing = async (failed: Partial<Check>) => {
      const failure = { ...check('x.y', 'fail', 'attestation_failed'), ...failed };
      const found = { ...(await verify(input)), outcome: 'rejected', failure } as const;
      return evidenceVerdict(found, input).failure?.error;
    };
    const { code, message } = (await failing({ code: 'manifest_mismatch' })) ?? {};
    assert.deepEqual([code, message], ['manifest_mismatch', 'x.y: expected e; found f (docs/protocol/s)']);
    const early = await failing({ detail: { clock: 'early' } });
    assert.match(early?.remedy ?? '', /^Check the clock of this machine/);
    assert.equal(early?.detail?.clock, 'early');
  });
});

describe('an SEV-SNP report of version 6', () => {
  it('is refused with the advice to update, and is not called a forgery', async () => {
    const { now, ...input } = attestedBy({ report: { version: 6 } });
    const subject = { ...input, at: now, secret: undefined };
    const verdict = await judge({ ...subject, canBeOpened: async () => true });
    const { error, check: failed } = verdict.failure ?? {};
    assert.deepEqual([verdict.outcome, failed?.id], ['rejected', 'snp.report.version']);
    const remedy = /^Update this program to its latest version, .* do not trust the remote before it does\.$/;
    assert.match(error?.remedy ?? '', remedy);
    assert.match(adviceFor(verdict, { mode: 'live', manifest: 'managed', saved: false }), remedy);
    assert.match(adviceFor(verdict, { mode: 'offline', atGiven: false }), remedy);
    assert.equal(toApplication(error as PrivatemodeError).remedy, error?.remedy);
  });
});

describe('the checks of a secret exchange', () => {
  for (const [what, checks, outcome, id] of [
    ['all pass', [check('mesh.a', 'pass'), check('secret.b', 'pass')], 'accepted', undefined],
    [
      'one fails',
      [check('mesh.a', 'pass'), check('secret.b', 'fail', 'attestation_failed')],
      'rejected',
      'secret.b',
    ],
    [
      'the message has a wrong form',
      [check('mesh.a', 'pass'), check('secret.form', 'fail', 'evidence_malformed')],
      'malformed',
      'secret.form',
    ],
    ['one was not made', [check('mesh.a', 'not-evaluated')], 'rejected', 'mesh.a'],
    ['there are none', [], 'rejected', undefined],
  ] as const) {
    it(`give accepted evidence the outcome ${outcome} if ${what}`, async () => {
      const before = await accepted();
      const whole = withSecretChecks(before, checks);
      assert.deepEqual([whole.outcome, whole.failure?.check?.id], [outcome, id]);
      assert.equal(whole.failure === undefined, outcome === 'accepted');
      assert.deepEqual(whole.checks, [...before.checks, ...checks]);
    });
  }

  it('have one row each in the verdict, which is not-evaluated if the check was not made', async () => {
    const { checks } = withOpenRows(
      withSecretChecks(await accepted(), [check('mesh.certificate.form', 'pass')]),
    );
    const rows = checks.filter(({ id }) => /^(?:mesh|secret)\./.test(id));
    assert.deepEqual(
      rows.map(({ id }) => id).toSorted(),
      SECRET_EXCHANGE_ROWS.map(({ id }) => id).toSorted(),
    );
    assert.equal(rows.filter(({ outcome }) => outcome === 'not-evaluated').length, rows.length - 1);
  });
});

describe('a secret exchange that fails', () => {
  for (const [code, outcome] of [
    ['upstream_unreachable', 'unavailable'],
    ['secret_exchange_failed', 'malformed'],
    ['evidence_malformed', 'malformed'],
  ] as const) {
    it(`gives the verdict ${outcome} after ${code}`, async () => {
      const error = new PrivatemodeError(code, 'as it happens');
      const verdict = endedBy(error, await accepted());
      assert.equal(verdict.outcome, outcome);
      assert.deepEqual(verdict.failure, { check: undefined, error });
    });
  }

  it('does not replace the verdict of a check that failed before', async () => {
    const failed = withSecretChecks(await accepted(), [check('secret.b', 'fail', 'attestation_failed')]);
    assert.equal(endedBy(new PrivatemodeError('secret_exchange_failed', 'words'), failed), failed);
    const open = withSecretChecks(await accepted(), [check('mesh.b', 'fail', 'collateral_unavailable')]);
    assert.equal(endedBy(open.failure?.error, open).outcome, 'unavailable');
  });
});

describe('a deployment whose manifest has no entry for the secret service', () => {
  const { now, secretFollows: _, ...input } = attestedBy({});
  const none = new Uint8Array(0);
  const messages = { publicKey: none, encapsulatedKey: none, signature: none, meshCert: none };

  it('is unsupported, and not malformed, as soon as a secret is judged; its evidence alone is accepted', async () => {
    const verdict = (secret?: typeof messages) =>
      judge({ ...input, at: now, secret, canBeOpened: async () => true });
    assert.equal((await verdict()).outcome, 'accepted');
    const { outcome, failure } = await verdict(messages);
    assert.deepEqual([outcome, failure?.check?.id], ['unsupported', 'manifest.valid']);
    assert.deepEqual(
      [failure?.error.code, failure?.error.remedy],
      ['manifest_unsupported', 'Update privatemode-proxy to the latest version.'],
    );
  });

  it('is refused as manifest_unsupported before it is asked for a secret', async () => {
    const asked: string[] = [];
    const control = {
      attest: async () => input.document,
      secret: async () => {
        asked.push('secret');
        return messages;
      },
    };
    const clock = { now: () => now.getTime(), monotonic: () => 0 };
    const hooks = { onStep: () => {}, onEvidence: () => {}, onSecret: () => {} };
    await assert.rejects(attest({ ...input, control, clock }, hooks, { ...input, apiKey: 'key' }), {
      code: 'manifest_unsupported',
    });
    assert.deepEqual(asked, []);
  });
});

describe('the moment of a verdict', () => {
  const { now, ...input } = attestedBy({ vcek: null, crl: null });
  const began = now.getTime();
  const second = (ms: number): Date => new Date(ms - (ms % 1000));

  /** The verdict on evidence without collateral. Each of AMD's two answers takes a second. */
  async function attested(signedAt: (asked: number) => Date) {
    let wall = began + 300;
    const answers = new Map<'vcek' | 'crl', Uint8Array>();
    async function signed(what: 'vcek' | 'crl', sign: (date: Date) => Uint8Array): Promise<Uint8Array> {
      assert.ok(!answers.has(what), `asked again for ${what}`);
      const answer = sign(signedAt(wall + 900));
      answers.set(what, answer);
      wall += 1000;
      return answer;
    }
    const collateral = {
      ...input.collateral,
      amdVcek: () => signed('vcek', (notBefore) => issueVcek({ notBefore })),
      amdCrl: async () => ({ crl: await signed('crl', (thisUpdate) => issueArkCrl({ thisUpdate })) }),
    };
    const control = {
      attest: async () => input.document,
      secret: () => Promise.reject(new Error('the end')),
    };
    let verdict: Verdict | undefined;
    const hooks = {
      onStep: () => {},
      onEvidence: (judged: { readonly verdict: Verdict }) => {
        verdict = judged.verdict;
      },
      onSecret: () => {},
    };
    const alone: typeof verify = (subject) => verify({ ...subject, secretFollows: false });
    const clock = { now: () => wall, monotonic: () => 0 };
    const deps = { ...input, collateral, control, clock, verify: alone };
    await assert.rejects(attest(deps, hooks, { ...input, apiKey: 'key' }));
    return { verdict: verdict as unknown as Verdict, answers };
  }

  it('is when the evidence came, also if AMD signs collateral afterwards, and in the saved exchange', async () => {
    const { verdict, answers } = await attested(second);
    assert.equal(verdict.failure?.error.message, undefined);
    assert.deepEqual([verdict.outcome, verdict.at.getTime() - began], ['accepted', 300]);
    const saved = {
      ...input.collateral,
      amdVcek: async () => answers.get('vcek') as Uint8Array,
      amdCrl: async () => ({ crl: answers.get('crl') as Uint8Array }),
    };
    const subject = { ...input, collateral: saved, at: verdict.at, secret: undefined };
    const again = await judge({ ...subject, canBeOpened: async () => true });
    assert.equal(again.outcome, 'accepted');
  });

  it('does not wait for collateral that begins more than a minute later: it is refused, and asked for once', async () => {
    const { verdict, answers } = await attested((ms) => new Date(ms + 60_000));
    assert.deepEqual([verdict.outcome, verdict.failure?.check?.id], ['rejected', 'snp.chain.validity']);
    assert.deepEqual([...answers.keys()], ['vcek']);
  });
});
