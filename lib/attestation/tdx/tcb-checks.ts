/** Whether platform, TDX module and quoting enclave are genuine and up to date (docs/protocol/attestation.md 10, 13.3). */
import { type Finding, finding, notApplicable, valueIn } from '../check.ts';
import { type EnclaveReport, littleEndian, type TdQuoteBody } from './quote.ts';
import { hex, judging, rowsFrom, type TdxRow, type TdxSubject } from './subject.ts';
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

/** Judges the quote by TCB info. */
const byTcbInfo = (
  judge: (info: TcbInfo, body: TdQuoteBody, subject: TdxSubject) => Finding | undefined,
): TdxRow['judge'] =>
  judging('tcbInfo', ({ value }, subject) => judge(value, subject.quote.tdQuoteBody, subject));

/** Judges the report of the quoting enclave by QE identity. */
const byQeIdentity = (judge: (identity: QeIdentity, report: EnclaveReport) => Finding): TdxRow['judge'] =>
  judging('qeIdentity', ({ value }, { quote }) =>
    judge(value, quote.signedData.certificationData.qeReportCertificationData.qeReport),
  );

/** Judges by the identity of the module's own version where the quote names one (TEE_TCB_SVN[1] above 0). */
const byModuleVersion = (
  judge: (identity: VersionedModuleIdentity, body: TdQuoteBody) => Finding,
): TdxRow['judge'] =>
  byTcbInfo((info, body) => {
    const major = body.teeTcbSvn[1];
    if (major === 0) return notApplicable('TDX module of major version 0');
    const identity = moduleIdentity(info, body.teeTcbSvn);
    if (identity === undefined) return finding(false, `TCB info does not know module version ${major}`);
    return judge(identity, body);
  });

/** Refuses every status but one: `SWHardeningNeeded` and its like ask for work that nobody here can verify. */
function statusFinding(level: { readonly status: string } | undefined): Finding {
  return finding(level?.status === UP_TO_DATE, level?.status ?? 'no level is reached');
}

function equalHex(found: Uint8Array, expected: Uint8Array): Finding {
  return finding(hex(found) === hex(expected), hex(found), hex(expected));
}

function underMask(found: Uint8Array, mask: Uint8Array, expected: Uint8Array): Finding {
  return finding(equalUnderMask(found, mask, expected), hex(found), `${hex(expected)} under ${hex(mask)}`);
}

export const TCB_ROWS = rowsFrom('attestation.md 10', [
  {
    id: 'tdx.tcb.module_signer',
    title: 'The TDX module is signed by Intel',
    expected: 'MRSIGNERSEAM of TCB info',
    judge: byTcbInfo(({ module }, { mrSignerSeam }) => equalHex(mrSignerSeam, module.mrSigner)),
  },
  {
    id: 'tdx.tcb.module_attributes',
    title: 'The TDX module has the attributes of a production module',
    expected: 'SEAMATTRIBUTES of TCB info, under its mask',
    judge: byTcbInfo(({ module: { attributes, attributesMask } }, { seamAttributes }) =>
      underMask(seamAttributes, attributesMask, attributes),
    ),
  },
  {
    id: 'tdx.tcb.module_identity',
    title: 'The TDX module is of a version that TCB info describes',
    expected: 'signer and attributes of that version',
    conditional: true,
    judge: byModuleVersion(
      ({ id, mrSigner, attributes, attributesMask }, { mrSignerSeam, seamAttributes }) => {
        const signed = hex(mrSignerSeam) === hex(mrSigner);
        const holds = signed && equalUnderMask(seamAttributes, attributesMask, attributes);
        return finding(holds, holds ? id : `${id} has another signer or other attributes`);
      },
    ),
  },
  {
    id: 'tdx.tcb.platform_status',
    source: 'attestation.md 10, 13.3',
    title: 'The platform is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: byTcbInfo((info, { teeTcbSvn }, { sgx }) => {
      const platform = valueIn(sgx);
      return platform && statusFinding(platformLevel(info, platform, teeTcbSvn));
    }),
  },
  {
    id: 'tdx.tcb.module_status',
    title: 'The TDX module is up to date',
    expected: `level ${UP_TO_DATE}`,
    conditional: true,
    judge: byModuleVersion(({ levels }, { teeTcbSvn }) => statusFinding(svnLevel(levels, teeTcbSvn[0] ?? 0))),
  },
  {
    id: 'tdx.qe.misc_select',
    title: 'The quoting enclave has the expected extended features',
    expected: 'MISCSELECT of QE identity, under its mask',
    judge: byQeIdentity(({ miscSelectMask, miscSelect }, report) =>
      underMask(littleEndian(report.miscSelect, 4), miscSelectMask, miscSelect),
    ),
  },
  {
    id: 'tdx.qe.attributes',
    title: 'The quoting enclave has the attributes of a production enclave',
    expected: 'ATTRIBUTES of QE identity, under its mask',
    judge: byQeIdentity(({ attributesMask, attributes }, report) =>
      underMask(report.attributes, attributesMask, attributes),
    ),
  },
  {
    id: 'tdx.qe.signer',
    title: 'The quoting enclave is signed by Intel',
    expected: 'MRSIGNER of QE identity',
    judge: byQeIdentity((identity, report) => equalHex(report.mrSigner, identity.mrSigner)),
  },
  {
    id: 'tdx.qe.product',
    title: 'The quoting enclave is the one for trust domains',
    expected: 'ISVPRODID of QE identity',
    judge: byQeIdentity(({ isvProdId: expected }, { isvProdId: found }) =>
      finding(found === expected, String(found), String(expected)),
    ),
  },
  {
    id: 'tdx.qe.status',
    title: 'The quoting enclave is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: byQeIdentity(({ levels }, { isvSvn }) => statusFinding(svnLevel(levels, isvSvn))),
  },
]);
