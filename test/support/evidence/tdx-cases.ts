/** Cases of the TDX checks: a platform on which one thing is wrong, and the checks that must refuse it. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { allAccepted, type Check } from '../../../lib/attestation/check.ts';
import { type CertificateRequest, issueCertificate, toPem } from '../../../simulator/pki/certificate.ts';
import {
  basicConstraints,
  crlDistributionPoint,
  type EncodedExtension,
} from '../../../simulator/pki/extensions.ts';
import * as cases from './cases.ts';
import { judgeTdx, TDX_ROWS } from './stages.ts';
import { ISSUERS, p256, ROOT_CRL_URL } from './tdx-authorities.ts';
import { type Changes, tdxPlatform } from './tdx-platform.ts';

export type Cases = cases.Cases<Changes>;
export type Refusals = cases.Refusals<Changes>;

/** Which test file answers for a check. */
const GROUPS = {
  quote: /^tdx\.quote\.|^tdx\.qe\.(report_signature|key_binding|vendor)$/,
  pck: /^tdx\.pck\./,
  collateral: /^tdx\.(tcb_info|qe_identity|root_crl|pck_crl|revocation)\./,
  tcb: /^tdx\.tcb\.|^tdx\.qe\.(misc_select|attributes|signer|product|status)$/,
  policy: /^tdx\.policy\./,
} as const;

/** The checks of the platform with these changes. */
export function judge(changes: Changes): Promise<readonly Check[]> {
  const { quote, entry, context } = tdxPlatform(changes);
  return judgeTdx({ message: quote, entries: [entry], context });
}

const { accepts, refuses } = cases.casesOf<Changes>(async (changes) => {
  const checks = await judge(changes);
  return { checks, isAccepted: allAccepted(TDX_ROWS, checks) };
});
/** The change is none that matters. */
export const itAccepts = (each: Cases): void => accepts('accepts', each);

/** With a test that every check of the group is seen to refuse something. */
export function itRefuses(group: keyof typeof GROUPS, refusals: Refusals): void {
  refuses('refuses', refusals);
  it('has each of its checks fail in at least one of these cases', () => {
    const seen = new Set(Object.keys(refusals).flatMap((failing) => failing.split(', ')));
    const own = TDX_ROWS.map(({ id }) => id).filter((id) => GROUPS[group].test(id));
    assert.ok(own.length > 0);
    assert.deepEqual(
      own.filter((id) => !seen.has(id)),
      [],
    );
  });
}

/** A second before the moment of judgement, and a second after what may begin so soon after it. */
export const PAST = new Date('2026-11-30T23:59:59Z');
export const FUTURE = new Date('2026-12-01T00:01:01Z');

export const filled = (length: number, byte: number): Uint8Array => new Uint8Array(length).fill(byte);

/** The same extensions with one of them replaced, by OID. */
export const replaced = (list: readonly EncodedExtension[], other: EncodedExtension): EncodedExtension[] =>
  list.map((extension) => (extension.oid === other.oid ? other : extension));

export const UNKNOWN_CRITICAL: EncodedExtension = {
  oid: '1.2.3.4',
  critical: true,
  value: Uint8Array.of(5, 0),
};

/** A key that nobody vouches for, and somebody who calls himself Intel's root. */
export const STRANGER = p256();
export const STRANGE_ROOT = { name: ISSUERS.root.name, key: STRANGER };

/** The PEM of a root like the trusted one, but for the changes. */
export const rootLike = (changes: Partial<CertificateRequest>): string =>
  toPem(
    issueCertificate({
      issuer: ISSUERS.root,
      subject: ISSUERS.root.name,
      key: ISSUERS.root.key,
      notBefore: new Date('2026-01-01T00:00:00Z'),
      notAfter: new Date('2036-01-01T00:00:00Z'),
      extensions: [basicConstraints(true, 1), crlDistributionPoint(ROOT_CRL_URL)],
      ...changes,
    }),
  );
/** That root as the trusted one. */
export const pinning = (root: string): Changes => ({
  context: (c) => ({ ...c, roots: { snp: {}, tdx: { root } } }),
});
/** That root at the end of the chains of TCB info and QE identity. */
export const vouchedBy = (root: string): Changes => ({
  signingChain: (pem) => pem.slice(0, pem.lastIndexOf('-----BEGIN')) + root,
});
