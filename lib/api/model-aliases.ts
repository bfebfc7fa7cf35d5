/**
 * Other names for models (--model-alias), for applications that insist on names which the service does not
 * have. An alias wins over a model of the service with the same name: the operator wrote it, and nothing
 * authenticates the service's list of models.
 */
import { isParsable, scanJson } from '../json/scan.ts';

/** MODEL by NAME; a NAME may end in `*`, which stands for any characters. */
export type AliasTable = ReadonlyMap<string, string>;

/**
 * The alias for the name of a model: the NAME that equals it, else the longest NAME with `*` that covers it,
 * as it was configured. Undefined if there is none, or if it stands for the same name.
 */
export function aliasIn(table: AliasTable, wanted: string) {
  let name = table.has(wanted) ? wanted : '';
  for (const other of name === '' ? table.keys() : []) {
    if (other.length > name.length && other.endsWith('*') && wanted.startsWith(other.slice(0, -1)))
      name = other;
  }
  const model = table.get(name);
  return model === undefined || model === wanted ? undefined : { name, model };
}

/**
 * The list of models in a body, with the aliases that are whole names: each has the entry of its model, and
 * takes the place of a model of the service with its name. Undefined if the body is no list, or more than
 * JSON.parse may see.
 */
export function listWithAliases(table: AliasTable, body: Buffer): Buffer | undefined {
  const list = listIn(body);
  if (list === undefined) return undefined;
  const added = [...table]
    .filter(([name, model]) => !name.endsWith('*') && name !== model)
    .map(([name, model]) => ({
      object: 'model',
      created: 0,
      ...(list.data.find((entry) => idOf(entry) === model) as object | undefined),
      id: name,
      owned_by: `privatemode-proxy: alias of ${model}`,
    }));
  const others = list.data.filter((entry) => added.every(({ id }) => id !== idOf(entry)));
  return Buffer.from(JSON.stringify({ ...list, data: [...others, ...added] }));
}

const idOf = (entry: unknown): unknown => (entry as { id?: unknown } | null)?.id;

function listIn(body: Buffer): { readonly data: readonly unknown[] } | undefined {
  try {
    const list = isParsable(scanJson(body)) ? JSON.parse(body.toString()) : undefined;
    return Array.isArray(list?.data) ? list : undefined;
  } catch {
    return undefined;
  }
}
