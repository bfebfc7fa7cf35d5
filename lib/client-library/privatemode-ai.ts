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
 * anything, encrypts each request for the service, and decrypts the responses. Use it like `OpenAI`; it adds
 * `verify()`, `protection` and `close()`.
 */
export class PrivatemodeAI extends OpenAI {
  readonly #fetch: PrivatemodeFetch;

  /**
   * Fetches nothing. Throws config_invalid, unsafe_roots_refused, and OpenAIError in a browser unless
   * `dangerouslyAllowBrowser` is set.
   */
  constructor(options: PrivatemodeAIOptions = {}) {
    const { own, sdk } = divideOptions(options);
    // A copy of a client (`withOptions`) gets the fetch of its original, and so shares its verified session.
    const ours = isOurs(own.fetch) ? sharedBy(own.fetch, own) : openFetch(readOptions(own));
    // The SDK keeps its options where anyone can print them, so it does not get ours, which hold the key and
    // the salt. With `adminAPIKey: null` it takes no key from the environment either.
    super({ ...sdk, apiKey: API_KEY, adminAPIKey: null, baseURL: BASE_URL, fetch: ours });
    this.#fetch = ours;
  }

  /**
   * Verifies the service, unless that was done lately. Resolves with every check and the manifest if the
   * newest verification accepted the service. Else it rejects with a VerificationError, whose `verdict` says
   * what was wrong; also if nothing could be judged, and while an older secret still protects requests.
   */
  verify(): Promise<Verification> {
    return this.#fetch.verify();
  }

  /** What protects requests now; undefined while no verification is in force. */
  get protection(): Protection | undefined {
    return this.#fetch.protection();
  }

  /**
   * A copy on the same verified session, with other options of the OpenAI client, such as `timeout`. Throws
   * config_invalid for those of the session, `fetch` among them, unless they are as the client shows them.
   */
  override withOptions(options: Partial<SdkOptions>): this {
    const { own, sdk } = divideOptions(options);
    sharedBy(this.#fetch, own);
    return super.withOptions(sdk);
  }

  /** Ends the renewals in the background. Later requests fail. */
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

/** Returns `shared`, whose session a client joins. Throws config_invalid for options of that session. */
function sharedBy(shared: PrivatemodeFetch, own: PrivatemodeOptions): PrivatemodeFetch {
  const same: Readonly<Record<string, unknown>> = { fetch: shared, apiKey: API_KEY };
  const others = Object.entries(own).filter(([name, value]) => value !== same[name]);
  if (others.length === 0) return shared;
  const names = others.map(([name]) => name).join(', ');
  throw invalid(`${names}: a client with the fetch of another one shares its session; make a new one`);
}
