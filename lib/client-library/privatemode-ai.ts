/** class PrivatemodeAI: the official OpenAI client on a verified, encrypting fetch. */
import type { Anthropic, ClientOptions as AnthropicOptions } from '@anthropic-ai/sdk';
import OpenAI, { type ClientOptions } from 'openai';
import { PrivatemodeError } from '../errors.ts';
import { createPrivatemodeFetch, isOurs, type PrivatemodeFetch } from './fetch.ts';
import { API_KEY, anthropicOptions, BASE_URL, divideOptions, HOST } from './option-names.ts';
import type { PrivatemodeOptions, Protection, Verification } from './options.ts';

/**
 * Options of the OpenAI client. Those that name another host, another network path or another credential are
 * refused.
 */
type SdkOptions = Omit<
  ClientOptions,
  | keyof PrivatemodeOptions
  | 'baseURL'
  | 'fetchOptions'
  | 'dataResidency'
  | 'provider'
  | 'adminAPIKey'
  | 'workloadIdentity'
  | 'credential'
  | 'x509Transport'
>;

/** Options of the OpenAI client, and those of createPrivatemodeFetch. Others are refused. */
export type PrivatemodeAIOptions = SdkOptions & PrivatemodeOptions;

/**
 * The official OpenAI client on a fetch that verifies the service by hardware attestation before it sends
 * anything, encrypts each request for the service, and decrypts the responses. Use it like `OpenAI`; it adds
 * `verify()`, `protection`, `anthropic()` and `close()`.
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
    const ours = isOurs(own.fetch) ? sharedBy(own.fetch, own) : createPrivatemodeFetch(own);
    // The SDK keeps its options where anyone can print them, so it does not get ours, which hold the key and
    // the salt. With `adminAPIKey: null` it takes no key from the environment either.
    super({ ...sdk, apiKey: API_KEY, adminAPIKey: null, baseURL: BASE_URL, fetch: ours });
    this.#fetch = ours;
  }

  /**
   * Verifies the service, unless that was done lately. If the newest verification accepted the service, it
   * resolves with every check, as `privatemode-proxy verify --json` prints them, and the manifest. Else it
   * rejects with a VerificationError, whose `verdict` says what was wrong. It also rejects if nothing could
   * be judged, and while an older secret still protects requests.
   */
  verify(): Promise<Verification> {
    return this.#fetch.verify();
  }

  /**
   * What protects requests now; undefined before the first verification, and while no verification is in
   * force.
   */
  get protection(): Protection | undefined {
    return this.#fetch.protection();
  }

  /**
   * An official Anthropic client on the same session. Throws config_invalid for options that name another
   * host, another network path or another credential, and if the package `@anthropic-ai/sdk` is missing.
   */
  async anthropic(
    options: Omit<
      AnthropicOptions,
      'apiKey' | 'authToken' | 'baseURL' | 'fetch' | 'fetchOptions' | 'credentials' | 'config' | 'profile'
    > = {},
  ): Promise<Anthropic> {
    const chosen = anthropicOptions(options);
    const sdk = await importAnthropic();
    return new sdk.Anthropic({
      ...chosen,
      apiKey: API_KEY,
      authToken: null,
      baseURL: HOST,
      fetch: this.#fetch,
    });
  }

  /**
   * A copy on the same verified session, with other options of the OpenAI client, such as `timeout`,
   * `maxRetries` and `defaultHeaders`. Throws config_invalid for our own options, `fetch` among them, because
   * they belong to the session. The original's `apiKey` and `baseURL`, which other libraries pass on, are
   * accepted because they change nothing; other values are refused.
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

/**
 * Returns `shared`, the fetch of the client that is copied, or one that createPrivatemodeFetch made. Throws
 * config_invalid for options that belong to its session.
 */
function sharedBy(
  shared: PrivatemodeFetch,
  { fetch, apiKey, ...changed }: PrivatemodeOptions,
): PrivatemodeFetch {
  const others = { ...(fetch !== shared && { fetch }), ...(apiKey !== API_KEY && { apiKey }) };
  const names = Object.entries({ ...changed, ...others })
    .filter(([, value]) => value !== undefined)
    .map(([name]) => name);
  if (names.length === 0) return shared;
  throw new PrivatemodeError(
    'config_invalid',
    `${names.join(', ')}: a client with the fetch of another one shares its session`,
    {
      remedy: 'Make a new PrivatemodeAI with these options, and without that fetch.',
    },
  );
}

async function importAnthropic(): Promise<typeof import('@anthropic-ai/sdk')> {
  try {
    return await import('@anthropic-ai/sdk');
  } catch (cause) {
    throw new PrivatemodeError('config_invalid', 'anthropic() needs the package @anthropic-ai/sdk', {
      cause,
      remedy: 'Run npm install @anthropic-ai/sdk.',
    });
  }
}
