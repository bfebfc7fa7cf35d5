/**
 * The verdict itself: what the checks of the secret exchange, and errors of it, make of accepted evidence,
 * and with which moment its dates are compared.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { MESH_ROWS, SECRET_ROWS } from '../../lib/attestation/mesh.ts';
import { type Check, verify } from '../../lib/attestation/verify-evidence.ts';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { attest } from '../../lib/session/epoch.ts';
import { completed, evidenceVerdict, notJudged, withSecretChecks } from '../../lib/verdict/judge.ts';
import { errorOf, type Verdict } from '../../lib/verdict/verdict.ts';
import { syntheticInput } from '../support/evidence/attestation-vectors.ts';
import { attestedBy, issueArkCrl, issueVcek } from '../support/evidence/snp-platform.ts';

async function accepted(): Promise<Verdict> {
  const input = syntheticInput('synthetic_v158');
  const verdict = evidenceVerdict(await verify(input), input.roots);
  assert.equal(verdict.outcome, 'accepted');
  return verdict;
}

const check = (id: string, outcome: Check['outcome'], code?: ErrorCode): Check => ({
  ...{ id, outcome, expected: 'e', found: 'f', source: 's' },
  ...(code === undefined ? {} : { code }),
});

describe('the error of a verdict', () => {
  it('has the code of the check that decided, and says what was expected and found; it is the same each time', async () => {
    const failed = withSecretChecks(await accepted(), [check('secret.b', 'fail', 'evidence_malformed')]);
    const error = errorOf(failed);
    const message = 'secret.b: expected e; found f (docs/protocol/s)';
    assert.deepEqual([error?.code, error?.message], ['evidence_malformed', message]);
    assert.equal(errorOf({ failure: failed.failure }), error);
    assert.equal(errorOf(await accepted()), undefined);
    const read = JSON.parse(JSON.stringify(failed)) as Verdict;
    assert.equal(errorOf(read)?.message, error?.message);
  });

  it('is the error itself, with its remedy, where no check decided', async () => {
    const error = new PrivatemodeError('upstream_unreachable', 'words', { remedy: 'do this' });
    assert.equal(errorOf(completed(error, await accepted())), error);
  });

  it('says that nothing was accepted for a list without any check', async () => {
    const input = syntheticInput('synthetic_v158');
    const found = { ...(await verify(input)), checks: [], failure: undefined };
    const verdict = evidenceVerdict({ ...found, outcome: 'rejected' }, input.roots);
    assert.deepEqual([verdict.failure?.id, errorOf(verdict)?.code], [null, 'attestation_failed']);
  });

  it('asks to check the clock first if a date failed', async () => {
    const { now, ...input } = attestedBy({});
    const late = await verify({ ...input, now: new Date(now.getTime() + 40 * 365 * 86_400_000) });
    const error = errorOf(evidenceVerdict(late, input.roots));
    assert.equal(error?.detail?.clock, 'late');
    assert.match(error?.remedy ?? '', /^Check the clock of this machine/);
  });
});

describe('the checks of a secret exchange', () => {
  const holds = check('mesh.a', 'pass');
  const malformed = check('secret.form', 'fail', 'evidence_malformed');
  for (const [what, checks, outcome, id] of [
    ['all pass', [holds, check('secret.b', 'pass')], 'accepted', undefined],
    ['one fails', [holds, check('secret.b', 'fail', 'attestation_failed')], 'rejected', 'secret.b'],
    ['the message has a wrong form', [holds, malformed], 'malformed', 'secret.form'],
    ['one was not made', [check('mesh.a', 'not-evaluated')], 'rejected', 'mesh.a'],
    ['there are none', [], 'rejected', null],
  ] as const) {
    it(`give accepted evidence the outcome ${outcome} if ${what}`, async () => {
      const before = await accepted();
      const whole = withSecretChecks(before, checks);
      assert.deepEqual([whole.outcome, whole.failure?.id], [outcome, id]);
      assert.equal(whole.failure === null, outcome === 'accepted');
      assert.deepEqual(whole.checks, [...before.checks, ...checks]);
    });
  }

  it('have one row each in the verdict, which is not-evaluated if the check was not made', async () => {
    const failed = withSecretChecks(await accepted(), [check('mesh.certificate.form', 'fail')]);
    const rows = completed(undefined, failed).checks.filter(({ id }) => /^(?:mesh|secret)\./.test(id));
    const all = [...MESH_ROWS, ...SECRET_ROWS].map(({ id }) => id);
    assert.deepEqual(rows.map(({ id }) => id).toSorted(), all.toSorted());
    assert.equal(rows.filter(({ outcome }) => outcome === 'not-evaluated').length, rows.length - 1);
  });
});

describe('an error outside the checks', () => {
  for (const [code, outcome] of [
    ['upstream_unreachable', 'unavailable'],
    ['secret_exchange_failed', 'malformed'],
    ['evidence_malformed', 'malformed'],
    ['verify_input_invalid', 'malformed'],
  ] as const) {
    it(`gives the verdict ${outcome} after ${code}, with checks or without`, async () => {
      const error = new PrivatemodeError(code, 'as it happens');
      const before = await accepted();
      for (const verdict of [completed(error, before), notJudged(error, before)]) {
        assert.equal(verdict.outcome, outcome);
        const failure = { id: null, code, expected: null, found: 'as it happens', source: null };
        assert.deepEqual(verdict.failure, failure);
      }
    });
  }

  it('does not replace the verdict of a check that failed before', async () => {
    const failed = withSecretChecks(await accepted(), [check('secret.b', 'fail', 'attestation_failed')]);
    const { outcome, failure } = completed(new PrivatemodeError('secret_exchange_failed', 'words'), failed);
    assert.deepEqual([outcome, failure], ['rejected', failed.failure]);
  });

  it('proves nothing either way if only collateral was missing: the verdict is unavailable', async () => {
    const { now, ...input } = attestedBy({ vcek: null });
    const verdict = evidenceVerdict(await verify({ ...input, now }), input.roots);
    assert.deepEqual([verdict.outcome, verdict.failure?.code], ['unavailable', 'collateral_unavailable']);
  });
});

describe('a deployment whose manifest has no entry for the secret service', () => {
  const { now, secretFollows: _, ...input } = attestedBy({});
  const none = new Uint8Array(0);
  const messages = { publicKey: none, encapsulatedKey: none, signature: none, meshCert: none };

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
    const hooks = { onStep: () => {}, onVerdict: () => {} };
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
      onVerdict: (judged: { readonly verdict: Verdict }) => {
        verdict = judged.verdict;
      },
    };
    const alone: typeof verify = (subject) => verify({ ...subject, secretFollows: false });
    const clock = { now: () => wall, monotonic: () => 0 };
    const deps = { ...input, collateral, control, clock, verify: alone };
    await assert.rejects(attest(deps, hooks, { ...input, apiKey: 'key' }));
    return { verdict: verdict as unknown as Verdict, answers };
  }

  it('is when the evidence came, also if AMD signs collateral afterwards, and judged again', async () => {
    const { verdict, answers } = await attested(second);
    assert.equal(verdict.failure?.found, undefined);
    assert.deepEqual([verdict.outcome, Date.parse(verdict.at) - began], ['accepted', 300]);
    const recorded = {
      ...input.collateral,
      amdVcek: async () => answers.get('vcek') as Uint8Array,
      amdCrl: async () => ({ crl: answers.get('crl') as Uint8Array }),
    };
    const again = await verify({ ...input, collateral: recorded, now: new Date(verdict.at) });
    assert.equal(again.outcome, 'accepted');
  });

  it('does not wait for collateral that begins more than a minute later: it is refused, and asked for once', async () => {
    const { verdict, answers } = await attested((ms) => new Date(ms + 60_000));
    assert.deepEqual([verdict.outcome, verdict.failure?.id], ['rejected', 'snp.chain.validity']);
    assert.deepEqual([...answers.keys()], ['vcek']);
  });
});
