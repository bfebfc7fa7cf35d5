/** The README's table of flags: `node scripts/flag-table.ts` writes it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { LISTED } from '../lib/config/flags.ts';
import { replaceSection } from './marked-section.ts';

/** The table as Markdown: one row for each flag that is shown to people. */
export function renderFlagTable(): string {
  const rows = LISTED.map((flag) => {
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
  const page = join(import.meta.dirname, '../README.md');
  writeFileSync(page, replaceSection(readFileSync(page, 'utf8'), 'flags', renderFlagTable()));
}
