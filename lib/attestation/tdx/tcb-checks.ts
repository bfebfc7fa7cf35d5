/** Whether platform, TDX module and quoting enclave are genuine and up to date (attestation.md 10, 13.3). */
import { valueIn } from '../attempt.ts';
import { type Finding, finding, notApplicable } from '../check.ts';
import { equalUnderMask, type QeIdentity } from './qe-identity.ts';
import { hex, type TdxRow, type TdxSubject } from './subject.ts';
import { moduleIdentity, platformLevel, svnLevel, type TcbInfo, UP_TO_DATE } from './tcb-info.ts';

const tcbInfo = ({ collateral }: TdxSubject): TcbInfo | undefined => valueIn(collateral?.tcbInfo)?.value;
const qeIdentity = ({ collateral }: TdxSubject): QeIdentity | undefined =>
  valueIn(collateral?.qeIdentity)?.value;
const qeReport = ({ quote }: TdxSubject) =>
  quote.signedData.certificationData.qeReportCertificationData.qeReport;

/** Every status but the one is refused: `SWHardeningNeeded` and its like ask for work that nobody here can verify. */
function statusFinding(level: { readonly status: string } | undefined): Finding {
  return finding(level?.status === UP_TO_DATE, level?.status ?? 'no level is reached');
}

function equalHex(found: Uint8Array, expected: Uint8Array): Finding {
  return finding(hex(found) === hex(expected), hex(found), hex(expected));
}

function underMask(found: Uint8Array, mask: Uint8Array, expected: Uint8Array): Finding {
  return finding(equalUnderMask(found, mask, expected), hex(found), `${hex(expected)} under ${hex(mask)}`);
}

function littleEndian32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** Judges the identity of the module's own version where the quote names one (TEE_TCB_SVN[1] above 0). */
function ofModuleVersion(
  judge: (identity: NonNullable<ReturnType<typeof moduleIdentity>>, subject: TdxSubject) => Finding,
): TdxRow['judge'] {
  return (subject) => {
    const info = tcbInfo(subject);
    if (info === undefined) return undefined;
    const { teeTcbSvn } = subject.quote.tdQuoteBody;
    if (teeTcbSvn[1] === 0) return notApplicable('TDX module of major version 0');
    const identity = moduleIdentity(info, teeTcbSvn);
    if (identity === undefined)
      return finding(false, `TCB info does not know module version ${teeTcbSvn[1]}`);
    return judge(identity, subject);
  };
}

export const TCB_ROWS: readonly TdxRow[] = [
  {
    id: 'tdx.tcb.module_signer',
    source: 'attestation.md 10',
    title: 'The TDX module is signed by Intel',
    expected: 'MRSIGNERSEAM of TCB info',
    judge: (subject) => {
      const info = tcbInfo(subject);
      return info && equalHex(subject.quote.tdQuoteBody.mrSignerSeam, info.module.mrSigner);
    },
  },
  {
    id: 'tdx.tcb.module_attributes',
    source: 'attestation.md 10',
    title: 'The TDX module has the attributes of a production module',
    expected: 'SEAMATTRIBUTES of TCB info, under its mask',
    judge: (subject) => {
      const module = tcbInfo(subject)?.module;
      const { seamAttributes } = subject.quote.tdQuoteBody;
      return module && underMask(seamAttributes, module.attributesMask, module.attributes);
    },
  },
  {
    id: 'tdx.tcb.module_identity',
    source: 'attestation.md 10',
    title: 'The TDX module is of a version that TCB info describes',
    expected: 'signer and attributes of that version',
    conditional: true,
    judge: ofModuleVersion((identity, { quote: { tdQuoteBody } }) => {
      const signed = hex(tdQuoteBody.mrSignerSeam) === hex(identity.mrSigner);
      const { attributesMask, attributes, id } = identity;
      const holds = signed && equalUnderMask(tdQuoteBody.seamAttributes, attributesMask, attributes);
      return finding(holds, holds ? id : `${id} has another signer or other attributes`);
    }),
  },
  {
    id: 'tdx.tcb.platform_status',
    source: 'attestation.md 10, 13.3',
    title: 'The platform is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: (subject) => {
      const [info, sgx] = [tcbInfo(subject), valueIn(subject.sgx)];
      if (info === undefined || sgx === undefined) return undefined;
      const { teeTcbSvn } = subject.quote.tdQuoteBody;
      return statusFinding(platformLevel(info, { ...sgx, teeTcbSvn }));
    },
  },
  {
    id: 'tdx.tcb.module_status',
    source: 'attestation.md 10',
    title: 'The TDX module is up to date',
    expected: `level ${UP_TO_DATE}`,
    conditional: true,
    judge: ofModuleVersion((identity, { quote }) =>
      statusFinding(svnLevel(identity.levels, quote.tdQuoteBody.teeTcbSvn[0] ?? 0)),
    ),
  },
  {
    id: 'tdx.qe.misc_select',
    source: 'attestation.md 10',
    title: 'The quoting enclave has the expected extended features',
    expected: 'MISCSELECT of QE identity, under its mask',
    judge: (subject) => {
      const identity = qeIdentity(subject);
      const found = littleEndian32(qeReport(subject).miscSelect);
      return identity && underMask(found, identity.miscSelectMask, identity.miscSelect);
    },
  },
  {
    id: 'tdx.qe.attributes',
    source: 'attestation.md 10',
    title: 'The quoting enclave has the attributes of a production enclave',
    expected: 'ATTRIBUTES of QE identity, under its mask',
    judge: (subject) => {
      const identity = qeIdentity(subject);
      return (
        identity && underMask(qeReport(subject).attributes, identity.attributesMask, identity.attributes)
      );
    },
  },
  {
    id: 'tdx.qe.signer',
    source: 'attestation.md 10',
    title: 'The quoting enclave is signed by Intel',
    expected: 'MRSIGNER of QE identity',
    judge: (subject) => {
      const identity = qeIdentity(subject);
      return identity && equalHex(qeReport(subject).mrSigner, identity.mrSigner);
    },
  },
  {
    id: 'tdx.qe.product',
    source: 'attestation.md 10',
    title: 'The quoting enclave is the one for trust domains',
    expected: 'ISVPRODID of QE identity',
    judge: (subject) => {
      const [identity, { isvProdId }] = [qeIdentity(subject), qeReport(subject)];
      return (
        identity && finding(isvProdId === identity.isvProdId, String(isvProdId), String(identity.isvProdId))
      );
    },
  },
  {
    id: 'tdx.qe.status',
    source: 'attestation.md 10',
    title: 'The quoting enclave is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: (subject) => {
      const identity = qeIdentity(subject);
      return identity && statusFinding(svnLevel(identity.levels, qeReport(subject).isvSvn));
    },
  },
];
