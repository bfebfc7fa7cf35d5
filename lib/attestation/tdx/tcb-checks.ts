/**
 * Checks whether platform, TDX module and quoting enclave are genuine and up to date
 * (docs/protocol/attestation.md 10, 13.3).
 */
import { type Finding, finding, hex, need, notApplicable, oneOf, rowsFrom } from '../check.ts';
import { littleEndian, type TdQuoteBody } from './quote.ts';
import type { TdxRow, TdxSubject } from './subject.ts';
import {
  equalUnderMask,
  moduleIdentity,
  platformLevel,
  svnLevel,
  UP_TO_DATE,
  type VersionedModuleIdentity,
} from './tcb-info.ts';

/**
 * Judges by the identity that TCB info states for the module's major version, TEE_TCB_SVN[1]. The check does
 * not apply to version 0, which has no identity of its own.
 */
const byModuleVersion =
  (judge: (identity: VersionedModuleIdentity, body: TdQuoteBody) => Finding): TdxRow['judge'] =>
  ({ tcbInfo, body }) => {
    const { value: info } = need(tcbInfo);
    const major = body.teeTcbSvn[1];
    if (major === 0) return notApplicable('TDX module of major version 0');
    const identity = moduleIdentity(info, body.teeTcbSvn);
    if (identity === undefined) return finding(false, `TCB info does not know module version ${major}`);
    return judge(identity, body);
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

export const TCB_ROWS = rowsFrom<TdxSubject>('attestation.md 10', {
  'tdx.tcb.module_signer': {
    title: 'The TDX module is signed by Intel',
    expected: 'MRSIGNERSEAM of TCB info',
    judge: ({ body, tcbInfo }) => oneOf(body.mrSignerSeam, [need(tcbInfo).value.module.mrSigner]),
  },
  'tdx.tcb.module_attributes': {
    title: 'The TDX module has the attributes of a production module',
    expected: 'SEAMATTRIBUTES of TCB info, under its mask',
    judge: ({ body, tcbInfo }) => {
      const { attributes, attributesMask } = need(tcbInfo).value.module;
      return underMask(body.seamAttributes, attributesMask, attributes);
    },
  },
  'tdx.tcb.module_identity': {
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
  'tdx.tcb.platform_status': {
    source: 'attestation.md 10, 13.3',
    title: 'The platform is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: ({ body, tcbInfo, sgx }) =>
      statusFinding(platformLevel(need(tcbInfo).value, need(sgx), body.teeTcbSvn)),
  },
  'tdx.tcb.module_status': {
    title: 'The TDX module is up to date',
    expected: `level ${UP_TO_DATE}`,
    conditional: true,
    judge: byModuleVersion(({ levels }, { teeTcbSvn }) => statusFinding(svnLevel(levels, teeTcbSvn[0] ?? 0))),
  },
  'tdx.qe.misc_select': {
    title: 'The quoting enclave has the expected extended features',
    expected: 'MISCSELECT of QE identity, under its mask',
    judge: ({ qe, qeIdentity }) => {
      const { miscSelect, miscSelectMask } = need(qeIdentity).value;
      return underMask(littleEndian(qe.qeReport.miscSelect, 4), miscSelectMask, miscSelect);
    },
  },
  'tdx.qe.attributes': {
    title: 'The quoting enclave has the attributes of a production enclave',
    expected: 'ATTRIBUTES of QE identity, under its mask',
    judge: ({ qe, qeIdentity }) => {
      const { attributes, attributesMask } = need(qeIdentity).value;
      return underMask(qe.qeReport.attributes, attributesMask, attributes);
    },
  },
  'tdx.qe.signer': {
    title: 'The quoting enclave is signed by Intel',
    expected: 'MRSIGNER of QE identity',
    judge: ({ qe, qeIdentity }) => oneOf(qe.qeReport.mrSigner, [need(qeIdentity).value.mrSigner]),
  },
  'tdx.qe.product': {
    title: 'The quoting enclave is the one for trust domains',
    expected: 'ISVPRODID of QE identity',
    judge: ({ qe, qeIdentity }) => {
      const { isvProdId } = need(qeIdentity).value;
      return finding(qe.qeReport.isvProdId === isvProdId, `${qe.qeReport.isvProdId}`, `${isvProdId}`);
    },
  },
  'tdx.qe.status': {
    title: 'The quoting enclave is up to date',
    expected: `level ${UP_TO_DATE}`,
    judge: ({ qe, qeIdentity }) => statusFinding(svnLevel(need(qeIdentity).value.levels, qe.qeReport.isvSvn)),
  },
});
