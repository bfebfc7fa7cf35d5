/** The names of models in requests, and other names for models (--model-alias). */
import { PrivatemodeError } from '../errors.ts';
import { isParsable, scanJson } from '../json/scan.ts';

/**
 * Returns the name of the model, which is sent in a header. Blanks around the name are refused, because the
 * parser of the header would drop them. C1 control characters pass, because the header's parser accepts their
 * bytes. Throws missing_model and invalid_model.
 */
export function modelNamed(model: unknown): string {
  if (model === undefined || (typeof model === 'string' && /^[ \t]*$/.test(model))) {
    throw new PrivatemodeError('missing_model', 'no model is named in the request');
  }
  const isName = typeof model === 'string' && model.isWellFormed() && !/^ | $|[\x00-\x1f\x7f]/.test(model);
  if (isName && Buffer.byteLength(model) <= 256) return model;
  const message = 'the model is no short string, or holds control characters, or has blanks around it';
  throw new PrivatemodeError('invalid_model', message);
}

/**
 * The model for each NAME of --model-alias, for applications that insist on names which the service does not
 * have. A `*` at the end of a NAME stands for any characters. An alias wins over a model of the service with
 * the same name, because the operator wrote the alias, and nothing authenticates the service's list.
 */
export type AliasTable = ReadonlyMap<string, string>;

/**
 * Finds the alias for a model's name: the NAME that equals the name, else the longest NAME with `*` that
 * covers the name. Undefined if no NAME fits, or if the NAME stands for the same model. `name`: the NAME as
 * configured.
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
 * Adds the aliases without `*` to the list of models in a body. Each alias gets the entry of its model, and
 * replaces a model of the same name. Undefined if the body is no list, or if it is too large for JSON.parse.
 */
export function listWithAliases(table: AliasTable, body: Buffer): Buffer | undefined {
  let list: { readonly data?: unknown } | undefined;
  try {
    if (isParsable(scanJson(body))) list = JSON.parse(body.toString());
  } catch {} // the body is no JSON object
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
