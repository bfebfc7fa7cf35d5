/**
 * Checks whether platform, TDX module and quoting enclave are genuine and up to date, by what Intel's TCB info
 * and QE identity say (docs/protocol/attestation.md 10, 13.3).
 */
import { type CheckRow, type Finding, finding, hex, notApplicable, oneOf, rowsFrom } from '../check.ts';
import type { DocumentSubject } from './collateral-checks.ts';
import { littleEndian } from './quote.ts';
import {
  equalUnderMask,
  moduleIdentity,
  platformLevel,
  type QeIdentity,
  svnLevel,
  type TcbInfo,
  UP_TO_DATE,
  type VersionedModuleIdentity,
} from './tcb-info.ts';

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
