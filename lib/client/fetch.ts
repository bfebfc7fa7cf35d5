/** createPrivatemodeFetch: a fetch for any SDK, which verifies the service and encrypts before anything leaves. */

import { newRequestId } from '../api/request-id.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { forward } from './forward.ts';
import { ownOptions } from './option-names.ts';
import {
  type Fetch,
  type PrivatemodeOptions,
  type Protection,
  readOptions,
  type Verification,
} from './options.ts';
import { toApplication } from './remedies.ts';
import { type ClientSession, openClientSession, protectionOf } from './session.ts';
import { verificationOf } from './verdict.ts';

/** A fetch that reaches nothing but the verified service, and what it knows of that service. */
export interface PrivatemodeFetch extends Fetch {
  /**
   * Verifies the service, unless that was done lately. Resolves where the newest judgement accepts it, with every check and the
   * manifest. Else it rejects with a PrivatemodeError whose `verdict` tells what was wrong: also where nothing could be judged, and
   * where an older secret still protects requests.
   */
  verify(): Promise<Verification>;
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
  const config = readOptions(ownOptions(options));
  let opened: ClientSession | undefined;
  let closed = config.signal?.aborted ?? false;
  const session = (): ClientSession => {
    if (closed) throw clientClosed();
    opened ??= openClientSession(config);
    return opened;
  };
  const close = (): void => {
    closed = true;
    opened?.close(clientClosed());
  };
  config.signal?.addEventListener('abort', close, { once: true });
  /** Resolves with the first renewal: undefined where it gave a secret, else what was wrong. The session tries again. */
  async function firstRenewal(): Promise<PrivatemodeError | undefined> {
    try {
      await session().acquire({ timeoutMs: config.verificationTimeout, givesUp: () => true });
      const { verified, error } = session().standing();
      return verified ? undefined : error; // its secret is suspended
    } catch (thrown) {
      return asPrivatemodeError(thrown);
    }
  }
  const privatemodeFetch: Fetch = async (input, init) => {
    const request = new Request(input instanceof Request ? input : new URL(input, config.apiEndpoint), init);
    return forward({ config, session }, request, newRequestId('sdk'));
  };
  return Object.assign(privatemodeFetch, {
    async verify(): Promise<Verification> {
      const error = await firstRenewal();
      // `not_ready` says that it took too long; its cause says why.
      const { cause } = error ?? {};
      const reason = error?.code === 'not_ready' && cause instanceof PrivatemodeError ? cause : error;
      return verificationOf(opened?.judged(), reason && toApplication(reason, config.apiEndpoint), config);
    },
    protection: () => (closed ? undefined : protectionOf(opened)),
    close,
  });
}

const clientClosed = (): PrivatemodeError => new PrivatemodeError('shutting_down', 'the client was closed');
