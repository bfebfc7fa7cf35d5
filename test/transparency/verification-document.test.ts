import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Check, verify } from '../../lib/attestation/verify.ts';
import { verificationDocument, verificationText } from '../../lib/transparency/verification-document.ts';
import { syntheticInput } from '../support/evidence/attestation-vectors.ts';
import { standing } from '../support/remote/standing.ts';

describe('what the verification document leaves out', () => {
  const EPOCH = {
    ...{ secretId: 'of the epoch', manifestSha256: 'aa', verdictSha256: 'bb' },
    ...{ attestedAt: 1, renewAt: 2, expiresAt: 3, key: 'the key of the epoch', jitter: 4 },
  };
  const about = {
    ...{ version: '1', protocol: 'v1', now: new Date(0), epoch: EPOCH, manifests: [] },
    standing: standing('verified'),
  };
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
        ...({ checks: [made], failure, authentic: 'yes', meshCaPem: undefined } as const),
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
