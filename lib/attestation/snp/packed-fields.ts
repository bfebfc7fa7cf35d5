/**
 * Reads the 64-bit fields of a report that pack many values: TCB versions, POLICY, PLATFORM_INFO
 * (docs/protocol/attestation.md 6.3).
 */

export const bits = (value: bigint): string => `0x${value.toString(16)}`;

/** The parts of a TCB version in byte order, least significant first; the layout of Milan and Genoa. */
const TCB_PARTS = ['bootloader', 'tee', 'spl4', 'spl5', 'spl6', 'spl7', 'snp', 'microcode'] as const;

/** Security patch levels, one byte each. */
export type TcbParts = Readonly<Record<(typeof TCB_PARTS)[number], number>>;

export function tcbParts(tcb: bigint): TcbParts {
  const entries = TCB_PARTS.map((part, index) => [part, Number((tcb >> BigInt(8 * index)) & 0xffn)]);
  return Object.fromEntries(entries) as TcbParts;
}

export function tcbValue(parts: TcbParts): bigint {
  return TCB_PARTS.reduce((value, part, index) => value | (BigInt(parts[part]) << BigInt(8 * index)), 0n);
}

/** Whether no part of `low` is above its counterpart in `high`; a part that `low` leaves out counts as 0. */
export function tcbAtMost(low: Partial<TcbParts>, high: TcbParts): boolean {
  return TCB_PARTS.every((part) => (low[part] ?? 0) <= high[part]);
}

/** For a person: `bootloader 12, tee 0, snp 28, microcode 88`, and those other parts that are not zero. */
export function tcbText(parts: Partial<TcbParts>): string {
  const shown = TCB_PARTS.filter((part) => !part.startsWith('spl') || (parts[part] ?? 0) !== 0);
  return shown.map((part) => `${part} ${parts[part] ?? 0}`).join(', ');
}

/** A bit of POLICY or PLATFORM_INFO, and the member of the manifest that governs it. */
export interface BitFlag<Member extends string = string> {
  readonly bit: number;
  readonly name: string;
  /** `forbidden`: set only if the manifest allows it. `required`: must be set if the manifest asks for it. */
  readonly direction: 'forbidden' | 'required';
  readonly member: Member;
}

export const GUEST_POLICY_FLAGS = [
  { bit: 16, name: 'SMT', direction: 'forbidden', member: 'SMT' },
  { bit: 18, name: 'MIGRATE_MA', direction: 'forbidden', member: 'MigrateMA' },
  { bit: 19, name: 'DEBUG', direction: 'forbidden', member: 'Debug' },
  { bit: 20, name: 'SINGLE_SOCKET', direction: 'required', member: 'SingleSocket' },
  { bit: 21, name: 'CXL_ALLOW', direction: 'forbidden', member: 'CXLAllowed' },
  { bit: 22, name: 'MEM_AES_256_XTS', direction: 'required', member: 'MemAES256XTS' },
  { bit: 23, name: 'RAPL_DIS', direction: 'required', member: 'RAPLDis' },
  { bit: 24, name: 'CIPHERTEXT_HIDING_DRAM', direction: 'required', member: 'CipherTextHidingDRAM' },
  { bit: 25, name: 'PAGE_SWAP_DISABLE', direction: 'required', member: 'PageSwapDisable' },
] as const satisfies readonly BitFlag[];

export const PLATFORM_INFO_FLAGS = [
  { bit: 0, name: 'SMT_EN', direction: 'forbidden', member: 'SMTEnabled' },
  { bit: 1, name: 'TSME_EN', direction: 'forbidden', member: 'TSMEEnabled' },
  { bit: 2, name: 'ECC_EN', direction: 'required', member: 'ECCEnabled' },
  { bit: 3, name: 'RAPL_DIS', direction: 'required', member: 'RAPLDisabled' },
  { bit: 4, name: 'CIPHERTEXT_HIDING_DRAM_EN', direction: 'required', member: 'CiphertextHidingDRAMEnabled' },
  { bit: 5, name: 'ALIAS_CHECK_COMPLETE', direction: 'required', member: 'AliasCheckComplete' },
  { bit: 7, name: 'TIO_EN', direction: 'forbidden', member: 'TIOEnabled' },
] as const satisfies readonly BitFlag[];

/** Which flags the manifest allows or asks for, by the manifest's own names. */
export type Flags<Table extends readonly BitFlag[]> = Readonly<Record<Table[number]['member'], boolean>>;
/** ABIMajor and ABIMinor: the least ABI version that is accepted, one byte each. */
export type GuestPolicy = Flags<typeof GUEST_POLICY_FLAGS> &
  Readonly<Record<'ABIMajor' | 'ABIMinor', number>>;

/** Bit 17 of POLICY is always 1; bits 63:26 are always 0. */
export const POLICY_RESERVED_ONE = 1n << 17n;
export const POLICY_RESERVED_ZERO = ~((1n << 26n) - 1n) & (2n ** 64n - 1n);
/** Bit 6 and bits 63:8 of PLATFORM_INFO are always 0 for Milan and Genoa. */
export const PLATFORM_RESERVED_ZERO = (~0xffn & (2n ** 64n - 1n)) | (1n << 6n);

/** The u64 that stands in the ID block for a manifest's GuestPolicy; bit 17 is always set. */
export function guestPolicyValue(policy: GuestPolicy): bigint {
  const flags = GUEST_POLICY_FLAGS.filter(({ member }) => policy[member]);
  const bits = flags.reduce((value, { bit }) => value | (1n << BigInt(bit)), POLICY_RESERVED_ONE);
  return bits | (BigInt(policy.ABIMajor) << 8n) | BigInt(policy.ABIMinor);
}
