/**
 * Checks whether collateral may be believed: who signed it, whether it is in force, and what it revokes
 * (docs/protocol/attestation.md 10, 13.4).
 */
import { type CheckRow, finding, notApplicable, rowsFrom } from '../check.ts';
import { currentList, howObtained, obtained, type ReadList } from '../collateral.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import { inForce } from '../validity.ts';
import { type Certificate, verifySignedBy } from '../x509/certificate.ts';
import { nameText, sameName } from '../x509/name.ts';
import { judgeSigner, noDefects } from './chain.ts';
import type { EnclaveReport } from './quote.ts';
import { type SignerSubject, signatureFinding } from './quote-checks.ts';
import type { QeIdentity, SignedDocument, TcbInfo } from './tcb-info.ts';

/** Evidence whose signer is known, a reference value, and one of the two documents that Intel signs. */
export interface DocumentSubject<T = TcbInfo | QeIdentity> extends SignerSubject {
  readonly entry: TdxReferenceValues;
  readonly qeReport: EnclaveReport;
  readonly document: SignedDocument<T>;
}

/** The checks that TCB info and QE identity share. */
export function documentChecks(
  prefix: string,
  name: string,
  identity: { readonly id: string; readonly version: number },
): readonly CheckRow<DocumentSubject>[] {
  return rowsFrom<DocumentSubject>('attestation.md 10', {
    [`${prefix}.format`]: {
      title: `${name} was fetched and can be read`,
      expected: 'a signed JSON body of the known form, and its issuer chain',
      code: 'collateral_unavailable',
      judge: ({ document }) => finding(true, howObtained(document, 'as expected')),
    },
    [`${prefix}.signer`]: {
      title: `${name} has a signer under the trusted root`,
      about: 'collateral signer',
      expected: 'Intel SGX TCB Signing, issued by the trusted root, both valid now',
      judge: ({ document, pinned, now }) => judgeSigner(document, pinned, now),
    },
    [`${prefix}.signature`]: {
      title: `${name} is signed`,
      about: 'collateral signature',
      expected: 'ECDSA P-256 by the signer over the exact bytes',
      judge: ({ document: { signed, signature, signer } }) =>
        signatureFinding(signer.publicKey.key, signed, signature),
    },
    [`${prefix}.identity`]: {
      title: `${name} is of the right kind`,
      expected: `id ${identity.id}, version ${identity.version}`,
      judge: ({ document: { value } }) => {
        const { id, version } = value;
        return finding(id === identity.id && version === identity.version, `id ${id}, version ${version}`);
      },
    },
    [`${prefix}.dates`]: {
      source: 'attestation.md 10, 13.4',
      title: `${name} is in force`,
      about: 'collateral date',
      expected: 'issued already, next update not yet due',
      judge: ({ document: { value }, now }) =>
        inForce(now, { notBefore: value.issueDate, notAfter: value.nextUpdate }),
    },
    [`${prefix}.evaluation_number`]: {
      source: 'attestation.md 10, 13.4',
      title: `${name} is recent enough for the manifest`,
      expected: 'tcbEvaluationDataNumber not below MinTCBEvaluationDataNumber',
      conditional: true,
      judge: ({ document: { value }, entry: { minTcbEvaluationDataNumber: minimum } }) => {
        const { evaluationDataNumber: found } = value;
        if (minimum === 0) return notApplicable('the manifest sets no minimum');
        return finding(found >= minimum, String(found), `${minimum} or above`);
      },
    },
  });
}

export interface ListSubject {
  readonly list: ReadList;
  /** Must have signed the list. */
  readonly issuer: Certificate;
  /** Must not be on the list. */
  readonly certificates: readonly Certificate[];
  readonly now: Date;
}

/** The checks that both revocation lists share. */
const crlChecks = (prefix: string, name: string): readonly CheckRow<ListSubject>[] =>
  rowsFrom<ListSubject>('attestation.md 10', {
    [`${prefix}.format`]: {
      title: `${name} was fetched and can be read`,
      expected: 'a DER revocation list',
      code: 'collateral_unavailable',
      judge: ({ list, now }) => obtained(list, 'as expected', now),
    },
    [`${prefix}.signature`]: {
      title: `${name} is signed by its issuer`,
      about: 'collateral signature',
      expected: 'the issuer of the certificates it is about, by name and by signature',
      judge: async ({ list: { crl }, issuer }) => {
        const defects: string[] = [];
        if (!sameName(crl.issuer, issuer.subject)) defects.push(`the issuer is "${nameText(crl.issuer)}"`);
        if (!(await verifySignedBy(crl, issuer))) defects.push("the issuer's key did not sign it");
        if (issuer.keyUsage?.has('cRLSign') === false) {
          defects.push('the issuer may not sign revocation lists');
        }
        return noDefects(defects, nameText(crl.issuer));
      },
    },
    [`${prefix}.dates`]: {
      source: 'attestation.md 10, 13.4',
      title: `${name} is in force`,
      about: 'collateral date',
      expected: 'issued already, next update named and not yet due',
      judge: ({ list: { crl }, now }) => currentList(crl, now),
    },
  });

/** The check that none of the certificates is on the list. */
const revocation = (id: string, title: string): readonly CheckRow<ListSubject>[] =>
  rowsFrom<ListSubject>('attestation.md 10', {
    [`tdx.revocation.${id}`]: {
      title,
      expected: 'serial number not in the revocation list',
      judge: ({ list: { crl }, certificates }) => {
        const serials = certificates.map(({ serial }) => serial);
        const defects = serials
          .filter((serial) => crl.revoked.has(serial))
          .map((serial) => `serial ${serial} is revoked`);
        return noDefects(defects, `serial ${serials.join(', ')} not revoked`);
      },
    },
  });

export const ROOT_CRL_ROWS = [
  ...crlChecks('tdx.root_crl', "The root's revocation list"),
  ...revocation('platform_ca', 'The platform CA is not revoked'),
];
export const PCK_CRL_ROWS = [
  ...crlChecks('tdx.pck_crl', "The platform CA's revocation list"),
  ...revocation('pck', 'The PCK certificate is not revoked'),
];
export const SIGNING_ROWS = revocation('tcb_signing', 'The signers of the collateral are not revoked');
