/** Writes the table of values in deploy/chart/README.md from the comments of values.yaml. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isMap, isScalar, type Pair, parseDocument, type YAMLMap } from 'yaml';
import { replaceSection } from './marked-section.ts';

const CHART = join(import.meta.dirname, '../deploy/chart');

interface ValueRow {
  /** As for `--set`. */
  readonly path: string;
  /** As YAML on one line. */
  readonly default: string;
  /** The `# -- …` comment above the key. */
  readonly meaning: string;
}

/**
 * Every key that holds a value; a documented or empty map counts as one value, with its default as a whole.
 */
export function valueRows(valuesYaml: string): ValueRow[] {
  const { contents } = parseDocument(valuesYaml);
  if (!isMap(contents)) throw new Error('values.yaml holds no map');
  return rowsOf(contents, '', '');
}

function rowsOf(map: YAMLMap, prefix: string, commentOfFirst: string): ValueRow[] {
  return (map.items as Pair[]).flatMap(({ key, value }, index) => {
    if (!isScalar(key)) throw new Error('a key is no scalar');
    const path = `${prefix}${key.value}`;
    const meaning = documentation(key.commentBefore ?? (index === 0 ? commentOfFirst : ''));
    if (isMap(value) && value.items.length > 0 && meaning === '') {
      return rowsOf(value, `${path}.`, value.commentBefore ?? '');
    }
    const plain = (value as { toJSON(): unknown }).toJSON();
    return [{ path, default: JSON.stringify(plain), meaning }];
  });
}

/** What follows `-- ` in a comment, on one line. */
function documentation(comment: string): string {
  const [, ...text] = comment.split(/^\s*-- /m);
  return text
    .join(' ')
    .split(/\s*\n\s*/)
    .join(' ')
    .trim();
}

/** The rows as a Markdown table. */
export function renderValues(rows: readonly ValueRow[]): string {
  const cell = (text: string): string => text.replaceAll('|', '\\|');
  const lines = rows.map((row) => `| \`${row.path}\` | \`${cell(row.default)}\` | ${cell(row.meaning)} |`);
  return ['| Value | Default | Meaning |', '| --- | --- | --- |', ...lines].join('\n');
}

/** The README as it should be. */
export function renderReadme(): string {
  const table = renderValues(valueRows(readFileSync(join(CHART, 'values.yaml'), 'utf8')));
  return replaceSection(readFileSync(join(CHART, 'README.md'), 'utf8'), 'values', table);
}

if (import.meta.main) writeFileSync(join(CHART, 'README.md'), renderReadme());
