/** Models that somebody relies on, held against the lists of the service, which nothing authenticates. */

/** Lists in a row that lack a model before it counts as gone: one may be a fault of the service, or come while it is updated. */
const LISTS = 2;
/** Models of requests that are remembered, and ids of a list; a longer list is none that an honest service has. */
const MOST_USED = 100;
const MOST_LISTED = 1_000;

export type ModelUse = 'alias' | 'request';

/**
 * Follows the models that aliases stand for, and those of requests that were answered. `gone` is called for one that two lists in a row
 * lack, `back` once it is listed again. A model of requests counts only once a list had it: what was never listed has not left.
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
    /** A request for it was answered. */
    used(model: string): void {
      if (used.size < MOST_USED && !aliased.has(model)) used.add(model);
    },
    /** The ids of a whole list of the service. */
    listed(ids: ReadonlySet<string>): void {
      if (ids.size === 0 || ids.size > MOST_LISTED) return;
      for (const model of aliased) judge('alias', model, ids.has(model));
      for (const model of used)
        if (seen.has(model) || ids.has(model)) judge('request', model, ids.has(model));
      for (const model of used) if (ids.has(model)) seen.add(model);
    },
  };
}

/** The ids in the body of a list of models; undefined where it is none, or is continued elsewhere. */
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
