/** Whatever is done to a document, it does not become better; and nothing takes long. Fixed seeds. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { decodeSnpAttestation } from '../../lib/attestation/snp/report.ts';
import { type VerifyInput, verify } from '../../lib/attestation/verify-evidence.ts';
import { toPem } from '../../simulator/pki/certificate.ts';
import {
  evidenceOf,
  SYNTHETIC_SETS,
  syntheticCases,
  syntheticInput,
  withMembers,
} from '../support/evidence/attestation-vectors.ts';
import { syntheticInput as syntheticTdxInput } from '../support/evidence/tdx-vectors.ts';

const SEED = 20261201;
const mask = fc.integer({ min: 1, max: 255 });

function withChange(bytes: Uint8Array, at: number, xor: number): Buffer {
  const changed = Buffer.from(bytes);
  changed[at] = (changed[at] as number) ^ xor;
  return changed;
}

const withEvidence = (input: VerifyInput, raw: Uint8Array): VerifyInput =>
  withMembers(input, { raw_attestation_doc: Buffer.from(raw).toString('base64') });

/** Of a document, what its verdict depends on where nothing else is wrong. */
function decidingMembers({ document }: VerifyInput): string {
  const deciding = ['raw_attestation_doc', 'manifests', 'policies', 'root_ca', 'mesh_ca'];
  return JSON.stringify(JSON.parse(Buffer.from(document).toString()), deciding);
}

describe('a changed byte', () => {
  for (const set of SYNTHETIC_SETS) {
    const input = syntheticInput(set);
    const raw = evidenceOf(input);
    const { vcek, arkCrl: crl = assert.fail('no CRL') } = decodeSnpAttestation(raw);
    /** Where the report, the VCEK and the CRL stand in the message. */
    const regions = {
      report: [2, 1100],
      VCEK: [raw.indexOf(vcek), vcek.length],
      CRL: [raw.indexOf(crl), crl.length],
    };

    for (const [name, [start = 0, length = 0]] of Object.entries(regions)) {
      it(`in the ${name} of ${set} is always noticed`, async () => {
        assert.ok(start > 0);
        await fc.assert(
          fc.asyncProperty(fc.nat(length - 1), mask, async (offset, xor) => {
            const verdict = await verify(withEvidence(input, withChange(raw, start + offset, xor)));
            assert.notEqual(verdict.outcome, 'accepted', `byte ${start + offset}`);
            assert.equal(verdict.meshCaPem, undefined);
          }),
          // The property once failed for this byte of the report.
          { seed: SEED, numRuns: 30, examples: name === 'report' ? [[1018, 1]] : [] },
        );
      });
    }
  }

  it('anywhere in refused evidence never leads to acceptance, unless it restores the honest document', async () => {
    const refused = SYNTHETIC_SETS.flatMap((set) =>
      syntheticCases(set)
        .filter(
          ({ kind, upstream, careful }) => kind === 'attest_response' && (careful ?? upstream) === 'reject',
        )
        .map(({ file }) => syntheticInput(set, `negative/${file}`)),
    );
    assert.equal(refused.length, 51);
    const honest = SYNTHETIC_SETS.map((set) => decidingMembers(syntheticInput(set)));
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...refused),
        fc.nat(),
        mask,
        fc.boolean(),
        async (input, at, xor, whole) => {
          const target = whole ? input.document : evidenceOf(input);
          const changed = withChange(target, at % target.length, xor);
          const attempted = whole ? { ...input, document: changed } : withEvidence(input, changed);
          const { outcome } = await verify(attempted);
          // The byte may be the very one that was wrong, or belong to a member that nothing has to be in.
          if (outcome === 'accepted') assert.ok(honest.includes(decidingMembers(attempted)), 'accepted');
        },
      ),
      { seed: SEED, numRuns: 200 },
    );
  });
});

describe('verify', () => {
  const input = syntheticInput('synthetic_v158');

  it('gives a verdict and never throws for random bytes as document, nonce or evidence', async () => {
    const [bytes, short] = [fc.uint8Array({ maxLength: 300 }), fc.uint8Array({ maxLength: 40 })];
    await fc.assert(
      fc.asyncProperty(bytes, short, async (document, nonce) => {
        assert.equal((await verify({ ...input, document, nonce })).meshCaPem, undefined);
        assert.notEqual((await verify(withEvidence(input, document))).outcome, 'accepted');
      }),
      { seed: SEED, numRuns: 100 },
    );
  });
});

const MEGABYTE = 2 ** 20;

describe('the time a verdict takes', () => {
  for (const [name, evidence, turns] of [
    ['SEV-SNP', syntheticInput('synthetic_v158'), 13],
    ['TDX', syntheticTdxInput(), 19],
  ] as const) {
    it(`leaves ${turns} turns of the event loop to other work, for ${name}`, async (t) => {
      // Web Crypto works in threads of its own, and the loop turns meanwhile as often as it can.
      t.mock.method(crypto.subtle, 'importKey', async () => ({}));
      t.mock.method(crypto.subtle, 'verify', async () => true);
      let taken = 0;
      let watching = true;
      const watch = (): void => {
        if (!watching) return;
        taken += 1;
        setImmediate(watch);
      };
      setImmediate(watch);
      assert.equal((await verify(evidence)).outcome, 'accepted');
      watching = false;
      assert.equal(taken, turns);
    });
  }

  const input = syntheticInput('synthetic_v158');
  const der = (...children: Uint8Array[]): Buffer => {
    const content = Buffer.concat(children);
    return Buffer.concat([
      Buffer.from('3083', 'hex'),
      Buffer.from(content.length.toString(16).padStart(6, '0'), 'hex'),
      content,
    ]);
  };
  const size = 700_000;
  const text = (json: string): VerifyInput => ({ ...input, document: Buffer.from(json) });
  const evidence = (bytes: Uint8Array): VerifyInput => withEvidence(input, bytes);
  const fields = (hex: string): VerifyInput =>
    evidence(Buffer.from(hex.repeat((2 * size) / hex.length), 'hex'));
  const meshCa = (pem: string | Buffer): VerifyInput =>
    withMembers(input, { mesh_ca: Buffer.from(pem as string).toString('base64') });
  const names = Array.from({ length: 60_000 }, () => Buffer.from('31003000', 'hex'));
  const garbage: Readonly<Record<string, VerifyInput>> = {
    'opening brackets': text('['.repeat(MEGABYTE)),
    'a flat list': text(`[${'1,'.repeat(MEGABYTE / 2)}1]`),
    'an object of many members': text(`{${Array.from({ length: 90_000 }, (_, i) => `"${i}":1`).join()}}`),
    'a string of escapes': text(`{"version":"${'\\u0041'.repeat(MEGABYTE / 6)}"}`),
    'an endless number': text('1'.repeat(MEGABYTE)),
    'evidence of many fields': fields('0801'),
    'evidence of many unknown fields': fields('7a00'),
    'evidence of nested groups': fields('7b'),
    'a mesh CA of many PEM beginnings': meshCa('-----BEGIN A-----\n'.repeat(size / 18)),
    'a mesh CA without an end': meshCa(`-----BEGIN A-----\n${'A'.repeat(size)}`),
    'a mesh CA of many elements': meshCa(toPem(der(Buffer.from('0500'.repeat(size / 3), 'hex')))),
    'a mesh CA of many names': meshCa(toPem(der(der(...names)))),
  };
  for (const [what, bad] of Object.entries(garbage)) {
    it(`is bounded for ${what}`, async () => {
      const before = process.threadCpuUsage();
      assert.notEqual((await verify(bad)).outcome, 'accepted');
      const { user, system } = process.threadCpuUsage(before);
      // A megabyte read in a time that grows with its square takes minutes.
      assert.ok(user + system < 2_000_000, `${user + system} µs of CPU`);
    });
  }
});
