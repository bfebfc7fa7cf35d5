/**
 * Notices when a model that somebody relies on is missing in the lists of the service, and when it is back.
 * Nothing authenticates these lists.
 */

/**
 * Lists in a row that lack a model before it counts as gone: a single one may be a fault of the service, or
 * come while the service is updated.
 */
const LISTS = 2;
/** Models of requests that are remembered. */
const MOST_USED = 100;
/** Ids of a list. A longer list is ignored: no honest service has one. */
const MOST_LISTED = 1_000;

/**
 * Whether the name of a model, which nothing authenticates, may stand in a configuration or a line of the
 * log. Agents give some texts a meaning: opencode replaces `{env:NAME}` by the variable NAME.
 */
export const isPlainName = (name: string): boolean => /^[A-Za-z0-9][\w.:@/+-]{0,255}$/.test(name);

export type ModelUse = 'alias' | 'request';

/**
 * Follows the models that aliases stand for, and those of requests that were answered. It calls `gone` for a
 * model that two lists in a row lack, and `back` once the model is listed again. A model of requests counts
 * only once a list had it: a model that was never listed has not left.
 */
export function watchModels({
  aliased,
  gone,
  back,
}: {
  readonly aliased: ReadonlySet<string>;
  readonly gone: (use: ModelUse, model: string) => void;
  readonly back: (use: ModelUse, model: string) => void;
}) {
  const used = new Set<string>();
  const seen = new Set<string>();
  /** Model → lists in a row that lacked it. */
  const misses = new Map<string, number>();

  function judge(use: ModelUse, model: string, isListed: boolean): void {
    const missed = isListed ? 0 : (misses.get(model) ?? 0) + 1;
    if (missed === LISTS) gone(use, model);
    if (isListed && (misses.get(model) ?? 0) >= LISTS) back(use, model);
    misses.set(model, missed);
  }

  return {
    /** Takes the model of a request that was answered. */
    used(model: string): void {
      if (used.size < MOST_USED && !aliased.has(model)) used.add(model);
    },
    /** Takes the ids of a whole list of the service. An empty list is ignored. */
    listed(ids: ReadonlySet<string>): void {
      if (ids.size === 0 || ids.size > MOST_LISTED) return;
      for (const model of aliased) judge('alias', model, ids.has(model));
      for (const model of used)
        if (seen.has(model) || ids.has(model)) judge('request', model, ids.has(model));
      for (const model of used) if (ids.has(model)) seen.add(model);
    },
  };
}

/**
 * The ids in the body of a list of models; undefined if the body is no list, or if the list continues
 * elsewhere (`has_more`).
 */
export function idsIn(body: Uint8Array): ReadonlySet<string> | undefined {
  let list: { readonly data?: unknown; readonly has_more?: unknown } | null;
  try {
    list = JSON.parse(new TextDecoder().decode(body));
  } catch {
    return undefined;
  }
  if (!Array.isArray(list?.data) || list.has_more === true) return undefined;
  return new Set(list.data.map((entry) => entry?.id).filter((id) => typeof id === 'string'));
}
