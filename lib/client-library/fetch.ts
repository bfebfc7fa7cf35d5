/** A fetch for any SDK, which verifies the service and encrypts before it sends anything. */
import { newRequestId } from '../api/error-response.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { toApplication } from './errors.ts';
import { forward } from './forward.ts';
import type { Fetch, PrivatemodeOptions, Protection, Verification } from './options.ts';
import { type ClientConfig, invalid, ownOptions, readOptions } from './read-options.ts';
import { type ClientSession, openClientSession, protectionOf } from './session.ts';
import { verificationOf } from './verification.ts';

/** A fetch that reaches only the verified service, and functions that say what it knows of the service. */
export interface PrivatemodeFetch extends Fetch {
  /**
   * Verifies the service, unless it was verified lately. Resolves with all checks and the manifest if the
   * newest verification accepted the service. Otherwise rejects with a VerificationError, even while an older
   * secret still protects requests. The error always has a `verdict`, which says what was wrong.
   */
  verify(): Promise<Verification>;
  /** What protects requests now; undefined while no verification is in force. */
  protection(): Protection | undefined;
  /** Ends the renewals of the secret, after which requests fail with `shutting_down`. */
  close(): void;
}

/**
 * Makes a fetch for a client. The fetch sends each request to `apiEndpoint` under the path of its URL,
 * whatever the host of the URL, so an SDK needs no base URL of its own. The fetch verifies the service at its
 * first use, renews in the background, and refuses paths outside of the endpoint table. Responses and errors
 * are those of the proxy: error bodies in the format of the API, receipts as headers. Throws config_invalid
 * and unsafe_roots_refused.
 */
export function createPrivatemodeFetch(options: PrivatemodeOptions = {}): PrivatemodeFetch {
  return openFetch(readOptions(ownOptions(options)));
}

/** Makes the fetch of createPrivatemodeFetch, from options that have been read. */
export function openFetch(config: ClientConfig): PrivatemodeFetch {
  if (isOurs(config.fetch))
    throw invalid('fetch was made by createPrivatemodeFetch: give one that reaches every host, or none');
  let opened: ClientSession | undefined;
  let closed = config.signal?.aborted ?? false;
  const session = (): ClientSession => {
    if (closed) throw clientClosed();
    opened ??= openClientSession(config);
    return opened;
  };
  const close = (): void => {
    closed = true;
    config.signal?.removeEventListener('abort', close); // removed, because a signal may outlive many clients
    opened?.close(clientClosed());
  };
  config.signal?.addEventListener('abort', close, { once: true });
  /** Waits for the first verification. Returns what is wrong, or undefined if the secret is in force. */
  async function whatIsWrong(): Promise<PrivatemodeError | undefined> {
    try {
      await session().acquire({ timeoutMs: config.verificationTimeout }, () => true);
      const { verified, error } = session().standing();
      // An unverified secret was denied by the service. If there is no error, no renewal has failed yet.
      return verified ? undefined : (error ?? denied());
    } catch (thrown) {
      const error = asPrivatemodeError(thrown);
      // `not_ready` says only that the verification took too long. The cause of `not_ready` says why.
      return error.code === 'not_ready' && error.cause instanceof PrivatemodeError ? error.cause : error;
    }
  }
  const privatemodeFetch: Fetch = async (input, init) => {
    const request = new Request(input instanceof Request ? input : new URL(input, config.apiEndpoint), init);
    return forward(config, session, request, newRequestId('sdk'));
  };
  const made = Object.assign(privatemodeFetch, {
    async verify(): Promise<Verification> {
      const error = await whatIsWrong();
      const verdict = opened?.lastVerdict();
      const manifest = opened?.manifest(verdict?.manifestSha256 ?? null);
      return verificationOf(verdict, manifest, error && toApplication(error, config), config);
    },
    protection: () => (closed ? undefined : protectionOf(opened)),
    close,
  });
  ours.add(made);
  return made;
}

/** The fetches that createPrivatemodeFetch made. */
const ours = new WeakSet<object>();

export const isOurs = (fetch: unknown): fetch is PrivatemodeFetch =>
  typeof fetch === 'function' && ours.has(fetch);

const denied = (): PrivatemodeError =>
  new PrivatemodeError('not_ready', 'the service denied the secret, and is still being verified again');

const clientClosed = (): PrivatemodeError => new PrivatemodeError('shutting_down', 'the client was closed');
