/**
 * What must hold for every input: no change makes evidence acceptable, and bad input gives typed results
 * only.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { allAccepted } from '../../../lib/attestation/check.ts';
import { readWireFields } from '../../../lib/attestation/protobuf.ts';
import { decodeSnpAttestation, serializeReport } from '../../../lib/attestation/snp/report.ts';
import { readPckChain, readSgxExtension } from '../../../lib/attestation/tdx/chain.ts';
import { decodeQuoteV4, type QuoteV4 } from '../../../lib/attestation/tdx/quote.ts';
import { readSignedJson } from '../../../lib/attestation/tdx/tcb-info.ts';
import { parseCertificate, parseCrl } from '../../../lib/attestation/x509.ts';
import { decodeCertificates } from '../../../lib/crypto/der.ts';
import { PrivatemodeError } from '../../../lib/errors.ts';
import { encodeQuoteV4 } from '../../../simulator/evidence/messages.ts';
import { toPem } from '../../../simulator/pki/certificate.ts';
import { vectorBytes } from '../../support/evidence/attestation-vectors.ts';
import { judgeTdx, TDX_ROWS } from '../../support/evidence/stages.ts';
import { encodeSgx, SGX_PARTS } from '../../support/evidence/tdx-authorities.ts';
import { tdxPlatform } from '../../support/evidence/tdx-platform.ts';

const SEED = { seed: 20261201 };
const { quote, entry, context } = tdxPlatform();
const accepts = async (message: QuoteV4): Promise<boolean> =>
  allAccepted(TDX_ROWS, await judgeTdx({ message, entries: [entry], context }));

/** A bit of a byte string: position (wrapped to the length) and mask. */
const flip = fc.record({ at: fc.nat(1 << 20), mask: fc.integer({ min: 1, max: 255 }) });
type Flip = typeof flip extends fc.Arbitrary<infer T> ? T : never;
const flipped = (bytes: Uint8Array, { at, mask }: Flip): Uint8Array => {
  const copy = Uint8Array.from(bytes);
  const index = at % copy.length;
  copy[index] = (copy[index] ?? 0) ^ mask;
  return copy;
};

/** Every byte string of the quote that a signature must cover, as paths. */
function bytePaths(value: unknown, path: readonly string[] = []): readonly (readonly string[])[] {
  if (value instanceof Uint8Array) return value.length > 0 ? [path] : [];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, part]) => bytePaths(part, [...path, name]));
}
const withFlip = (value: unknown, [name, ...rest]: readonly string[], change: Flip): unknown => {
  if (name === undefined) return flipped(value as Uint8Array, change);
  const record = value as Readonly<Record<string, unknown>>;
  if (Array.isArray(value)) return value.map((v, i) => (String(i) === name ? withFlip(v, rest, change) : v));
  return { ...record, [name]: withFlip(record[name], rest, change) };
};
const certification = quote.signedData.certificationData.qeReportCertificationData;
const chainDers = decodeCertificates(
  Buffer.from(certification.pckCertificateChainData.pckCertChain).toString('latin1'),
);
const COVERED = bytePaths(quote).filter((path) => !path.includes('pckCertChain'));

const withChain = (ders: readonly Uint8Array[]): QuoteV4 => {
  const pckCertChain = Buffer.from(ders.map((der) => toPem(der)).join(''));
  const pckCertificateChainData = { ...certification.pckCertificateChainData, pckCertChain };
  const qeReportCertificationData = { ...certification, pckCertificateChainData };
  const certificationData = { ...quote.signedData.certificationData, qeReportCertificationData };
  return { ...quote, signedData: { ...quote.signedData, certificationData } };
};

describe('one flipped byte', () => {
  it('is the only change to evidence that is accepted unchanged', async () => {
    assert.ok(await accepts(quote));
    assert.ok(await accepts(withChain(chainDers)));
    assert.equal(COVERED.length, 32);
  });

  it('anywhere in the quote is never accepted', async () => {
    const property = fc.asyncProperty(fc.constantFrom(...COVERED), flip, async (path, change) => {
      assert.equal(await accepts(withFlip(quote, path, change) as QuoteV4), false);
    });
    await fc.assert(property, { ...SEED, numRuns: 128 });
  });

  it('in a certificate of the PCK chain is never accepted', async () => {
    const property = fc.asyncProperty(fc.nat(2), flip, async (which, change) => {
      const ders = chainDers.map((der, i) => (i === which ? flipped(der, change) : der));
      assert.equal(await accepts(withChain(ders)), false);
    });
    await fc.assert(property, { ...SEED, numRuns: 75 });
  });
});

const onlyTyped = (read: () => unknown): void => {
  try {
    read();
  } catch (error) {
    assert.ok(error instanceof PrivatemodeError, String(error));
  }
};

describe('arbitrary input', () => {
  const message = encodeQuoteV4(quote);

  it('is read or refused with a typed error, by every reader', async () => {
    const { body } = await context.collateral.intelQeIdentity({});
    const extension = encodeSgx(SGX_PARTS);
    const readers: readonly (readonly [Uint8Array, (bytes: Uint8Array) => unknown])[] = [
      [message, decodeQuoteV4],
      [message, readWireFields],
      [
        vectorBytes('synthetic_v158/attestation.pb'),
        (bytes) => serializeReport(decodeSnpAttestation(bytes).report),
      ],
      [vectorBytes('snp/genoa_v3_azure_vcek.der'), parseCertificate],
      [vectorBytes('synthetic_v158/ark_crl.der'), parseCrl],
      [extension, readSgxExtension],
      [certification.pckCertificateChainData.pckCertChain, readPckChain],
      [Buffer.from(body), (bytes) => readSignedJson(Buffer.from(bytes).toString('utf8'), 'enclaveIdentity')],
    ];
    for (const [valid, read] of readers) {
      const mutant = fc.oneof(
        fc.uint8Array({ maxLength: 200 }),
        fc.nat(valid.length).map((length) => valid.subarray(0, length)),
        fc.array(flip, { minLength: 1, maxLength: 8 }).map((flips) => flips.reduce(flipped, valid)),
      );
      fc.assert(
        fc.property(mutant, (bytes) => onlyTyped(() => read(bytes))),
        { ...SEED, numRuns: 200 },
      );
    }
  });
});
