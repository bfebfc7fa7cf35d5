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
 * takes the place of a model with its name. Undefined: it is no list, or more than JSON.parse may see.
 */
export function listWithAliases(table: AliasTable, body: Buffer): Buffer | undefined {
  let list: { readonly data?: unknown } | undefined;
  try {
    if (isParsable(scanJson(body))) list = JSON.parse(body.toString());
  } catch {} // it is no object
  if (!Array.isArray(list?.data)) return undefined;
  const models: readonly ({ readonly id?: unknown } | null)[] = list.data;
  const added = [...table]
    .filter(([name, model]) => !name.endsWith('*') && name !== model)
    .map(([name, model]) => ({
      object: 'model',
      created: 0,
      ...models.find((entry) => entry?.id === model),
      id: name,
      owned_by: `privatemode-proxy: alias of ${model}`,
    }));
  const others = models.filter((entry) => added.every(({ id }) => id !== entry?.id));
  return Buffer.from(JSON.stringify({ ...list, data: [...others, ...added] }));
}
