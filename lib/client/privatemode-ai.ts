/** class PrivatemodeAI: the official OpenAI client on a verified, encrypting fetch. */
import type { Anthropic, ClientOptions as AnthropicOptions } from '@anthropic-ai/sdk';
import OpenAI, { type ClientOptions } from 'openai';
import { PrivatemodeError } from '../errors.ts';
import { createPrivatemodeFetch, type PrivatemodeFetch } from './fetch.ts';
import type { ClientVerdict, PrivatemodeOptions, Protection } from './options.ts';

/** Options of the OpenAI client, and those of createPrivatemodeFetch. */
export type PrivatemodeAIOptions = Omit<ClientOptions, keyof PrivatemodeOptions | 'baseURL'> &
  PrivatemodeOptions;

/** What SDKs get for a key and a host: the fetch below them knows the real ones, and nothing else has to. */
const API_KEY = 'privatemode';
const HOST = 'https://privatemode.invalid';
const BASE_URL = `${HOST}/v1`;

/** Our own fetches: a copy that `withOptions` makes of a client shares its verified session. */
const made = new WeakSet<object>();

const isOurs = (fetch: unknown): fetch is PrivatemodeFetch => typeof fetch === 'function' && made.has(fetch);

export class PrivatemodeAI extends OpenAI {
  readonly #fetch: PrivatemodeFetch;

  /**
   * Fetches nothing. Throws config_invalid, unsafe_roots_refused, and OpenAIError in a browser unless `dangerouslyAllowBrowser`
   * is set.
   */
  constructor(options: PrivatemodeAIOptions = {}) {
    const { own, rest } = divide(options);
    if ((rest.baseURL ?? BASE_URL) !== BASE_URL) {
      throw new PrivatemodeError(
        'config_invalid',
        'baseURL is not an option of this client: apiEndpoint is',
        {
          remedy: 'Set apiEndpoint to the origin of the service, or leave both out.',
        },
      );
    }
    const ours = isOurs(own.fetch) ? sharedBy(own.fetch, own) : createPrivatemodeFetch(own);
    made.add(ours);
    // The SDK keeps its options where anyone can print them: ours hold the key and the salt.
    super({ ...rest, apiKey: API_KEY, baseURL: BASE_URL, fetch: ours });
    this.#fetch = ours;
  }

  /** The verdict on the service, every check of it, in the shape of `privatemode-proxy verify --json`. */
  verify(): Promise<ClientVerdict> {
    return this.#fetch.verify();
  }

  /** What protects requests now; undefined before the first verification and while none holds. */
  get protection(): Protection | undefined {
    return this.#fetch.protection();
  }

  /** An official Anthropic client on the same session. Throws config_invalid where the package `@anthropic-ai/sdk` is missing. */
  async anthropic(
    options: Omit<AnthropicOptions, 'apiKey' | 'authToken' | 'baseURL' | 'fetch'> = {},
  ): Promise<Anthropic> {
    const sdk = await importAnthropic();
    return new sdk.Anthropic({
      ...options,
      apiKey: API_KEY,
      authToken: null,
      baseURL: HOST,
      fetch: this.#fetch,
    });
  }

  /** Ends the renewals in the background. Later requests fail. */
  close(): void {
    this.#fetch.close();
  }
}

/** Each option of createPrivatemodeFetch. A record, so that the compiler misses one that is not in it. */
const OWN: Readonly<Record<keyof PrivatemodeOptions, true>> = {
  apiKey: true,
  apiEndpoint: true,
  manifest: true,
  cdnBaseUrl: true,
  promptCacheSalt: true,
  gpuPolicy: true,
  collateralUrls: true,
  unsafeTrustRoots: true,
  verificationTimeout: true,
  firstByteTimeout: true,
  streamIdleTimeout: true,
  fetch: true,
  signal: true,
  onVerdict: true,
  onEpoch: true,
};

/** Our options, and those of the OpenAI client. */
function divide(options: PrivatemodeAIOptions): { own: PrivatemodeOptions; rest: ClientOptions } {
  const [own = [], rest = []] = [true, false].map((ours) =>
    Object.entries(options).filter(([name]) => Object.hasOwn(OWN, name) === ours),
  );
  return { own: Object.fromEntries(own), rest: Object.fromEntries(rest) };
}

/** The fetch of the client that a copy is made of. Throws config_invalid for options that a copy cannot change. */
function sharedBy(
  fetch: PrivatemodeFetch,
  { fetch: _, apiKey, ...changed }: PrivatemodeOptions,
): PrivatemodeFetch {
  const names = Object.entries({ ...changed, ...(apiKey !== API_KEY && { apiKey }) })
    .filter(([, value]) => value !== undefined)
    .map(([name]) => name);
  if (names.length === 0) return fetch;
  throw new PrivatemodeError(
    'config_invalid',
    `${names.join(', ')}: a copy shares the session of its original`,
    {
      remedy: 'Make a new PrivatemodeAI with these options.',
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
