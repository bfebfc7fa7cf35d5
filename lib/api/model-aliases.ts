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

export interface ModelAliasesDeps {
  /** Hears the NAME of an alias for which the service has a model, once. */
  readonly onReal: (name: string) => void;
  /** Hears why the service could not be asked which models it has; until it can, aliases win. */
  readonly onUnknown: (reason: unknown) => void;
  /** Hears the body of each list of the service. */
  readonly onList?: ((body: Uint8Array) => void) | undefined;
}

export type ModelAliases = ReturnType<typeof createModelAliases>;

/** The aliases beside the models that the service is known to have: one of these wins over an alias of its name. */
export function createModelAliases(
  table: AliasTable,
  { onReal, onUnknown, onList = () => {} }: ModelAliasesDeps,
) {
  const real = new Set<string>();
  const told = new Set<string>();
  let isAsked = false;

  /** The alias that a request for that model goes by; undefined: none. */
  const find = (wanted: string): Alias | undefined => (real.has(wanted) ? undefined : aliasIn(table, wanted));

  function learn(id: unknown): void {
    const name = typeof id === 'string' && real.size < MOST_REAL ? find(id)?.name : undefined;
    if (name === undefined) return;
    real.add(id as string);
    if (!told.has(name)) onReal(name);
    told.add(name);
  }

  /**
   * The body of a list of models, and its entries, or undefined where it is no list. What it says of the service's own models is
   * remembered; nothing of it is authenticated.
   */
  function listIn(body: Uint8Array) {
    const list = parsed(body);
    const entries: unknown = list?.['data'];
    if (!Array.isArray(entries)) return undefined;
    for (const entry of entries) learn(idOf(entry));
    onList(body);
    return { list, entries };
  }

  return {
    find,
    /** Each NAME as it was configured, with its `*`. */
    names: [...table.keys()] as readonly string[],
    /** Learns from the service's own list, once; where `list` fails, again at the next call. Never rejects. */
    async ask(list: () => Promise<Uint8Array>): Promise<void> {
      if (isAsked) return;
      isAsked = true;
      try {
        listIn(await list());
      } catch (thrown) {
        isAsked = false;
        onUnknown(thrown);
      }
    },
    /** The body of a list of models with the aliases in it that are whole names; undefined where it is none, or nested too deep. */
    inList(body: Uint8Array): Buffer | undefined {
      const found = listIn(body);
      if (found === undefined) return undefined;
      const added = [...table]
        .filter(([name]) => !name.endsWith('*') && !real.has(name))
        .map(([name, model]) => entryOf(name, model, found.entries));
      return written({ ...found.list, data: [...found.entries, ...added] });
    },
    /**
     * The model that `/v1/models/NAME` asks for, where an alias covers it. A NAME that ends in `*` is what was configured, and no model.
     */
    inPath(path: string): string | undefined {
      try {
        const wanted = decodeURIComponent(path.slice(MODEL_PATH.length));
        return wanted.endsWith('*') || find(wanted) === undefined ? undefined : wanted;
      } catch {
        return undefined; // escapes that are no UTF-8
      }
    },
    /** What a list of models has, or would have, of one that an alias covers; undefined where the body is none, or nested too deep. */
    entryIn(body: Uint8Array, wanted: string): Buffer | undefined {
      const found = listIn(body);
      if (found === undefined) return undefined;
      const own: unknown = found.entries.find((entry) => idOf(entry) === wanted);
      const model = find(wanted)?.model;
      const entry = own ?? (model === undefined ? undefined : entryOf(wanted, model, found.entries));
      return entry === undefined ? undefined : written(entry);
    },
  };
}

const MODEL_PATH = '/v1/models/';

const idOf = (entry: unknown): unknown => (entry as { id?: unknown } | null)?.id;

/** An alias as a list has it: what is said of its model, under its own name. */
const entryOf = (name: string, model: string, entries: readonly unknown[]): object => ({
  ...{ object: 'model', created: 0 },
  ...(entries.find((entry) => idOf(entry) === model) as object | undefined),
  ...{ id: name, owned_by: `privatemode-proxy: alias of ${model}` },
});

function parsed(body: Uint8Array): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(body));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** Undefined for a value that is nested deeper than JSON.stringify follows: JSON.parse follows deeper. */
function written(value: object): Buffer | undefined {
  try {
    return Buffer.from(JSON.stringify(value));
  } catch {
    return undefined;
  }
}
