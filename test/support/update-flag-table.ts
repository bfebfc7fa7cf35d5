/** Writes the flag table into README.md between its markers: `node test/support/update-flag-table.ts`. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { renderFlagTable } from '../../lib/config/flags.ts';

const path = join(import.meta.dirname, '../../README.md');
const markers = /(<!-- flags:begin -->\n)[\s\S]*(<!-- flags:end -->)/;
const replaced = readFileSync(path, 'utf8').replace(
  markers,
  (_, begin: string, end: string) => begin + renderFlagTable() + end,
);
writeFileSync(path, replaced);
