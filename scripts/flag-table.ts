/** The tables of flags, of docs/flags.md and of the README: `node scripts/flag-table.ts` writes both. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { LISTED } from '../lib/config/flags.ts';
import { replaceSection } from './marked-section.ts';

/** Flags that the README shows: those of the first day. */
const FIRST_DAY: ReadonlySet<string> = new Set([
  'api-key',
  'api-key-fallback',
  'manifest-path',
  'listen-address',
  'admin-address',
]);

/** Which page shows which flags. */
export const FLAG_TABLES = {
  'README.md': LISTED.filter(({ name }) => FIRST_DAY.has(name)),
  'docs/flags.md': LISTED,
} as const;

/** The table as Markdown: one row for each of `flags`. */
export function renderFlagTable(flags: typeof LISTED): string {
  const rows = flags.map((flag) => {
    const names = [flag.short && `-${flag.short}`, `--${flag.name}`]
      .filter(Boolean)
      .map((name) => `\`${name}\``);
    const also = (flag.aliases ?? [])
      .filter((alias) => !alias.deprecated)
      .map((alias) => `\`--${alias.name}\``);
    const meaning = flag.help + (also.length > 0 ? ` Also written ${also.join(', ')}.` : '');
    const fallback =
      flag.default === undefined ? (flag.type === 'boolean' ? '' : 'unset') : `\`${flag.default}\``;
    return [names.join(', '), flag.type, fallback, meaning].map((cell) => cell.replaceAll('|', '\\|'));
  });
  const header = ['Flag', 'Type', 'Default', 'Meaning'];
  return [header, header.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
}

if (import.meta.main) {
  for (const [name, flags] of Object.entries(FLAG_TABLES)) {
    const page = join(import.meta.dirname, '..', name);
    writeFileSync(page, replaceSection(readFileSync(page, 'utf8'), 'flags', renderFlagTable(flags)));
  }
}
