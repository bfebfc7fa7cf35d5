/** Tables of flags: what a row is, which kinds of settings there are, and how a table reads what was given. */
import { type Parse, parseDuration, parseInteger, parseList } from './values.ts';

export interface FlagAlias {
  readonly name: string;
  /** An older spelling: works, with a warning. */
  readonly deprecated?: true;
  /** A boolean that says the opposite. */
  readonly inverted?: true;
}

export interface Flag {
  readonly name: string;
  readonly short?: string;
  readonly type: 'string' | 'boolean' | 'list' | 'integer' | 'duration';
  /** What stands for the value in --help, e.g. `HOST:PORT`; booleans have none. */
  readonly value?: string;
  /** As it would be written; undefined: unset. */
  readonly default?: string;
  readonly help: string;
  readonly aliases?: readonly FlagAlias[];
  /** Works, and is not listed. */
  readonly hidden?: true;
  /** No variable sets it: it asks for something else to be done, or must be seen in the list of processes. */
  readonly commandLineOnly?: true;
  /** No longer does anything: `ignored` warns, `refused` ends the start; with the reason. */
  readonly retired?: { readonly how: 'ignored' | 'refused'; readonly why: string };
}

/** How the text of a setting is read, and its value where it is neither given nor has a default. */
interface Kind<Value, None = undefined> extends Pick<Flag, 'type' | 'value'> {
  readonly parse: Parse<Value>;
  readonly none: None;
}

/** A flag with a value for the program, which `parse` reads and validates. */
export interface Setting<Name extends string = string, Value = unknown> extends Flag, Kind<Value, unknown> {
  readonly name: Name;
}

/** The row of a setting: its name, its kind, and what else there is to say. */
export const setting = <const Name extends string, Value, None, More extends Omit<Flag, 'name' | 'type'>>(
  name: Name,
  kind: Kind<Value, None>,
  more: More,
): Setting<Name, Value | (More extends { readonly default: string } ? never : None)> =>
  ({ name, ...kind, ...more }) as never;

/** `value` stands for the text in --help; `parse` gets `rest` besides. */
export const text = <Value, Rest extends readonly unknown[]>(
  value: string,
  parse: Parse<Value, Rest>,
  ...rest: Rest
): Kind<Value> => ({
  type: 'string',
  value,
  parse: (flag, given) => parse(flag, given, ...rest),
  none: undefined,
});

export const integer = (value: string, minimum: number): Kind<number> => ({
  ...text(value, parseInteger, minimum),
  type: 'integer',
});

export const duration = (minimumMs: number): Kind<number> => ({
  ...text('DURATION', parseDuration, minimumMs),
  type: 'duration',
});

/** Not given, it is empty. */
export const list = (
  value: string,
  parseItem: Parse<string>,
): Kind<readonly string[], readonly string[]> => ({
  ...text(value, parseList, parseItem),
  ...{ type: 'list', none: [] },
});

/** Its text is `true` or `false` by the time it is read here. */
export const BOOLEAN: Kind<boolean, boolean> = {
  ...{ type: 'boolean', none: false },
  parse: (_, given) => given === 'true',
};

/** What was given: texts by the names of flags, warnings for a person, and how an error calls a setting. */
export interface Given {
  readonly values: ReadonlyMap<string, string>;
  readonly warnings: readonly string[];
  /** The name under which a setting was given: `--port`, or its variable. */
  label(name: string): string;
}

type CamelCase<Name> = Name extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name;

/** The values of a table's settings, by their names in camel case. */
export type ValuesOf<Row> = {
  readonly [S in Extract<Row, Setting> as CamelCase<S['name']>]: ReturnType<S['parse']>;
};

/** Reads every setting of a table: as it was given, or its default. Throws config_invalid. */
export function valuesOf<Row extends Flag>(rows: readonly Row[], { values, label }: Given): ValuesOf<Row> {
  const entries = rows.flatMap((row: Flag & Partial<Setting>) => {
    if (row.parse === undefined) return [];
    const text = values.get(row.name) ?? row.default;
    const name = row.name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
    return [[name, text === undefined ? row.none : row.parse(label(row.name), text)]];
  });
  return Object.fromEntries(entries) as ValuesOf<Row>;
}
