/** What an ELF executable asks of the system it starts on, as readelf reads it. */
import { program } from '../../support/processes/foreign-programs.ts';
import { run } from '../../support/processes/tools.ts';

export interface ElfNeeds {
  /** In the words of readelf, such as `AArch64`. */
  readonly machine: string;
  /** Program that starts it, with its path. */
  readonly interpreter: string;
  readonly libraries: readonly string[];
  /** Such as `GLIBC_2.28`; of each family, the newest comes last. */
  readonly symbolVersions: readonly string[];
}

export function readElfNeeds(path: string): ElfNeeds {
  const readelf = program('readelf', { from: 'scripts/install-system-tools.sh' }).path;
  const args = ['--file-header', '--program-headers', '--dynamic', '--version-info', '--wide', path];
  const { status, stdout, stderr } = run(readelf, args, { env: { LC_ALL: 'C' } });
  if (status !== 0) throw new Error(stderr);
  const all = (pattern: RegExp): string[] => [...stdout.matchAll(pattern)].map(([, text]) => text as string);
  return {
    machine: all(/^ *Machine: +(.+)$/gm)[0] ?? '',
    interpreter: all(/program interpreter: (\S+)\]/g)[0] ?? '',
    libraries: all(/\(NEEDED\) +Shared library: \[(\S+)\]/g),
    symbolVersions: all(/ Name: (\w+_[\d.]+) /g).sort(new Intl.Collator('en', { numeric: true }).compare),
  };
}
