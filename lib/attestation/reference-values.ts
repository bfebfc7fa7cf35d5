/** The reference values of a manifest (docs/protocol/attestation.md 4.4, 4.5), validated (19.12) and decoded; lengths in bytes. */
import { type ManifestObject, manifestInvalid, manifestUnsupported } from './manifest-object.ts';
import {
  type Flag,
  type Flags,
  GUEST_POLICY_FLAGS,
  type GuestPolicy,
  PLATFORM_INFO_FLAGS,
} from './snp/packed-fields.ts';
import { isProduct } from './snp/product.ts';

export type SnpReferenceValues = Readonly<ReturnType<typeof readSnp>>;
export type TdxReferenceValues = Readonly<ReturnType<typeof readTdx>>;

const SNP_KEYS =
  'Platform ProductName TrustedMeasurement MinimumTCB GuestPolicy PlatformInfo MinimumMitigationVector ' +
  'AllowedChipIDs CPUs APEIP';
const TCB_KEYS = ['BootloaderVersion', 'TEEVersion', 'SNPVersion', 'MicrocodeVersion'];
const membersOf = (flags: readonly Flag[]): string[] => flags.map(({ member }) => member);
const PLATFORM_INFO_KEYS = membersOf(PLATFORM_INFO_FLAGS);
const GUEST_POLICY_KEYS = ['ABIMinor', 'ABIMajor', ...membersOf(GUEST_POLICY_FLAGS)];
/** Members of GuestPolicy that weaken the guest: never true (docs/protocol/attestation.md 19.12 rule 9). */
const NEVER_TRUE = ['Debug', 'MigrateMA', 'CXLAllowed'];
const TDX_KEYS =
  'Platform MinTCBEvaluationDataNumber MrTd MrSeam Rtmrs Rtmr0Alternatives Xfam AllowedPIIDs ' +
  'MemoryIntegrity SMTDisabled StaticPlatform CPUs';
const MAX_UINT64 = 2n ** 64n - 1n;
const MAX_INT32 = 2 ** 31 - 1;

/** `ReferenceValues.snp` and `.tdx`. Throws manifest_invalid or manifest_unsupported (docs/protocol/attestation.md 19.12). */
export function readReferenceValues(values: ManifestObject) {
  const snp = values.objects('snp', SNP_KEYS.split(' ')).map(readSnp);
  const tdx = values.objects('tdx', TDX_KEYS.split(' ')).map(readTdx);
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

function readSnp(entry: ManifestObject) {
  const platform = readPlatform(entry);
  const product = entry.text('ProductName') ?? '';
  if (product === '') throw manifestInvalid(entry.at('ProductName'), 'a product name is mandatory');
  if (!isProduct(product)) throw manifestUnsupported(entry.at('ProductName'), product);
  const tcb = entry.object('MinimumTCB', TCB_KEYS);
  return {
    platform,
    product,
    /** The launch digest, of a guest with one vCPU where `apeip` is set. */
    trustedMeasurement: entry.bytes('TrustedMeasurement', 48),
    /** The AP reset address; undefined = compare the measurement exactly. */
    apeip: readApeip(entry),
    minimumTcb: {
      bootloader: tcb.integer('BootloaderVersion', 255),
      tee: tcb.integer('TEEVersion', 255),
      snp: tcb.integer('SNPVersion', 255),
      microcode: tcb.integer('MicrocodeVersion', 255),
    },
    guestPolicy: readGuestPolicy(entry),
    platformInfo: readFlags(entry.optionalObject('PlatformInfo', PLATFORM_INFO_KEYS), PLATFORM_INFO_FLAGS),
    minimumMitigationVector: entry.bigInteger('MinimumMitigationVector', MAX_UINT64, 0n),
    /** Empty = any chip. */
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
  const policy = entry.optionalObject('GuestPolicy', GUEST_POLICY_KEYS);
  for (const member of NEVER_TRUE) {
    if (policy.flag(member)) throw manifestInvalid(policy.at(member), 'must not be true');
  }
  return {
    ABIMinor: policy.integer('ABIMinor', 255, 0),
    ABIMajor: policy.integer('ABIMajor', 255, 0),
    ...readFlags(policy, GUEST_POLICY_FLAGS),
  };
}

function readFlags<Table extends readonly Flag[]>(object: ManifestObject, table: Table): Flags<Table> {
  return Object.fromEntries(table.map(({ member }) => [member, object.flag(member)])) as Flags<Table>;
}

function readTdx(entry: ManifestObject) {
  const platform = readPlatform(entry);
  const rtmrs = entry.byteLists('Rtmrs', 48);
  if (rtmrs.length !== 4) throw manifestInvalid(entry.at('Rtmrs'), `${rtmrs.length} values where 4 belong`);
  return {
    platform,
    /** 0 = no requirement. */
    minTcbEvaluationDataNumber: entry.integer('MinTCBEvaluationDataNumber', MAX_INT32, 0),
    mrTd: entry.bytes('MrTd', 48),
    mrSeam: entry.bytes('MrSeam', 48),
    /** RTMR0 to RTMR3. */
    rtmrs: rtmrs as unknown as readonly [Uint8Array, Uint8Array, Uint8Array, Uint8Array],
    /** Further values allowed for RTMR0 (docs/protocol/attestation.md 19.10). */
    rtmr0Alternatives: entry.byteLists('Rtmr0Alternatives', 48),
    /** In quote order. */
    xfam: entry.bytes('Xfam', 8),
    /** Empty = any. */
    allowedPiids: entry.byteLists('AllowedPIIDs', 16),
    memoryIntegrity: entry.flag('MemoryIntegrity'),
    smtDisabled: entry.flag('SMTDisabled'),
    staticPlatform: entry.flag('StaticPlatform'),
  };
}
