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
  /** By key, in the order in which they came. */
  const running = new Map<string, Attempt>();
  /** Attempts that take so long that another one with the same key runs beside them. */
  const slow = new Set<Attempt>();
  /** By keyed hash: keys that the service refused, in order of time, and keys that attested. */
  const refused = new Map<string, { readonly at: number; readonly error: PrivatemodeError }>();
  const good = new Set<string>();
  const hashKey = new SecretKey(randomBytes(32));
  const hashOf = (apiKey: string): string => hashKey.hmacSha256(apiKey);

  function beginNext(): void {
    let place = 0;
    for (const each of running.values()) {
      if (++place <= MAX_RUNNING && each.began === undefined) start(each);
    }
  }

  function start(attempt: Attempt): void {
    attempt.began = clock.monotonic();
    run(attempt);
  }

  return {
    /** How many run or wait. */
    count: () => running.size,
    hasRoom: () => running.size < MAX_RUNNING,
    of: (apiKey: string) => running.get(apiKey),
    /** Begins an attempt with this key, or joins the one that there is. Throws not_ready if too many wait. */
    begin(apiKey: string): Attempt {
      const joined = running.get(apiKey);
      if (joined !== undefined) return joined;
      if (running.size >= MAX_RUNNING + MAX_WAITING)
        throw new PrivatemodeError('not_ready', 'too many API keys are being tried');
      const attempt: Attempt = { apiKey, abort: new AbortController() };
      if (shares) running.set(apiKey, attempt);
      else start(attempt);
      beginNext();
      return attempt;
    },
    end(attempt: Attempt): void {
      attempt.isOver = true;
      slow.delete(attempt);
      if (running.get(attempt.apiKey) === attempt) running.delete(attempt.apiKey);
      beginNext();
    },
    /**
     * Goes on, but the next request with its key begins another: somebody on the way may hold this one back.
     */
    pass(attempt: Attempt): void {
      running.delete(attempt.apiKey);
      slow.add(attempt);
    },
    giveUp(what: string, attempts: Iterable<Attempt> = [...running.values(), ...slow]): void {
      for (const each of attempts) {
        each.isOver = true;
        slow.delete(each);
        if (running.get(each.apiKey) === each) running.delete(each.apiKey);
        each.abort.abort(new PrivatemodeError('not_ready', `the ${what} was replaced`));
      }
    },
    /** The service refused the key of a client. */
    refuse(apiKey: string, error: PrivatemodeError): void {
      const hash = hashOf(apiKey);
      refused.delete(hash); // keeps the map in order of time
      const [oldest] = refused.keys();
      if (refused.size >= MAX_REMEMBERED && oldest !== undefined) refused.delete(oldest);
      refused.set(hash, { at: clock.monotonic(), error });
    },
    /** Why a key is not tried: the service refused it a moment ago. */
    refusalOf(apiKey: string): PrivatemodeError | undefined {
      const { at, error } = refused.get(hashOf(apiKey)) ?? { at: Number.NEGATIVE_INFINITY };
      return clock.monotonic() - at < clock.times.refusedKeyKept ? error : undefined;
    },
    /** The key made a secret. */
    praise(apiKey: string): void {
      if (good.size < MAX_REMEMBERED) good.add(hashOf(apiKey));
    },
    hasAttested: (apiKey: string): boolean => good.has(hashOf(apiKey)),
  };
}
