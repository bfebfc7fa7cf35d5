/**
 * The state of the proxy, by name. It decides what requests get, and every page, log line and metric shows
 * the same one. Only this file computes it (docs/states.md).
 */

import type { Clock, Moment } from '../clock.ts';
import type { PrivatemodeError } from '../errors.ts';
import { type SecretState, secretAt, type Term } from './lifetimes.ts';

/** Everything that the state depends on, except the time. */
export interface SessionFacts {
  readonly closed: boolean;
  readonly key: 'configured' | 'kept' | 'awaited';
  /** The newest secret. `suspended`: the service denied it, and the renewal after that failed. */
  readonly secret: (Term & { readonly suspended: boolean }) | undefined;
  readonly last: LastOutcome;
  /**
   * If no renewal will follow: when `last` and `error` stop counting (monotonic clock). Undefined: they count
   * until the next renewal.
   */
  readonly until?: number | undefined;
  /**
   * Whether verdicts refuse the service (lib/session/refusal.ts), mostly by a second rejection. Then requests
   * are refused.
   */
  readonly confirmed: boolean;
  /** Why the service is refused; else the error of the last renewal, if it failed. */
  readonly error: PrivatemodeError | undefined;
}

/**
 * How the last attestation ended. Silence takes no verdict back: a rejection stays until the next verdict.
 */
export type LastOutcome =
  | 'none'
  | 'ok'
  | 'silent'
  | 'rejected'
  | 'mismatch'
  /** This version cannot use the manifest, whether the operator or its publisher gave it. */
  | 'manifest-fault'
  | 'key-refused'
  | 'too-old';

/** What the state is computed from at one moment. */
interface FactsNow extends Omit<SessionFacts, 'secret'> {
  readonly secret: SecretState;
}

interface StandingRow {
  readonly holds: (facts: FactsNow) => boolean;
  /** Whether requests are encrypted under a secret that an accepted verdict made. */
  readonly verified: boolean;
  /** `plain`: nothing is proved either way. */
  readonly tone: 'good' | 'warn' | 'bad' | 'plain';
  readonly title: string;
  /** What the state means for requests. */
  readonly meaning: string;
  /** Whether requests are tried under a suspended secret, because no verdict has rejected the service. */
  readonly triesSuspended?: true;
}

const isOneOf =
  (...outcomes: readonly LastOutcome[]) =>
  ({ last }: FactsNow): boolean =>
    outcomes.includes(last);

const NOTHING_SENT = 'No request leaves this machine.';
/** The meaning of a row with `triesSuspended` while the secret is suspended. */
const TRIED =
  'Requests are tried, encrypted under the secret that the service has denied: an accepted verdict made it.';

/** In order of precedence: the first row that holds is the state. */
const ROWS = {
  ended: {
    holds: ({ closed }) => closed,
    verified: false,
    tone: 'plain',
    title: 'Stopping',
    meaning: 'The proxy is shutting down. It takes requests until its port closes.',
  },
  verified: {
    holds: ({ secret, last }) => secret === 'good' && (last === 'ok' || last === 'none'),
    verified: true,
    tone: 'good',
    title: 'Verified',
    meaning: 'Requests are encrypted for the service that the hardware attests.',
  },
  'not-renewable': {
    holds: ({ secret }) => secret === 'good',
    verified: true,
    tone: 'warn',
    title: 'Verified, but the renewal fails',
    meaning: 'Requests are protected until the attestation expires.',
  },
  'manifest-not-understood': {
    holds: isOneOf('manifest-fault'),
    verified: false,
    tone: 'bad',
    title: 'Not verified: the manifest cannot be used',
    meaning: NOTHING_SENT,
  },
  rejected: {
    holds: ({ confirmed }) => confirmed,
    verified: false,
    tone: 'bad',
    title: 'Not verified: the service is rejected',
    meaning: NOTHING_SENT,
  },
  'rejected-once': {
    holds: isOneOf('rejected', 'mismatch'),
    verified: false,
    tone: 'bad',
    title: 'Not verified: the service was rejected, and is asked again',
    meaning: `Requests wait for the next verdict. ${NOTHING_SENT}`,
  },
  'key-refused': {
    holds: isOneOf('key-refused'),
    verified: false,
    tone: 'bad',
    title: 'Not verified: the service refuses the API key',
    meaning: NOTHING_SENT,
    triesSuspended: true,
  },
  'client-too-old': {
    holds: isOneOf('too-old'),
    verified: false,
    tone: 'bad',
    title: 'Not verified: the service wants a newer client',
    meaning: NOTHING_SENT,
    triesSuspended: true,
  },
  unreachable: {
    holds: isOneOf('silent'),
    verified: false,
    tone: 'plain',
    title: 'Not verified: the verification was not completed',
    meaning: 'Nothing is proved either way.',
    triesSuspended: true,
  },
  'awaiting-key': {
    holds: ({ key }) => key === 'awaited',
    verified: false,
    tone: 'plain',
    title: 'Not verified yet: an API key is awaited',
    meaning: 'The first client that brings an API key starts the verification.',
    triesSuspended: true,
  },
  starting: {
    holds: () => true,
    verified: false,
    tone: 'plain',
    title: 'Not verified yet',
    meaning: 'The service is being verified. Requests wait.',
    triesSuspended: true,
  },
} as const satisfies Record<string, StandingRow>;

export type StateName = keyof typeof ROWS;

/** The rows by name, for pages and documentation. */
export const STANDINGS: Readonly<Record<StateName, StandingRow>> = ROWS;

export interface Standing extends Pick<StandingRow, 'verified' | 'tone' | 'title' | 'meaning'> {
  readonly state: StateName;
  /**
   * What `GET /readyz` reports. While a key is awaited it is true in every state but `ended`, because the
   * next client's key brings the next verdict.
   */
  readonly ready: boolean;
  readonly awaitsKey: boolean;
  readonly error: PrivatemodeError | undefined;
}

/**
 * The state at this moment. No event reports the end of a secret that is not renewed, so this looks at the
 * clock.
 */
export function standingOf(facts: SessionFacts, clock: Pick<Clock, 'now' | 'monotonic'>): Standing {
  const at = { now: clock.now(), monotonic: clock.monotonic() };
  const secret = secretAt(facts.secret, at);
  const outcome = isOver(facts, secret, at) ? { last: 'none' as const, error: undefined } : {};
  const factsNow: FactsNow = { ...facts, ...outcome, secret };
  const [state, row] = Object.entries(STANDINGS).find(([, { holds }]) => holds(factsNow)) as [
    StateName,
    StandingRow,
  ];
  const { verified, tone, title } = row;
  const meaning = row.triesSuspended && secret === 'suspended' ? TRIED : row.meaning;
  const awaitsKey = facts.key === 'awaited' && !facts.closed && !verified;
  return {
    state,
    verified,
    tone,
    title,
    meaning,
    awaitsKey,
    error: factsNow.error,
    ready: verified || awaitsKey,
  };
}

/** Whether `last` counts no more. A refused key counts as long as the secret that it cannot renew. */
const isOver = ({ until, last }: SessionFacts, secret: SecretState, { monotonic }: Moment): boolean =>
  until !== undefined && (monotonic >= until || (last === 'key-refused' && secret === 'expired'));
