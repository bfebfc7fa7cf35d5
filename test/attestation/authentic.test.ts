/**
 * Whether the hardware itself says what a document says, whatever else is wrong: nobody on the way can make
 * evidence that is.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import type { Authentic } from '../../lib/attestation/check.ts';
import type { QuoteV4 } from '../../lib/attestation/tdx/quote.ts';
import { TDX } from '../../lib/attestation/tdx/verify-tdx.ts';
import {
  type CollateralSource,
  type TrustRoots,
  type VerifyInput,
  verify,
} from '../../lib/attestation/verify-evidence.ts';
import { evidenceOf, OFFLINE, syntheticRoots, withMembers } from '../support/evidence/attestation-vectors.ts';
import {
  ASK_SERIAL,
  amdName,
  attestedBy,
  type Changes,
  ISSUERS,
  issueArkCrl,
  issueVcek,
  REFERENCE_VALUE,
} from '../support/evidence/snp-platform.ts';
import { type Changes as TdxChanges, tdxPlatform } from '../support/evidence/tdx-platform.ts';
import { INTEL_ROOT, syntheticInput } from '../support/evidence/tdx-vectors.ts';

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
const OTHER_MANIFEST = Buffer.from('{"another":"manifest"}');
const LATER = new Date('2040-01-01T00:00:00Z');

const { Genoa } = attestedBy({}).roots.snp;
const MILAN_ONLY: TrustRoots = { snp: { Milan: Genoa! }, tdx: undefined };

/** What is wrong with evidence that is rejected, and whether it is authentic all the same. */
type Row = readonly [what: string, input: () => VerifyInput, authentic: Authentic];

const snp =
  (changes: Changes, more: Partial<VerifyInput> = {}) =>
  (): VerifyInput => ({
    ...attestedBy(changes),
    ...more,
  });
const tdx = (more: Partial<VerifyInput>) => (): VerifyInput => ({ ...syntheticInput(), ...more });

function withQeSignature(quote: QuoteV4, qeReportSignature: Uint8Array): QuoteV4 {
  const { signedData } = quote;
  const { certificationData } = signedData;
  const { qeReportCertificationData: qe } = certificationData;
  const changed = { ...certificationData, qeReportCertificationData: { ...qe, qeReportSignature } };
  return { ...quote, signedData: { ...signedData, certificationData: changed } };
}

function flipped(input: VerifyInput, offset: number): VerifyInput {
  const raw = evidenceOf(input);
  raw[offset] = (raw[offset] as number) ^ 1;
  return withMembers(input, { raw_attestation_doc: base64(raw) });
}

const ROWS: readonly Row[] = [
  ['runs under another manifest', snp({}, { manifest: OTHER_MANIFEST }), 'yes'],
  ['has another measurement', snp({ report: { measurement: new Uint8Array(48).fill(0x22) } }), 'yes'],
  ['has certificates that have expired', snp({}, { now: LATER }), 'yes'],
  [
    'has a revoked ASK',
    snp({ crl: issueArkCrl({ revoked: [{ serial: ASK_SERIAL, date: new Date('2026-11-01T00:00:00Z') }] }) }),
    'yes',
  ],
  [
    'is of a product line that the manifest does not name',
    snp({ snp: [{ ...REFERENCE_VALUE, ProductName: 'Milan' }] }),
    'yes',
  ],
  ['answers another nonce', snp({}, { nonce: new Uint8Array(32).fill(8) }), 'no'],
  [
    'comes with a manifest that it does not bind',
    () => withMembers(attestedBy({}), { manifests: [base64(OTHER_MANIFEST)] }),
    'no',
  ],
  [
    'comes with a mesh CA that it does not bind',
    () => withMembers(attestedBy({}), { mesh_ca: base64(Buffer.from('another')) }),
    'no',
  ],
  [
    'is signed by another key',
    snp({ reportKey: generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey }),
    'no',
  ],
  ['has a report of a version whose layout is not known', snp({ report: { version: 6 } }), 'unknown'],
  ['is signed by a VLEK', snp({ report: { signerInfo: 1 << 2 } }), 'unknown'],
  ['chains to no pinned root', snp({ roots: syntheticRoots('synthetic') }), 'no'],
  ['is of a product line that no root is pinned for', snp({ roots: MILAN_ONLY }), 'unknown'],
  [
    'has no product line but by its VCEK',
    snp({ roots: MILAN_ONLY, report: { version: 2, cpuid1EaxFms: 0 } }),
    'unknown',
  ],
  [
    'is of Turin, which no root is pinned for',
    snp({
      report: { cpuid1EaxFms: 0xb00f21 },
      vcek: issueVcek({ issuer: { ...ISSUERS.ask, name: amdName('SEV-Turin') } }),
    }),
    'unknown',
  ],
  [
    'is of a product line that no root is pinned for, and answers another nonce',
    snp({ roots: MILAN_ONLY }, { nonce: new Uint8Array(32).fill(8) }),
    'no',
  ],
  [
    'names a product line with a pinned root, and a VCEK by a stranger',
    snp({ vcek: issueVcek({ issuer: { ...ISSUERS.ask, name: amdName('SEV-Milan') } }) }),
    'no',
  ],
  ['has a VCEK of another form', snp({ vcek: issueVcek({ subject: amdName('SEV-VLEK') }) }), 'no'],
  ['is no document', snp({}, { document: Buffer.from('<html>') }), 'no'],
  ['brings no VCEK', snp({ vcek: null }, { manifest: OTHER_MANIFEST }), 'unknown'],
  [
    'brings no VCEK, and answers another nonce',
    snp({ vcek: null }, { nonce: new Uint8Array(32).fill(8) }),
    'no',
  ],
  ['is of TDX, and runs under another manifest', tdx({ manifest: OTHER_MANIFEST }), 'yes'],
  ['is of TDX, and the manifest expects SEV-SNP', tdx({ manifest: attestedBy({}).manifest }), 'yes'],
  ['is of TDX, with certificates that have expired', tdx({ now: LATER }), 'yes'],
  ['is of TDX, and answers another nonce', tdx({ nonce: new Uint8Array(32).fill(8) }), 'no'],
  [
    'is of TDX, with a mesh CA that it does not bind',
    () => withMembers(syntheticInput(), { mesh_ca: base64(Buffer.from('another')) }),
    'no',
  ],
  ['is of TDX, and chains to another root', tdx({ roots: { snp: {}, tdx: { root: INTEL_ROOT } } }), 'no'],
  ['is of TDX, which no root is pinned for', tdx({ roots: syntheticRoots('synthetic') }), 'unknown'],
  ['is of TDX, and its signature does not hold', () => flipped(syntheticInput(), 48 + 584 + 4), 'no'],
  ['is of TDX, and its body was changed', () => flipped(syntheticInput(), 48 + 16), 'no'],
];

describe('verify', () => {
  for (const [what, input, authentic] of ROWS) {
    it(`rejects evidence that ${what}, and says "authentic: ${authentic}"`, async () => {
      const verdict = await verify(input());
      assert.notEqual(verdict.outcome, 'accepted');
      assert.equal(verdict.authentic, authentic);
    });
  }

  it('calls TDX evidence authentic only if Intel vouches for the key that signed the quote', async () => {
    const zeros = new Uint8Array(64);
    for (const [changes, expected] of [
      [{}, 'yes'],
      [{ qeReport: (report) => ({ ...report, reportData: zeros }) }, 'no'],
      [{ quote: (quote) => withQeSignature(quote, zeros) }, 'no'],
    ] as const satisfies readonly (readonly [TdxChanges, Authentic])[]) {
      const { quote, context } = tdxPlatform(changes);
      assert.equal(await TDX.authentic(quote, context), expected);
    }
  });

  it('calls accepted evidence authentic', async () => {
    for (const input of [attestedBy({}), syntheticInput()]) {
      const { outcome, authentic } = await verify(input);
      assert.deepEqual([outcome, authentic], ['accepted', 'yes']);
    }
  });

  it('asks for no collateral to tell whether rejected evidence is authentic', async () => {
    const asked: string[] = [];
    const collateral = Object.fromEntries(
      Object.keys(OFFLINE).map((name) => [name, async () => Promise.reject(asked.push(name))]),
    ) as unknown as CollateralSource;
    const settled = ROWS.filter(([what]) => /another manifest|no VCEK/.test(what));
    assert.equal(settled.length, 4);
    for (const [, input, authentic] of settled) {
      assert.equal((await verify({ ...input(), collateral })).authentic, authentic);
    }
    assert.deepEqual(asked, []);
  });
});
