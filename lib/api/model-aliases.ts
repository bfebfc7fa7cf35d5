/** Other names for models (--model-alias), for applications that insist on names which the service does not have. */

/** MODEL by NAME; a NAME may end in `*`, which stands for any characters. */
export type AliasTable = ReadonlyMap<string, string>;

export interface Alias {
  /** As it was configured, with its `*`. */
  readonly name: string;
  readonly model: string;
}

/** What the table makes of a model's name: by the NAME that it is, else by the longest one with `*` that covers it. */
export function aliasIn(table: AliasTable, wanted: string): Alias | undefined {
  let name = table.has(wanted) ? wanted : '';
  for (const other of name === '' ? table.keys() : []) {
    if (other.length > name.length && other.endsWith('*') && wanted.startsWith(other.slice(0, -1)))
      name = other;
  }
  const model = table.get(name);
  return model === undefined || model === wanted ? undefined : { name, model };
}

/** Ids of the service that are remembered; a list of more is none that an honest service has. */
const MOST_REAL = 1_000;

export type ModelAliases = ReturnType<typeof createModelAliases>;

/**
 * The aliases beside the models that the service is known to have: one of these wins over an alias of its name. `onReal` gets the NAME of
 * such an alias, once.
 */
export function createModelAliases(table: AliasTable, onReal: (name: string) => void) {
  const real = new Set<string>();
  const told = new Set<string>();

  /** The alias that a request for that model goes by; undefined: none. */
  const find = (wanted: string): Alias | undefined => (real.has(wanted) ? undefined : aliasIn(table, wanted));

  function learn(id: unknown): void {
    const name = typeof id === 'string' && real.size < MOST_REAL ? find(id)?.name : undefined;
    if (name === undefined) return;
    real.add(id as string);
    if (!told.has(name)) onReal(name);
    told.add(name);
  }

  return {
    find,
    /**
     * The body of a list of models with the aliases in it that are whole names, or undefined where it is no list. What it says of the
     * service's own models is remembered; nothing of it is authenticated.
     */
    inList(body: Uint8Array): Buffer | undefined {
      const list = parsed(body);
      const entries: unknown = list?.['data'];
      if (!Array.isArray(entries)) return undefined;
      const idOf = (entry: unknown): unknown => (entry as { id?: unknown } | null)?.id;
      for (const entry of entries) learn(idOf(entry));
      const added = [...table]
        .filter(([name]) => !name.endsWith('*') && !real.has(name))
        .map(([id, model]) => ({
          ...{ object: 'model', created: 0 },
          ...entries.find((entry) => idOf(entry) === model),
          ...{ id, owned_by: `privatemode-proxy: alias of ${model}` },
        }));
      return Buffer.from(JSON.stringify({ ...list, data: [...entries, ...added] }));
    },
  };
}

function parsed(body: Uint8Array): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(body));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
