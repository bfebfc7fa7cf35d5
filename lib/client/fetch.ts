/** createPrivatemodeFetch: a fetch for any SDK, which verifies the service and encrypts before anything leaves. */
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { newRequestId } from '../pipeline/rewrite-auth.ts';
import type { AttestedSession } from '../session/session.ts';
import { forward } from './forward.ts';
import {
  type ClientVerdict,
  type Fetch,
  type PrivatemodeOptions,
  type Protection,
  readOptions,
} from './options.ts';
import { openClientSession, protectionOf } from './session.ts';
import { verdictOf } from './verdict.ts';

/** A fetch that reaches nothing but the verified service, and what it knows of that service. */
export interface PrivatemodeFetch extends Fetch {
  /** Verifies the service, unless that was done lately, and tells every check. Rejects with api_key_missing, or shutting_down. */
  verify(): Promise<ClientVerdict>;
  /** What protects requests now; undefined before the first verification and while none holds. */
  protection(): Protection | undefined;
  /** Ends the renewals. Later requests fail with `shutting_down`. */
  close(): void;
}

/**
 * Makes a client. Its fetch takes the path of each URL and sends it to `apiEndpoint`, whatever the host: an SDK needs no base
 * URL of its own. It attests lazily and once, renews in the background, and refuses paths outside of the endpoint table.
 * Responses and errors are those of the proxy: error bodies in the format of the API, receipts as headers. Throws
 * config_invalid and unsafe_roots_refused.
 */
export function createPrivatemodeFetch(options: PrivatemodeOptions = {}): PrivatemodeFetch {
  const config = readOptions(options);
  let opened: AttestedSession | undefined;
  /** Verifications that wait for how a renewal ends. */
  const waiting = new Set<(error: PrivatemodeError) => void>();
  let closed = config.signal?.aborted ?? false;
  const session = (): AttestedSession => {
    if (closed) throw clientClosed();
    opened ??= openClientSession(config, (error) => {
      for (const tell of waiting) tell(error);
    });
    return opened;
  };
  const close = (): void => {
    closed = true;
    opened?.close(clientClosed());
  };
  config.signal?.addEventListener('abort', close, { once: true });
  /** Resolves with the first renewal: undefined where it gave a secret, else with what was wrong. The session tries again. */
  async function firstRenewal(verified: AttestedSession): Promise<unknown> {
    const { promise, resolve } = Promise.withResolvers<unknown>();
    const ended = new AbortController();
    waiting.add(resolve);
    verified
      .acquire({ timeoutMs: config.verificationTimeout, signal: ended.signal })
      .then(() => resolve(undefined), resolve);
    const error = await promise;
    waiting.delete(resolve);
    ended.abort();
    return error;
  }
  const privatemodeFetch: Fetch = async (input, init) => {
    const request = new Request(input instanceof Request ? input : new URL(input, config.apiEndpoint), init);
    return forward({ config, session }, request, newRequestId('sdk'));
  };
  return Object.assign(privatemodeFetch, {
    async verify(): Promise<ClientVerdict> {
      const verified = session();
      const thrown = await firstRenewal(verified);
      const error = thrown === undefined ? undefined : asPrivatemodeError(thrown);
      // `not_ready` says that it took too long; its cause says why.
      const { cause } = error ?? {};
      const reason = error?.code === 'not_ready' && cause instanceof PrivatemodeError ? cause : error;
      return verdictOf(verified.lastVerdict(), reason, config);
    },
    protection: () => (closed ? undefined : protectionOf(opened)),
    close,
  });
}

const clientClosed = (): PrivatemodeError =>
  new PrivatemodeError('shutting_down', 'the client was closed', { remedy: 'Make a new client.' });
