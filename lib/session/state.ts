/**
 * What a session knows, as data without keys and secrets: how each thing that happens changes it (`next`),
 * and what follows for requests and for the next attempt.
 */
import type { Moment, Present } from '../clock.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';

/** What anybody may know of one attested secret: the digests that name it, and its times. No key. */
export interface Term {
  /** Standard base64 of SHA-256 of the public key. */
  readonly secretId: string;
  /** Lower-case hex SHA-256 of the manifest that the service was verified against. */
  readonly manifestSha256: string;
  /** Lower-case hex SHA-256 of the verdict, as `verdictText` writes it. */
  readonly verdictSha256: string;
  /** The digest that names the exchange behind the verdict; undefined where none is recorded. */
  readonly exchangeSha256?: string | undefined;
  /** Wall clock, ms since 1970. */
  readonly attestedAt: number;
  /** From this time on the session renews the secret. */
  readonly renewAt: number;
  /** From this time on no request may use the secret. */
  readonly expiresAt: number;
  /** The same end on the monotonic clock, which nobody can set back. */
  readonly expiresMonotonic: number;
}

/**
 * Whether the secret has its time. It ends when the first of the two clocks reaches the end. Before the
 * attestation the wall clock must have been set back, and would keep what the service has forgotten.
 */
export const isUsable = (term: Term, { now, monotonic }: Moment): boolean =>
  term.attestedAt <= now && now < term.expiresAt && monotonic < term.expiresMonotonic;

/** Why an attempt gave no secret. */
export interface Failure {
  readonly error: PrivatemodeError;
  /** A verdict rejected the evidence, or the signature on the secret. */
  readonly rejected?:
    | {
        readonly part: 'evidence' | 'secret';
        /** When this process asked for what was judged, on the monotonic clock. */
        readonly askedAt: number;
        /** Whether no newer manifest could have led to another verdict. */
        readonly newest: boolean;
      }
    | undefined;
  /** Whether the evidence was accepted, so that the secret service was asked. */
  readonly isAccepted?: boolean | undefined;
}

export interface SessionState {
  /** Whether the operator gave the manifest. */
  readonly isPinned: boolean;
  /** Whether the operator gave a key; else requests bring theirs. */
  readonly hasKey: boolean;
  readonly term: Term | undefined;
  /** Whether the service denied that secret. Nothing authenticates a denial, so the secret is marked only. */
  readonly isDenied: boolean;
  /** When that secret was made, on the monotonic clock. */
  readonly madeAt: number;
  /** When a denial last forced an attempt, on the monotonic clock, and whether a secret was made since. */
  readonly forcedAt: number;
  readonly isReplaced: boolean;
  /** Attempts that failed since the last secret; when the last one began (monotonic), and why it failed. */
  readonly failures: number;
  readonly began: number;
  readonly error: PrivatemodeError | undefined;
  /** The last rejection, which silence does not take back. `first`: when there was one that may count. */
  readonly rejection:
    | {
        readonly part: 'evidence' | 'secret';
        readonly error: PrivatemodeError;
        readonly first: number | undefined;
        /** Whether it refuses the service. */
        readonly counts: boolean;
      }
    | undefined;
  /** Whether the proxy was told to stop. Requests go on until it is closed. */
  readonly isEnding: boolean;
}

export const newState = (isPinned: boolean): SessionState => ({
  isPinned,
  hasKey: false,
  term: undefined,
  isDenied: false,
  madeAt: Number.NEGATIVE_INFINITY,
  forcedAt: Number.NEGATIVE_INFINITY,
  isReplaced: false,
  failures: 0,
  began: Number.NEGATIVE_INFINITY,
  error: undefined,
  rejection: undefined,
  isEnding: false,
});

export type Happening =
  /** `key`: the operator's key is there, or was replaced. `accepted`: evidence was accepted. */
  | { readonly type: 'key' | 'accepted' | 'ending' }
  | { readonly type: 'made'; readonly term: Term }
  /** `isTrusted`: the key is the operator's, or has made a secret before. `began`: monotonic. */
  | {
      readonly type: 'failed';
      readonly failure: Failure;
      readonly began: number;
      readonly isTrusted: boolean;
    }
  /** The service denied the secret of a request, or a response authenticated under it. */
  | { readonly type: 'denied' | 'authenticated'; readonly secretId: string };

export function next(state: SessionState, happening: Happening, at: Present): SessionState {
  const { term, rejection } = state;
  switch (happening.type) {
    case 'key':
      return { ...state, hasKey: true, failures: 0, error: undefined };
    case 'ending':
      return { ...state, isEnding: true };
    case 'accepted':
      // Anybody on the way can pass on genuine evidence, so a rejected secret stays rejected.
      return rejection?.part === 'evidence' ? { ...state, rejection: undefined, error: undefined } : state;
    case 'made': {
      const { isPinned, hasKey, forcedAt, isEnding } = state;
      const made = { term: happening.term, madeAt: at.monotonic, isReplaced: true };
      return { ...newState(isPinned), hasKey, forcedAt, isEnding, ...made };
    }
    case 'failed':
      return isOvertaken(state, happening.began, at) ? state : afterFailure(state, happening, at);
    case 'authenticated':
      return term?.secretId === happening.secretId ? { ...state, isDenied: false } : state;
    case 'denied': {
      if (term?.secretId !== happening.secretId) return state;
      const marked = rejection === undefined ? { ...state, isDenied: true } : withoutSecret(state);
      return mayForce(state, at) ? { ...marked, forcedAt: at.monotonic, isReplaced: false } : marked;
    }
  }
}

const withoutSecret = (state: SessionState): SessionState => ({ ...state, term: undefined, isDenied: false });

/** Whether a denial may force an attempt: one in `deniedPause` (lib/times.ts), for all requests together. */
export const mayForce = ({ forcedAt }: SessionState, { monotonic, times }: Present): boolean =>
  monotonic - forcedAt >= times.deniedPause;

/** Whether there is a secret that requests may use: it has its time, and the service has not denied it. */
export const isInForce = ({ term, isDenied }: SessionState, at: Moment): boolean =>
  term !== undefined && !isDenied && isUsable(term, at);

/** Whether there is a secret that has its time, but that the service denied. */
export const isMarked = ({ term, isDenied }: SessionState, at: Moment): boolean =>
  term !== undefined && isDenied && isUsable(term, at);

/**
 * Whether there is a secret that was made after `began` (monotonic), be it denied. What an attempt that
 * began then hears against the service is older than that secret.
 */
export const isOvertaken = (state: SessionState, began: number, at: Moment): boolean =>
  began < state.madeAt && state.term !== undefined && isUsable(state.term, at);

/** What the secret service says of a key, or an exchange. Other errors may come from hosts before it. */
const ANSWERS: ReadonlySet<ErrorCode> = new Set([
  'api_key_rejected',
  'client_too_old',
  'secret_exchange_failed',
]);

/**
 * A denied secret is dropped by a verdict that rejects, and by an answer of the secret service to a trusted
 * key. Otherwise a stranger with a wrong key could switch off everybody's secret. A 401 for the key of a
 * client concerns that client alone.
 */
function afterFailure(
  before: SessionState,
  { failure, began, isTrusted }: Extract<Happening, { type: 'failed' }>,
  at: Present,
): SessionState {
  const { error, rejected, isAccepted } = failure;
  const isAnswer = isTrusted && isAccepted === true && ANSWERS.has(error.code);
  const drops = before.isDenied && (rejected !== undefined || isAnswer);
  const state = drops ? withoutSecret(before) : before;
  if (error.blame === 'client' && !state.hasKey) return state;
  return {
    ...state,
    failures: state.failures + 1,
    began,
    error,
    rejection: rejected === undefined ? state.rejection : rejectionAfter(state, error, rejected, at),
  };
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
  rejected: NonNullable<Failure['rejected']>,
  { monotonic, times }: Present,
): SessionState['rejection'] {
  const { askedAt, newest } = rejected;
  const part = before?.part === 'secret' ? 'secret' : rejected.part;
  const isRollout = error.code === 'manifest_mismatch' && !isPinned;
  const first = isRollout ? before?.first : (before?.first ?? monotonic);
  const isLate = first !== undefined && askedAt - first >= times.confirmAfter;
  if (newest && !isRollout && (isLate || isOwnFault(error, isPinned)))
    return {
      part,
      error: isPinned && error.code === 'manifest_mismatch' ? ofPin(error) : error,
      first,
      counts: true,
    };
  return before?.counts ? { ...before, part } : { part, error, first, counts: false };
}

const ofPin = ({ code, message, detail, cause }: PrivatemodeError): PrivatemodeError =>
  new PrivatemodeError(code, message, {
    cause,
    detail,
    remedy:
      'The service runs under another manifest than --manifest-path gives: compare it with what its publisher shows, read what changed (docs/manifests.md), then replace the file.',
  });

/** Whether the fault lies in the manifest itself, so that nothing that the service says changes that. */
export const isOwnFault = ({ code }: PrivatemodeError, isPinned: boolean): boolean =>
  code === 'manifest_unsupported' || (isPinned && code === 'manifest_invalid');

/** Whether neither waiting nor a newer manifest cures the last failure. No 401 counts after a rejection. */
export const isHopeless = ({ error, rejection, hasKey, isPinned }: SessionState): boolean =>
  rejection === undefined
    ? error?.code === 'api_key_rejected' && hasKey
    : rejection.counts &&
      (isOwnFault(rejection.error, isPinned) || (isPinned && rejection.error.code === 'manifest_mismatch'));

/** The error that requests get because waiting does not help; undefined: they wait. */
export function refusalOf({ rejection, error, hasKey }: SessionState): PrivatemodeError | undefined {
  if (rejection !== undefined) return rejection.counts ? rejection.error : undefined;
  const isRefused = error?.code === 'client_too_old' || (error?.code === 'api_key_rejected' && hasKey);
  return isRefused ? error : undefined;
}

/** Why there is no secret, or none that can be renewed. */
export const problemOf = ({ rejection, error }: SessionState): PrivatemodeError | undefined =>
  rejection?.error ?? error;

/** ms for which a host that failed wants no request. */
const wantedPause = (error: PrivatemodeError | undefined): number => 1000 * (error?.detail?.pause ?? 0);

/**
 * When a request that waits may begin an attempt, on the monotonic clock: `confirmAfter` after the last one
 * began. A longer pause that a host wants is not kept, because anybody on the way can ask for it.
 */
export const soonest = ({ failures, began }: SessionState, { times }: Present): number =>
  failures === 0 ? Number.NEGATIVE_INFINITY : began + times.confirmAfter;

/**
 * ms after the last failure until the next attempt: 1 s, doubling up to 60 s, of which the upper half is
 * random (0 ≤ x < 1); 60 s at once where waiting does not help; no less than a host wants. It ends when a
 * rejection can be confirmed (`confirms`), because clients wait to hear of that.
 */
export function pauseAfter(state: SessionState, random: number, { monotonic, times }: Present) {
  const { failures, error, rejection, began } = state;
  const { firstBackoff, longestBackoff, confirmAfter } = times;
  const doubled = Math.min(longestBackoff, firstBackoff * 2 ** (failures - 1));
  const full = isHopeless(state) ? longestBackoff : doubled;
  const pause = Math.max(full * (0.5 + random / 2), wantedPause(error));
  const { first, counts } = rejection ?? {};
  if (first === undefined || counts || began >= first + confirmAfter) return { pause, confirms: false };
  const wait = Math.max(0, first + confirmAfter - monotonic);
  return { pause: Math.min(pause, wait), confirms: wait <= pause };
}
