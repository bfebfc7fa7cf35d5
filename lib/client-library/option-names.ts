/**
 * Lists the options there are, and is the only place that reads them: each value once. An option that nothing
 * uses is refused, because ignoring it would mislead: with a pin that is ignored, prompts would leave
 * unpinned.
 */
import type { ClientOptions as AnthropicOptions } from '@anthropic-ai/sdk';
import type { ClientOptions as PreviousAnthropicOptions } from 'anthropic-previous';
import type { ClientOptions } from 'openai';
import type { ClientOptions as PreviousClientOptions } from 'openai-previous';
import type { PrivatemodeError } from '../errors.ts';
import { nearest } from '../text.ts';
import { invalid, type PrivatemodeOptions } from './options.ts';

/** Placeholders that SDKs get as key and host. Only the fetch below them has to know the real ones. */
export const API_KEY = 'privatemode';
export const HOST = 'https://privatemode.invalid';
export const BASE_URL = `${HOST}/v1`;

/** What happens to an option. True: it is taken. A text: it is refused, for this reason. */
type Rule = true | string;
type Rules = Readonly<Record<string, Rule>>;

/**
 * Each option of createPrivatemodeFetch. It is a record, so that the compiler reports an option that is
 * missing here.
 */
const OWN: Readonly<Record<keyof PrivatemodeOptions, true>> = {
  apiKey: true,
  apiEndpoint: true,
  manifest: true,
  cdnBaseUrl: true,
  promptCacheSalt: true,
  responsesApi: true,
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

/** Members of options that are objects. */
const MEMBERS = {
  gpuPolicy: { allowUnknown: true, gracePeriodHours: true },
  collateralUrls: { amd: true, intel: true },
  unsafeTrustRoots: { snp: true, tdx: true },
} as const satisfies {
  [Name in 'gpuPolicy' | 'collateralUrls' | 'unsafeTrustRoots']: Record<
    keyof NonNullable<PrivatemodeOptions[Name]>,
    true
  >;
};

const ONE_KEY = 'the only credential is apiKey, and it goes to apiEndpoint alone';
const ONE_HOST = 'the only host is apiEndpoint';
const ONE_NETWORK = 'the only network is the option fetch; set this in a fetch of your own';

/** Options of the OpenAI client that name another host, another network path or another credential. */
const ELSEWHERE = {
  baseURL: ONE_HOST,
  dataResidency: ONE_HOST,
  provider: ONE_HOST,
  adminAPIKey: ONE_KEY,
  workloadIdentity: ONE_KEY,
  credential: ONE_KEY,
  fetchOptions: ONE_NETWORK,
  x509Transport: ONE_NETWORK,
} as const satisfies Rules;

/** Options that both SDKs have. */
const SHARED = {
  defaultHeaders: true,
  timeout: true,
  maxRetries: true,
  defaultQuery: true,
  dangerouslyAllowBrowser: true,
  logLevel: true,
  logger: true,
} as const satisfies Rules;

/** Each option of the OpenAI client, of both majors, that is not ours. */
const OPENAI: Readonly<
  Record<Exclude<keyof ClientOptions | keyof PreviousClientOptions, keyof PrivatemodeOptions>, Rule>
> = { ...SHARED, ...ELSEWHERE, organization: true, project: true, webhookSecret: true };

/** Each option of the Anthropic client, of both majors. */
const ANTHROPIC: Readonly<Record<keyof AnthropicOptions | keyof PreviousAnthropicOptions, Rule>> = {
  ...SHARED,
  baseURL: ONE_HOST,
  apiKey: ONE_KEY,
  authToken: ONE_KEY,
  credentials: ONE_KEY,
  config: ONE_KEY,
  profile: ONE_KEY,
  fetch: ONE_NETWORK,
  fetchOptions: ONE_NETWORK,
  webhookKey: true,
  middleware: true,
  openTelemetry: true,
};

/** Names that the vendor's package or the proxy has for options of ours. */
const RENAMED = {
  apiBaseURL: 'it is apiEndpoint here',
  manifestBytes: 'it is manifest here',
  manifestPath: 'it is manifest here, which takes the text of the file',
} as const;

/** Options that pin the service. Such an option without a value would leave the service unpinned. */
const PINS: readonly string[] = ['manifest', 'manifestBytes', 'manifestPath'];

/** What is wrong with the value of an option that would be misread otherwise; undefined: nothing. */
const VALUES: Readonly<Record<string, (value: unknown) => string | undefined>> = {
  defaultHeaders(headers) {
    const name = credentialIn(headers);
    return name === undefined ? undefined : `holds ${name}: ${ONE_KEY}`;
  },
  timeout: (ms) =>
    ms === null || typeof ms === 'number'
      ? undefined
      : 'is no number of ms: write 60000 for a minute, without quotes',
  unsafeTrustRoots: (roots) =>
    typeof roots === 'string' ? 'takes the PEM texts of certificates in { }, not a path' : undefined,
};

/** Names of headers that hold a credential. */
const CREDENTIALS = /^(proxy-)?authorization$|^(x-)?api-key$|^cookie$/i;

/** The options of createPrivatemodeFetch. Throws config_invalid. */
export const ownOptions = (options: unknown): PrivatemodeOptions =>
  read(options, 'createPrivatemodeFetch', { ...ELSEWHERE, ...RENAMED, ...OWN });

/** The options of PrivatemodeAI, divided into ours and those of the OpenAI client. Throws config_invalid. */
export function divideOptions(options: unknown): {
  readonly own: PrivatemodeOptions;
  readonly sdk: ClientOptions;
} {
  const given = Object.entries(read(options, 'PrivatemodeAI', { ...OPENAI, ...RENAMED, ...OWN }));
  const isOwn = ([name]: readonly [string, unknown]): boolean => Object.hasOwn(OWN, name);
  return {
    own: Object.fromEntries(given.filter(isOwn)),
    sdk: Object.fromEntries(given.filter((entry) => !isOwn(entry))),
  };
}

/** The options of anthropic(). Throws config_invalid. */
export const anthropicOptions = (options: unknown): AnthropicOptions =>
  read(options, 'anthropic()', ANTHROPIC);

/**
 * The options that have a value, each read once. Throws config_invalid for one that is refused or unknown,
 * and for a pin without a value.
 */
function read(options: unknown, what: string, rules: Rules): Record<string, unknown> {
  // Older runtimes install the package with a mere warning, and would fail later with the name of a function.
  if (Promise.withResolvers === undefined)
    throw invalid('this runtime is too old for privatemode-ai, which needs Node 22 or a browser of 2024');
  const taken: Record<string, unknown> = {};
  for (const [name, value] of valuesOf(options, what)) {
    if (PINS.includes(name) && (value === undefined || value === null))
      throw invalid(`${name} is ${value}, which pins nothing; leave it out to follow the published manifest`);
    if (value === undefined) continue;
    const rule = Object.hasOwn(rules, name) ? rules[name] : undefined;
    if (rule === undefined) throw unknownOption(name, what, rules);
    if (rule === true) taken[name] = checked(name, value);
    else if (!isInherited(name, value)) throw invalid(`${name} is refused: ${rule}`);
  }
  return taken;
}

/**
 * The value of an option that is taken; the members of an object are read by name too. Throws config_invalid
 * for a value that `VALUES` refuses.
 */
function checked(name: string, value: unknown): unknown {
  const wrong = Object.hasOwn(VALUES, name) ? VALUES[name]?.(value) : undefined;
  if (wrong !== undefined) throw invalid(`${name} ${wrong}`);
  return Object.hasOwn(MEMBERS, name) ? read(value, name, MEMBERS[name as keyof typeof MEMBERS]) : value;
}

/**
 * Whether a refused option has a value that changes nothing. SDKs pass such values on when they copy a
 * client.
 */
const isInherited = (name: string, value: unknown): boolean =>
  (value === null && !Object.hasOwn(RENAMED, name)) || (name === 'baseURL' && value === BASE_URL);

/**
 * Every named value of an object and of its prototypes, each read once: a getter cannot return something else
 * later, and a pin counts wherever it is inherited from. Symbols are not names. Throws config_invalid if
 * `options` is not an object.
 */
function valuesOf(options: unknown, what: string): Map<string, unknown> {
  const isAddress =
    (typeof options === 'string' && /^https?:/.test(options)) ||
    options instanceof URL ||
    options instanceof Request;
  if (isAddress && what === 'createPrivatemodeFetch')
    throw invalid(
      `${what} was called with a URL as its options: it makes a fetch, so write fetch: ${what}({ })`,
    );
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw invalid(`the options of ${what} are not an object: write each as a member of { }`);
  }
  const values = new Map<string, unknown>();
  let at: object | null = options;
  do {
    for (const name of Object.getOwnPropertyNames(at)) {
      if (values.has(name) || (at !== options && name === 'constructor')) continue;
      values.set(name, (options as Readonly<Record<string, unknown>>)[name]);
    }
    at = Object.getPrototypeOf(at);
  } while (at !== null && !isRoot(at));
  return values;
}

/** Whether this is Object.prototype, of whichever realm. */
const isRoot = (object: object): boolean =>
  Object.getPrototypeOf(object) === null && Object.hasOwn(object, 'isPrototypeOf');

/** Other APIs write names with underscores, or shorter. */
const plain = (name: string): string => name.replace(/[_-]/g, '').toLowerCase();

/**
 * The error config_invalid for an unknown option. It names the option that was probably meant, or says where
 * the list is.
 */
function unknownOption(name: string, what: string, rules: Rules): PrivatemodeError {
  const shown = JSON.stringify(name.slice(0, 64)).slice(1, -1);
  const names = Object.keys(rules).filter((each) => rules[each] === true);
  const holds = (each: string): boolean => plain(each).includes(plain(name));
  const meant = nearest(name.slice(0, 64), names) ?? (name.length > 4 ? names.find(holds) : undefined);
  const hint = meant === undefined ? 'The README lists them all.' : `Did you mean ${meant}?`;
  return invalid(`${shown} is not an option of ${what}. ${hint}`);
}

/** The name of a header that holds a credential; undefined if there is none. */
function credentialIn(headers: unknown): string | undefined {
  if (typeof headers !== 'object' || headers === null) return undefined;
  const entries = Symbol.iterator in headers ? [...(headers as Headers)] : Object.entries(headers);
  for (const entry of entries) {
    const [name, value] = Array.isArray(entry) ? entry : [];
    if (value !== null && value !== undefined && CREDENTIALS.test(String(name))) return String(name);
  }
  return undefined;
}
