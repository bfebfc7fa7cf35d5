/** The reference values of a manifest (attestation.md 4.4, 4.5), validated and decoded (19.12). */
import { type ManifestObject, manifestInvalid, manifestUnsupported } from './manifest-object.ts';
import type { TcbParts } from './snp/tcb.ts';

export interface SnpReferenceValues {
  readonly platform: string | undefined;
  readonly product: 'Milan' | 'Genoa';
  /** 48 bytes; the launch digest of a guest with one vCPU where `apeip` is set. */
  readonly trustedMeasurement: Uint8Array;
  /** The AP reset address; undefined = compare the measurement exactly. */
  readonly apeip: number | undefined;
  readonly minimumTcb: Pick<TcbParts, 'bootloader' | 'tee' | 'snp' | 'microcode'>;
  readonly guestPolicy: GuestPolicy;
  readonly platformInfo: PlatformInfo;
  readonly minimumMitigationVector: bigint;
  /** 64 bytes each; empty = any chip. */
  readonly allowedChipIds: readonly Uint8Array[];
}

export interface GuestPolicy {
  readonly abiMinor: number;
  readonly abiMajor: number;
  readonly smt: boolean;
  readonly migrateMa: boolean;
  readonly debug: boolean;
  readonly singleSocket: boolean;
  readonly cxlAllowed: boolean;
  readonly memAes256Xts: boolean;
  readonly raplDis: boolean;
  readonly cipherTextHidingDram: boolean;
  readonly pageSwapDisable: boolean;
}

export interface PlatformInfo {
  readonly smtEnabled: boolean;
  readonly tsmeEnabled: boolean;
  readonly eccEnabled: boolean;
  readonly raplDisabled: boolean;
  readonly ciphertextHidingDramEnabled: boolean;
  readonly aliasCheckComplete: boolean;
  readonly tioEnabled: boolean;
}

export interface TdxReferenceValues {
  readonly platform: string | undefined;
  /** 0 = no requirement. */
  readonly minTcbEvaluationDataNumber: number;
  /** 48 bytes. */
  readonly mrTd: Uint8Array;
  /** 48 bytes. */
  readonly mrSeam: Uint8Array;
  /** RTMR0 to RTMR3, 48 bytes each. */
  readonly rtmrs: readonly [Uint8Array, Uint8Array, Uint8Array, Uint8Array];
  /** Further values allowed for RTMR0, 48 bytes each (attestation.md 19.10). */
  readonly rtmr0Alternatives: readonly Uint8Array[];
  /** 8 bytes, in quote order. */
  readonly xfam: Uint8Array;
  /** 16 bytes each; empty = any. */
  readonly allowedPiids: readonly Uint8Array[];
  readonly memoryIntegrity: boolean;
  readonly smtDisabled: boolean;
  readonly staticPlatform: boolean;
}

const SNP_KEYS = [
  'Platform',
  'ProductName',
  'TrustedMeasurement',
  'MinimumTCB',
  'GuestPolicy',
  'PlatformInfo',
  'MinimumMitigationVector',
  'AllowedChipIDs',
  'CPUs',
  'APEIP',
];
const TCB_KEYS = ['BootloaderVersion', 'TEEVersion', 'SNPVersion', 'MicrocodeVersion'];
const GUEST_POLICY_KEYS = [
  'ABIMinor',
  'ABIMajor',
  'SMT',
  'MigrateMA',
  'Debug',
  'SingleSocket',
  'CXLAllowed',
  'MemAES256XTS',
  'RAPLDis',
  'CipherTextHidingDRAM',
  'PageSwapDisable',
];
/** Members that weaken the guest: never true (attestation.md 19.12 rule 9). */
const FORBIDDEN_IN_GUEST_POLICY = ['Debug', 'MigrateMA', 'CXLAllowed'];
const PLATFORM_INFO_KEYS = [
  'SMTEnabled',
  'TSMEEnabled',
  'ECCEnabled',
  'RAPLDisabled',
  'CiphertextHidingDRAMEnabled',
  'AliasCheckComplete',
  'TIOEnabled',
];
const TDX_KEYS = [
  'Platform',
  'MinTCBEvaluationDataNumber',
  'MrTd',
  'MrSeam',
  'Rtmrs',
  'Rtmr0Alternatives',
  'Xfam',
  'AllowedPIIDs',
  'MemoryIntegrity',
  'SMTDisabled',
  'StaticPlatform',
  'CPUs',
];
const MAX_UINT64 = 2n ** 64n - 1n;
const MAX_INT32 = 2 ** 31 - 1;

/** `ReferenceValues.snp` and `.tdx`. Throws manifest_invalid or manifest_unsupported (attestation.md 19.12). */
export function readReferenceValues(values: ManifestObject): {
  readonly snp: readonly SnpReferenceValues[];
  readonly tdx: readonly TdxReferenceValues[];
} {
  const snp = values.objects('snp', SNP_KEYS).map(readSnp);
  const tdx = values.objects('tdx', TDX_KEYS).map(readTdx);
  if (snp.length + tdx.length === 0) throw manifestInvalid(values.path, 'no reference value at all');
  return { snp, tdx };
}

/** Informative, except that a platform without confidential hardware is refused (19.9, rule 4). */
function readPlatform(entry: ManifestObject): string | undefined {
  const platform = entry.text('Platform');
  if (platform?.toLowerCase().includes('insecure')) {
    throw manifestInvalid(entry.at('Platform'), `${platform} is a platform without confidential hardware`);
  }
  entry.bigInteger('CPUs', MAX_UINT64, 0n);
  return platform;
}

function readSnp(entry: ManifestObject): SnpReferenceValues {
  const platform = readPlatform(entry);
  const product = entry.text('ProductName') ?? '';
  if (product !== 'Milan' && product !== 'Genoa') {
    if (product === '') throw manifestInvalid(entry.at('ProductName'), 'a product name is mandatory');
    throw manifestUnsupported(entry.at('ProductName'), product);
  }
  const tcb = entry.object('MinimumTCB', TCB_KEYS);
  return {
    platform,
    product,
    trustedMeasurement: entry.bytes('TrustedMeasurement', 48),
    apeip: readApeip(entry),
    minimumTcb: {
      bootloader: tcb.integer('BootloaderVersion', 255),
      tee: tcb.integer('TEEVersion', 255),
      snp: tcb.integer('SNPVersion', 255),
      microcode: tcb.integer('MicrocodeVersion', 255),
    },
    guestPolicy: readGuestPolicy(entry),
    platformInfo: readPlatformInfo(entry),
    minimumMitigationVector: entry.bigInteger('MinimumMitigationVector', MAX_UINT64, 0n),
    allowedChipIds: entry.byteLists('AllowedChipIDs', 64),
  };
}

/** Absent or empty selects the exact measurement; otherwise four bytes, big-endian (rule 10). */
function readApeip(entry: ManifestObject): number | undefined {
  if ((entry.text('APEIP') ?? '') === '') return undefined;
  const bytes = entry.bytes('APEIP', 4);
  return new DataView(bytes.buffer).getUint32(0);
}

function readGuestPolicy(entry: ManifestObject): GuestPolicy {
  const policy = entry.has('GuestPolicy') ? entry.object('GuestPolicy', GUEST_POLICY_KEYS) : undefined;
  const flag = (key: string): boolean => policy?.flag(key) ?? false;
  for (const key of FORBIDDEN_IN_GUEST_POLICY) {
    if (flag(key)) throw manifestInvalid([...entry.at('GuestPolicy'), key], 'must not be true');
  }
  return {
    abiMinor: policy?.integer('ABIMinor', 255, 0) ?? 0,
    abiMajor: policy?.integer('ABIMajor', 255, 0) ?? 0,
    smt: flag('SMT'),
    migrateMa: false,
    debug: false,
    singleSocket: flag('SingleSocket'),
    cxlAllowed: false,
    memAes256Xts: flag('MemAES256XTS'),
    raplDis: flag('RAPLDis'),
    cipherTextHidingDram: flag('CipherTextHidingDRAM'),
    pageSwapDisable: flag('PageSwapDisable'),
  };
}

function readPlatformInfo(entry: ManifestObject): PlatformInfo {
  const info = entry.has('PlatformInfo') ? entry.object('PlatformInfo', PLATFORM_INFO_KEYS) : undefined;
  const flag = (key: string): boolean => info?.flag(key) ?? false;
  return {
    smtEnabled: flag('SMTEnabled'),
    tsmeEnabled: flag('TSMEEnabled'),
    eccEnabled: flag('ECCEnabled'),
    raplDisabled: flag('RAPLDisabled'),
    ciphertextHidingDramEnabled: flag('CiphertextHidingDRAMEnabled'),
    aliasCheckComplete: flag('AliasCheckComplete'),
    tioEnabled: flag('TIOEnabled'),
  };
}

function readTdx(entry: ManifestObject): TdxReferenceValues {
  const platform = readPlatform(entry);
  const rtmrs = entry.byteLists('Rtmrs', 48);
  const [rtmr0, rtmr1, rtmr2, rtmr3] = rtmrs;
  if (!rtmr0 || !rtmr1 || !rtmr2 || !rtmr3 || rtmrs.length !== 4) {
    throw manifestInvalid(entry.at('Rtmrs'), `${rtmrs.length} values where 4 belong`);
  }
  return {
    platform,
    minTcbEvaluationDataNumber: entry.integer('MinTCBEvaluationDataNumber', MAX_INT32, 0),
    mrTd: entry.bytes('MrTd', 48),
    mrSeam: entry.bytes('MrSeam', 48),
    rtmrs: [rtmr0, rtmr1, rtmr2, rtmr3],
    rtmr0Alternatives: entry.byteLists('Rtmr0Alternatives', 48),
    xfam: entry.bytes('Xfam', 8),
    allowedPiids: entry.byteLists('AllowedPIIDs', 16),
    memoryIntegrity: entry.flag('MemoryIntegrity'),
    smtDisabled: entry.flag('SMTDisabled'),
    staticPlatform: entry.flag('StaticPlatform'),
  };
}
