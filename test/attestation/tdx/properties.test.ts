/**
 * What must hold for every input: no change makes evidence acceptable, and bad input gives typed results
 * only.
 */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import fc from 'fast-check';
import { allAccepted } from '../../../lib/attestation/check.ts';
import { readPckChain } from '../../../lib/attestation/tdx/chain.ts';
import { decodeQuoteV4, type QuoteV4 } from '../../../lib/attestation/tdx/quote.ts';
import { readSgxExtension } from '../../../lib/attestation/tdx/sgx-extension.ts';
import { readSignedJson } from '../../../lib/attestation/tdx/tcb-info.ts';
import { verify } from '../../../lib/attestation/verify-evidence.ts';
import { decodeCertificates } from '../../../lib/crypto/der.ts';
import { PrivatemodeError } from '../../../lib/errors.ts';
import { encodeQuoteV4 } from '../../../simulator/evidence/tdx-message.ts';
import { toPem } from '../../../simulator/pki/certificate.ts';
import { judgeTdx, TDX_ROWS } from '../../support/evidence/stages.ts';
import { encodeSgx, SGX_PARTS } from '../../support/evidence/tdx-authorities.ts';
import { tdxPlatform } from '../../support/evidence/tdx-platform.ts';
import { syntheticInput, syntheticVariants, variantInput } from '../../support/evidence/tdx-vectors.ts';

const SEED = { seed: 20261201 };
const { quote, entry, context } = tdxPlatform();
const answersOf = async ({ collateral }: typeof context) => ({
  tcbInfo: await collateral.intelTcbInfo({ fmspc: '' }),
  qeIdentity: await collateral.intelQeIdentity({}),
  pckCrl: await collateral.intelPckCrl(),
  rootCrl: await collateral.intelRootCrl({ url: '' }),
});
type Answers = Awaited<ReturnType<typeof answersOf>>;
let answers: Answers;
before(async () => {
  answers = await answersOf(context);
});

const accepts = async (changed: QuoteV4, given: Partial<Answers> = {}): Promise<boolean> => {
  const { tcbInfo, qeIdentity, pckCrl, rootCrl } = { ...answers, ...given };
  const collateral: typeof context.collateral = {
    ...context.collateral,
    intelTcbInfo: async () => tcbInfo,
    intelQeIdentity: async () => qeIdentity,
    intelPckCrl: async () => pckCrl,
    intelRootCrl: async () => rootCrl,
  };
  return allAccepted(
    TDX_ROWS,
    await judgeTdx({ message: changed, entries: [entry], context: { ...context, collateral } }),
  );
};

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

  it('in a certificate that vouches for collateral is never accepted', async () => {
    const ders = decodeCertificates(answers.tcbInfo.issuerChain);
    const property = fc.asyncProperty(fc.nat(1), flip, async (which, change) => {
      const issuerChain = ders.map((der, i) => toPem(i === which ? flipped(der, change) : der)).join('');
      assert.equal(await accepts(quote, { tcbInfo: { ...answers.tcbInfo, issuerChain } }), false);
    });
    await fc.assert(property, { ...SEED, numRuns: 50 });
  });

  it('in signed JSON is never accepted', async () => {
    const property = fc.asyncProperty(
      fc.constantFrom('tcbInfo', 'qeIdentity'),
      fc.boolean(),
      flip,
      async (name, inSignature, change) => {
        const { body, issuerChain } = answers[name];
        const member = name === 'tcbInfo' ? 'tcbInfo' : 'enclaveIdentity';
        const { signed, signature } = readSignedJson(body, member);
        const value = Buffer.from(inSignature ? signed : flipped(signed, change)).toString('latin1');
        const proof = Buffer.from(inSignature ? flipped(signature, change) : signature).toString('hex');
        const changed = { issuerChain, body: `{"${member}":${value},"signature":"${proof}"}` };
        assert.equal(await accepts(quote, { [name]: changed }), false);
      },
    );
    await fc.assert(property, { ...SEED, numRuns: 75 });
  });

  it('in a revocation list is never accepted', async () => {
    const property = fc.asyncProperty(fc.boolean(), flip, async (root, change) => {
      const given = root
        ? { rootCrl: { crl: flipped(answers.rootCrl.crl, change) } }
        : { pckCrl: { ...answers.pckCrl, crl: flipped(answers.pckCrl.crl, change) } };
      assert.equal(await accepts(quote, given), false);
    });
    await fc.assert(property, { ...SEED, numRuns: 50 });
  });

  it('in the message of a refused variant never makes that variant acceptable', async () => {
    const refused = syntheticVariants().filter(({ upstream }) => upstream === 'reject');
    const property = fc.asyncProperty(fc.constantFrom(...refused), flip, async ({ file }, change) => {
      const input = variantInput(file);
      const document = JSON.parse(Buffer.from(input.document).toString('utf8'));
      const raw = flipped(Buffer.from(document.raw_attestation_doc, 'base64'), change);
      const changed = { ...document, raw_attestation_doc: Buffer.from(raw).toString('base64') };
      const verdict = await verify({ ...input, document: Buffer.from(JSON.stringify(changed)) });
      assert.notEqual(verdict.outcome, 'accepted');
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

  it('is read or refused with a typed error, by every reader', () => {
    const extension = encodeSgx(SGX_PARTS);
    const readers: readonly (readonly [Uint8Array, (bytes: Uint8Array) => unknown])[] = [
      [message, decodeQuoteV4],
      [extension, readSgxExtension],
      [certification.pckCertificateChainData.pckCertChain, readPckChain],
      [
        Buffer.from(answers.tcbInfo.body),
        (bytes) => readSignedJson(Buffer.from(bytes).toString('utf8'), 'tcbInfo'),
      ],
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

  it('is rejected or malformed if it is given as evidence', async () => {
    const input = syntheticInput();
    const document = JSON.parse(Buffer.from(input.document).toString('utf8'));
    const raw = Uint8Array.from(Buffer.from(document.raw_attestation_doc, 'base64'));
    const mutant = fc.oneof(
      fc.uint8Array({ maxLength: 300 }),
      fc.nat(raw.length - 1).map((length) => raw.subarray(0, length)),
      fc.array(flip, { minLength: 1, maxLength: 3 }).map((flips) => flips.reduce(flipped, raw)),
    );
    const property = fc.asyncProperty(mutant, async (bytes) => {
      const changed = { ...document, raw_attestation_doc: Buffer.from(bytes).toString('base64') };
      const verdict = await verify({ ...input, document: Buffer.from(JSON.stringify(changed)) });
      assert.ok(verdict.outcome === 'rejected' || verdict.outcome === 'malformed', verdict.outcome);
    });
    await fc.assert(property, { ...SEED, numRuns: 100 });
  });

  it('in a quote is unchanged after writing and reading', () => {
    const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
    const header = fc.record({
      version: fc.nat(0xffff),
      attestationKeyType: fc.nat(0xffff),
      teeType: fc.nat(0xffff_ffff),
      qeSvn: bytes(2),
      pceSvn: bytes(2),
      qeVendorId: bytes(16),
      userData: bytes(20),
    });
    const property = fc.property(
      header,
      fc.uint8Array({ maxLength: 300 }),
      bytes(48),
      (head, extraBytes, mrTd) => {
        const value = { ...quote, header: head, extraBytes, tdQuoteBody: { ...quote.tdQuoteBody, mrTd } };
        const again = decodeQuoteV4(encodeQuoteV4(value));
        assert.deepEqual(again.header, { ...head });
        assert.deepEqual(Buffer.from(again.extraBytes), Buffer.from(extraBytes));
        assert.deepEqual(Buffer.from(again.tdQuoteBody.mrTd), Buffer.from(mrTd));
      },
    );
    fc.assert(property, { ...SEED, numRuns: 50 });
  });
});
