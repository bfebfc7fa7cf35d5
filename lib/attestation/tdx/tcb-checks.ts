/**
 * Checks TCB info and QE identity, which Intel signs, and by them whether the platform, the TDX module and
 * the quoting enclave are genuine and up to date (docs/protocol/attestation.md 10, 13.3, 13.4).
 */
import { type Finding, finding, hex, notApplicable, oneOf, type Rows, row } from '../check.ts';
import { howObtained } from '../collateral.ts';
import { littleEndian } from '../protobuf.ts';
import { inForce } from '../validity.ts';
import { judgeSigner } from './chain.ts';
import type { EntrySubject } from './policy-checks.ts';
import type { TdQuoteBody } from './quote.ts';
import { signatureFinding } from './quote-checks.ts';
import * as documents from './tcb-info.ts';

/** Evidence with a known signer, a reference value, and TCB info or QE identity signed by Intel. */
export interface DocumentSubject<T = documents.TcbInfo | documents.QeIdentity> extends EntrySubject {
  readonly document: documents.SignedDocument<T>;
}

/** Makes the checks that are the same for TCB info and for QE identity. */
const documentRows = (prefix: string, name: string, id: string, version: number): Rows<DocumentSubject> => [
  row(`${prefix}.format`, `${name} was fetched and can be read`, '10', {
    expected: 'a signed JSON body of the known form, and its issuer chain',
    code: 'collateral_unavailable',
    judge: ({ document }) => finding(true, howObtained(document, 'as expected')),
  }),
  row(`${prefix}.signer`, `${name} has a signer under the trusted root`, '10', {
    expected: 'Intel SGX TCB Signing, issued by the trusted root, both valid now',
    judge: (subject) => judgeSigner(subject.document.chain, subject),
  }),
  row(`${prefix}.signature`, `${name} is signed`, '10', {
    expected: 'ECDSA P-256 by the signer over the exact bytes',
    judge: ({ document: { signed, signature, chain } }) =>
      signatureFinding(chain[0].publicKey, signed, signature),
  }),
  row(`${prefix}.identity`, `${name} is of the right kind`, '10', {
    expected: `id ${id}, version ${version}`,
    judge: ({ document: { value } }) =>
      finding(value.id === id && value.version === version, `id ${value.id}, version ${value.version}`),
  }),
  row(`${prefix}.dates`, `${name} is in force`, '10, 13.4', {
    expected: 'issued already, next update not yet due',
    judge: ({ document: { value }, now }) =>
      inForce(now, { notBefore: value.issueDate, notAfter: value.nextUpdate }),
  }),
  row(`${prefix}.evaluation_number`, `${name} is recent enough for the manifest`, '10, 13.4', {
    expected: 'tcbEvaluationDataNumber not below MinTCBEvaluationDataNumber',
    conditional: true,
    judge: ({ document: { value }, entry: { minTcbEvaluationDataNumber: minimum } }) => {
      if (minimum === 0) return notApplicable('the manifest sets no minimum');
      const { evaluationDataNumber: found } = value;
      return finding(found >= minimum, `${found}`, `${minimum} or above`);
    },
  }),
];

const UP_TO_DATE = 'UpToDate';

/** Accepts only the status `UpToDate`. A status like `SWHardeningNeeded` asks for work nobody can verify. */
const judgeLevel = (level: { readonly status: string } | undefined): Finding =>
  finding(level?.status === UP_TO_DATE, level?.status ?? 'no level is reached');

/** Compares the masked bits. Fails unless the value, the expected bits and the mask have the same length. */
export function underMask(found: Uint8Array, expected: documents.QeIdentity['miscSelect']): Finding {
  const { attributes, attributesMask: mask } = expected;
  const sameLength = found.length === mask.length && found.length === attributes.length;
  const holds = sameLength && found.every((byte, i) => (byte & (mask[i] ?? 0)) === attributes[i]);
  return finding(holds, hex(found), `${hex(attributes)} under ${hex(mask)}`);
}

/** Judges a TDX module by the identity for its major version TEE_TCB_SVN[1]. Version 0 has no identity. */
const byModuleVersion =
  (judge: (identity: documents.TcbInfo['moduleIdentities'][number], body: TdQuoteBody) => Finding) =>
  ({ body, document }: DocumentSubject<documents.TcbInfo>): Finding => {
    const major = body.teeTcbSvn[1];
    if (major === 0) return notApplicable('TDX module of major version 0');
    const id = `TDX_${major?.toString(16).padStart(2, '0')}`;
    const identity = document.value.moduleIdentities.find((each) => each.id === id);
    return identity ? judge(identity, body) : finding(false, `TCB info knows no module version ${major}`);
  };

export const TCB_ROWS: Rows<DocumentSubject<documents.TcbInfo>> = [
  ...documentRows('tdx.tcb_info', 'TCB info', 'TDX', 3),
  row('tdx.tcb_info.platform', 'TCB info is about this platform', '10', {
    expected: 'FMSPC and PCE-ID of the PCK certificate, components of type 0',
    judge: ({ document: { value: info }, sgx: { fmspc, pceId } }) => {
      const found = `FMSPC ${hex(info.fmspc)}, PCE-ID ${hex(info.pceId)}, type ${info.tcbType}`;
      const expected = `FMSPC ${hex(fmspc)}, PCE-ID ${hex(pceId)}, type 0`;
      return finding(found === expected, found, expected);
    },
  }),
  row('tdx.tcb.module_signer', 'The TDX module is signed by Intel', '10', {
    expected: 'MRSIGNERSEAM of TCB info',
    judge: ({ body, document }) => oneOf(body.mrSignerSeam, [document.value.module.mrSigner]),
  }),
  row('tdx.tcb.module_attributes', 'The TDX module has the attributes of a production module', '10', {
    expected: 'SEAMATTRIBUTES of TCB info, under its mask',
    judge: ({ body, document: { value } }) => underMask(body.seamAttributes, value.module),
  }),
  row('tdx.tcb.module_identity', 'The TDX module is of a version that TCB info describes', '10', {
    expected: 'signer and attributes of that version',
    conditional: true,
    judge: byModuleVersion((identity, { mrSignerSeam, seamAttributes }) => {
      const isSigned = hex(mrSignerSeam) === hex(identity.mrSigner);
      const holds = isSigned && underMask(seamAttributes, identity).outcome === 'pass';
      return finding(holds, holds ? identity.id : `${identity.id} has another signer or other attributes`);
    }),
  }),
  row('tdx.tcb.platform_status', 'The platform is up to date', '10, 13.3', {
    expected: `level ${UP_TO_DATE}`,
    judge: ({ body, document, sgx }) =>
      judgeLevel(documents.platformLevel(document.value, sgx, body.teeTcbSvn)),
  }),
  row('tdx.tcb.module_status', 'The TDX module is up to date', '10', {
    expected: `level ${UP_TO_DATE}`,
    conditional: true,
    judge: byModuleVersion(({ levels }, { teeTcbSvn }) =>
      judgeLevel(documents.svnLevel(levels, teeTcbSvn[0] ?? 0)),
    ),
  }),
];

export const QE_ROWS: Rows<DocumentSubject<documents.QeIdentity>> = [
  ...documentRows('tdx.qe_identity', 'QE identity', 'TD_QE', 2),
  row('tdx.qe.misc_select', 'The quoting enclave has the expected extended features', '10', {
    expected: 'MISCSELECT of QE identity, under its mask',
    judge: ({ qe: { qeReport }, document: { value } }) =>
      underMask(littleEndian(qeReport.miscSelect, 4), value.miscSelect),
  }),
  row('tdx.qe.attributes', 'The quoting enclave has the attributes of a production enclave', '10', {
    expected: 'ATTRIBUTES of QE identity, under its mask',
    judge: ({ qe: { qeReport }, document: { value } }) => underMask(qeReport.attributes, value),
  }),
  row('tdx.qe.signer', 'The quoting enclave is signed by Intel', '10', {
    expected: 'MRSIGNER of QE identity',
    judge: ({ qe: { qeReport }, document }) => oneOf(qeReport.mrSigner, [document.value.mrSigner]),
  }),
  row('tdx.qe.product', 'The quoting enclave is the one for trust domains', '10', {
    expected: 'ISVPRODID of QE identity',
    judge: ({ qe: { qeReport }, document: { value } }) =>
      finding(qeReport.isvProdId === value.isvProdId, `${qeReport.isvProdId}`, `${value.isvProdId}`),
  }),
  row('tdx.qe.status', 'The quoting enclave is up to date', '10', {
    expected: `level ${UP_TO_DATE}`,
    judge: ({ qe: { qeReport }, document }) =>
      judgeLevel(documents.svnLevel(document.value.levels, qeReport.isvSvn)),
  }),
];
