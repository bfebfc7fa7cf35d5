/**
 * Decodes the packed integers of an SEV-SNP report: CPUID bits, TCB versions, POLICY and PLATFORM_INFO
 * (docs/protocol/attestation.md 6.2, 6.3). To add a product, add its row in PRODUCTS, its roots in
 * roots/production.json, and the layout of its TCB version and PLATFORM_INFO.
 */

/**
 * The accepted AMD products (docs/protocol/attestation.md 6.2, 7, 19.4). Related products, such as Bergamo,
 * are not accepted, because no root is pinned for them. `steppings` may follow `-B` in the product name of a
 * VCEK. `vcpuSignature` is CPUID(1).EAX in the VMSA of an application processor, for every stepping.
 */
export const PRODUCTS = {
  Milan: { family: 0x19, model: 0x01, steppings: ['0', '1'], vcpuSignature: 0x00a00f11 },
  Genoa: { family: 0x19, model: 0x11, steppings: ['0', '1', '2'], vcpuSignature: 0x00a10f10 },
} as const;

export type Product = keyof typeof PRODUCTS;
export const PRODUCT_NAMES = Object.keys(PRODUCTS) as readonly Product[];
export const isProduct = (name: string): name is Product => Object.hasOwn(PRODUCTS, name);

/** Products that are not accepted. The only use of this list is that a failed check can name a product. */
const NOT_ACCEPTED = { Turin: { family: 0x1a, model: 0x02 } } as const;

/** Splits CPUID(1).EAX into family, model and stepping. */
export function familyModelStepping(eax: number) {
  const bits = (from: number, count: number): number => (eax >>> from) & ((1 << count) - 1);
  return { family: bits(20, 8) + bits(8, 4), model: (bits(16, 4) << 4) | bits(4, 4), stepping: bits(0, 4) };
}

/** Returns the product with the given CPUID(1).EAX, or undefined. The stepping is ignored. */
export function productOf(eax: number): string | undefined {
  const { family, model } = familyModelStepping(eax);
  const known = Object.entries({ ...PRODUCTS, ...NOT_ACCEPTED });
  return known.find(([, row]) => row.family === family && row.model === model)?.[0];
}

/** The parts of a TCB version for Milan and Genoa, one byte each, least significant byte first. */
const TCB_PARTS = ['bootloader', 'tee', 'spl4', 'spl5', 'spl6', 'spl7', 'snp', 'microcode'] as const;

/** The security patch level of each part of the TCB, 0 to 255. */
export type TcbParts = Readonly<Record<(typeof TCB_PARTS)[number], number>>;

export function tcbParts(tcb: bigint): TcbParts {
  const entries = TCB_PARTS.map((part, index) => [part, Number((tcb >> BigInt(8 * index)) & 0xffn)]);
  return Object.fromEntries(entries) as TcbParts;
}

export const tcbValue = (parts: TcbParts): bigint =>
  TCB_PARTS.reduce((value, part, index) => value | (BigInt(parts[part]) << BigInt(8 * index)), 0n);

/** Whether no part of `low` is greater than the same part of `high`. A part missing in `low` counts as 0. */
export const tcbAtMost = (low: Partial<TcbParts>, high: TcbParts): boolean =>
  TCB_PARTS.every((part) => (low[part] ?? 0) <= high[part]);

/** The TCB version as text: `bootloader 12, tee 0, snp 28, microcode 88`, then each nonzero spl part. */
export function tcbText(parts: Partial<TcbParts>): string {
  const shown = TCB_PARTS.filter((part) => !part.startsWith('spl') || (parts[part] ?? 0) !== 0);
  return shown.map((part) => `${part} ${parts[part] ?? 0}`).join(', ');
}

/** A bit of POLICY or PLATFORM_INFO, and the name of the manifest member for this bit. */
export interface BitFlag {
  readonly bit: number;
  readonly name: string;
  /** Only the manifest can allow a `forbidden` bit. The manifest can demand a `required` bit. */
  readonly direction: 'forbidden' | 'required';
  readonly member: string;
}

export const POLICY_FLAGS = [
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

/** The flags that the manifest allows or demands, under their names in the manifest. */
export type Flags<Table extends readonly BitFlag[]> = Readonly<Record<Table[number]['member'], boolean>>;
/** The lowest ABI version that is accepted. ABIMajor and ABIMinor have one byte each. */
export type GuestPolicy = Flags<typeof POLICY_FLAGS> & Readonly<Record<'ABIMajor' | 'ABIMinor', number>>;

/** Bit 17 of POLICY, which is reserved and must be 1. */
export const POLICY_RESERVED_ONE = 1n << 17n;

/** The value of GuestPolicy as a u64, as encoded in the ID block. */
export function guestPolicyValue(policy: GuestPolicy): bigint {
  const flags = POLICY_FLAGS.filter(({ member }) => policy[member]);
  const bits = flags.reduce((value, { bit }) => value | (1n << BigInt(bit)), POLICY_RESERVED_ONE);
  return bits | (BigInt(policy.ABIMajor) << 8n) | BigInt(policy.ABIMinor);
}
