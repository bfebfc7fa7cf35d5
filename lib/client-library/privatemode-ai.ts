/** class PrivatemodeAI: the official OpenAI client on a verified, encrypting fetch. */
import OpenAI, { type ClientOptions } from 'openai';
import { isOurs, openFetch, type PrivatemodeFetch } from './fetch.ts';
import type { ELSEWHERE, PrivatemodeOptions, Protection, Verification } from './options.ts';
import { API_KEY, BASE_URL, divideOptions, invalid, readOptions } from './read-options.ts';

type SdkOptions = Omit<ClientOptions, keyof PrivatemodeOptions | (typeof ELSEWHERE)[number]>;

/**
 * Options of createPrivatemodeFetch, and those of the OpenAI client that name no other host, network path or
 * credential.
 */
export type PrivatemodeAIOptions = SdkOptions & PrivatemodeOptions;

/**
 * The official OpenAI client on a fetch that verifies the service by hardware attestation before it sends
 * anything, encrypts each request for the service, and decrypts the responses. Use this class like `OpenAI`;
 * it adds `verify()`, `protection` and `close()`.
 */
export class PrivatemodeAI extends OpenAI {
  readonly #fetch: PrivatemodeFetch;

  /**
   * Makes a client, and fetches nothing. Throws config_invalid and unsafe_roots_refused. In a browser, also
   * throws OpenAIError unless `dangerouslyAllowBrowser` is set.
   */
  constructor(options: PrivatemodeAIOptions = {}) {
    const { own, sdk } = divideOptions(options);
    // A copy of a client (`withOptions`) gets the fetch of its original, and so shares its verified session.
    const ours = isOurs(own.fetch) ? sharedBy(own.fetch, own) : openFetch(readOptions(own));
    // The SDK keeps its options where anyone can print them. So the SDK gets no option of this package: not
    // the key, not the salt. With `adminAPIKey: null` the SDK takes no key from the environment either.
    super({ ...sdk, apiKey: API_KEY, adminAPIKey: null, baseURL: BASE_URL, fetch: ours });
    this.#fetch = ours;
  }

  /**
   * Verifies the service, unless it was verified lately. Resolves with all checks and the manifest if the
   * newest verification accepted the service. Otherwise rejects with a VerificationError, even while an older
   * secret still protects requests. The error always has a `verdict`, which says what was wrong.
   */
  verify(): Promise<Verification> {
    return this.#fetch.verify();
  }

  /** What protects requests now; undefined while no verification is in force. */
  get protection(): Protection | undefined {
    return this.#fetch.protection();
  }

  /**
   * A copy that shares the verified session, with other options of the OpenAI client, such as `timeout`.
   * Throws config_invalid if options of the session (`fetch` is one) are not as the client shows them.
   */
  override withOptions(options: Partial<SdkOptions>): this {
    const { own, sdk } = divideOptions(options);
    sharedBy(this.#fetch, own);
    return super.withOptions(sdk);
  }

  /** Ends the renewals in the background, after which requests fail. */
  close(): void {
    this.#fetch.close();
  }
}

/** The text that Node prints for a client, in place of everything that the SDK keeps in it. */
Object.defineProperty(PrivatemodeAI.prototype, Symbol.for('nodejs.util.inspect.custom'), {
  value(this: PrivatemodeAI) {
    return `PrivatemodeAI ${JSON.stringify({ protection: this.protection ?? null })}`;
  },
});

/** Returns the fetch whose session a client joins. Throws config_invalid for options of that session. */
function sharedBy(shared: PrivatemodeFetch, own: PrivatemodeOptions): PrivatemodeFetch {
  const same: Readonly<Record<string, unknown>> = { fetch: shared, apiKey: API_KEY };
  const others = Object.entries(own).filter(([name, value]) => value !== same[name]);
  if (others.length === 0) return shared;
  const names = others.map(([name]) => name).join(', ');
  throw invalid(`${names}: a client with the fetch of another one shares its session; make a new one`);
}
