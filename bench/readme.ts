/** node bench/readme.ts: the README's part on speed, from the newest saved run. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { replaceSection } from '../scripts/marked-section.ts';
import { type Report, readmeSection } from './report.ts';

const README = join(import.meta.dirname, '../README.md');
const RESULTS = join(import.meta.dirname, 'results');

/** That of the highest version in bench/results. */
export function newestReport(): Report {
  const names = readdirSync(RESULTS).filter((name) => name.endsWith('.json'));
  const newest = names.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1) as string;
  return JSON.parse(readFileSync(join(RESULTS, newest), 'utf8'));
}

export function updateReadme(report: Report): void {
  writeFileSync(README, replaceSection(readFileSync(README, 'utf8'), 'bench', readmeSection(report)));
}

if (import.meta.main) updateReadme(newestReport());
