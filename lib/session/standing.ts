/**
 * Computes the named state of the proxy. No other file computes the state, so every page, log line and metric
 * shows the same state (docs/operating.md).
 */
import type { Moment } from '../clock.ts';
import { ERRORS, type PrivatemodeError } from '../errors.ts';
import { plural } from '../text.ts';
import { isHeld, isInForce, isOwnFault, problemOf, type SessionState } from './state.ts';

/** `good` and `warn`: a secret is in force. `plain`: nothing is proved for or against the service. */
type Tone = 'good' | 'warn' | 'bad' | 'plain';

/**
 * `title` is a headline. `meaning` says what the state means for requests. `verified`: whether requests are
 * encrypted under a secret that comes from an accepted verdict and that the service does not deny.
 */
const row = (tone: Tone, title: string, meaning = 'No request leaves this machine.') => ({
  tone,
  title,
  meaning,
  verified: tone === 'good' || tone === 'warn',
});

const DENIED =
  'The service says that it does not know the secret, perhaps after a restart. It is verified anew. One request at a time tries the secret, the others wait.';

export const STANDINGS = {
  ended: row('plain', 'Stopping', 'The proxy is shutting down. It takes requests until its port closes.'),
  verified: row('good', 'Verified', 'Requests are encrypted for the service that the hardware attests.'),
  'not-renewable': row(
    'warn',
    'Verified, but the renewal fails',
    'Requests are protected until the attestation expires.',
  ),
  'manifest-not-understood': row('bad', 'Not verified: the manifest cannot be used'),
  rejected: row('bad', 'Not verified: the service is rejected'),
  'rejected-once': row(
    'bad',
    'Not verified: the service was rejected, and is asked again',
    'Requests wait for the next verdict. No request leaves this machine.',
  ),
  'key-refused': row('bad', 'Not verified: the service refuses the API key'),
  'client-too-old': row('bad', 'Not verified: the service wants a newer client'),
  unreachable: row(
    'plain',
    'Not verified: the verification was not completed',
    'Nothing is proved either way.',
  ),
  'awaiting-key': row(
    'plain',
    'Not verified yet: an API key is awaited',
    'The first client that brings an API key starts the verification.',
  ),
  starting: row('plain', 'Not verified yet', 'The service is being verified. Requests wait.'),
};

export type StateName = keyof typeof STANDINGS;
export type Standing = ReturnType<typeof standingOf>;

/** Checks the conditions in the order of the table of states in docs/operating.md. */
function nameOf(state: SessionState, isGood: boolean): StateName {
  const { isEnding, isPinned, hasKey, rejection, error } = state;
  if (isEnding) return 'ended';
  if (isGood) return problemOf(state) === undefined ? 'verified' : 'not-renewable';
  if (rejection && isOwnFault(rejection.error, isPinned)) return 'manifest-not-understood';
  if (rejection) return rejection.counts ? 'rejected' : 'rejected-once';
  if (error?.code === 'api_key_rejected') return 'key-refused';
  if (error?.code === 'client_too_old') return 'client-too-old';
  if (error) return 'unreachable';
  return hasKey ? 'starting' : 'awaiting-key';
}

/**
 * Computes the state on each call, because no event reports the expiry of a secret. `ready` is the answer of
 * `GET /readyz`. A proxy that awaits a key is ready, or else probes would keep the client with the key away.
 */
export function standingOf(state: SessionState, at: Moment) {
  const name = nameOf(state, isInForce(state, at));
  const { tone, title, meaning, verified } = STANDINGS[name];
  const awaitsKey = !state.hasKey && !state.isEnding && !verified;
  return {
    state: name,
    tone,
    verified,
    title,
    meaning: state.isDenied && isHeld(state, at) && !state.isEnding ? DENIED : meaning,
    awaitsKey,
    ready: verified || awaitsKey,
    error: problemOf(state),
  };
}

/**
 * One line for the log: the cause of the failure, and when the next attempt begins at the latest. `retryIn`
 * is the ms until the next attempt, or undefined if the next request begins the attempt.
 */
export function failureMessage({ code }: PrivatemodeError, retryIn: number | undefined): string {
  const what = ERRORS[code].title ?? 'The remote could not be verified';
  if (retryIn === undefined) return `${what}; the next request tries again`;
  return `${what}; trying again within ${plural(Math.max(1, Math.round(retryIn / 1000)), 'second')}`;
}
