import { describe } from 'node:test';
import { filled, itAccepts, itRefuses, type Row } from '../../support/evidence/tdx-cases.ts';
import { type Changes, platformLevelJson } from '../../support/evidence/tdx-platform.ts';

const MODULE_LEVEL = (isvsvn: number, tcbStatus: string) => ({ tcb: { isvsvn }, tcbStatus });
const MODULE_IDENTITY = {
  id: 'TDX_01',
  mrsigner: '00'.repeat(48),
  attributes: '00'.repeat(8),
  attributesMask: 'FF'.repeat(8),
  tcbLevels: [MODULE_LEVEL(7, 'UpToDate')],
};
const ZEROS = Array.from({ length: 16 }, () => 0);

const moduleVersion0: Changes['body'] = (b) => ({
  ...b,
  teeTcbSvn: Uint8Array.of(4, 0, 3, ...new Uint8Array(13)),
});

const TCB: readonly Row[] = [
  [
    'a TDX module of another signer',
    { body: (b) => ({ ...b, mrSignerSeam: filled(48, 1) }) },
    ['tdx.tcb.module_signer', 'tdx.tcb.module_identity'],
  ],
  [
    'a TDX module under debug',
    { body: (b) => ({ ...b, seamAttributes: Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0) }) },
    ['tdx.tcb.module_attributes', 'tdx.tcb.module_identity'],
  ],
  [
    'a module version whose identity names another signer',
    { tcbInfo: (j) => ({ ...j, tdxModuleIdentities: [{ ...MODULE_IDENTITY, mrsigner: '01'.repeat(48) }] }) },
    ['tdx.tcb.module_identity'],
  ],
  [
    'a module version that TCB info does not know',
    { tcbInfo: (j) => ({ ...j, tdxModuleIdentities: [{ ...MODULE_IDENTITY, id: 'TDX_03' }] }) },
    ['tdx.tcb.module_identity', 'tdx.tcb.module_status'],
  ],
  [
    'TCB info without module identities',
    { tcbInfo: ({ tdxModuleIdentities: _, ...j }) => j },
    ['tdx.tcb.module_identity', 'tdx.tcb.module_status'],
  ],
  ...['OutOfDate', 'SWHardeningNeeded', 'ConfigurationNeeded', 'Revoked', 'uptodate'].flatMap(
    (status): Row[] => [
      [
        `a platform level ${status}`,
        { tcbInfo: (j) => ({ ...j, tcbLevels: [platformLevelJson(status)] }) },
        ['tdx.tcb.platform_status'],
      ],
      [
        `a module level ${status}`,
        {
          tcbInfo: (j) => ({
            ...j,
            tdxModuleIdentities: [{ ...MODULE_IDENTITY, tcbLevels: [MODULE_LEVEL(7, status)] }],
          }),
        },
        ['tdx.tcb.module_status'],
      ],
      [
        `a quoting enclave ${status}`,
        { qeIdentity: (j) => ({ ...j, tcbLevels: [MODULE_LEVEL(4, status)] }) },
        ['tdx.qe.status'],
      ],
    ],
  ),
  [
    'a platform whose first level that matches is out of date, though a later one is not',
    {
      tcbInfo: (j) => ({ ...j, tcbLevels: [platformLevelJson('OutOfDate'), platformLevelJson('UpToDate')] }),
    },
    ['tdx.tcb.platform_status'],
  ],
  [
    'a module of version 0 below the TDX components of the level',
    { body: moduleVersion0 },
    ['tdx.tcb.platform_status'],
  ],
  [
    'a quoting enclave with extended features',
    { qeReport: (r) => ({ ...r, miscSelect: 1 }) },
    ['tdx.qe.misc_select'],
  ],
  [
    'extended features of a quoting enclave that stand in the wrong byte',
    {
      qeReport: (r) => ({ ...r, miscSelect: 0x0100_0000 }),
      qeIdentity: (j) => ({ ...j, miscselect: '01000000' }),
    },
    ['tdx.qe.misc_select'],
  ],
  [
    'a quoting enclave under debug',
    { qeReport: (r) => ({ ...r, attributes: Uint8Array.of(0x17, ...r.attributes.subarray(1)) }) },
    ['tdx.qe.attributes'],
  ],
  [
    'a quoting enclave of another signer',
    { qeReport: (r) => ({ ...r, mrSigner: filled(32, 1) }) },
    ['tdx.qe.signer'],
  ],
  ['another enclave of Intel', { qeReport: (r) => ({ ...r, isvProdId: 1 }) }, ['tdx.qe.product']],
  ['a quoting enclave below every level', { qeReport: (r) => ({ ...r, isvSvn: 1 }) }, ['tdx.qe.status']],
];

describe('verification of the state of platform, TDX module and quoting enclave', () => {
  itRefuses('tcb', TCB);
  itAccepts([
    [
      'a quoting enclave with the extended features of its identity, in little-endian order',
      {
        qeReport: (r) => ({ ...r, miscSelect: 0x0403_0201 }),
        qeIdentity: (j) => ({ ...j, miscselect: '01020300', miscselectMask: 'FFFFFF00' }),
      },
    ],
    [
      'a module of version 0 at the TDX components of the level',
      {
        body: moduleVersion0,
        tcbInfo: ({ tdxModuleIdentities: _, ...j }) => ({
          ...j,
          tcbLevels: [platformLevelJson('UpToDate', ZEROS, 13, [4, 0, 3, ...ZEROS.slice(3)])],
        }),
      },
    ],
  ]);
});
