/** Writes the view of a status report for a terminal: the sections of the status page, in lines. */
import { MARKS, type Section, type Tone, type ViewRow } from '../observe/status-view.ts';
import { type Paint, painter, type Style } from '../text.ts';

/** The most rows of a table that a terminal shows. The status page shows all rows. */
const MOST_ROWS = 8;

const styleOf = (tone: Tone): Style => (tone === 'warn' ? 'caution' : tone);

/** Returns the text of a view, which ends with a line feed. */
export function toText(view: readonly Section[], colours: boolean): string {
  const paint = painter(colours);
  const parts = view.map(({ title, note = '', tone, rows = [], table = [], isFolded }) => {
    const head =
      tone === undefined
        ? `${paint('bold', title)}  ${paint('plain', note)}`
        : marked(tone, `${title}. ${note}`, paint);
    return [head, ...rowLines(rows, '  ', isFolded === true, paint), ...tableLines(table, paint)]
      .map((line) => `${line.trimEnd()}\n`)
      .join('');
  });
  return parts.join('\n');
}

const marked = (tone: Tone, text: string, paint: Paint): string =>
  paint(styleOf(tone), `${MARKS[tone]} ${text}`);

const widest = (texts: readonly string[]): number => Math.max(0, ...texts.map(({ length }) => length));

/** Labels, values and notes in columns. Below each row are the rows that belong to it, unless folded. */
function rowLines(rows: readonly ViewRow[], indent: string, isFolded: boolean, paint: Paint): string[] {
  const labels = widest(rows.map(({ label, value }) => (value === undefined ? '' : label)));
  const values = widest(rows.map(({ value = '', note }) => (note === undefined ? '' : value)));
  const blank = rows.some(({ tone }) => tone !== undefined) ? '  ' : '';
  return rows.flatMap(({ tone, label, value = '', note = '', more = [] }) => {
    const name = label.padEnd(labels);
    const start = tone === undefined ? `${blank}${name}` : marked(tone, name, paint);
    const line = `${indent}${start}  ${value.padEnd(values)}  ${note}`;
    return [line, ...(isFolded ? [] : rowLines(more, `${indent}    `, false, paint))];
  });
}

function tableLines(table: readonly (readonly ViewRow[])[], paint: Paint): string[] {
  const shown = table.slice(0, MOST_ROWS);
  const titles = (shown[0] ?? []).map(({ label }): ViewRow => ({ label, value: label, tone: 'plain' }));
  if (titles.length === 0) return [];
  const widths = titles.map((_, i) => widest([titles, ...shown].map((line) => line[i]?.value ?? '')));
  const lines = [titles, ...shown].map((line) => {
    const padded = line.map(({ value = '', tone }, i) => {
      const cell = value.padEnd(widths[i] ?? 0);
      return tone === undefined ? cell : paint(styleOf(tone), cell);
    });
    return `  ${padded.join('  ')}`;
  });
  const left = table.length - shown.length;
  return left > 0 ? [...lines, paint('plain', `  and ${left} more`)] : lines;
}
