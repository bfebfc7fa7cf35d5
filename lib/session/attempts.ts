/** Which keys attest, and when: one attempt for each key, eight at a time, and none for a refused key. */
import { SecretKey } from '#crypto';
import type { Clock } from '../clock.ts';
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';

/** An attempt that runs, or that waits for its turn (without `began`: monotonic clock). */
export interface Attempt {
  readonly apiKey: string;
  readonly abort: AbortController;
  began?: number;
  isOver?: true;
}

/** How many different keys attest at the same time, how many more may wait, and how many are remembered. */
const MAX_RUNNING = 8;
const MAX_WAITING = 64;
const MAX_REMEMBERED = 1024;

/** `run` is called once for each attempt, when its turn has come. `shares`: as in `SessionDeps`. */
export function createAttempts(run: (attempt: Attempt) => unknown, clock: Clock, shares: boolean) {
  /** Those that have not ended, where requests share them: else nobody may tell of their end. */
  const open = new Set<Attempt>();
  /** Those that requests with the same key join, by key, in the order in which they came. */
  const joinable = new Map<string, Attempt>();
  /** By keyed hash: keys that the service refused, in order of time, and keys that attested. */
  const refused = new Map<string, { readonly at: number; readonly error: PrivatemodeError }>();
  const good = new Set<string>();
  let configuredKey: string | undefined;
  const hashKey = new SecretKey(randomBytes(32));
  const hashOf = (apiKey: string): string => hashKey.hmacSha256(apiKey);

  /** The key is the operator's, or has made a secret before. */
  const isTrusted = (apiKey: string): boolean => apiKey === configuredKey || good.has(hashOf(apiKey));

  function beginNext(): void {
    const first = [...joinable.values()].slice(0, MAX_RUNNING);
    for (const each of first) if (each.began === undefined) start(each);
  }

  function start(attempt: Attempt): void {
    attempt.began = clock.monotonic();
    run(attempt);
  }

  /** Goes on, but the next request with its key begins another: somebody on the way may hold it back. */
  function pass(attempt: Attempt): void {
    if (joinable.get(attempt.apiKey) === attempt) joinable.delete(attempt.apiKey);
  }

  function leave(attempt: Attempt): void {
    attempt.isOver = true;
    open.delete(attempt);
    pass(attempt);
  }

  /** They change nothing any more. */
  function giveUp(attempts: Iterable<Attempt> = open): void {
    for (const each of attempts) {
      leave(each);
      each.abort.abort();
    }
  }

  return {
    of: (apiKey: string) => joinable.get(apiKey),
    isTrusted,
    /**
     * Whether a secret in force may be renewed with this key: one renewal runs at a time, but if it is late,
     * a trusted key need not wait until strangers have tried theirs.
     */
    mayRenew: (apiKey: string, isLate: boolean) =>
      joinable.size === 0 || (isLate && joinable.size < MAX_RUNNING && isTrusted(apiKey)),
    /**
     * The key that a request attests with: the configured one, or its own; the error instead if the service
     * refused that a moment ago.
     */
    keyOf(offeredKey: string | undefined): string | PrivatemodeError | undefined {
      if (configuredKey !== undefined || offeredKey === undefined) return configuredKey;
      const { at, error } = refused.get(hashOf(offeredKey)) ?? { at: Number.NEGATIVE_INFINITY };
      return (clock.monotonic() - at < clock.times.refusedKeyKept && error) || offeredKey;
    },
    /** Begins an attempt with this key, or joins the one that there is. Throws not_ready if too many wait. */
    begin(apiKey: string): Attempt {
      const joined = joinable.get(apiKey);
      if (joined !== undefined) return joined;
      if (joinable.size >= MAX_RUNNING + MAX_WAITING)
        throw new PrivatemodeError('not_ready', 'too many API keys are being tried');
      const attempt: Attempt = { apiKey, abort: new AbortController() };
      if (!shares) start(attempt);
      else {
        open.add(attempt);
        joinable.set(apiKey, attempt);
        beginNext();
      }
      return attempt;
    },
    pass,
    end(attempt: Attempt): void {
      leave(attempt);
      beginNext();
    },
    giveUp,
    /** The operator gives the key from now on. Gives up all attempts, and returns whether there were some. */
    configure(apiKey: string): boolean {
      const wereThere = open.size > 0;
      giveUp();
      configuredKey = apiKey;
      return wereThere;
    },
    /** The service refused the key of a client. */
    refuse(apiKey: string, error: PrivatemodeError): void {
      const hash = hashOf(apiKey);
      refused.delete(hash); // keeps the map in order of time
      if (refused.size >= MAX_REMEMBERED) refused.delete(refused.keys().next().value as string);
      refused.set(hash, { at: clock.monotonic(), error });
    },
    /** The key made a secret. */
    praise(apiKey: string): void {
      if (good.size < MAX_REMEMBERED) good.add(hashOf(apiKey));
    },
  };
}
