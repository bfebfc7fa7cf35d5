/**
 * Checks what Intel's collateral says: whether it may be believed, what it revokes, and whether platform, TDX
 * module and quoting enclave are genuine and up to date (docs/protocol/attestation.md 10, 13.3, 13.4).
 */
import { type CheckRow, type Finding, finding, hex, notApplicable, oneOf, rowsFrom } from '../check.ts';
import { currentList, howObtained, obtained, type ReadList } from '../collateral.ts';
import type { TdxReferenceValues } from '../manifest.ts';
import { inForce } from '../validity.ts';
import { type Certificate, nameText, sameName, verifySignedBy } from '../x509.ts';
import { judgeSigner, noDefects } from './chain.ts';
import { type EnclaveReport, littleEndian } from './quote.ts';
import { type SignerSubject, signatureFinding } from './quote-checks.ts';
import {
  equalUnderMask,
  moduleIdentity,
  platformLevel,
  type QeIdentity,
  type SignedDocument,
  svnLevel,
  type TcbInfo,
  UP_TO_DATE,
  type VersionedModuleIdentity,
} from './tcb-info.ts';

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
      expected: 'Intel SGX TCB Signing, issued by the trusted root, both valid now',
      judge: ({ document, pinned, now }) => judgeSigner(document, pinned, now),
    },
    [`${prefix}.signature`]: {
      title: `${name} is signed`,
      expected: 'ECDSA P-256 by the signer over the exact bytes',
      judge: ({ document: { signed, signature, signer } }) =>
        signatureFinding(signer.publicKey, signed, signature),
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

/**
 * Judges by the identity that TCB info states for the module's major version, TEE_TCB_SVN[1]. The check does
 * not apply to version 0, which has no identity of its own.
 */
const byModuleVersion =
  (
    judge: (identity: VersionedModuleIdentity, subject: DocumentSubject<TcbInfo>) => Finding,
  ): CheckRow<DocumentSubject<TcbInfo>>['judge'] =>
  (subject) => {
    const { teeTcbSvn } = subject.quote.tdQuoteBody;
    const major = teeTcbSvn[1];
    if (major === 0) return notApplicable('TDX module of major version 0');
    const identity = moduleIdentity(subject.document.value, teeTcbSvn);
    if (identity === undefined) return finding(false, `TCB info does not know module version ${major}`);
    return judge(identity, subject);
  };

/**
 * Refuses every status but `UpToDate`: `SWHardeningNeeded` and similar ones ask for work that this program
 * cannot verify.
 */
function statusFinding(level: { readonly status: string } | undefined): Finding {
  return finding(level?.status === UP_TO_DATE, level?.status ?? 'no level is reached');
}

function underMask(found: Uint8Array, mask: Uint8Array, expected: Uint8Array): Finding {
  return finding(equalUnderMask(found, mask, expected), hex(found), `${hex(expected)} under ${hex(mask)}`);
}

export const TCB_ROWS = rowsFrom<DocumentSubject<TcbInfo>>('attestation.md 10', {
  'tdx.tcb_info.platform': {
    title: 'TCB info is about this platform',
    expected: 'FMSPC and PCE-ID of the PCK certificate, components of type 0',
    judge: ({ document: { value: info }, sgx: { fmspc, pceId } }) => {
      const found = `FMSPC ${hex(info.fmspc)}, PCE-ID ${hex(info.pceId)}, type ${info.tcbType}`;
      const expected = `FMSPC ${hex(fmspc)}, PCE-ID ${hex(pceId)}, type 0`;
      return finding(found === expected, found, expected);
    },
  },
  'tdx.tcb.module_signer': {
    title: 'The TDX module is signed by Intel',
    expected: 'MRSIGNERSEAM of TCB info',
    judge: ({ quote, document }) => oneOf(quote.tdQuoteBody.mrSignerSeam, [document.value.module.mrSigner]),
  },
  'tdx.tcb.module_attributes': {
    title: 'The TDX module has the attributes of a production module',
    expected: 'SEAMATTRIBUTES of TCB info, under its mask',
    judge: ({ quote, document }) => {
      const { attributes, attributesMask } = document.value.module;
      return underMask(quote.tdQuoteBody.seamAttributes, attributesMask, attributes);
    },
  },
  'tdx.tcb.module_identity': {
    title: 'The TDX module is of a version that TCB info describes',
    expected: 'signer and attributes of that version',
    conditional: true,
    judge: byModuleVersion(({ id, mrSigner, attributes, attributesMask }, { quote }) => {
      const { mrSignerSeam, seamAttributes } = quote.tdQuoteBody;
      const signed = hex(mrSignerSeam) === hex(mrSigner);
      const holds = signed && equalUnderMask(seamAttributes, attributesMask, attributes);
      return finding(holds, holds ? id : `${id} has another signer or other attributes`);
    }),
  },
  'tdx.tcb.platform_status': {
    source: 'attestation.md 10, 13.3',
    title: 'The platform is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: ({ quote, document, sgx }) =>
      statusFinding(platformLevel(document.value, sgx, quote.tdQuoteBody.teeTcbSvn)),
  },
  'tdx.tcb.module_status': {
    title: 'The TDX module is up to date',
    expected: `level ${UP_TO_DATE}`,
    conditional: true,
    judge: byModuleVersion(({ levels }, { quote }) =>
      statusFinding(svnLevel(levels, quote.tdQuoteBody.teeTcbSvn[0] ?? 0)),
    ),
  },
});

export const QE_ROWS = rowsFrom<DocumentSubject<QeIdentity>>('attestation.md 10', {
  'tdx.qe.misc_select': {
    title: 'The quoting enclave has the expected extended features',
    expected: 'MISCSELECT of QE identity, under its mask',
    judge: ({ qeReport, document: { value } }) =>
      underMask(littleEndian(qeReport.miscSelect, 4), value.miscSelectMask, value.miscSelect),
  },
  'tdx.qe.attributes': {
    title: 'The quoting enclave has the attributes of a production enclave',
    expected: 'ATTRIBUTES of QE identity, under its mask',
    judge: ({ qeReport, document: { value } }) =>
      underMask(qeReport.attributes, value.attributesMask, value.attributes),
  },
  'tdx.qe.signer': {
    title: 'The quoting enclave is signed by Intel',
    expected: 'MRSIGNER of QE identity',
    judge: ({ qeReport, document }) => oneOf(qeReport.mrSigner, [document.value.mrSigner]),
  },
  'tdx.qe.product': {
    title: 'The quoting enclave is the one for trust domains',
    expected: 'ISVPRODID of QE identity',
    judge: ({ qeReport: { isvProdId }, document: { value } }) =>
      finding(isvProdId === value.isvProdId, `${isvProdId}`, `${value.isvProdId}`),
  },
  'tdx.qe.status': {
    title: 'The quoting enclave is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: ({ qeReport, document }) => statusFinding(svnLevel(document.value.levels, qeReport.isvSvn)),
  },
});
