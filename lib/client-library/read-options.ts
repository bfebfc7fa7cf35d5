/**
 * The only place that reads the options of a client, each of them once. An unknown option that looks like a
 * known one is refused, because ignoring it would mislead: with a misspelt `manifest`, no manifest is pinned.
 */
import { isProductionHost } from '../attestation/roots/production.ts';
import type { Clock } from '../clock.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { SALT_BYTES } from '../pipeline/inject-salt.ts';
import { nearest } from '../text.ts';
import { runtimeClock } from './clock.ts';
import { ERRORS } from './errors.ts';
import { ELSEWHERE, type PrivatemodeOptions } from './options.ts';

/** Placeholders that the SDK gets as key and host. Only the fetch below the SDK knows the real values. */
export const API_KEY = 'privatemode';
export const BASE_URL = 'https://privatemode.invalid/v1';

/** The check of a value, and words for what the value has to be. Null is a value, and not the default. */
type Rule = readonly [isRight: (value: unknown) => boolean, what: string];
/** What a value may be: the members of an object, or the rule for a value that is no object. */
type Shape = Rule | { readonly [name: string]: Shape };

// The key is sent in a header. A runtime that refuses the header would quote the key in its error.
const KEY: Rule = [
  (key) => typeof key === 'string' && /^[\x21-\x7e]+$/.test(key),
  'a key: give it alone, without "Bearer", blanks or line breaks',
];
// Two texts with lone surrogates could become the same UTF-8, and share a cache that they should not share.
const SALT: Rule = [
  (salt) => typeof salt === 'string' && salt.isWellFormed() && Buffer.byteLength(salt) >= SALT_BYTES,
  `a text of at least ${SALT_BYTES} bytes`,
];
const MANIFEST: Rule = [
  (text) => (typeof text === 'string' || isBytes(text)) && text.length > 0,
  'the JSON text of a manifest, in a string or its bytes; leave it out to follow the published one',
];
const HTTPS: Rule = [isHttps, 'an https URL, without a query or a password'];
const ORIGIN: Rule = [
  (text) => isHttps(text) && new URL(text as string).pathname === '/',
  'an https origin such as https://api.privatemode.ai, without a path or a password',
];
const BOOLEAN: Rule = [(value) => typeof value === 'boolean', 'true or false, without quotes'];
const FUNCTION: Rule = [(value) => typeof value === 'function', 'a function'];
const SIGNAL: Rule = [(value) => value instanceof AbortSignal, 'the signal of an AbortController'];
const PEM: Rule = [(value) => typeof value === 'string', 'the PEM text of a certificate'];
const whole = (unit: string, least: number, most: number): Rule => [
  (value) => Number.isInteger(value) && Number(value) >= least && Number(value) <= most,
  `a whole number of ${unit} from ${least} to ${most}, without a unit`,
];
const HOURS = whole('hours', 0, Number.MAX_SAFE_INTEGER);
const MS = whole('ms', 1, 2 ** 31 - 1); // above this limit, setTimeout fires at once

const PAIR = { ark: PEM, ask: PEM };
const OWN: Readonly<Record<keyof PrivatemodeOptions, Shape>> = {
  apiKey: KEY,
  apiEndpoint: ORIGIN,
  manifest: MANIFEST,
  cdnBaseUrl: HTTPS,
  promptCacheSalt: SALT,
  responsesApi: BOOLEAN,
  gpuPolicy: { allowUnknown: BOOLEAN, gracePeriodHours: HOURS },
  collateralUrls: { amd: HTTPS, intel: HTTPS },
  unsafeTrustRoots: { snp: { Milan: PAIR, Genoa: PAIR }, tdx: { root: PEM } },
  verificationTimeout: MS,
  firstByteTimeout: MS,
  streamIdleTimeout: MS,
  fetch: FUNCTION,
  signal: SIGNAL,
  onVerdict: FUNCTION,
  onEpoch: FUNCTION,
};
const TOP: readonly string[] = [...Object.keys(OWN), ...ELSEWHERE];
const leadsElsewhere = (name: unknown): boolean => ELSEWHERE.some((each) => each === name);
const ONLY = 'the only host is apiEndpoint, the only credential apiKey, the only network the option fetch';

/** Whether a value is a Uint8Array. It may be one of another realm (a test runner has such a realm). */
export const isBytes = (value: unknown): value is Uint8Array =>
  Object.prototype.toString.call(value) === '[object Uint8Array]';

/** Whether a text is an https URL: the API key, and all that requests depend on, goes over TLS only. */
function isHttps(text: unknown): boolean {
  if (typeof text !== 'string' || !URL.canParse(text)) return false; // Node 22.0 has no URL.parse
  const { protocol, username, password, search, hash } = new URL(text);
  return protocol === 'https:' && `${username}${password}${search}${hash}` === '';
}

/** Options that have a value. */
type OwnOptions = {
  readonly [Name in keyof PrivatemodeOptions]?: Exclude<PrivatemodeOptions[Name], undefined>;
};

/** The options of createPrivatemodeFetch. Throws config_invalid for any other name. */
export const ownOptions = (options: unknown): OwnOptions =>
  optionOf(options, 'createPrivatemodeFetch', OWN) as OwnOptions;

/**
 * The options of PrivatemodeAI, divided into own options and those of the SDK. Throws config_invalid for a
 * name that leads elsewhere, or looks like the name of an own option.
 */
export function divideOptions(options: unknown) {
  const sdk = new Map<string, unknown>();
  const own = optionOf(options, 'PrivatemodeAI', OWN, sdk) as OwnOptions;
  return { own, sdk: Object.fromEntries(sdk) };
}

/**
 * The value of an option, if it is right. A plain object is copied without its undefined members. An
 * undefined manifest is copied, and is then refused. Members that `shape` lacks go to `others` if they are
 * the SDK's. Throws config_invalid, also for an object with inherited members. Errors quote no value.
 */
function optionOf(given: unknown, place: string, shape: Shape, others?: Map<string, unknown>): unknown {
  if (isRule(shape)) return checked(given, place, shape);
  const isPlain = typeof given === 'object' && given !== null && PLAIN.includes(Object.getPrototypeOf(given));
  if (!isPlain)
    throw invalid(`the options of ${place} are not a plain object: write each as a member of { }`);
  const own = new Map<string, unknown>();
  for (const name of Object.getOwnPropertyNames(given)) {
    const member = (given as Readonly<Record<string, unknown>>)[name];
    if (member === undefined && !/manifest/i.test(name)) continue;
    const inner = Object.hasOwn(shape, name) ? shape[name] : undefined;
    if (inner !== undefined) own.set(name, optionOf(member, name, inner));
    else if (others !== undefined && isTheirs(name, member)) others.set(name, member);
    else throw unknownOption(name, place, shape === OWN ? TOP : Object.keys(shape));
  }
  return Object.fromEntries(own);
}

const isRule = (shape: Shape): shape is Rule => Array.isArray(shape);

function checked<T>(value: T, name: string, [isRight, what]: Rule): T {
  if (isRight(value)) return value;
  throw invalid(`${name} is not ${what}`);
}

const PLAIN: readonly unknown[] = [Object.prototype, null];

/** Whether an option is the SDK's. The SDK passes copies null or BASE_URL for options that lead elsewhere. */
function isTheirs(name: string, value: unknown): boolean {
  if (leadsElsewhere(name)) return value === null || value === BASE_URL;
  return name === 'timeout' || (!/^(?:cdn|pin)/i.test(name) && meantBy(name, TOP) === undefined);
}

/** Which of `names` is near `name` (two letters), part of it, or contains it. Case, `_`, `-` are ignored. */
function meantBy(name: string, names: readonly string[]): string | undefined {
  const plain = (each: string): string => each.replace(/[_-]/g, '').toLowerCase();
  const given = plain(name.slice(0, 64));
  const known = names.map(plain);
  const isPart = (each: string): boolean =>
    given.includes(each) || (given.length > 4 && each.includes(given));
  const meant = nearest(given, known, 2) ?? known.find(isPart);
  return meant === undefined ? undefined : names[known.indexOf(meant)];
}

function unknownOption(name: string, place: string, names: readonly string[]): PrivatemodeError {
  const shown = JSON.stringify(name.slice(0, 64)).slice(1, -1);
  const meant = meantBy(name, names);
  if (leadsElsewhere(meant)) return invalid(`${shown} is refused: ${ONLY}`);
  const hint = meant === undefined ? 'The README lists them all.' : `Did you mean ${meant}?`;
  return invalid(`${shown} is not an option of ${place}. ${hint}`);
}

/** An error about options, with a remedy for an application. */
export const invalid = (message: string, code: ErrorCode = 'config_invalid'): PrivatemodeError =>
  new PrivatemodeError(code, message, { remedy: ERRORS[code].remedy });

/**
 * Adds the defaults to options that were read. Throws config_invalid if there is no key. Throws
 * unsafe_roots_refused if anybody could pose as the real service with unsafeTrustRoots.
 */
export function readOptions(options: OwnOptions, clock: Clock = runtimeClock) {
  const { apiKey = keyOfEnvironment(), manifest, unsafeTrustRoots } = options;
  const { cdnBaseUrl = 'https://cdn.confidential.cloud' } = options;
  if (apiKey === undefined)
    throw invalid('apiKey is missing, and PRIVATEMODE_API_KEY is not set: give one of them');
  const apiEndpoint: URL = new URL(options.apiEndpoint ?? 'https://api.privatemode.ai');
  const trusted = manifest === undefined ? [apiEndpoint, new URL(cdnBaseUrl)] : [apiEndpoint];
  const production = trusted.find(({ hostname }) => isProductionHost(hostname))?.hostname;
  if (unsafeTrustRoots !== undefined && production !== undefined) {
    const why = 'it would let anybody impersonate the service';
    throw invalid(`unsafeTrustRoots is refused for ${production}: ${why}`, 'unsafe_roots_refused');
  }
  // A copy, so that the application cannot change the pin later.
  const pin: Uint8Array | undefined =
    typeof manifest === 'string' ? Buffer.from(manifest) : manifest && Uint8Array.from(manifest);
  return {
    responsesApi: false,
    verificationTimeout: clock.times.epochWait,
    firstByteTimeout: clock.times.firstByteWait,
    streamIdleTimeout: clock.times.streamIdleWait,
    fetch: globalThis.fetch.bind(globalThis),
    ...options,
    apiKey: checked(apiKey, 'PRIVATEMODE_API_KEY', KEY), // a key among the options was checked before
    apiEndpoint,
    manifest: pin,
    cdnBaseUrl,
    gpuPolicy: { allowUnknown: true, gracePeriodHours: 48, ...options.gpuPolicy },
    amdKdsUrl: options.collateralUrls?.amd ?? 'https://kdsintf.amd.com',
    intelPcsUrl: options.collateralUrls?.intel ?? 'https://api.trustedservices.intel.com',
    clock,
  };
}

export type ClientConfig = ReturnType<typeof readOptions>;

/** PRIVATEMODE_API_KEY; undefined also without an environment, or if Deno does not let us read it. */
function keyOfEnvironment(): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  try {
    return process?.env?.['PRIVATEMODE_API_KEY'];
  } catch {
    return undefined;
  }
}
