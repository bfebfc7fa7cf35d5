/** What an ELF executable asks of the system it starts on: libraries, and versions of their symbols (gABI; LSB 5.0, 10.7). */
import { closeSync, openSync, readSync } from 'node:fs';

export interface ElfNeeds {
  /** `x86-64`, `aarch64`, or the number of another machine. */
  readonly machine: string;
  /** Program that starts it, with its path. */
  readonly interpreter: string;
  readonly libraries: readonly string[];
  /** Such as `GLIBC_2.28`. */
  readonly symbolVersions: readonly string[];
}

const MACHINES: Readonly<Record<number, string>> = { 62: 'x86-64', 183: 'aarch64' };
const [PT_LOAD, PT_DYNAMIC, PT_INTERP] = [1, 2, 3];
const [DT_NEEDED, DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM] = [1n, 5n, 0x6ffffffen, 0x6fffffffn];

/** Reads a 64-bit little-endian executable. */
export function readElfNeeds(path: string): ElfNeeds {
  const file = openSync(path, 'r');
  const read = (offset: number, length: number): Buffer => {
    const bytes = Buffer.alloc(length);
    readSync(file, bytes, 0, length, offset);
    return bytes;
  };
  try {
    const head = read(0, 64);
    if (head.readUInt32BE(0) !== 0x7f454c46 || head[4] !== 2 || head[5] !== 1) throw new Error('no ELF64');
    const segments = Array.from({ length: head.readUInt16LE(56) }, (_, i) => {
      const entry = read(Number(head.readBigUInt64LE(32)) + i * head.readUInt16LE(54), 56);
      const field = (at: number): number => Number(entry.readBigUInt64LE(at));
      return { type: entry.readUInt32LE(0), offset: field(8), address: field(16), size: field(32) };
    });
    const segment = (type: number) => segments.find((entry) => entry.type === type)!;
    /** Where in the file an address of the running program lies. */
    const offsetOf = (address: number): number => {
      const within = segments.find(
        (entry) => entry.type === PT_LOAD && entry.address <= address && address < entry.address + entry.size,
      )!;
      return address - within.address + within.offset;
    };
    const { offset, size } = segment(PT_DYNAMIC);
    const bytes = read(offset, size);
    const dynamic = Array.from({ length: size / 16 }, (_, i) => ({
      tag: bytes.readBigUInt64LE(i * 16),
      value: Number(bytes.readBigUInt64LE(i * 16 + 8)),
    }));
    const value = (tag: bigint): number => dynamic.find((entry) => entry.tag === tag)!.value;
    const strings = offsetOf(value(DT_STRTAB));
    const text = (at: number): string =>
      read(strings + at, 256)
        .toString('latin1')
        .split('\0')[0] as string;

    const symbolVersions: string[] = [];
    let need = offsetOf(value(DT_VERNEED));
    for (let i = 0; i < value(DT_VERNEEDNUM); i++) {
      const library = read(need, 16);
      let version = need + library.readUInt32LE(8);
      for (let j = 0; j < library.readUInt16LE(2); j++) {
        const entry = read(version, 16);
        symbolVersions.push(text(entry.readUInt32LE(8)));
        version += entry.readUInt32LE(12);
      }
      need += library.readUInt32LE(12);
    }
    const interpreter = segment(PT_INTERP);
    return {
      machine: MACHINES[head.readUInt16LE(18)] ?? String(head.readUInt16LE(18)),
      interpreter: read(interpreter.offset, interpreter.size).toString('latin1').replace(/\0.*$/, ''),
      libraries: dynamic.filter(({ tag }) => tag === DT_NEEDED).map((entry) => text(entry.value)),
      symbolVersions,
    };
  } finally {
    closeSync(file);
  }
}

/** The newest version of a family, such as `GLIBC`, in the list. */
export function newest(family: string, versions: readonly string[]): string {
  const numbers = versions
    .filter((version) => version.startsWith(`${family}_`))
    .map((version) => version.slice(family.length + 1));
  const key = (version: string): string =>
    version
      .split('.')
      .map((part) => part.padStart(6, '0'))
      .join('.');
  return numbers.sort((a, b) => (key(a) < key(b) ? -1 : 1)).at(-1) ?? '';
}
