/**
 * Holds the current epoch, has it renewed in time (lib/session/renewals.ts), and lets requests wait for the
 * next one (lib/session/waiting.ts).
 */
import { PrivatemodeError } from '../errors.ts';
import type { Verdict } from '../verdict/verdict.ts';
import type { Epoch } from './epoch.ts';
import { createRenewals, type RenewalsDeps } from './renewals.ts';
import { Requests } from './requests.ts';
import { type Standing, standingOf } from './standing.ts';
import { factsOf } from './state.ts';
import { type AcquireOptions, createWaiting } from './waiting.ts';

export type { Epoch } from './epoch.ts';

export interface Session {
  /** The epoch in force, which has not expired and is not suspended; undefined if there is none. */
  current(): Epoch | undefined;
  /**
   * Returns the unexpired epoch, or waits for the next one. Never throws at once. Rejects with not_ready
   * after `timeoutMs`, api_key_missing, api_key_rejected, the last permanent cause, and the error for which
   * the service is refused (lib/session/refusal.ts).
   */
  acquire(options: AcquireOptions): Epoch | Promise<Epoch>;
  /**
   * For a request that got "no secret for ID": waits for the epoch that replaces the one with that secret id.
   * Bounded in time (`timeoutMs`, by default 30 s) and rate; all callers share one renewal. If the renewal
   * fails or takes longer, the secret is suspended: no epoch is in force until the next verdict that accepts
   * the service, or until a response authenticates under the secret. Throws secret_denied if the denied
   * secret was made a moment ago, api_key_rejected, not_ready, and the error for which the service is
   * refused.
   */
  renewAfterDenial(secretId: string, timeoutMs?: number): Promise<Epoch>;
  /**
   * Reports that a response has authenticated under this secret. Ends a suspension, unless the last verdict
   * rejected the service.
   */
  authenticated(secretId: string): void;
  /**
   * The state by name, at this moment. Its error: why the service is refused, else the last failure since the
   * last success.
   */
  standing(): Standing;
  /** Ends the renewals. Later requests fail with `reason`, by default an error of code shutting_down. */
  close(reason?: PrivatemodeError): void;
}

/** A session that attests. */
export interface AttestedSession extends Session {
  /** Begins the first attestation, where a key is configured. To be called once. */
  start(): void;
  /** Every check of the last attestation and of its secret exchange, accepted or not. */
  lastVerdict(): Verdict | undefined;
  /**
   * The proxy was told to stop: clients should send no more requests here. Requests that come all the same
   * are sent as before, until `close`.
   */
  announceEnd(): void;
  /** Replaces the configured key, and forgets a permanent cause. A failing session tries again at once. */
  updateConfiguredKey(apiKey: string): void;
}

export interface SessionDeps extends RenewalsDeps {
  /** Undefined: clients bring their own (docs/protocol/inference.md 9). */
  readonly apiKey: string | undefined;
  /** Host of the service, for messages. */
  readonly host?: string | undefined;
}

/**
 * Makes a session. It holds one epoch at a time and keeps it fresh: from `start` on with the configured key,
 * or as soon as a client brings a key.
 */
export function createSession(deps: SessionDeps): AttestedSession {
  const { apiKey, clock, host = 'the remote', onDemand = false } = deps;
  const closing = new AbortController();
  const closed = closing.signal;
  const requests = new Requests();
  const renewals = createRenewals(deps, requests, closed);
  const { state, current, dispatch, configure, lastVerdict } = renewals;
  return {
    ...createWaiting({ renewals, requests, closed, clock, onDemand, host }),
    start() {
      if (apiKey !== undefined) configure(apiKey);
    },
    current,
    authenticated: (secretId) => dispatch({ type: 'authenticated', secretId }),
    standing: () => standingOf(factsOf(state()), clock),
    announceEnd: () => dispatch({ type: 'ending' }),
    lastVerdict,
    updateConfiguredKey: configure,
    close(reason = new PrivatemodeError('shutting_down', 'the proxy is shutting down')) {
      closing.abort(reason);
      dispatch({ type: 'closed', reason });
    },
  };
}
