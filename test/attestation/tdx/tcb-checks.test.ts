import { describe } from 'node:test';
import { type Cases, filled, itAccepts, itRefuses } from '../../support/evidence/tdx-cases.ts';
import { type Changes, platformLevelJson } from '../../support/evidence/tdx-platform.ts';

const level = (isvsvn: number, tcbStatus: string) => ({ tcb: { isvsvn }, tcbStatus });
const MODULE_IDENTITY = {
  id: 'TDX_01',
  mrsigner: '00'.repeat(48),
  attributes: '00'.repeat(8),
  attributesMask: 'FF'.repeat(8),
  tcbLevels: [level(7, 'UpToDate')],
};
/** TCB info with this module identity alone. */
const moduleIdentity = (changes: object): Changes => ({
  tcbInfo: (j) => ({ ...j, tdxModuleIdentities: [{ ...MODULE_IDENTITY, ...changes }] }),
});
const platformLevels = (...tcbLevels: readonly object[]): Changes => ({
  tcbInfo: (j) => ({ ...j, tcbLevels }),
});
const moduleVersion = (minor: number, major: number): Changes => ({
  body: (b) => ({ ...b, teeTcbSvn: Uint8Array.of(minor, major, 3, ...new Uint8Array(13)) }),
});
const ZEROS = Array.from({ length: 16 }, () => 0);

const STATUSES = ['OutOfDate', 'SWHardeningNeeded', 'ConfigurationNeeded', 'Revoked', 'uptodate'];
const withStatus = (name: string, changes: (status: string) => Changes): Cases =>
  Object.fromEntries(STATUSES.map((status) => [`${name} ${status}`, changes(status)]));

describe('verification of the state of platform, TDX module and quoting enclave', () => {
  itRefuses('tcb', {
    'tdx.tcb.module_signer, tdx.tcb.module_identity': {
      'a TDX module of another signer': { body: (b) => ({ ...b, mrSignerSeam: filled(48, 1) }) },
    },
    'tdx.tcb.module_attributes, tdx.tcb.module_identity': {
      'a TDX module under debug': {
        body: (b) => ({ ...b, seamAttributes: Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0) }),
      },
    },
    'tdx.tcb.module_identity': {
      'a module version whose identity names another signer': moduleIdentity({ mrsigner: '01'.repeat(48) }),
    },
    'tdx.tcb.module_identity, tdx.tcb.module_status': {
      'a module version that TCB info does not know': moduleIdentity({ id: 'TDX_03' }),
      'a module version whose digits TCB info does not write as two': moduleIdentity({ id: 'TDX_1' }),
      'a module version that TCB info knows in decimal only': {
        ...moduleIdentity({ id: 'TDX_10' }),
        ...moduleVersion(7, 10),
      },
      'TCB info without module identities': { tcbInfo: ({ tdxModuleIdentities: _, ...j }) => j },
    },
    'tdx.tcb.platform_status': {
      ...withStatus('a platform level', (status) => platformLevels(platformLevelJson(status))),
      'a platform whose first level that matches is out of date, though a later one is not': platformLevels(
        platformLevelJson('OutOfDate'),
        platformLevelJson('UpToDate'),
      ),
      'a module of version 0 below the TDX components of the level': moduleVersion(4, 0),
    },
    'tdx.tcb.module_status': withStatus('a module level', (status) =>
      moduleIdentity({ tcbLevels: [level(7, status)] }),
    ),
    'tdx.qe.status': {
      ...withStatus('a quoting enclave', (status) => ({
        qeIdentity: (j) => ({ ...j, tcbLevels: [level(4, status)] }),
      })),
      'a quoting enclave below every level': { qeReport: (r) => ({ ...r, isvSvn: 1 }) },
    },
    'tdx.qe.misc_select': {
      'a quoting enclave with extended features': { qeReport: (r) => ({ ...r, miscSelect: 1 }) },
      'extended features of a quoting enclave that stand in the wrong byte': {
        qeReport: (r) => ({ ...r, miscSelect: 0x0100_0000 }),
        qeIdentity: (j) => ({ ...j, miscselect: '01000000' }),
      },
    },
    'tdx.qe.attributes': {
      'a quoting enclave under debug': {
        qeReport: (r) => ({ ...r, attributes: Uint8Array.of(0x17, ...r.attributes.subarray(1)) }),
      },
    },
    'tdx.qe.signer': {
      'a quoting enclave of another signer': { qeReport: (r) => ({ ...r, mrSigner: filled(32, 1) }) },
    },
    'tdx.qe.product': { 'another enclave of Intel': { qeReport: (r) => ({ ...r, isvProdId: 1 }) } },
  });
  itAccepts({
    'a quoting enclave with the extended features of its identity, in little-endian order': {
      qeReport: (r) => ({ ...r, miscSelect: 0x0403_0201 }),
      qeIdentity: (j) => ({ ...j, miscselect: '01020300', miscselectMask: 'FFFFFF00' }),
    },
    'a module version by its two lower-case hex digits': {
      ...moduleIdentity({ id: 'TDX_0a' }),
      ...moduleVersion(7, 10),
    },
    'a module of version 0 at the TDX components of the level': {
      ...moduleVersion(4, 0),
      tcbInfo: ({ tdxModuleIdentities: _, ...j }) => ({
        ...j,
        tcbLevels: [platformLevelJson('UpToDate', ZEROS, 13, [4, 0, 3, ...ZEROS.slice(3)])],
      }),
    },
  });
});
