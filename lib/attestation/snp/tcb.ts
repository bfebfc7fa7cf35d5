/** Platform TCB versions: eight security patch levels in one u64 (attestation.md 6.3, Milan and Genoa layout). */

export interface TcbParts {
  readonly bootloader: number;
  readonly tee: number;
  readonly spl4: number;
  readonly spl5: number;
  readonly spl6: number;
  readonly spl7: number;
  readonly snp: number;
  readonly microcode: number;
}

/** The parts in byte order, least significant first. */
export const TCB_PARTS = ['bootloader', 'tee', 'spl4', 'spl5', 'spl6', 'spl7', 'snp', 'microcode'] as const;

export function tcbParts(tcb: bigint): TcbParts {
  const entries = TCB_PARTS.map((part, index) => [part, Number((tcb >> BigInt(8 * index)) & 0xffn)]);
  return Object.fromEntries(entries) as unknown as TcbParts;
}

export function tcbValue(parts: TcbParts): bigint {
  return TCB_PARTS.reduce((value, part, index) => value | (BigInt(parts[part]) << BigInt(8 * index)), 0n);
}

/** Whether every part of `low` is at most its counterpart in `high`; parts that `low` leaves out count as 0. */
export function tcbAtMost(low: Partial<TcbParts>, high: TcbParts): boolean {
  return TCB_PARTS.every((part) => (low[part] ?? 0) <= high[part]);
}

/** For people: `bootloader 12, tee 0, snp 28, microcode 88`, and the other parts where they are not zero. */
export function tcbText(parts: Partial<TcbParts>): string {
  const shown = TCB_PARTS.filter((part) => !part.startsWith('spl') || (parts[part] ?? 0) !== 0);
  return shown.map((part) => `${part} ${parts[part] ?? 0}`).join(', ');
}
