/** The bits of POLICY and PLATFORM_INFO (attestation.md 6.3) and which way each of them is stricter (8). */
import type { GuestPolicy, PlatformInfo } from '../reference-values.ts';

/** `forbidden`: set only if the manifest allows it. `required`: must be set if the manifest asks for it. */
type Direction = 'forbidden' | 'required';

export interface FlagRow<Key> {
  readonly key: Key;
  readonly bit: number;
  readonly name: string;
  readonly direction: Direction;
}

export const GUEST_POLICY_FLAGS: readonly FlagRow<Exclude<keyof GuestPolicy, 'abiMinor' | 'abiMajor'>>[] = [
  { key: 'smt', bit: 16, name: 'SMT', direction: 'forbidden' },
  { key: 'migrateMa', bit: 18, name: 'MIGRATE_MA', direction: 'forbidden' },
  { key: 'debug', bit: 19, name: 'DEBUG', direction: 'forbidden' },
  { key: 'singleSocket', bit: 20, name: 'SINGLE_SOCKET', direction: 'required' },
  { key: 'cxlAllowed', bit: 21, name: 'CXL_ALLOW', direction: 'forbidden' },
  { key: 'memAes256Xts', bit: 22, name: 'MEM_AES_256_XTS', direction: 'required' },
  { key: 'raplDis', bit: 23, name: 'RAPL_DIS', direction: 'required' },
  { key: 'cipherTextHidingDram', bit: 24, name: 'CIPHERTEXT_HIDING_DRAM', direction: 'required' },
  { key: 'pageSwapDisable', bit: 25, name: 'PAGE_SWAP_DISABLE', direction: 'required' },
];

export const PLATFORM_INFO_FLAGS: readonly FlagRow<keyof PlatformInfo>[] = [
  { key: 'smtEnabled', bit: 0, name: 'SMT_EN', direction: 'forbidden' },
  { key: 'tsmeEnabled', bit: 1, name: 'TSME_EN', direction: 'forbidden' },
  { key: 'eccEnabled', bit: 2, name: 'ECC_EN', direction: 'required' },
  { key: 'raplDisabled', bit: 3, name: 'RAPL_DIS', direction: 'required' },
  { key: 'ciphertextHidingDramEnabled', bit: 4, name: 'CIPHERTEXT_HIDING_DRAM_EN', direction: 'required' },
  { key: 'aliasCheckComplete', bit: 5, name: 'ALIAS_CHECK_COMPLETE', direction: 'required' },
  { key: 'tioEnabled', bit: 7, name: 'TIO_EN', direction: 'forbidden' },
];

/** Bit 17 of POLICY is always 1; bits 63:26 are always 0. */
export const POLICY_RESERVED_ONE = 1n << 17n;
export const POLICY_RESERVED_ZERO = ~((1n << 26n) - 1n) & (2n ** 64n - 1n);
/** Bit 6 and bits 63:8 of PLATFORM_INFO are always 0 for Milan and Genoa. */
export const PLATFORM_RESERVED_ZERO = (~0xffn & (2n ** 64n - 1n)) | (1n << 6n);

export const hasBit = (value: bigint, bit: number): boolean => ((value >> BigInt(bit)) & 1n) === 1n;

/** The u64 of the ID block for a manifest's GuestPolicy; bit 17 always set. */
export function guestPolicyValue(policy: GuestPolicy): bigint {
  const flags = GUEST_POLICY_FLAGS.filter(({ key }) => policy[key]);
  const bits = flags.reduce((value, { bit }) => value | (1n << BigInt(bit)), POLICY_RESERVED_ONE);
  return bits | (BigInt(policy.abiMajor) << 8n) | BigInt(policy.abiMinor);
}
