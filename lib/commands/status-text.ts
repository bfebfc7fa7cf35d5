/** Writes the view of a status report for a terminal: the sections of the status page, in lines. */
import { type Cell, MARKS, type Section, type Tone, type ViewRow } from '../observe/status-view.ts';
import { type Paint, painter, type Style } from '../text.ts';

/** Rows of a table that are shown; the page has all. */
const MOST_ROWS = 8;

const styleOf = (tone: Tone): Style => (tone === 'warn' ? 'caution' : tone);

/** The text, ending with a line feed. */
export function toText(view: readonly Section[], colours: boolean): string {
  const paint = painter(colours);
  const parts = view.map(({ title, note = '', tone, rows = [], columns = [], cells = [], isFolded }) => {
    const head =
      tone === undefined
        ? `${paint('bold', title)}  ${paint('plain', note)}`
        : marked(tone, `${title}. ${note}`, paint);
    return [head, ...rowLines(rows, '  ', isFolded === true, paint), ...tableLines(columns, cells, paint)]
      .map((line) => `${line.trimEnd()}\n`)
      .join('');
  });
  return parts.join('\n');
}

const marked = (tone: Tone, text: string, paint: Paint): string =>
  paint(styleOf(tone), `${MARKS[tone]} ${text}`);

const widest = (texts: readonly string[]): number => Math.max(0, ...texts.map(({ length }) => length));

/** Labels, values and notes in columns, and below each row what belongs to it, unless that is folded. */
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

function tableLines(
  columns: NonNullable<Section['columns']>,
  cells: readonly (readonly Cell[])[],
  paint: Paint,
): string[] {
  if (cells.length === 0) return [];
  const heads = columns.map(({ title }): Cell => ({ text: title, tone: 'plain' }));
  const shown = [heads, ...cells.slice(0, MOST_ROWS)];
  const widths = columns.map((_, i) => widest(shown.map((row) => row[i]?.text ?? '')));
  const lines = shown.map((row) => {
    const padded = row.map(({ text, tone }, i) => {
      const aligned = columns[i]?.isNumber ? text.padStart(widths[i] ?? 0) : text.padEnd(widths[i] ?? 0);
      return tone === undefined ? aligned : paint(styleOf(tone), aligned);
    });
    return `  ${padded.join('  ')}`;
  });
  const left = cells.length - MOST_ROWS;
  return left > 0 ? [...lines, paint('plain', `  and ${left} more`)] : lines;
}
