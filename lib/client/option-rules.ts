/**
 * Which options there are, and what becomes of each: one table for createPrivatemodeFetch, PrivatemodeAI and its `openAIOptions`. An
 * option without a row is refused, because one that is ignored misleads: a pin that nobody reads lets prompts leave unpinned.
 */
import type { ClientOptions as AnthropicOptions } from '@anthropic-ai/sdk';
import type { ClientOptions as PreviousAnthropicOptions } from 'anthropic-previous';
import type { ClientOptions } from 'openai';
import type { ClientOptions as PreviousClientOptions } from 'openai-previous';
import type { PrivatemodeOptions, VendorOptions } from './options.ts';

/** What SDKs get for a key and a host: the fetch below them knows the real ones, and nothing else has to. */
export const API_KEY = 'privatemode';
export const HOST = 'https://privatemode.invalid';
export const BASE_URL = `${HOST}/v1`;

interface Refusal {
  readonly refused: string;
  /** A value that says the same as none: SDKs hand it over when they copy a client. */
  readonly inherited?: string;
}

export type Rule =
  /** Ours. */
  | 'own'
  /** The SDK's. */
  | 'sdk'
  /** The SDK's, headers: refused if one of them would hold a credential. */
  | 'headers'
  /** Holds options of the SDK. */
  | 'spread'
  /** Without effect. */
  | 'nothing'
  /** Another name for one of ours. */
  | { readonly as: 'apiEndpoint' | 'manifest' }
  | Refusal;

export type Rules = Readonly<Record<string, Rule>>;

const refused = (reason: string, inherited?: string): Refusal => ({
  refused: reason,
  ...(inherited !== undefined && { inherited }),
});

/** Each option of createPrivatemodeFetch. A record, so that the compiler misses one that is not in it. */
const OWN: Readonly<Record<keyof PrivatemodeOptions, 'own'>> = {
  apiKey: 'own',
  apiEndpoint: 'own',
  manifest: 'own',
  cdnBaseUrl: 'own',
  promptCacheSalt: 'own',
  responsesApi: 'own',
  gpuPolicy: 'own',
  collateralUrls: 'own',
  unsafeTrustRoots: 'own',
  verificationTimeout: 'own',
  firstByteTimeout: 'own',
  streamIdleTimeout: 'own',
  fetch: 'own',
  signal: 'own',
  onVerdict: 'own',
  onEpoch: 'own',
};

/** Members of options that are objects. */
export const MEMBERS = {
  gpuPolicy: { allowUnknown: 'own', gracePeriodHours: 'own' },
  collateralUrls: { amd: 'own', intel: 'own' },
  unsafeTrustRoots: { snp: 'own', tdx: 'own' },
} as const satisfies {
  [Name in 'gpuPolicy' | 'collateralUrls' | 'unsafeTrustRoots']: Record<
    keyof NonNullable<PrivatemodeOptions[Name]>,
    'own'
  >;
};

export const ONE_KEY = refused('the only credential is apiKey, and it goes to apiEndpoint alone');
const ONE_HOST = refused('the only host is apiEndpoint', BASE_URL);
const ONE_NETWORK = refused('the only network is the option fetch; set this in a fetch of your own');

/** What both SDKs have. Refused is what names another host, another way there, or another credential. */
const SHARED = {
  baseURL: ONE_HOST,
  fetchOptions: ONE_NETWORK,
  defaultHeaders: 'headers',
  timeout: 'sdk',
  maxRetries: 'sdk',
  defaultQuery: 'sdk',
  dangerouslyAllowBrowser: 'sdk',
  logLevel: 'sdk',
  logger: 'sdk',
} as const satisfies Rules;

/** Each option of the OpenAI client, of both majors, that is not ours. */
const OPENAI: Readonly<
  Record<Exclude<keyof ClientOptions | keyof PreviousClientOptions, keyof PrivatemodeOptions>, Rule>
> = {
  ...SHARED,
  dataResidency: ONE_HOST,
  provider: ONE_HOST,
  adminAPIKey: ONE_KEY,
  workloadIdentity: ONE_KEY,
  credential: ONE_KEY,
  x509Transport: ONE_NETWORK,
  organization: 'sdk',
  project: 'sdk',
  webhookSecret: 'sdk',
};

/** Each option of the Anthropic client, of both majors. */
export const ANTHROPIC: Readonly<Record<keyof AnthropicOptions | keyof PreviousAnthropicOptions, Rule>> = {
  ...SHARED,
  apiKey: ONE_KEY,
  authToken: ONE_KEY,
  credentials: ONE_KEY,
  config: ONE_KEY,
  profile: ONE_KEY,
  fetch: ONE_NETWORK,
  webhookKey: 'sdk',
  middleware: 'sdk',
  openTelemetry: 'sdk',
};

const NO_SECRET_LEAVES = refused('the secret does not leave this client; onEpoch tells when another is used');

/** Names of the vendor's package. */
const VENDOR = {
  apiBaseURL: { as: 'apiEndpoint' },
  manifestBytes: { as: 'manifest' },
  openAIOptions: 'spread',
  browserWasmURL: 'nothing',
  enableWasmLogging: 'nothing',
  expectedWasmHash: refused('there is no wasm to hold against it'),
  onManifestUpdate: refused(
    'a manifest that is given is never replaced; without one, onEpoch tells which protects requests',
  ),
  onSecretUpdate: NO_SECRET_LEAVES,
  exportSecret: NO_SECRET_LEAVES,
  importSecret: refused('a secret is used only after this client has verified the service and exchanged it'),
  initializeOffline: refused('no request leaves before this client has verified the service'),
} as const satisfies Rules & Record<keyof VendorOptions, Rule>;

export const PRIVATEMODE_AI: Rules = { ...OPENAI, ...VENDOR, ...OWN };

/** The rules with those that `change` does not leave alone refused. */
const refuseWhere = (rules: Rules, change: (rule: Rule) => string | undefined): Rules =>
  Object.fromEntries(
    Object.entries(rules).map(([name, rule]) => {
      const reason = change(rule);
      return [name, reason === undefined ? rule : refused(reason)];
    }),
  );

export const isRefusal = (rule: Rule): rule is Refusal => typeof rule === 'object' && 'refused' in rule;

export const FETCH = refuseWhere(PRIVATEMODE_AI, (rule) => {
  if (rule === 'own' || isRefusal(rule)) return undefined;
  return typeof rule === 'object' ? `it is ${rule.as} here` : 'it is an option of PrivatemodeAI alone';
});

/** For `openAIOptions`. */
export const INSIDE: Rules = {
  ...refuseWhere(PRIVATEMODE_AI, () => 'it belongs beside openAIOptions'),
  ...OPENAI,
};

/** Options that the service is held against: named without a value, they would leave it unpinned. */
export const PINS: readonly string[] = ['manifest', 'manifestBytes'];

/** Names of headers that hold a credential. */
export const CREDENTIALS = /^(proxy-)?authorization$|^(x-)?api-key$|^cookie$/i;
