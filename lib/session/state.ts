/**
 * The state of a session. The state is data without keys and secrets. The function `next` says how each event
 * changes the state. The other functions say what the state means for requests and for the next attempt.
 */
import type { Moment, Present } from '../clock.ts';
import type { ErrorCode, PrivatemodeError } from '../errors.ts';

/** The public facts about one attested secret: its digests and its times, but not its key. */
export interface Term {
  readonly secretId: string; // standard base64 of the SHA-256 of the public key
  readonly manifestSha256: string; // lower-case hex, of the manifest against which the service was verified
  readonly verdictSha256: string; // lower-case hex, of the verdict as `verdictText` writes it
  readonly exchangeSha256?: string | undefined; // the name of the record of the exchange, if there is one
  readonly attestedAt: number; // wall clock, ms since 1970
  readonly renewAt: number; // from this time on, the session renews the secret
  readonly expiresAt: number; // from this time on, no request may use the secret
  readonly expiresMonotonic: number; // `expiresAt` on the monotonic clock, which nobody can set back
}

export interface Failure {
  readonly error: PrivatemodeError;
  /**
   * Set if a verdict rejected the evidence, or the signature on the secret. `askedAt`: when this process
   * requested the rejected part (monotonic). `newest`: whether no newer manifest could change the verdict.
   */
  readonly rejected?:
    | { readonly part: 'evidence' | 'secret'; readonly askedAt: number; readonly newest: boolean }
    | undefined;
  /** Whether the evidence was accepted, so that the secret service received a request. */
  readonly isAccepted?: boolean | undefined;
}

export interface SessionState {
  readonly isPinned: boolean; // whether the operator gave the manifest
  readonly hasKey: boolean; // whether the operator gave a key; otherwise requests bring their own keys
  readonly isEnding: boolean; // whether the proxy was told to stop; it accepts requests until it is closed
  readonly term?: Term | undefined;
  readonly madeAt: number; // when the secret of `term` was made (monotonic clock)
  /** Whether the service denied the secret. A denial is not authenticated, so it only marks the secret. */
  readonly isDenied: boolean;
  /** When a denial last forced an attempt (monotonic clock), and the id of the denied secret. */
  readonly forcedAt: number;
  readonly forcedBy?: string | undefined;
  /** The number of failed attempts since the last secret, and the last one's start (monotonic) and error. */
  readonly failures: number;
  readonly began: number;
  readonly error?: PrivatemodeError | undefined;
  /** The last rejection. An attempt without a verdict does not remove the rejection. */
  readonly rejection?: Rejection | undefined;
}

interface Rejection {
  readonly part: 'evidence' | 'secret';
  readonly error: PrivatemodeError;
  readonly first: number | undefined; // when the first rejection that may count came (monotonic clock)
  readonly counts: boolean; // whether requests are refused because of this rejection
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

/** `isTrusted`: the key is the operator's or has led to a secret. `began`: when it began (monotonic). */
type Failed = Failure & { readonly type: 'failed'; readonly began: number; readonly isTrusted: boolean };

export type Happening =
  /** `key`: the operator gave or replaced the API key. `accepted`: the evidence was accepted. */
  | { readonly type: 'key' | 'accepted' | 'ending' }
  | { readonly type: 'made'; readonly term: Term }
  | Failed
  /** The service denied the secret `secretId`, or a response authenticated under the secret `secretId`. */
  | { readonly type: 'denied' | 'authenticated'; readonly secretId: string };

export function next(state: SessionState, happening: Happening, at: Present): SessionState {
  const { term, rejection } = state;
  switch (happening.type) {
    case 'key':
      return { ...state, hasKey: true, failures: 0, began: NEVER, error: undefined };
    case 'ending':
      return { ...state, isEnding: true };
    case 'accepted':
      // Anybody on the network can relay genuine evidence. So the rejection of a secret stays in force.
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

/** Whether a denial may force an attempt. All requests together force at most one per `deniedPause`. */
export const mayForce = ({ forcedAt }: SessionState, { monotonic, times }: Present): boolean =>
  monotonic - forcedAt >= times.deniedPause;

/**
 * Whether a denial of the secret is ignored, because the secret has just replaced a denied secret. Without
 * this rule, an attacker who forges one denial after another could keep every new secret marked as denied, so
 * that requests would be sent only one at a time.
 */
export const isFresh = (state: SessionState, secretId: string, at: Present): boolean =>
  state.forcedBy !== secretId && !mayForce(state, at);

/**
 * Whether there is an unexpired secret, denied or not. A secret expires when the wall clock or the monotonic
 * clock reaches its end. A secret is also unusable while the wall clock shows a time before the attestation:
 * a wall clock that was set back would keep a secret that the service has forgotten.
 */
export const isHeld = ({ term }: SessionState, { now, monotonic }: Moment): boolean =>
  term !== undefined && term.attestedAt <= now && now < term.expiresAt && monotonic < term.expiresMonotonic;

/** Whether requests may use the secret, because it has not expired and the service has not denied it. */
export const isInForce = (state: SessionState, at: Moment): boolean => !state.isDenied && isHeld(state, at);

/**
 * Whether there is an unexpired secret, denied or not, that was made after `began` (monotonic clock). An
 * attempt that began at `began` is older than the secret, so the failure of the attempt does not count.
 */
export const isOvertaken = (state: SessionState, began: number, at: Moment): boolean =>
  began < state.madeAt && isHeld(state, at);

/** Error codes of the secret service. Errors with other codes may come from hosts in front of the service. */
const ANSWERS: readonly ErrorCode[] = ['api_key_rejected', 'client_too_old', 'secret_exchange_failed'];

/**
 * A denied secret is dropped by a rejecting verdict, or by an answer of the secret service to a trusted key.
 * If untrusted keys sufficed, a stranger with a wrong key could remove the secret for all clients. A 401 for
 * the key of a client concerns only that client.
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
 * The service is refused after two rejections that are `confirmAfter` (lib/times.ts) apart, if the second is
 * under the newest manifest. One rejection is not enough, because a deployment may just then be replaced by
 * another. A fault of the manifest itself refuses the service at once. A mismatch with a fetched manifest
 * never refuses the service, because service and CDN may differ for a moment.
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

/** Whether the fault is in the manifest itself, so that no response of the service can resolve the fault. */
export const isOwnFault = ({ code }: PrivatemodeError, isPinned: boolean): boolean =>
  code === 'manifest_unsupported' || (isPinned && code === 'manifest_invalid');

/** Whether neither waiting nor a newer manifest helps. After a rejection, a 401 does not count. */
export function isHopeless({ error, rejection, isPinned }: SessionState): boolean {
  if (rejection === undefined) return error?.code === 'api_key_rejected';
  const isMismatch = isPinned && rejection.error.code === 'manifest_mismatch';
  return rejection.counts && (isMismatch || isOwnFault(rejection.error, isPinned));
}

/** The error that requests get at once because waiting does not help, or undefined if requests wait. */
export function refusalOf({ rejection, error }: SessionState): PrivatemodeError | undefined {
  if (rejection !== undefined) return rejection.counts ? rejection.error : undefined;
  return error?.code === 'client_too_old' || error?.code === 'api_key_rejected' ? error : undefined;
}

/** The error because of which there is no secret, or because of which the secret cannot be renewed. */
export const problemOf = ({ rejection, error }: SessionState): PrivatemodeError | undefined =>
  rejection?.error ?? error;

/**
 * When a waiting request may begin an attempt (monotonic clock): `confirmAfter` after the last failed attempt
 * began. A longer pause that a host demands is ignored, because anybody on the network can forge it.
 */
export const soonest = ({ began }: SessionState, { times }: Present): number => began + times.confirmAfter;

/**
 * The ms from the last failure to the next attempt. The pause doubles from 1 s up to 60 s. Where waiting does
 * not help, the pause is 60 s at once. The upper half of the pause is random (0 ≤ x < 1). The pause is at
 * least what a host demands. The pause ends early when a rejection can be confirmed, because clients wait for
 * the next verdict.
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
