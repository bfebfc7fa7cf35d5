/**
 * Other names for models (--model-alias), for applications that insist on names which the service does not
 * have.
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

/** Ids of the service that are remembered. No honest service lists more. */
const MOST_REAL = 1_000;

export interface ModelAliasesDeps {
  /** Gets each NAME that covers a model of the service, once. */
  readonly onReal: (name: string) => void;
  /** Gets the reason if the service could not be asked which models it has. Until it can, aliases win. */
  readonly onUnknown: (reason: unknown) => void;
  /** Gets the body of each list of the service. */
  readonly onList?: ((body: Uint8Array) => void) | undefined;
}

export type ModelAliases = ReturnType<typeof createModelAliases>;

/**
 * Keeps the aliases, and the models that the service is known to have. Such a model wins over an alias that
 * covers its name. The newest whole list decides which they are, so a forged list has no effect after the
 * next honest one. A page of a list, and an empty list, change nothing but what they add.
 */
export function createModelAliases(
  table: AliasTable,
  { onReal, onUnknown, onList = () => {} }: ModelAliasesDeps,
) {
  let real: ReadonlySet<string> = new Set();
  const told = new Set<string>();
  let isAsked = false;

  /** The alias that applies to a request for the model `wanted`; undefined if none does. */
  const find = (wanted: string): Alias | undefined => (real.has(wanted) ? undefined : aliasIn(table, wanted));

  function learn(entries: readonly unknown[], isWhole: boolean): void {
    const covered = entries
      .map(idOf)
      .filter((id): id is string => typeof id === 'string' && aliasIn(table, id) !== undefined);
    real = new Set([...(isWhole ? [] : real), ...covered].slice(0, MOST_REAL));
    for (const id of covered) {
      const name = aliasIn(table, id)?.name as string;
      if (!told.has(name)) onReal(name);
      told.add(name);
    }
  }

  /**
   * The list of models in a body, and its entries; undefined if the body is no list. Learns the service's own
   * models from it, although nothing authenticates the list. `isPage`: others may follow, or come before.
   */
  function listIn(body: Uint8Array, isPage = false) {
    const list = parsed(body);
    const entries: unknown = list?.['data'];
    if (!Array.isArray(entries)) return undefined;
    learn(entries, !isPage && list?.['has_more'] !== true && entries.length > 0);
    onList(body);
    return { list, entries };
  }

  return {
    find,
    /** Each NAME as it was configured, with its `*`. */
    names: [...table.keys()] as readonly string[],
    /** Learns the service's models from its whole list. */
    listed: (body: Uint8Array): void => void listIn(body),
    /**
     * Learns the service's models from its own list, once. If `list` fails, the next call asks again. Never
     * rejects.
     */
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
    /**
     * The list of models in a body, with the aliases added that are whole names and no models of the service.
     * Undefined if the body is no list, or is nested too deep. `isPage`: the request asked for a part of it.
     */
    inList(body: Uint8Array, isPage?: boolean): Buffer | undefined {
      const found = listIn(body, isPage);
      if (found === undefined) return undefined;
      const added = [...table]
        .filter(([name]) => !name.endsWith('*') && !real.has(name))
        .map(([name, model]) => entryOf(name, model, found.entries));
      return written({ ...found.list, data: [...found.entries, ...added] });
    },
    /**
     * The model that `/v1/models/NAME` asks for, if an alias covers it. A NAME that ends in `*` is the
     * configured pattern, and no model.
     */
    inPath(path: string): string | undefined {
      try {
        const wanted = decodeURIComponent(path.slice(MODEL_PATH.length));
        return wanted.endsWith('*') || find(wanted) === undefined ? undefined : wanted;
      } catch {
        return undefined; // escapes that are no UTF-8
      }
    },
    /**
     * The entry for the model `wanted`: the one in the list of models, else one that is made for its alias.
     * Undefined if there is neither, or if the body is no list or is nested too deep.
     */
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

/** The entry of an alias in a list: that of its model, under the name of the alias. */
const entryOf = (name: string, model: string, entries: readonly unknown[]): object => ({
  object: 'model',
  created: 0,
  ...(entries.find((entry) => idOf(entry) === model) as object | undefined),
  id: name,
  owned_by: `privatemode-proxy: alias of ${model}`,
});

function parsed(body: Uint8Array): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(body));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
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
