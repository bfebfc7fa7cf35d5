/** Decides which API keys attest the service: one attempt per key, eight at a time, no refused key. */
import { SecretKey } from '#crypto';
import type { Clock } from '../clock.ts';
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';

/** An attempt to get a secret. `began`: the start (monotonic clock), or undefined before it. */
export interface Attempt {
  readonly apiKey: string;
  readonly abort: AbortController;
  began?: number;
  isOver?: true;
}

/** Limits for API keys: how many attest at the same time, how many more wait, how many are remembered. */
const MAX_RUNNING = 8;
const MAX_WAITING = 64;
const MAX_REMEMBERED = 1024;

/** `run` is called when an attempt may start. `shares`: whether requests share attempts. */
export function createAttempts(run: (attempt: Attempt) => unknown, clock: Clock, shares: boolean) {
  /** The shared attempts that have not ended. Unshared attempts may end without a report. */
  const open = new Set<Attempt>();
  /** API key → the attempt that further requests with this key join, in order of arrival. */
  const joinable = new Map<string, Attempt>();
  /** Keyed hashes: of refused API keys (oldest first), and of API keys that led to a secret. */
  const refused = new Map<string, { readonly at: number; readonly error: PrivatemodeError }>();
  const good = new Set<string>();
  let configuredKey: string | undefined;
  const hashKey = new SecretKey(randomBytes(32));
  const hashOf = (apiKey: string): string => hashKey.hmacSha256(apiKey);

  /** Whether the API key is the operator's key, or has led to a secret before. */
  const isTrusted = (apiKey: string): boolean => apiKey === configuredKey || good.has(hashOf(apiKey));

  function beginNext(): void {
    const first = [...joinable.values()].slice(0, MAX_RUNNING);
    for (const each of first) if (each.began === undefined) start(each);
  }

  function start(attempt: Attempt): void {
    attempt.began = clock.monotonic();
    run(attempt);
  }

  /** Lets the attempt go on without new requests, because an attacker on the network may be delaying it. */
  function pass(attempt: Attempt): void {
    if (joinable.get(attempt.apiKey) === attempt) joinable.delete(attempt.apiKey);
  }

  function leave(attempt: Attempt): void {
    attempt.isOver = true;
    open.delete(attempt);
    pass(attempt);
  }

  /** Aborts the attempts, so that their results are ignored. */
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
     * Whether the API key may renew the secret in force. Only one renewal runs at a time. If the renewal is
     * late, a trusted key may start another. So this key need not wait while strangers try theirs.
     */
    mayRenew: (apiKey: string, isLate: boolean) =>
      joinable.size === 0 || (isLate && joinable.size < MAX_RUNNING && isTrusted(apiKey)),
    /**
     * Returns the API key with which a request attests: the configured key, or else the key in the request.
     * If the service has recently refused the key in the request, returns the error of the refusal.
     */
    keyOf(offeredKey: string | undefined): string | PrivatemodeError | undefined {
      if (configuredKey !== undefined || offeredKey === undefined) return configuredKey;
      const { at, error } = refused.get(hashOf(offeredKey)) ?? { at: Number.NEGATIVE_INFINITY };
      return (clock.monotonic() - at < clock.times.refusedKeyKept && error) || offeredKey;
    },
    /** Begins an attempt with the key, or joins its open attempt. Throws not_ready if too many keys wait. */
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
    /** Sets the operator's API key, gives up all attempts, and returns whether there were attempts. */
    configure(apiKey: string): boolean {
      const wereThere = open.size > 0;
      giveUp();
      configuredKey = apiKey;
      return wereThere;
    },
    refuse(apiKey: string, error: PrivatemodeError): void {
      const hash = hashOf(apiKey);
      refused.delete(hash); // the key moves to the end, so that the map stays in order of time
      if (refused.size >= MAX_REMEMBERED) refused.delete(refused.keys().next().value as string);
      refused.set(hash, { at: clock.monotonic(), error });
    },
    /** Notes that the API key has led to a secret. */
    praise(apiKey: string): void {
      if (good.size < MAX_REMEMBERED) good.add(hashOf(apiKey));
    },
  };
}
