/** node bench/readme.ts: the README's part on speed, from the newest saved run. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { VERSION } from '../lib/version.ts';
import { replaceSection } from '../scripts/marked-section.ts';
import { type Report, readmeSection } from './report.ts';

const README = join(import.meta.dirname, '../README.md');

export function updateReadme(report: Report): void {
  writeFileSync(README, replaceSection(readFileSync(README, 'utf8'), 'bench', readmeSection(report)));
}

if (import.meta.main) {
  updateReadme(JSON.parse(readFileSync(join(import.meta.dirname, 'results', `${VERSION}.json`), 'utf8')));
}
