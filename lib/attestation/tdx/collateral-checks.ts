/**
 * Checks whether collateral may be believed: who signed it, whether it is in force, and what it revokes
 * (docs/protocol/attestation.md 10, 13.4).
 */

import { inForce } from '../certificate-findings.ts';
import { demand, type Finding, finding, hex, need, notApplicable, rowsFrom, type Settled } from '../check.ts';
import { howObtained, obtained } from '../collateral.ts';
import { isCurrent } from '../crl.ts';
import { type Certificate, nameText, sameName, verifySignedBy } from '../x509.ts';
import { noDefects, signerDefects, validityDetail } from './chain.ts';
import { type SignedDocument, signatureFinding, type TdxRow, type TdxSubject } from './subject.ts';

/** The checks that TCB info and QE identity share. */
function documentChecks(
  prefix: string,
  name: string,
  identity: { readonly id: string; readonly version: number },
  part: 'tcbInfo' | 'qeIdentity',
): readonly TdxRow[] {
  const documentIn = (subject: TdxSubject): Settled<SignedDocument> => subject[part];
  return rowsFrom<TdxSubject>('attestation.md 10', {
    [`${prefix}.format`]: {
      title: `${name} was fetched and can be read`,
      expected: 'a signed JSON body of the known form, and its issuer chain',
      code: 'collateral_unavailable',
      judge: (subject) => {
        const document = demand(documentIn(subject));
        return finding(true, howObtained(document, 'as expected', subject.context.now));
      },
    },
    [`${prefix}.signer`]: {
      title: `${name} has a signer under the trusted root`,
      about: 'collateral signer',
      expected: 'Intel SGX TCB Signing, issued by the trusted root, both valid now',
      judge: async (subject) => {
        const document = need(documentIn(subject));
        const { now } = subject.context;
        const defects = await signerDefects(document, need(subject.pinnedRoot), now);
        const detail = validityDetail([document.signer, document.root], now);
        return { ...noDefects(defects, nameText(document.signer.subject)), detail };
      },
    },
    [`${prefix}.signature`]: {
      title: `${name} is signed`,
      about: 'collateral signature',
      expected: 'ECDSA P-256 by the signer over the exact bytes',
      judge: (subject) => {
        const { signed, signature, signer } = need(documentIn(subject));
        return signatureFinding(signer.publicKey, signed, signature);
      },
    },
    [`${prefix}.identity`]: {
      title: `${name} is of the right kind`,
      expected: `id ${identity.id}, version ${identity.version}`,
      judge: (subject) => {
        const { id, version } = need(documentIn(subject)).value;
        return finding(id === identity.id && version === identity.version, `id ${id}, version ${version}`);
      },
    },
    [`${prefix}.dates`]: {
      source: 'attestation.md 10, 13.4',
      title: `${name} is in force`,
      about: 'collateral date',
      expected: 'issued already, next update not yet due',
      judge: (subject) => {
        const { issueDate, nextUpdate } = need(documentIn(subject)).value;
        const { now } = subject.context;
        return inForce(issueDate <= now && now <= nextUpdate, issueDate, nextUpdate, now);
      },
    },
    [`${prefix}.evaluation_number`]: {
      source: 'attestation.md 10, 13.4',
      title: `${name} is recent enough for the manifest`,
      expected: 'tcbEvaluationDataNumber not below MinTCBEvaluationDataNumber',
      conditional: true,
      judge: (subject) => {
        const { evaluationDataNumber: found } = need(documentIn(subject)).value;
        const { minTcbEvaluationDataNumber: minimum } = subject.entry;
        if (minimum === 0) return notApplicable('the manifest sets no minimum');
        return finding(found >= minimum, String(found), `${minimum} or above`);
      },
    },
  });
}

export const DOCUMENT_ROWS: readonly TdxRow[] = [
  documentChecks('tdx.tcb_info', 'TCB info', { id: 'TDX', version: 3 }, 'tcbInfo'),
  rowsFrom<TdxSubject>('attestation.md 10', {
    'tdx.tcb_info.platform': {
      title: 'TCB info is about this platform',
      expected: 'FMSPC and PCE-ID of the PCK certificate, components of type 0',
      judge: ({ tcbInfo, sgx }) => {
        const { value: info } = need(tcbInfo);
        const { fmspc, pceId } = need(sgx);
        const found = `FMSPC ${hex(info.fmspc)}, PCE-ID ${hex(info.pceId)}, type ${info.tcbType}`;
        const expected = `FMSPC ${hex(fmspc)}, PCE-ID ${hex(pceId)}, type 0`;
        return finding(found === expected, found, expected);
      },
    },
  }),
  documentChecks('tdx.qe_identity', 'QE identity', { id: 'TD_QE', version: 2 }, 'qeIdentity'),
].flat();

/** The checks that both revocation lists share; `issuer` must have signed the list. */
function crlChecks(
  prefix: string,
  name: string,
  part: 'rootCrl' | 'pckCrl',
  issuer: (subject: TdxSubject) => Certificate,
): readonly TdxRow[] {
  return rowsFrom<TdxSubject>('attestation.md 10', {
    [`${prefix}.format`]: {
      title: `${name} was fetched and can be read`,
      expected: 'a DER revocation list',
      code: 'collateral_unavailable',
      judge: ({ [part]: list, context: { now } }) => obtained(demand(list), 'as expected', now),
    },
    [`${prefix}.signature`]: {
      title: `${name} is signed by its issuer`,
      about: 'collateral signature',
      expected: 'the issuer of the certificates it is about, by name and by signature',
      judge: async (subject) => {
        const { crl } = need(subject[part]);
        const signer = issuer(subject);
        const defects: string[] = [];
        if (!sameName(crl.issuer, signer.subject)) defects.push(`the issuer is "${nameText(crl.issuer)}"`);
        if (!(await verifySignedBy(crl, signer))) defects.push("the issuer's key did not sign it");
        if (signer.keyUsage?.has('cRLSign') === false) {
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
      judge: ({ [part]: list, context: { now } }) => {
        const { crl } = need(list);
        return inForce(isCurrent(crl, now), crl.thisUpdate, crl.nextUpdate, now);
      },
    },
  });
}

/** Judges whether certificates are on a revocation list; not evaluated unless all of them were read. */
const notRevoked =
  (part: 'rootCrl' | 'pckCrl', certificates: (subject: TdxSubject) => readonly Certificate[]) =>
  (subject: TdxSubject): Finding => {
    const { revoked } = need(subject[part]).crl;
    const serials = certificates(subject).map(({ serial }) => serial);
    const defects = serials
      .filter((serial) => revoked.has(serial))
      .map((serial) => `serial ${serial} is revoked`);
    return noDefects(defects, `serial ${serials.join(', ')} not revoked`);
  };

const platformCa = ({ chain }: TdxSubject): Certificate => need(chain).intermediate;

export const CRL_ROWS: readonly TdxRow[] = [
  crlChecks('tdx.root_crl', "The root's revocation list", 'rootCrl', ({ pinnedRoot }) => need(pinnedRoot)),
  crlChecks('tdx.pck_crl', "The platform CA's revocation list", 'pckCrl', platformCa),
  rowsFrom<TdxSubject>('attestation.md 10', {
    'tdx.revocation.platform_ca': {
      title: 'The platform CA is not revoked',
      expected: 'serial number not in the revocation list',
      judge: notRevoked('rootCrl', (subject) => [platformCa(subject)]),
    },
    'tdx.revocation.tcb_signing': {
      title: 'The signers of the collateral are not revoked',
      expected: 'serial number not in the revocation list',
      judge: notRevoked('rootCrl', ({ tcbInfo, qeIdentity }) => [
        need(tcbInfo).signer,
        need(qeIdentity).signer,
      ]),
    },
    'tdx.revocation.pck': {
      title: 'The PCK certificate is not revoked',
      expected: 'serial number not in the revocation list',
      judge: notRevoked('pckCrl', ({ chain }) => [need(chain).leaf]),
    },
  }),
].flat();
