/**
 * Finds the values of the top level in a JSON text, so that they can be replaced without changing any other
 * byte. The cipher works on raw JSON text (docs/protocol/inference.md 4), so parsed values are of no use to
 * it.
 */

/** One value: `[start, end)` in the text. `name`: the decoded member name, or the array index as text. */
export interface Span {
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

export interface TopLevel {
  readonly kind: 'object' | 'array' | 'scalar';
  readonly spans: readonly Span[];
}

/** The index after what the sticky pattern matches at `from`. */
function after(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  pattern.test(text);
  return pattern.lastIndex;
}

const skipBlanks = (text: string, from: number): number => after(/[ \n\r\t]*/y, text, from);

/** The index after the string that opens at `from`. indexOf is fast: images are strings of many megabytes. */
export function skipString(text: string, from: number): number {
  for (let at = from + 1; ; ) {
    const quote = text.indexOf('"', at);
    let backslashes = 0;
    while (text[quote - 1 - backslashes] === '\\') backslashes++;
    if (backslashes % 2 === 0) return quote + 1;
    at = quote + 1;
  }
}

/** The index after the value that begins at `from`. */
function skipValue(text: string, from: number): number {
  let depth = 0;
  let at = from;
  do {
    const character = text[at]!;
    if ('{['.includes(character)) depth++;
    if ('}]'.includes(character)) depth--;
    if (character === '"') at = skipString(text, at);
    else at = depth > 0 || '}]'.includes(character) ? at + 1 : after(/[^ \n\r\t,\]}]+/y, text, at);
  } while (depth > 0);
  return at;
}

/** The values of the top level in text order, repeated ones too. Throws SyntaxError for other texts. */
export function topLevelOf(text: string): TopLevel {
  JSON.parse(text); // the walk relies on valid JSON
  return valuesAt(text, skipBlanks(text, 0));
}

/** As `topLevelOf`, for the value that begins at `open` in a text that is known to be valid JSON. */
export function valuesAt(text: string, open: number): TopLevel {
  if (text[open] !== '{' && text[open] !== '[') return { kind: 'scalar', spans: [] };

  const isObject = text[open] === '{';
  const spans: Span[] = [];
  let at = skipBlanks(text, open + 1);
  while (text[at] !== '}' && text[at] !== ']') {
    let name = String(spans.length);
    if (isObject) {
      const nameEnd = skipString(text, at);
      name = JSON.parse(text.slice(at, nameEnd)) as string;
      at = skipBlanks(text, skipBlanks(text, nameEnd) + 1); // over the colon
    }
    const end = skipValue(text, at);
    spans.push({ name, start: at, end });
    at = skipBlanks(text, end);
    if (text[at] === ',') at = skipBlanks(text, at + 1);
  }
  return { kind: isObject ? 'object' : 'array', spans };
}

/**
 * In the order in which messages are numbered: by the UTF-8 bytes of their names, in which the service's path
 * library escapes three characters (docs/protocol/inference.md 5.2). Index texts stay unchanged.
 */
export function inSequenceOrder<Named extends { readonly name: string }>(items: readonly Named[]): Named[] {
  const key = ({ name }: Named): Buffer => Buffer.from(name.replace(/[.?*]/g, '\\$&'));
  return items.toSorted((a, b) => Buffer.compare(key(a), key(b)));
}

/** The text with the named spans replaced and every other byte kept. */
export function replaceSpans(text: string, replacements: ReadonlyMap<Span, string>): string {
  let replaced = text;
  for (const [{ start, end }, replacement] of [...replacements].sort(([a], [b]) => b.start - a.start))
    replaced = replaced.slice(0, start) + replacement + replaced.slice(end);
  return replaced;
}

/** The text of an object with one member set to `value` (JSON text). All other bytes stay. */
export function withMember(text: string, name: string, value: string): string {
  const span = topLevelOf(text).spans.find((candidate) => candidate.name === name);
  if (span !== undefined) return replaceSpans(text, new Map([[span, value]]));
  return text.replace('{', () => `{${JSON.stringify(name)}:${value},`);
}
