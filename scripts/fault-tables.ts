/**
 * Writes the generated tables of docs/reliability.md and docs/outages.md from the fault matrix and the
 * scenarios.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Mode } from '../test/faults/ask.ts';
import type { Cell, Counted } from '../test/faults/cells.ts';
import { type FaultRow, MATRIX, nameOf } from '../test/faults/matrix.ts';
import { SCENARIOS } from '../test/faults/scenarios.ts';
import { replaceSection } from './marked-section.ts';

const ROOT = join(import.meta.dirname, '..');

const MODES: Readonly<Record<Mode, string>> = { stream: 'streamed', unary: 'whole' };

const code = (text: string): string => `\`${text}\``;
const cellText = (text: string): string => text.replaceAll('|', '\\|');
const tableRow = (cells: readonly string[]): string => `| ${cells.map(cellText).join(' | ')} |`;

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [tableRow(head), tableRow(head.map(() => '---')), ...rows.map(tableRow)].join('\n');

/** What the client sees, in words. */
function seen({ status, shows, code: own, headers, ended }: Cell): string {
  if (shows === 'answer') return 'the whole answer';
  if (ended === 'broken')
    return `the events before the fault, an error event ${code(own ?? '')}, a broken connection`;
  if (shows === 'error event') return "the events before the fault, the model's own error event, a clean end";
  const hint = 'retry-after' in headers ? ', `Retry-After`' : '';
  return own === undefined ? `${status} in the service's words${hint}` : `${status} ${code(own)}${hint}`;
}

/** Counters but the one that every complete answer adds to. */
function counted(counters: Counted): string {
  const parts = Object.entries(counters).flatMap(([name, value]) =>
    typeof value === 'number'
      ? [code(`${name} +${value}`)]
      : Object.entries(value).map(([key, count]) => code(`${name}.${key} +${count}`)),
  );
  return parts.join(', ');
}

const logged = (lines: readonly string[]): string => (lines.length === 0 ? '-' : lines.map(code).join(', '));

function matrixRows(row: FaultRow): string[][] {
  const { stream, unary } = row.cells;
  const modes: readonly (readonly [string, Cell])[] =
    JSON.stringify(stream) === JSON.stringify(unary)
      ? [['both', stream]]
      : [
          [MODES.stream, stream],
          [MODES.unary, unary],
        ];
  return modes.map(([mode, cell], index) => [
    index === 0 ? nameOf(row) : '',
    index === 0 ? row.does : '',
    mode,
    seen(cell),
    logged(cell.log),
    counted(cell.counters),
    String(cell.upstream),
  ]);
}

/** Every cell, and every scenario. */
export function renderMatrix(): string {
  const head = ['Test', 'What goes wrong', 'Answer', 'The client sees', 'Log', 'Counters', 'Requests'];
  return table(head, MATRIX.flatMap(matrixRows));
}

export const renderScenarios = (): string =>
  table(
    ['What goes wrong', 'What happens'],
    SCENARIOS.map(({ name, outcome }) => [name, outcome]),
  );

/** The matrix by outcome, for streams: for the reader who wants to know what can happen at all. */
export function renderSummary(): string {
  const byOutcome = new Map<string, Set<string>>();
  for (const { cells, does } of MATRIX) {
    const { shows, code: own, ended } = cells.stream;
    const outcome =
      shows === 'answer'
        ? 'the whole answer'
        : own === undefined
          ? 'the error of the service, or of its model, as it is'
          : `${ended === 'broken' ? 'an error event and a broken connection' : 'an error in place of the answer'}, ${code(own)}`;
    byOutcome.set(
      outcome,
      (byOutcome.get(outcome) ?? new Set()).add(does.replace(/ and says when to come back$/, '')),
    );
  }
  const order = [...byOutcome].sort(([a], [b]) => (a < b ? 1 : -1));
  return table(
    ['A streaming client sees', 'when'],
    order.map(([outcome, faults]) => [
      outcome,
      [...faults].filter((does) => !does.startsWith('the same')).join('; '),
    ]),
  );
}

/** Each page, with its marked sections. */
const TABLES = {
  'docs/reliability.md': { faults: renderSummary, matrix: renderMatrix },
  'docs/outages.md': { scenarios: renderScenarios },
} as const;

/** The pages as they should be, by their path in the repository. */
export const renderFaultTables = (): ReadonlyMap<string, string> =>
  new Map(
    Object.entries(TABLES).map(([page, sections]) => [
      page,
      Object.entries<() => string>(sections).reduce(
        (text, [name, render]) => replaceSection(text, name, render()),
        readFileSync(join(ROOT, page), 'utf8'),
      ),
    ]),
  );

if (import.meta.main) {
  for (const [page, text] of renderFaultTables()) writeFileSync(join(ROOT, page), text);
}
