/** Writes the view of a status report for a terminal: the sections of the status page, in lines. */
import { type Cell, MARKS, type Section, type Tone, type ViewRow } from '../observe/status-view.ts';
import { type Paint, painter, type Style } from '../text.ts';

/** Rows of a table that are shown; the page has all. */
const MOST_ROWS = 8;

const STYLES = { good: 'good', warn: 'caution', bad: 'bad', plain: 'plain' } as const satisfies Record<
  Tone,
  Style
>;

/** The text, ending with a line feed. */
export function toText(view: readonly Section[], colours: boolean): string {
  const paint = painter(colours);
  const linesOf = ({ title, note = '', tone, rows = [], columns = [], cells = [], isFolded }: Section) => [
    tone === undefined
      ? `${paint('bold', title)}  ${paint('plain', note)}`
      : marked(tone, `${title}. ${note}`, paint),
    ...rowLines(rows, '  ', isFolded === true, paint),
    ...tableLines(columns, cells, paint),
  ];
  return `${view
    .map((section) =>
      linesOf(section)
        .map((line) => line.trimEnd())
        .join('\n'),
    )
    .join('\n\n')}\n`;
}

const marked = (tone: Tone, text: string, paint: Paint): string =>
  paint(STYLES[tone], `${MARKS[tone]} ${text}`);

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
  const shown = cells.slice(0, MOST_ROWS);
  const lines = [columns.map(({ title }): Cell => ({ text: title, tone: 'plain' })), ...shown].map((line) => {
    const padded = columns.map(({ isNumber }, i) => {
      const width = widest([columns[i]?.title ?? '', ...shown.map((row) => row[i]?.text ?? '')]);
      const { text = '', tone } = line[i] ?? {};
      const aligned = isNumber ? text.padStart(width) : text.padEnd(width);
      return tone === undefined ? aligned : paint(STYLES[tone], aligned);
    });
    return `  ${padded.join('  ')}`;
  });
  const left = cells.length - shown.length;
  return left > 0 ? [...lines, paint('plain', `  and ${left} more`)] : lines;
}
