/**
 * What a session knows, as data without keys and secrets: how each thing that happens changes it (`next`),
 * and what follows for requests and for the next attempt.
 */
import type { Moment, Present } from '../clock.ts';
import type { ErrorCode, PrivatemodeError } from '../errors.ts';

/** What anybody may know of one attested secret: the digests that name it, and its times. No key. */
export interface Term {
  readonly secretId: string; // standard base64 of SHA-256 of the public key
  readonly manifestSha256: string; // lower-case hex, of the manifest that the service was verified against
  readonly verdictSha256: string; // lower-case hex, of the verdict, as `verdictText` writes it
  readonly exchangeSha256?: string | undefined; // names the record of the exchange, if there is one
  readonly attestedAt: number; // wall clock, ms since 1970
  readonly renewAt: number; // from then on the session renews the secret
  readonly expiresAt: number; // from then on no request may use the secret
  readonly expiresMonotonic: number; // the same end on the monotonic clock, which nobody can set back
}

/** Why an attempt gave no secret. */
export interface Failure {
  readonly error: PrivatemodeError;
  /**
   * A verdict rejected the evidence, or the signature on the secret. `askedAt`: when this process asked for
   * what was judged (monotonic clock). `newest`: whether no newer manifest could have led to another verdict.
   */
  readonly rejected?:
    | { readonly part: 'evidence' | 'secret'; readonly askedAt: number; readonly newest: boolean }
    | undefined;
  /** Whether the evidence was accepted, so that the secret service was asked. */
  readonly isAccepted?: boolean | undefined;
}

export interface SessionState {
  readonly isPinned: boolean; // the operator gave the manifest
  readonly hasKey: boolean; // the operator gave a key; else requests bring theirs
  readonly isEnding: boolean; // the proxy was told to stop; requests go on until it is closed
  readonly term?: Term | undefined;
  readonly madeAt: number; // when that secret was made: monotonic clock
  /** Whether the service denied that secret. Nothing authenticates a denial, so the secret is marked only. */
  readonly isDenied: boolean;
  /** When a denial last forced an attempt, on the monotonic clock, and which secret it denied. */
  readonly forcedAt: number;
  readonly forcedBy?: string | undefined;
  /** Attempts that failed since the last secret; when the last one began (monotonic), and why it failed. */
  readonly failures: number;
  readonly began: number;
  readonly error?: PrivatemodeError | undefined;
  /** The last one, which silence does not take back. */
  readonly rejection?: Rejection | undefined;
}

interface Rejection {
  readonly part: 'evidence' | 'secret';
  readonly error: PrivatemodeError;
  readonly first: number | undefined; // when there was one that may count: monotonic clock
  readonly counts: boolean; // it refuses the service
}

const NEVER = Number.NEGATIVE_INFINITY;

export const newState = (isPinned: boolean): SessionState => ({
  isPinned,
  hasKey: false,
  isEnding: false,
  madeAt: NEVER,
  isDenied: false,
  forcedAt: NEVER,
  failures: 0,
  began: NEVER,
});

/** `isTrusted`: the key is the operator's, or has made a secret before. `began`: monotonic. */
type Failed = Failure & { readonly type: 'failed'; readonly began: number; readonly isTrusted: boolean };

export type Happening =
  /** `key`: the operator's key is there, or was replaced. `accepted`: evidence was accepted. */
  | { readonly type: 'key' | 'accepted' | 'ending' }
  | { readonly type: 'made'; readonly term: Term }
  | Failed
  /** The service denied the secret of a request, or a response authenticated under it. */
  | { readonly type: 'denied' | 'authenticated'; readonly secretId: string };

export function next(state: SessionState, happening: Happening, at: Present): SessionState {
  const { term, rejection } = state;
  switch (happening.type) {
    case 'key':
      return { ...state, hasKey: true, failures: 0, began: NEVER, error: undefined };
    case 'ending':
      return { ...state, isEnding: true };
    case 'accepted':
      // Anybody on the way can pass on genuine evidence, so a rejected secret stays rejected.
      return rejection?.part === 'evidence' ? { ...state, rejection: undefined, error: undefined } : state;
    case 'made': {
      const { isPinned, hasKey, forcedAt, forcedBy, isEnding } = state;
      const made = { term: happening.term, madeAt: at.monotonic };
      return { ...newState(isPinned), hasKey, forcedAt, forcedBy, isEnding, ...made };
    }
    case 'failed':
      return isOvertaken(state, happening.began, at) ? state : afterFailure(state, happening, at);
    case 'authenticated':
      return term?.secretId === happening.secretId ? { ...state, isDenied: false } : state;
    case 'denied': {
      const { secretId } = happening;
      if (term?.secretId !== secretId) return state;
      const marked = rejection === undefined ? { ...state, isDenied: true } : withoutSecret(state);
      return mayForce(state, at) ? { ...marked, forcedAt: at.monotonic, forcedBy: secretId } : marked;
    }
  }
}

const withoutSecret = (state: SessionState): SessionState => ({ ...state, term: undefined, isDenied: false });

/** Whether a denial may force an attempt: one in `deniedPause` (lib/times.ts), for all requests together. */
export const mayForce = ({ forcedAt }: SessionState, { monotonic, times }: Present): boolean =>
  monotonic - forcedAt >= times.deniedPause;

/**
 * Whether a denial of this secret is not even noted: it replaced a denied one a moment ago. Otherwise a
 * stranger whose forged denials follow each other could keep each new secret marked, and requests would go
 * out one at a time for as long as he likes.
 */
export const isFresh = (state: SessionState, secretId: string, at: Present): boolean =>
  state.forcedBy !== secretId && !mayForce(state, at);

/**
 * Whether there is a secret that has its time, be it denied. It ends when the first of the two clocks reaches
 * the end. Before the attestation the wall clock must have been set back, and would keep what the service has
 * forgotten.
 */
export const isHeld = ({ term }: SessionState, { now, monotonic }: Moment): boolean =>
  term !== undefined && term.attestedAt <= now && now < term.expiresAt && monotonic < term.expiresMonotonic;

/** Whether there is a secret that requests may use: it has its time, and the service has not denied it. */
export const isInForce = (state: SessionState, at: Moment): boolean => !state.isDenied && isHeld(state, at);

/**
 * Whether there is a secret that was made after `began` (monotonic), be it denied. What an attempt that
 * began then hears against the service is older than that secret.
 */
export const isOvertaken = (state: SessionState, began: number, at: Moment): boolean =>
  began < state.madeAt && isHeld(state, at);

/** What the secret service says of a key, or an exchange. Other errors may come from hosts before it. */
const ANSWERS: readonly ErrorCode[] = ['api_key_rejected', 'client_too_old', 'secret_exchange_failed'];

/**
 * A denied secret is dropped by a verdict that rejects, and by an answer of the secret service to a trusted
 * key. Otherwise a stranger with a wrong key could switch off everybody's secret. A 401 for the key of a
 * client concerns that client alone.
 */
function afterFailure(before: SessionState, failed: Failed, at: Present): SessionState {
  const { error, rejected, isAccepted, began, isTrusted } = failed;
  const isAnswer = isTrusted && isAccepted === true && ANSWERS.includes(error.code);
  const drops = before.isDenied && (rejected !== undefined || isAnswer);
  const state = drops ? withoutSecret(before) : before;
  if (error.blame === 'client' && !state.hasKey) return state;
  const rejection = rejected === undefined ? state.rejection : rejectionAfter(state, error, rejected, at);
  return { ...state, failures: state.failures + 1, began, error, rejection };
}

/**
 * Two rejections refuse the service, `confirmAfter` (lib/times.ts) apart, the second under the newest
 * manifest: closer ones may show one moment of a deployment that is being replaced. A fault of the manifest
 * itself refuses it at once. A mismatch with a fetched manifest refuses nothing, because service and CDN
 * differ for a moment.
 */
function rejectionAfter(
  { rejection: before, isPinned }: SessionState,
  error: PrivatemodeError,
  { part: which, askedAt, newest }: NonNullable<Failure['rejected']>,
  { monotonic, times }: Present,
): Rejection {
  const part = before?.part === 'secret' ? 'secret' : which;
  const isRollout = error.code === 'manifest_mismatch' && !isPinned;
  const first = isRollout ? before?.first : (before?.first ?? monotonic);
  const isLate = first !== undefined && askedAt - first >= times.confirmAfter;
  if (newest && !isRollout && (isLate || isOwnFault(error, isPinned)))
    return { part, error, first, counts: true };
  return before?.counts ? { ...before, part } : { part, error, first, counts: false };
}

/** Whether the fault lies in the manifest itself, so that nothing that the service says changes that. */
export const isOwnFault = ({ code }: PrivatemodeError, isPinned: boolean): boolean =>
  code === 'manifest_unsupported' || (isPinned && code === 'manifest_invalid');

/** Whether neither waiting nor a newer manifest cures the last failure. No 401 counts after a rejection. */
export function isHopeless({ error, rejection, isPinned }: SessionState): boolean {
  if (rejection === undefined) return error?.code === 'api_key_rejected';
  const isMismatch = isPinned && rejection.error.code === 'manifest_mismatch';
  return rejection.counts && (isMismatch || isOwnFault(rejection.error, isPinned));
}

/** The error that requests get because waiting does not help; undefined: they wait. */
export function refusalOf({ rejection, error }: SessionState): PrivatemodeError | undefined {
  if (rejection !== undefined) return rejection.counts ? rejection.error : undefined;
  return error?.code === 'client_too_old' || error?.code === 'api_key_rejected' ? error : undefined;
}

/** Why there is no secret, or none that can be renewed. */
export const problemOf = ({ rejection, error }: SessionState): PrivatemodeError | undefined =>
  rejection?.error ?? error;

/**
 * When a request that waits may begin an attempt, on the monotonic clock: `confirmAfter` after the last one
 * that failed began. A longer pause that a host wants is not kept, because anybody on the way can ask for it.
 */
export const soonest = ({ began }: SessionState, { times }: Present): number => began + times.confirmAfter;

/**
 * ms after the last failure until the next attempt: 1 s, doubling up to 60 s, of which the upper half is
 * random (0 ≤ x < 1); 60 s at once where waiting does not help; no less than a host wants. It ends when a
 * rejection can be confirmed, because clients wait to hear of that.
 */
export function pauseAfter(state: SessionState, random: number, { monotonic, times }: Present) {
  const { failures, error, rejection, began } = state;
  const { firstBackoff, longestBackoff, confirmAfter } = times;
  const doubled = Math.min(longestBackoff, firstBackoff * 2 ** (failures - 1));
  const full = isHopeless(state) ? longestBackoff : doubled;
  const pause = Math.max(full * (0.5 + random / 2), 1000 * (error?.detail?.pause ?? 0));
  const { first, counts } = rejection ?? {};
  if (first === undefined || counts || began >= first + confirmAfter) return pause;
  return Math.min(pause, Math.max(0, first + confirmAfter - monotonic));
}
