/** Reads the reference values of a manifest (docs/protocol/attestation.md 4.4, 4.5, 19.12). */
import { JsonObject } from '../strict-json.ts';
import { bigInteger, FLAG, hex, integer, type JsonMembers, TEXT } from './json-members.ts';
import { manifestInvalid, manifestUnsupported, onlyKnown } from './manifest-members.ts';
import {
  type BitFlag,
  type Flags,
  GUEST_POLICY_FLAGS,
  type GuestPolicy,
  isProduct,
  PLATFORM_INFO_FLAGS,
} from './snp/packed-fields.ts';

export type SnpReferenceValues = Readonly<ReturnType<typeof readSnp>>;
export type TdxReferenceValues = Readonly<ReturnType<typeof readTdx>>;

const SNP_KEYS = [
  ...['Platform', 'ProductName', 'TrustedMeasurement', 'MinimumTCB', 'GuestPolicy', 'PlatformInfo'],
  ...['MinimumMitigationVector', 'AllowedChipIDs', 'CPUs', 'APEIP'],
];
const TDX_KEYS = [
  ...['Platform', 'MinTCBEvaluationDataNumber', 'MrTd', 'MrSeam', 'Rtmrs', 'Rtmr0Alternatives', 'Xfam'],
  ...['AllowedPIIDs', 'MemoryIntegrity', 'SMTDisabled', 'StaticPlatform', 'CPUs'],
];
const TCB_KEYS = ['BootloaderVersion', 'TEEVersion', 'SNPVersion', 'MicrocodeVersion'];
const membersOf = (flags: readonly BitFlag[]): string[] => flags.map(({ member }) => member);
const GUEST_POLICY_KEYS = ['ABIMinor', 'ABIMajor', ...membersOf(GUEST_POLICY_FLAGS)];
/** Members of GuestPolicy that weaken the guest (docs/protocol/attestation.md 19.12 rule 9). */
const NEVER_TRUE = ['Debug', 'MigrateMA', 'CXLAllowed'];
const UINT64 = bigInteger(2n ** 64n - 1n);
const BYTE = integer(255);

/** Reads `ReferenceValues.snp` and `.tdx`. Throws manifest_invalid or manifest_unsupported. */
export function readReferenceValues(values: JsonMembers) {
  const entries = (key: string, known: readonly string[]): JsonMembers[] =>
    values.objects(key, []).map((entry) => onlyKnown(entry, known));
  const snp = entries('snp', SNP_KEYS).map(readSnp);
  const tdx = entries('tdx', TDX_KEYS).map(readTdx);
  if (snp.length + tdx.length === 0) throw manifestInvalid(values.path, 'no reference value at all');
  return { snp, tdx };
}

/** Both members are informative, but a platform without confidential hardware is refused (19.12 rule 4). */
function checkPlatform(entry: JsonMembers): void {
  entry.get('CPUs', UINT64, 0n);
  const platform = entry.get('Platform', TEXT, '');
  if (platform.toLowerCase().includes('insecure'))
    throw manifestInvalid(entry.at('Platform'), `${platform} is a platform without confidential hardware`);
}

function readSnp(entry: JsonMembers) {
  checkPlatform(entry);
  const product = entry.get('ProductName', TEXT, '');
  if (product === '') throw manifestInvalid(entry.at('ProductName'), 'a product name is mandatory');
  if (!isProduct(product)) throw manifestUnsupported(entry.at('ProductName'), product);
  const tcb = onlyKnown(entry.object('MinimumTCB'), TCB_KEYS);
  const platformInfo = readOptional(entry, 'PlatformInfo', membersOf(PLATFORM_INFO_FLAGS));
  return {
    product,
    /** The launch digest; if `apeip` is set, that of a guest with one vCPU. */
    trustedMeasurement: entry.get('TrustedMeasurement', hex(48)),
    /** The AP reset address; undefined = compare the measurement exactly. */
    apeip: readApeip(entry),
    minimumTcb: {
      bootloader: tcb.get('BootloaderVersion', BYTE),
      tee: tcb.get('TEEVersion', BYTE),
      snp: tcb.get('SNPVersion', BYTE),
      microcode: tcb.get('MicrocodeVersion', BYTE),
    },
    guestPolicy: readGuestPolicy(entry),
    platformInfo: readFlags(platformInfo, PLATFORM_INFO_FLAGS),
    minimumMitigationVector: entry.get('MinimumMitigationVector', UINT64, 0n),
    /** Empty = any chip. */
    allowedChipIds: entry.list('AllowedChipIDs', hex(64), []),
  };
}

const readOptional = (entry: JsonMembers, key: string, known: readonly string[]): JsonMembers =>
  onlyKnown(entry.object(key, new JsonObject()), known);

/** Four bytes, big-endian; an absent or empty member selects the exact measurement (rule 10). */
function readApeip(entry: JsonMembers): number | undefined {
  const text = entry.get('APEIP', TEXT, '');
  return text === '' ? undefined : new DataView(entry.get('APEIP', hex(4)).buffer).getUint32(0);
}

function readGuestPolicy(entry: JsonMembers): GuestPolicy {
  const policy = readOptional(entry, 'GuestPolicy', GUEST_POLICY_KEYS);
  for (const member of NEVER_TRUE)
    if (policy.get(member, FLAG, false)) throw manifestInvalid(policy.at(member), 'must not be true');
  return {
    ABIMinor: policy.get('ABIMinor', BYTE, 0),
    ABIMajor: policy.get('ABIMajor', BYTE, 0),
    ...readFlags(policy, GUEST_POLICY_FLAGS),
  };
}

function readFlags<Table extends readonly BitFlag[]>(object: JsonMembers, table: Table): Flags<Table> {
  const read = ({ member }: BitFlag) => [member, object.get(member, FLAG, false)] as const;
  return Object.fromEntries(table.map(read)) as Flags<Table>;
}

function readTdx(entry: JsonMembers) {
  checkPlatform(entry);
  const rtmrs = entry.list('Rtmrs', hex(48), []);
  if (rtmrs.length !== 4) throw manifestInvalid(entry.at('Rtmrs'), `${rtmrs.length} values where 4 belong`);
  return {
    /** 0 = no requirement. */
    minTcbEvaluationDataNumber: entry.get('MinTCBEvaluationDataNumber', integer(2 ** 31 - 1), 0),
    mrTd: entry.get('MrTd', hex(48)),
    mrSeam: entry.get('MrSeam', hex(48)),
    /** RTMR0 to RTMR3. */
    rtmrs: rtmrs as unknown as readonly [Uint8Array, Uint8Array, Uint8Array, Uint8Array],
    /** Further values allowed for RTMR0 (docs/protocol/attestation.md 19.10). */
    rtmr0Alternatives: entry.list('Rtmr0Alternatives', hex(48), []),
    /** In the byte order of the quote. */
    xfam: entry.get('Xfam', hex(8)),
    /** Empty = any. */
    allowedPiids: entry.list('AllowedPIIDs', hex(16), []),
    memoryIntegrity: entry.get('MemoryIntegrity', FLAG, false),
    smtDisabled: entry.get('SMTDisabled', FLAG, false),
    staticPlatform: entry.get('StaticPlatform', FLAG, false),
  };
}
