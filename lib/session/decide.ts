/**
 * Decides what a session does next: one pure function of the state of the session, of what happened, and of
 * the time. The state holds no keys and no secrets. lib/session/renewals.ts carries it out, and holds these;
 * lib/session/waiting.ts deals with the requests that wait.
 */

import type { Present } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { failureMessage, type Rejection, type SessionEvent } from './events.ts';
import { livesAt } from './lifetimes.ts';
import {
  accepted,
  confirmAt,
  endedWith,
  isOwnFault,
  isRejected,
  rejected,
  type Verdicts,
} from './refusal.ts';
import {
  forcedBy,
  isOvertaken,
  type SecretTerm,
  type SessionState,
  secretInForce,
  suspendedSecret,
} from './state.ts';

export type Happening =
  /** The operator's API key is there, or was replaced. */
  | { readonly type: 'configured' }
  /** Evidence, or the signature on a secret, was judged. `rejection` undefined: it was accepted. */
  | {
      readonly type: 'judged';
      readonly what: 'evidence' | 'secret';
      readonly rejection: Rejection | undefined;
    }
  /**
   * An attestation made a secret. `number`: of the renewal; undefined: it attested with the key of a client,
   * which the session keeps unless it has a key.
   */
  | {
      readonly type: 'made';
      readonly number: number | undefined;
      readonly secret: Omit<SecretTerm, 'madeAt' | 'suspended'>;
    }
  /**
   * A renewal failed. `began`: when it began, on the monotonic clock. `random`: 0 ≤ x < 1, by which the next
   * one begins sooner or later.
   */
  | {
      readonly type: 'failed';
      readonly number: number;
      readonly began: number;
      readonly error: PrivatemodeError;
      readonly random: number;
    }
  /** A renewal ended without a result, because the runtime ended what it ran in. */
  | { readonly type: 'lost'; readonly number: number }
  /** The attestation with the key of a client failed. */
  | { readonly type: 'offer-failed'; readonly error: PrivatemodeError }
  /** The service denied the secret of a request. */
  | { readonly type: 'denied'; readonly secretId: string }
  /** The renewal after a denial did not end in time. */
  | { readonly type: 'overdue'; readonly secretId: string }
  /** A response authenticated under the secret. */
  | { readonly type: 'authenticated'; readonly secretId: string }
  /** A request waits for the next secret. */
  | { readonly type: 'awaited' }
  /** The time of the next renewal has come. */
  | { readonly type: 'due' }
  /** That time has come, but nobody uses the session: the next request begins the renewal. */
  | { readonly type: 'rest' }
  | { readonly type: 'ending' }
  | { readonly type: 'closed'; readonly reason: PrivatemodeError };

type Failure = Extract<Happening, { type: 'failed' }>;

/** One thing that the session has to do. It does the effects of a decision in their order. */
export type Effect =
  | { readonly type: 'attest'; readonly number: number }
  /** Give up the renewal that runs. */
  | { readonly type: 'abandon'; readonly reason: PrivatemodeError }
  /** Nothing works any more and waiting does not help. */
  | { readonly type: 'permanent'; readonly error: PrivatemodeError }
  | { readonly type: 'tell'; readonly event: SessionEvent }
  /** Wake the requests that wait: what they may get has changed. */
  | { readonly type: 'wake' };

export interface Decision {
  readonly state: SessionState;
  readonly effects: readonly Effect[];
}

export function decide(state: SessionState, happening: Happening, at: Present): Decision {
  switch (happening.type) {
    case 'configured':
      return onConfigured(state, at);
    case 'judged':
      return only({ ...state, verdicts: verdictsAfter(state, happening, at) });
    case 'made':
      return onMade(state, happening, at);
    case 'failed':
      return happening.number === state.running ? onFailed(state, happening, at) : only(state);
    case 'lost':
      return happening.number === state.running ? onLost(state) : only(state);
    case 'offer-failed':
      return onOfferFailed(state, happening.error, at);
    case 'denied':
      return onDenied(state, happening.secretId, at);
    case 'overdue':
      return suspend(state, happening.secretId, at);
    case 'authenticated':
      return onAuthenticated(state, happening.secretId, at);
    case 'awaited':
      return onAwaited(state, at);
    case 'due':
      return begin(state);
    case 'rest':
      return only({ ...state, due: undefined });
    case 'ending':
      return only({ ...state, ending: true });
    case 'closed':
      return {
        state: { ...state, closed: happening.reason, running: undefined, due: undefined },
        effects: [{ type: 'abandon', reason: happening.reason }, WAKE],
      };
  }
}

const WAKE: Effect = { type: 'wake' };
const tell = (event: SessionEvent): Effect => ({ type: 'tell', event });

const only = (state: SessionState, ...effects: Effect[]): Decision => ({ state, effects });

/** What `then` decides after `first`, with the effects of both. */
function followedBy(first: Decision, then: (state: SessionState) => Decision): Decision {
  const { state, effects } = then(first.state);
  return { state, effects: [...first.effects, ...effects] };
}

/** Begins a renewal, unless one runs, the session is closed, or there is no key to attest with. */
function begin(state: SessionState): Decision {
  if (state.running !== undefined || state.closed !== undefined || state.key === 'awaited')
    return only(state);
  const number = state.begun + 1;
  return only({ ...state, running: number, begun: number, due: undefined }, { type: 'attest', number });
}

/**
 * The configured key is new: gives up a renewal that runs with the old key, and begins a renewal at once if
 * one is needed.
 */
function onConfigured(state: SessionState, at: Present): Decision {
  const outage = state.outage && { ...state.outage, permanent: undefined, isReported: false };
  const next: SessionState = { ...state, key: 'configured', outage };
  const isNeeded =
    state.running !== undefined || (outage?.failures ?? 0) > 0 || secretInForce(state, at) === undefined;
  if (!isNeeded) return only(next, WAKE);
  const reason = new PrivatemodeError('not_ready', 'the API key was replaced');
  const anew = { ...next, running: undefined, due: undefined, outage: outage && { ...outage, failures: 0 } };
  return followedBy(only(anew, { type: 'abandon', reason }, WAKE), begin);
}

function verdictsAfter(
  { verdicts, kind }: SessionState,
  { what, rejection }: Extract<Happening, { type: 'judged' }>,
  at: Present,
): Verdicts {
  return rejection === undefined ? accepted(verdicts, what) : rejected(verdicts, what, rejection, kind, at);
}

function onMade(
  state: SessionState,
  { number, secret }: Extract<Happening, { type: 'made' }>,
  { monotonic }: Present,
): Decision {
  if (number !== undefined && number !== state.running) return only(state);
  const kept = number === undefined && state.key === 'awaited';
  const { secretId, manifestSha256, expiresAt } = secret;
  const message = 'Secret updated successfully';
  const told = [tell({ type: 'epoch', message, secretId, manifestSha256, expiresAt })];
  if (kept)
    told.unshift(tell({ type: 'key-kept', message: 'The API key of a client is kept for attestation' }));
  return only(
    {
      ...state,
      key: kept ? 'kept' : state.key,
      secret: { ...secret, madeAt: monotonic, suspended: false },
      running: number === undefined ? state.running : undefined,
      due: secret.renewAt,
      madeSince: true,
      outage: undefined,
      unjudged: undefined,
      denied: undefined,
    },
    ...told,
    WAKE,
  );
}

function onFailed(state: SessionState, failure: Failure, at: Present): Decision {
  const { began, error } = failure;
  const { key, outage } = state;
  const failures = (outage?.failures ?? 0) + 1;
  const dropped = error.code === 'api_key_rejected' && key !== 'configured';
  const permanent = permanentCause(state, error, at, key === 'configured');
  const { retryIn, confirms } = dropped ? NO_RENEWAL : nextRenewal(state, failure, failures, at);
  const isNew = permanent !== undefined && outage?.isReported !== true;
  const told: Effect[] = [];
  if (dropped) {
    const message = 'The API key kept from a client is no longer accepted';
    told.push(tell({ type: 'key-dropped', message }));
  }
  if (isNew) told.push({ type: 'permanent', error: permanent });
  const message = failureMessage(error, retryIn, confirms);
  told.push(tell({ type: 'update-failed', message, error, retryIn, permanent: isNew }), WAKE);
  const isReported = isNew || outage?.isReported === true;
  const next: SessionState = {
    ...state,
    running: undefined,
    verdicts: endedWith(state.verdicts, error),
    key: dropped ? 'awaited' : key,
    outage: { failures, failedAt: at.now, error, permanent, isReported },
    unjudged: dropped
      ? unrenewable(state, error, at)
      : isOvertaken(state, began, at)
        ? undefined
        : unjudgedBy(state, error),
    due: retryIn === undefined ? undefined : at.now + retryIn,
  };
  return followedBy(only(next, ...told), (after) =>
    after.denied === undefined ? only(after) : suspend(after, after.denied, at),
  );
}

/** Gives up a renewal that is lost: should it come back, its result changes nothing. The next may begin. */
function onLost(state: SessionState): Decision {
  const reason = new PrivatemodeError('not_ready', 'the verification was lost');
  return only({ ...state, running: undefined }, { type: 'abandon', reason });
}

/**
 * What the session heard instead of a verdict. Nothing authenticates it: it may come from somebody on the
 * way, and it takes back no rejection. What was judged is in `verdicts`.
 */
function unjudgedBy({ verdicts }: SessionState, error: PrivatemodeError): SessionState['unjudged'] {
  if (isRejected(verdicts)) return undefined;
  const { code } = error;
  const as = code === 'api_key_rejected' ? 'key-refused' : code === 'client_too_old' ? 'too-old' : 'silent';
  return { as, error };
}

/**
 * The kept key was refused, so the secret in force cannot be renewed until a client brings another key. Once
 * it ends, only that key is missing.
 */
function unrenewable(state: SessionState, error: PrivatemodeError, at: Present): SessionState['unjudged'] {
  const until = secretInForce(state, at)?.expiresMonotonic;
  return until === undefined || isRejected(state.verdicts) ? undefined : { as: 'key-refused', error, until };
}

/**
 * The attestation with a client's key failed. This says something about the service only if that key is not
 * at fault, and if no secret is in force, as after another client's key has just made one.
 */
function onOfferFailed(state: SessionState, error: PrivatemodeError, at: Present): Decision {
  const message = 'The API key of a client did not attest';
  const permanent = permanentCause(state, error, at, false);
  const isAbout = error.blame !== 'client' && secretInForce(state, at) === undefined;
  const heard = unjudgedBy(state, error);
  const counts = heard?.as === 'silent' && state.key === 'awaited';
  const until = counts ? at.monotonic + at.times.offerCounts : undefined;
  const next = { ...state, verdicts: endedWith(state.verdicts, error) };
  return only(
    isAbout ? { ...next, unjudged: heard && { ...heard, until } } : next,
    tell({ type: 'offer-failed', message, error }),
    ...(permanent === undefined ? [] : [{ type: 'permanent', error: permanent } as const]),
  );
}

/**
 * Whether neither waiting nor a newer manifest cures a failure. `isConfigured`: whether the operator's key
 * failed. A mismatch with a given manifest has to come from the hardware, twice: anybody on the way can send
 * foreign evidence.
 */
const isHopeless = (
  { kind, verdicts }: SessionState,
  { code }: PrivatemodeError,
  isConfigured: boolean,
): boolean =>
  isOwnFault(code, kind) ||
  (kind === 'static' && code === 'manifest_mismatch' && verdicts.mismatches) ||
  (code === 'api_key_rejected' && isConfigured);

/**
 * Returns the error if it is permanent: no accepted secret lives, and neither waiting nor a newer manifest
 * helps. A secret lives until either clock has passed its end; setting the wall clock back does not end it. A
 * 401 for a key that a client brought concerns that client alone, and no 401 counts after a verdict that
 * rejects the service.
 */
function permanentCause(
  state: SessionState,
  error: PrivatemodeError,
  at: Present,
  isConfigured: boolean,
): PrivatemodeError | undefined {
  const { secret, verdicts } = state;
  if (secret !== undefined && livesAt(secret, at)) return undefined;
  if (!isHopeless(state, error, isConfigured)) return undefined;
  if (error.code === 'api_key_rejected' && isRejected(verdicts)) return undefined;
  return error.code === 'manifest_mismatch' ? (verdicts.refusal ?? error) : error;
}

/** ms for which a host that failed wants no request. */
const wantedPause = (error: PrivatemodeError | undefined): number => 1000 * (error?.detail?.pause ?? 0);

/** When the next renewal begins, and whether it is the first that can confirm a rejection. */
interface NextRenewal {
  /** ms; undefined: when a client sends a key. */
  readonly retryIn: number | undefined;
  readonly confirms: boolean;
}

const NO_RENEWAL: NextRenewal = { retryIn: undefined, confirms: false };

/**
 * The pause before the next renewal is 1 s, doubling, up to 60 s, of which the upper half is random, but no
 * less than a host wants. After a hopeless failure it is 60 s from the first failure on. The next renewal
 * begins no later than the moment at which a rejection can be confirmed, because clients wait to hear of
 * that.
 */
function nextRenewal(
  state: SessionState,
  { began, error, random }: Failure,
  failures: number,
  { monotonic, times }: Present,
): NextRenewal {
  const { firstBackoff, longestBackoff } = times;
  const full = isHopeless(state, error, state.key === 'configured')
    ? longestBackoff
    : Math.min(longestBackoff, firstBackoff * 2 ** (failures - 1));
  const pause = Math.max(full * (0.5 + random / 2), wantedPause(error));
  const confirmed = confirmAt(state.verdicts, times);
  const wait =
    confirmed === undefined || began >= confirmed
      ? Number.POSITIVE_INFINITY
      : Math.max(0, confirmed - monotonic);
  return { retryIn: Math.min(pause, wait), confirms: wait <= pause };
}

/**
 * The service denied the secret. Forces a renewal, or waits for the one that runs. Does not force a second
 * one a moment after the first: it suspends the secret if the first renewal failed, and does nothing if the
 * first renewal made a new secret.
 */
function onDenied(state: SessionState, secretId: string, at: Present): Decision {
  const forced = forcedBy(state, at);
  if (forced === 'made') return only(state);
  if (forced === 'failed') return suspend(state, secretId, at);
  const next = { ...state, denied: secretId };
  if (state.running !== undefined) return only(next);
  const message = 'The service does not know the secret any more';
  const forcing = { ...next, forcedAt: at.monotonic, madeSince: false };
  return followedBy(only(forcing, tell({ type: 'forced-renewal', message, secretId })), begin);
}

/**
 * Suspends a secret that the service denied and that could not be replaced. The secret is no longer in force,
 * but it is not deleted, because anybody on the way can write a denial. The next secret ends the suspension,
 * and so does a response that authenticates.
 */
function suspend(state: SessionState, secretId: string, at: Present): Decision {
  const { secret } = state;
  if (secret === undefined || secretInForce(state, at)?.secretId !== secretId) return only(state);
  const message = 'The secret is suspended: the service denies it, and could not be verified again';
  const unjudged = state.key === 'awaited' ? undefined : state.unjudged; // see `unrenewable`
  const next = { ...state, secret: { ...secret, suspended: true }, unjudged };
  return only(next, tell({ type: 'secret-suspended', message, secretId }), WAKE);
}

/**
 * A response authenticated, so the service knows the secret: a suspension ends. No response takes back a
 * verdict that rejects the service.
 */
function onAuthenticated(state: SessionState, secretId: string, at: Present): Decision {
  const { secret, verdicts } = state;
  if (secret === undefined || isRejected(verdicts)) return only(state);
  if (suspendedSecret(state, at)?.secretId !== secretId) return only(state);
  const message = 'The secret is in force again: a response authenticated under it';
  const next = { ...state, secret: { ...secret, suspended: false }, denied: undefined };
  return only(next, tell({ type: 'secret-resumed', message, secretId }), WAKE);
}

/**
 * A request waits: a renewal begins at once, or at the latest `hurryAfter` (lib/times.ts) after the last
 * failure, or as long after it as a host wants.
 */
function onAwaited(state: SessionState, { now, times }: Present): Decision {
  if (state.running !== undefined) return only(state);
  const { failures = 0, failedAt = 0, error } = state.outage ?? {};
  const soonest = failedAt + Math.max(times.hurryAfter, wantedPause(error));
  const turnedBack = now < failedAt;
  if (failures === 0 || now >= soonest || turnedBack) return begin(state);
  return only(soonest < (state.due ?? Number.POSITIVE_INFINITY) ? { ...state, due: soonest } : state);
}
