/**
 * Finds the values of the top level in a JSON text, so that they can be replaced without changing any other
 * byte. The cipher works on raw JSON text (docs/protocol/inference.md 4), so parsed values are of no use to
 * it.
 */

/**
 * One value of the top level: `[start, end)` in the text. `name`: the decoded member name, or the array index
 * as text.
 */
export interface Span {
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

export interface TopLevel {
  readonly kind: 'object' | 'array' | 'scalar';
  readonly spans: readonly Span[];
}

const isBlank = (character: string | undefined): boolean =>
  character === ' ' || character === '\n' || character === '\r' || character === '\t';

function skipBlanks(text: string, from: number): number {
  let at = from;
  while (isBlank(text[at])) at++;
  return at;
}

/**
 * The index after the string that opens at `from`. Uses indexOf for speed, since images are strings of many
 * megabytes.
 */
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
  const first = text[from];
  if (first === '"') return skipString(text, from);
  if (first !== '{' && first !== '[') {
    let at = from;
    while (at < text.length && !isBlank(text[at]) && !',]}'.includes(text[at]!)) at++;
    return at;
  }
  let depth = 0;
  let at = from;
  do {
    const character = text[at]!;
    if (character === '"') {
      at = skipString(text, at);
      continue;
    }
    if (character === '{' || character === '[') depth++;
    else if (character === '}' || character === ']') depth--;
    at++;
  } while (depth > 0);
  return at;
}

/**
 * The values of the top level in text order, duplicates included. Throws SyntaxError unless the whole text is
 * one JSON value.
 */
export function topLevelOf(text: string): TopLevel {
  JSON.parse(text); // the walk relies on valid JSON
  return valuesAt(text, skipBlanks(text, 0));
}

/**
 * As `topLevelOf`, for the value that begins at `open`, anywhere in a text that is known to be valid JSON.
 */
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
 * A name in the spelling of the service's path library, by which names are sorted (docs/protocol/inference.md
 * 5.2). Index texts stay unchanged.
 */
const escapeName = (name: string): string => name.replace(/[.?*]/g, (character) => `\\${character}`);

/**
 * The spans in the order in which messages are numbered: by the UTF-8 bytes of their escaped names
 * (docs/protocol/inference.md 5.2).
 */
export function inSequenceOrder(spans: readonly Span[]): Span[] {
  return spans
    .map((span) => ({ span, key: Buffer.from(escapeName(span.name)) }))
    .sort((a, b) => Buffer.compare(a.key, b.key))
    .map(({ span }) => span);
}

/** The text with the named spans replaced and every other byte kept. */
export function replaceSpans(text: string, replacements: ReadonlyMap<Span, string>): string {
  const ordered = [...replacements].sort(([a], [b]) => a.start - b.start);
  const parts: string[] = [];
  let copied = 0;
  for (const [{ start, end }, replacement] of ordered) {
    parts.push(text.slice(copied, start), replacement);
    copied = end;
  }
  parts.push(text.slice(copied));
  return parts.join('');
}

/**
 * The text of a non-empty object with one member set to `value` (JSON text). All other bytes stay, so that
 * numbers lose no digits.
 */
export function withMember(text: string, name: string, value: string): string {
  const span = topLevelOf(text).spans.find((candidate) => candidate.name === name);
  if (span !== undefined) return replaceSpans(text, new Map([[span, value]]));
  return text.replace('{', () => `{${JSON.stringify(name)}:${value},`);
}
