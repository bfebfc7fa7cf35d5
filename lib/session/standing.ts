/**
 * The state of the proxy, by name. Every page, log line and metric shows the same one, and only this file
 * computes it (docs/states.md).
 */
import type { Moment } from '../clock.ts';
import type { ErrorCode, PrivatemodeError } from '../errors.ts';
import { isInForce, isMarked, isOwnFault, problemOf, type SessionState } from './state.ts';

interface Row {
  /** `isGood`: a secret is in force. */
  readonly holds: (state: SessionState, isGood: boolean) => boolean;
  /** `good` and `warn`: a secret is in force. `plain`: nothing is proved either way. */
  readonly tone: 'good' | 'warn' | 'bad' | 'plain';
  readonly title: string;
  /** What the state means for requests. */
  readonly meaning: string;
}

const NOTHING_SENT = 'No request leaves this machine.';
const DENIED =
  'The service denies a secret that an accepted verdict made: one request at a time tries it, the others wait.';

const hasFailed =
  (code: ErrorCode) =>
  ({ error }: SessionState): boolean =>
    error?.code === code;

/** In order of precedence: the first row that holds is the state. */
const ROWS = {
  ended: {
    holds: ({ isEnding }) => isEnding,
    tone: 'plain',
    title: 'Stopping',
    meaning: 'The proxy is shutting down. It takes requests until its port closes.',
  },
  verified: {
    holds: (state, isGood) => isGood && problemOf(state) === undefined,
    tone: 'good',
    title: 'Verified',
    meaning: 'Requests are encrypted for the service that the hardware attests.',
  },
  'not-renewable': {
    holds: (_, isGood) => isGood,
    tone: 'warn',
    title: 'Verified, but the renewal fails',
    meaning: 'Requests are protected until the attestation expires.',
  },
  'manifest-not-understood': {
    holds: ({ rejection, isPinned }) => rejection !== undefined && isOwnFault(rejection.error, isPinned),
    tone: 'bad',
    title: 'Not verified: the manifest cannot be used',
    meaning: NOTHING_SENT,
  },
  rejected: {
    holds: ({ rejection }) => rejection?.counts === true,
    tone: 'bad',
    title: 'Not verified: the service is rejected',
    meaning: NOTHING_SENT,
  },
  'rejected-once': {
    holds: ({ rejection }) => rejection !== undefined,
    tone: 'bad',
    title: 'Not verified: the service was rejected, and is asked again',
    meaning: `Requests wait for the next verdict. ${NOTHING_SENT}`,
  },
  'key-refused': {
    holds: hasFailed('api_key_rejected'),
    tone: 'bad',
    title: 'Not verified: the service refuses the API key',
    meaning: NOTHING_SENT,
  },
  'client-too-old': {
    holds: hasFailed('client_too_old'),
    tone: 'bad',
    title: 'Not verified: the service wants a newer client',
    meaning: NOTHING_SENT,
  },
  unreachable: {
    holds: ({ error }) => error !== undefined,
    tone: 'plain',
    title: 'Not verified: the verification was not completed',
    meaning: 'Nothing is proved either way.',
  },
  'awaiting-key': {
    holds: ({ hasKey }) => !hasKey,
    tone: 'plain',
    title: 'Not verified yet: an API key is awaited',
    meaning: 'The first client that brings an API key starts the verification.',
  },
  starting: {
    holds: () => true,
    tone: 'plain',
    title: 'Not verified yet',
    meaning: 'The service is being verified. Requests wait.',
  },
} as const satisfies Record<string, Row>;

export type StateName = keyof typeof ROWS;

/** The rows by name, for pages and documentation. */
export const STANDINGS: Readonly<Record<StateName, Row>> = ROWS;

export interface Standing extends Omit<Row, 'holds'> {
  readonly state: StateName;
  /** Whether requests are encrypted under a secret that an accepted verdict made, and that nobody denies. */
  readonly verified: boolean;
  /**
   * What `GET /readyz` reports. While a key is awaited, a probe must not keep the client away that brings it.
   */
  readonly ready: boolean;
  readonly awaitsKey: boolean;
  readonly error: PrivatemodeError | undefined;
}

/** Whether a state is verified. */
export const isVerified = ({ tone }: Pick<Row, 'tone'>): boolean => tone === 'good' || tone === 'warn';

/** The state at this moment: no event reports the end of a secret. */
export function standingOf(state: SessionState, at: Moment): Standing {
  const isGood = isInForce(state, at);
  const found = Object.entries(STANDINGS).find(([, { holds }]) => holds(state, isGood));
  const [name, row] = found as [StateName, Row];
  const verified = isVerified(row);
  const awaitsKey = !state.hasKey && !state.isEnding && !verified;
  return {
    state: name,
    tone: row.tone,
    verified,
    title: row.title,
    meaning: isMarked(state, at) && !state.isEnding ? DENIED : row.meaning,
    awaitsKey,
    ready: verified || awaitsKey,
    error: problemOf(state),
  };
}
