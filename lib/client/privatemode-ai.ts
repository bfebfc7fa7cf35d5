/** class PrivatemodeAI: the official OpenAI client on a verified, encrypting fetch. */
import OpenAI, { type ClientOptions } from 'openai';
import { createPrivatemodeFetch, type PrivatemodeFetch } from './fetch.ts';
import type { ClientVerdict, PrivatemodeOptions, Protection } from './options.ts';

/** Options of the OpenAI client, and those of createPrivatemodeFetch. */
export type PrivatemodeAIOptions = Omit<ClientOptions, keyof PrivatemodeOptions | 'baseURL'> &
  PrivatemodeOptions;

/** Our own fetches: a copy that `withOptions` makes of a client shares its verified session. */
const made = new WeakSet<object>();

const isOurs = (fetch: unknown): fetch is PrivatemodeFetch => typeof fetch === 'function' && made.has(fetch);

export class PrivatemodeAI extends OpenAI {
  readonly #fetch: PrivatemodeFetch;

  /** Fetches nothing. Throws config_invalid, and OpenAIError in a browser unless `dangerouslyAllowBrowser` is set. */
  constructor(options: PrivatemodeAIOptions = {}) {
    const { fetch } = options;
    const ours = isOurs(fetch) ? fetch : createPrivatemodeFetch(options);
    made.add(ours);
    super({
      ...(options as ClientOptions),
      apiKey: 'privatemode', // the fetch below brings the real one
      baseURL: 'https://privatemode.invalid/v1', // the fetch below knows the real one
      fetch: ours,
    });
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

  /** An official Anthropic client on the same session. Needs the package `@anthropic-ai/sdk`. */
  async anthropic(options: Record<string, unknown> = {}) {
    const { default: Anthropic } = await import('@anthropic-ai/sdk');
    return new Anthropic({
      ...options,
      apiKey: 'privatemode',
      baseURL: 'https://privatemode.invalid',
      fetch: this.#fetch,
    });
  }

  /** Ends the renewals in the background. Later requests fail. */
  close(): void {
    this.#fetch.close();
  }
}
