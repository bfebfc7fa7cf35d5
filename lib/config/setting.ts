/** Tables of flags: the members of a row, the kinds of settings, and how their values are read. */
import { durationFrom, listOf, type Parse, parseBoolean, type ReadFile, wholeFrom } from './values.ts';

export interface FlagAlias {
  readonly name: string;
  /** An older spelling of the flag, which works and causes a warning that names the new spelling. */
  readonly deprecated?: true;
  /** A boolean flag with the opposite meaning of the flag. */
  readonly inverted?: true;
}

/** A kind of setting: how to read its text. */
interface Kind<Value> {
  readonly type: 'string' | 'boolean' | 'list' | 'integer' | 'duration';
  /** The placeholder for the value in --help, such as `HOST:PORT`. Booleans have no placeholder. */
  readonly value?: string;
  readonly parse: Parse<Value>;
  /** The text to read if the setting is not given and has no default. */
  readonly unset?: string;
}

export interface Flag extends Pick<Kind<unknown>, 'type' | 'value'> {
  readonly name: string;
  readonly short?: string;
  /** The default as text, or undefined if the flag has no default. */
  readonly default?: string;
  readonly help: string;
  readonly aliases?: readonly FlagAlias[];
  /** Another flag that this flag needs, and why. Without the other flag, the proxy does not start. */
  readonly needs?: readonly [flag: string, because: string];
  /** What to write instead, if a word without a flag was probably meant for this flag. */
  readonly bare?: string;
  /** The flag works, but --help does not list the flag. */
  readonly hidden?: true;
  /** No variable sets this flag: it prints something, or must be visible in the list of processes. */
  readonly commandLineOnly?: true;
  /** Why the flag does nothing. A warning quotes this reason. */
  readonly retired?: string;
}

/** Makes the row of a setting, which is a flag with a value for the program. */
export const setting = <
  const Name extends string,
  Read extends Kind<unknown>,
  const More extends Omit<Flag, 'name' | 'type'>,
>(
  name: Name,
  kind: Read,
  more: More,
) => ({ name, ...kind, ...more });

/** Makes a kind of settings. `value` is the placeholder in --help. */
export const kind =
  <const Type extends Kind<unknown>['type']>(type: Type) =>
  <Value>(value: string, parse: Parse<Value>) => ({ type, value, parse });

export const text = kind('string');

export const integer = (value: string, least: number) => kind('integer')(value, wholeFrom(least));

export const duration = (leastMs: number) => kind('duration')('DURATION', durationFrom(leastMs));

export const list = (value: string, parseItem: Parse<string>) => ({
  ...kind('list')(value, listOf(parseItem)),
  unset: '',
});

export const BOOLEAN = { type: 'boolean', unset: 'false', parse: parseBoolean } as const;

/** The settings that were given, as texts by flag name, and warnings for a person. */
export interface Given {
  readonly values: ReadonlyMap<string, string>;
  readonly warnings: readonly string[];
  /** How a setting was given: the flag, such as `--port`, or the name of its environment variable. */
  label(name: string): string;
}

type CamelCase<Name> = Name extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name;

/** The values of the settings in a table, by the flag names in camel case. */
export type ValuesOf<Row> = {
  readonly [S in Extract<Row, Flag & Kind<unknown>> as CamelCase<S['name']>]:
    | ReturnType<S['parse']>
    | (S extends { readonly default: string } | { readonly unset: string } ? never : undefined);
};

/** Reads every setting of a table from the given text, or else the default. Throws config_invalid. */
export function valuesOf<Row extends Flag>(
  rows: readonly Row[],
  { values, label }: Given,
  files?: ReadFile,
): ValuesOf<Row> {
  const entries = rows.flatMap((row: Flag & Partial<Kind<unknown>>) => {
    if (row.parse === undefined) return [];
    const text = values.get(row.name) ?? row.default ?? row.unset;
    const name = row.name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
    return [[name, text === undefined ? undefined : row.parse(label(row.name), text, files)]];
  });
  return Object.fromEntries(entries) as ValuesOf<Row>;
}
