/** Tables of flags: what a row is, which kinds of settings there are, and how a table reads what was given. */
import { type Parse, parseChoice, parseDuration, parseHostPort, parseInteger, parseList } from './values.ts';

export interface FlagAlias {
  readonly name: string;
  /** An older spelling: works, with a warning. */
  readonly deprecated?: true;
  /** A boolean that says the opposite. */
  readonly inverted?: true;
}

/** How the text of a setting is read. */
interface Kind<Value> {
  readonly type: 'string' | 'boolean' | 'list' | 'integer' | 'duration';
  /** What stands for the value in --help, e.g. `HOST:PORT`; booleans have none. */
  readonly value?: string;
  readonly parse: Parse<Value>;
  /** The text that is read where nothing is given and there is no default. */
  readonly unset?: string;
}

export interface Flag extends Pick<Kind<unknown>, 'type' | 'value'> {
  readonly name: string;
  readonly short?: string;
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

/** The row of a setting, a flag with a value for the program: its name, its kind, and what else there is to say. */
export const setting = <
  const Name extends string,
  Read extends Kind<unknown>,
  const More extends Omit<Flag, 'name' | 'type'>,
>(
  name: Name,
  kind: Read,
  more: More,
) => ({ name, ...kind, ...more });

const kind =
  <const Type extends Kind<unknown>['type']>(type: Type) =>
  <Value>(value: string, parse: Parse<Value>) => ({ type, value, parse });

/** The kinds; `value` is what --help writes for the text. */
export const text = kind('string');

export const choice = <const Word extends string>(value: string, ...words: readonly Word[]) =>
  text(value, (flag, given) => parseChoice(flag, given, words));

/** Without a default port, the text has to name one. */
export const hostPort = (value: string, defaultPort?: number) =>
  text(value, (flag, given) => parseHostPort(flag, given, defaultPort));

export const integer = (value: string, minimum: number) =>
  kind('integer')(value, (flag, given) => parseInteger(flag, given, minimum));

export const duration = (minimumMs: number) =>
  kind('duration')('DURATION', (flag, given) => parseDuration(flag, given, minimumMs));

export const list = (value: string, parseItem: Parse<string>) => ({
  ...kind('list')(value, (flag, given) => parseList(flag, given, parseItem)),
  unset: '',
});

/** Its text is `true` or `false` by the time it is read here. */
export const BOOLEAN = {
  type: 'boolean',
  unset: 'false',
  parse: (_: string, given: string): boolean => given === 'true',
} as const;

/** The given settings: texts by the names of flags, warnings for a person, and the name of a setting in errors. */
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
  readonly [S in Extract<Row, Flag & Kind<unknown>> as CamelCase<S['name']>]:
    | ReturnType<S['parse']>
    | (S extends { readonly default: string } | { readonly unset: string } ? never : undefined);
};

/** Reads every setting of a table: as it was given, or its default. Throws config_invalid. */
export function valuesOf<Row extends Flag>(rows: readonly Row[], { values, label }: Given): ValuesOf<Row> {
  const entries = rows.flatMap((row: Flag & Partial<Kind<unknown>>) => {
    if (row.parse === undefined) return [];
    const text = values.get(row.name) ?? row.default ?? row.unset;
    const name = row.name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
    return [[name, text === undefined ? undefined : row.parse(label(row.name), text)]];
  });
  return Object.fromEntries(entries) as ValuesOf<Row>;
}
