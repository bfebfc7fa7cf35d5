/** node bench/readme.ts: the results in bench/README.md, from the newest saved run. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { replaceSection } from '../scripts/marked-section.ts';
import { addedSection } from './added.ts';
import type { Report } from './report.ts';

const README = join(import.meta.dirname, 'README.md');
const RESULTS = join(import.meta.dirname, 'results');

/** That of the highest version in bench/results: of the run for the table, where there is one. */
export function newestReport(): Report {
  const all = readdirSync(RESULTS).filter((name) => name.endsWith('.json'));
  const added = all.filter((name) => name.endsWith('.added.json'));
  const names = added.length > 0 ? added : all;
  const newest = names.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1) as string;
  return JSON.parse(readFileSync(join(RESULTS, newest), 'utf8'));
}

export function updateReadme(report: Report): void {
  writeFileSync(README, replaceSection(readFileSync(README, 'utf8'), 'bench', addedSection(report)));
}

if (import.meta.main) updateReadme(newestReport());
