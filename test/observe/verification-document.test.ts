import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Check, verify } from '../../lib/attestation/verify-evidence.ts';
import { verificationDocument, verificationText } from '../../lib/observe/verification-document.ts';
import { evidenceVerdict } from '../../lib/verdict/judge.ts';
import { failedCheck } from '../../lib/verdict/verdict.ts';
import { syntheticInput } from '../support/evidence/attestation-vectors.ts';
import { standing } from '../support/remote/standing.ts';

describe('the verification document', () => {
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
    it(`shows, for ${outcome} evidence, neither the nonce nor the digests over it; words say which digest was expected and which was found`, async () => {
      const input = { ...syntheticInput('synthetic_v158'), nonce };
      const verdict = evidenceVerdict(await verify(input), input.roots);
      const judged = verdict.checks.find(({ id }) => id === 'snp.report_data');
      assert.equal(verdict.outcome, outcome);
      assert.ok(judged !== undefined && isDigest(judged.found) && isDigest(judged.expected));
      const document = verificationDocument({ ...about, verdict });
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

  it('has an epoch exactly if the proxy is verified: none while it stops, although a secret is in force', () => {
    assert.equal(verificationDocument({ ...about, verdict: undefined }).epoch?.secretId, 'of the epoch');
    const stopping = { ...about, standing: standing('ended'), verdict: undefined };
    const { verified, epoch } = verificationDocument(stopping);
    assert.deepEqual([verified, epoch], [false, null]);
  });

  it('leaves out the digests of the report data of a TDX quote, and says so if that check was not made', () => {
    const digests = { expected: 'e1'.repeat(64), found: 'f1'.repeat(64) };
    const check = (outcome: Check['outcome'], members = digests): Check => ({
      ...{ id: 'tdx.policy.report_data', source: 's', outcome, ...members },
    });
    const shown = (made: Check) => {
      const failure = made.outcome === 'fail' ? failedCheck(made) : null;
      const verdict = {
        ...({
          outcome: 'rejected',
          tee: 'tdx',
          manifestSha256: 'cc',
          at: '1970-01-01T00:00:00.000Z',
        } as const),
        ...({ checks: [made], failure, roots: 'vendor' } as const),
      };
      return verificationText(verificationDocument({ ...about, verdict }));
    };
    for (const outcome of ['pass', 'fail'] as const) assert.doesNotMatch(shown(check(outcome)), /e1e1|f1f1/);
    assert.match(shown(check('not-evaluated', { expected: 'a digest', found: 'not made' })), /not made/);
  });

  it('has of the epoch only its id, digests and times, and not its key', () => {
    const { epoch } = verificationDocument({ ...about, verdict: undefined });
    const time = (ms: number): string => `1970-01-01T00:00:00.00${ms}Z`;
    assert.deepEqual(epoch, {
      ...{ secretId: 'of the epoch', manifestSha256: 'aa', verdictSha256: 'bb' },
      ...{ attestedAt: time(1), renewAt: time(2), expiresAt: time(3) },
    });
  });
});
