/**
 * Other names for models (--model-alias), for applications that insist on names which the service does not
 * have. An alias wins over a model of the service with the same name: the operator wrote it, and nothing
 * authenticates the service's list of models.
 */

/** MODEL by NAME; a NAME may end in `*`, which stands for any characters. */
export type AliasTable = ReadonlyMap<string, string>;

export interface Alias {
  /** As it was configured, with its `*`. */
  readonly name: string;
  readonly model: string;
}

/**
 * The alias for the name of a model: the NAME that equals it, else the longest NAME with `*` that covers it.
 * Undefined if there is none, or if it stands for the same name.
 */
export function aliasIn(table: AliasTable, wanted: string): Alias | undefined {
  let name = table.has(wanted) ? wanted : '';
  for (const other of name === '' ? table.keys() : []) {
    if (other.length > name.length && other.endsWith('*') && wanted.startsWith(other.slice(0, -1)))
      name = other;
  }
  const model = table.get(name);
  return model === undefined || model === wanted ? undefined : { name, model };
}

const MODEL_PATH = '/v1/models/';

/**
 * The model that `/v1/models/NAME` asks for, if an alias covers it. A NAME that ends in `*` is the configured
 * pattern, and no model.
 */
export function aliasedInPath(table: AliasTable, path: string): string | undefined {
  try {
    const wanted = decodeURIComponent(path.slice(MODEL_PATH.length));
    return wanted.endsWith('*') || aliasIn(table, wanted) === undefined ? undefined : wanted;
  } catch {
    return undefined; // escapes that are no UTF-8
  }
}

/**
 * The list of models in a body, with the aliases that are whole names; each takes the place of a model of the
 * service with that name. Undefined if the body is no list, or is nested too deep.
 */
export function listWithAliases(table: AliasTable, body: Uint8Array): Buffer | undefined {
  const list = listIn(body);
  if (list === undefined) return undefined;
  const added = [...table]
    .filter(([name, model]) => !name.endsWith('*') && name !== model)
    .map(([name, model]) => entryOf(name, model, list));
  const names = new Set(added.map(idOf));
  return written({ ...list, data: [...list.data.filter((entry) => !names.has(idOf(entry))), ...added] });
}

/**
 * The entry that a list of models would have for the name `wanted`. Undefined if no alias covers the name, or
 * if the body is no list or is nested too deep.
 */
export function entryOfAlias(table: AliasTable, body: Uint8Array, wanted: string): Buffer | undefined {
  const list = listIn(body);
  const alias = aliasIn(table, wanted);
  return list && alias && written(entryOf(wanted, alias.model, list));
}

type ModelList = Readonly<Record<string, unknown>> & { readonly data: readonly unknown[] };

const idOf = (entry: unknown): unknown => (entry as { id?: unknown } | null)?.id;

/** The entry of an alias in a list: that of its model, under the name of the alias. */
const entryOf = (name: string, model: string, { data }: ModelList): object => ({
  object: 'model',
  created: 0,
  ...(data.find((entry) => idOf(entry) === model) as object | undefined),
  id: name,
  owned_by: `privatemode-proxy: alias of ${model}`,
});

function listIn(body: Uint8Array): ModelList | undefined {
  try {
    const value: Partial<ModelList> | null = JSON.parse(new TextDecoder().decode(body));
    return Array.isArray(value?.data) ? (value as ModelList) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The value as JSON. Undefined if it is nested deeper than JSON.stringify can follow; JSON.parse can follow
 * deeper.
 */
function written(value: object): Buffer | undefined {
  try {
    return Buffer.from(JSON.stringify(value));
  } catch {
    return undefined;
  }
}
