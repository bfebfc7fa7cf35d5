/** Defines the options with which an application makes a client, and checks their values. */
import { isProductionHost } from '../attestation/roots/production.ts';
import { PRODUCT_NAMES } from '../attestation/snp/packed-fields.ts';
import { certificateIn, commonName } from '../attestation/x509.ts';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { SALT_BYTES } from '../pipeline/inject-salt.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { runtimeClock } from './clock.ts';

/** Standard fetch. */
export type Fetch = typeof globalThis.fetch;

/** What an application chooses for a client; each option has a default. */
export interface PrivatemodeOptions {
  /** Default: the environment variable PRIVATEMODE_API_KEY, where there is an environment. */
  readonly apiKey?: string | undefined;
  /** Origin of the service. Default: `https://api.privatemode.ai`. */
  readonly apiEndpoint?: string | undefined;
  /**
   * The manifest that the service has to match: text or bytes, just as it was published. Default: the newest
   * published one. Leave it out for the default: a pin that is named but undefined is refused.
   */
  readonly manifest?: string | Uint8Array;
  /** Where the service publishes its manifest; https. Default: `https://cdn.confidential.cloud`. */
  readonly cdnBaseUrl?: string | undefined;
  /**
   * Requests with the same salt share the service's prompt cache; at least 32 bytes. Default: a fresh one for
   * each request.
   */
  readonly promptCacheSalt?: string | undefined;
  /**
   * Translates `POST /v1/responses`, which the service does not have, to a chat completion and back. Default:
   * false, it is refused.
   */
  readonly responsesApi?: boolean | undefined;
  /**
   * Which certificates of the service's GPUs are accepted. Default, as in the proxy: unknown ones too, and
   * revoked ones for 48 hours.
   */
  readonly gpuPolicy?:
    | {
        /**
         * Accept a GPU whose vendor cannot be asked about the certificate or does not know it. Default: true.
         */
        readonly allowUnknown?: boolean;
        /**
         * Hours for which a GPU with a revoked certificate is accepted; 0 rejects it at once. Default: 48.
         */
        readonly gracePeriodHours?: number;
      }
    | undefined;
  /**
   * Where certificates and revocation lists of the hardware come from; https. Default: the vendors' own
   * hosts.
   */
  readonly collateralUrls?:
    | {
        /** For SEV-SNP. Default: `https://kdsintf.amd.com`. */
        readonly amd?: string;
        /** For TDX. Default: `https://api.trustedservices.intel.com`. */
        readonly intel?: string;
      }
    | undefined;
  /**
   * Hardware roots to trust instead of the vendors', each the PEM text of its certificate: for simulators
   * only, refused for the real service.
   */
  readonly unsafeTrustRoots?:
    | {
        /** AMD's, by product line of the processor; `ark` is the root, `ask` the certificate below it. */
        readonly snp: Readonly<
          Partial<Record<'Milan' | 'Genoa', { readonly ark: string; readonly ask: string }>>
        >;
        /** Intel's root; undefined: no TDX machine is accepted. */
        readonly tdx: { readonly root: string } | undefined;
      }
    | undefined;
  /** ms that a request waits for the service to be verified. Default: 30,000. */
  readonly verificationTimeout?: number | undefined;
  /** ms from the beginning of a request until its response has to begin. Default: 600,000. */
  readonly firstByteTimeout?: number | undefined;
  /** ms of silence after which a response counts as broken. Default: 300,000. */
  readonly streamIdleTimeout?: number | undefined;
  /** The fetch that sends every request. Default: the runtime's own. */
  readonly fetch?: ((url: URL | string, init?: RequestInit) => Promise<Response>) | undefined;
  /**
   * Closes the client when it aborts: nothing is renewed any more, and requests fail with `shutting_down`.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called with each verdict, also with one that rejects the service. A verdict has all checks.
   * An error that the function throws is uncaught, as from an event listener.
   */
  readonly onVerdict?: ((verdict: ClientVerdict) => void) | undefined;
  /**
   * Called when requests begin to use another secret. An error that it throws is uncaught, as from an event
   * listener.
   */
  readonly onEpoch?: ((protection: Protection) => void) | undefined;
}

/** What protects the requests of a client at the moment; response headers say the same of each response. */
export interface Protection {
  /**
   * Which secret encrypts the requests, by the name that the service gave it; the response header
   * `privatemode-proxy-secret-id` repeats it.
   */
  readonly secretId: string;
  /**
   * Which manifest the service was verified against, as the SHA-256 of its text: compare it with that of the
   * manifest that you reviewed.
   */
  readonly manifestSha256: string;
  /** When the service was verified for this secret. */
  readonly attestedAt: Date;
}

/** The verdict of a verification, in the shape of `privatemode-proxy verify --json`. */
export type ClientVerdict = Verdict;

/** A verdict that accepts the service, and the manifest that the service was held against. */
export interface Verification extends ClientVerdict {
  /** Every check that applies held. */
  readonly outcome: 'accepted';
  /** Which manifest the service runs under, as the SHA-256 of its text. */
  readonly manifestSha256: string;
  /** Nothing failed. */
  readonly failure: null;
  /** The manifest as data: which programs, hardware and keys the service may have. */
  readonly manifest: Readonly<Record<string, unknown>>;
  /**
   * The text of the manifest just as it was published: `manifestSha256` is the hash of its UTF-8, and as the
   * option `manifest` it pins the service.
   */
  readonly manifestText: string;
}

/** Mistakes in an API key, and the message for each; none quotes the key. */
const KEY_MISTAKES: readonly (readonly [(key: unknown) => boolean, string])[] = [
  [(key) => typeof key !== 'string', 'is not a text: give the key as a string'],
  [(key) => key === '', 'is empty: give the key'],
  [(key) => /^bearer\s/i.test(String(key)), 'begins with "Bearer": give the key alone'],
  [
    (key) => /^@/.test(String(key)),
    'begins with @, which names a file only to the proxy: read the file yourself, and give the key',
  ],
  [(key) => /^\s|\s$/.test(String(key)), 'begins or ends with a blank or a line break: trim it'],
  [
    (key) => /[^\x21-\x7e]/.test(String(key)),
    'holds characters that no API key has: give the key alone, plain ASCII',
  ],
];

/** Origins of the real service and of the hardware's vendors, by option. */
const URLS = {
  apiEndpoint: 'https://api.privatemode.ai',
  cdnBaseUrl: 'https://cdn.confidential.cloud',
  'collateralUrls.amd': 'https://kdsintf.amd.com',
  'collateralUrls.intel': 'https://api.trustedservices.intel.com',
} as const;

/** Most ms that setTimeout takes; beyond them it fires at once. */
const MAX_MS = 2 ** 31 - 1;

/**
 * Checks the values of the options, and adds the defaults; option-names.ts has checked the names before.
 * Throws config_invalid, and unsafe_roots_refused if unsafeTrustRoots would let anybody pass for the real
 * service. Errors quote neither key nor salt.
 */
export function readOptions(options: PrivatemodeOptions, clock: Clock = runtimeClock) {
  const { promptCacheSalt, collateralUrls, unsafeTrustRoots } = options;
  const apiKey = options.apiKey ?? keyOfEnvironment();
  // The key travels in a header. A runtime that refuses it there would quote the key in its error.
  const wrong = apiKey === undefined ? undefined : KEY_MISTAKES.find(([isMade]) => isMade(apiKey))?.[1];
  if (wrong !== undefined) throw invalid(`apiKey (or PRIVATEMODE_API_KEY) ${wrong}`);
  if (promptCacheSalt !== undefined && !isSalt(promptCacheSalt)) {
    throw invalid(`promptCacheSalt is not a text of at least ${SALT_BYTES} bytes`);
  }
  const manifest = Object.hasOwn(options, 'manifest') ? manifestBytes(options.manifest) : undefined;
  // Null does not mean the default: that would lead to the real service where another one was meant.
  const { apiEndpoint: origin = URLS.apiEndpoint, cdnBaseUrl: cdn = URLS.cdnBaseUrl } = options;
  const { epochWait, firstByteWait, streamIdleWait } = clock.times;
  const {
    verificationTimeout = epochWait,
    firstByteTimeout = firstByteWait,
    streamIdleTimeout = streamIdleWait,
  } = options;
  const { fetch = globalThis.fetch.bind(globalThis), onVerdict, onEpoch } = options;
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal))
    throw invalid('signal is not an AbortSignal: give the signal of an AbortController');
  for (const [name, value] of Object.entries({ fetch, onVerdict, onEpoch })) {
    if (value !== undefined && typeof value !== 'function')
      throw invalid(`${name} is not a function: give one, or leave it out`);
  }
  const apiEndpoint = originOf(origin);
  const cdnBaseUrl = httpsUrl('cdnBaseUrl', cdn);
  if (unsafeTrustRoots !== undefined) {
    const hosts = [apiEndpoint, ...(manifest === undefined ? [cdnBaseUrl] : [])].map((url) => url.hostname);
    const production = hosts.find(isProductionHost);
    if (production !== undefined) {
      throw new PrivatemodeError(
        'unsafe_roots_refused',
        `unsafeTrustRoots is refused for ${production}: it would let anybody impersonate the service`,
        { remedy: 'Leave out unsafeTrustRoots, or set apiEndpoint and cdnBaseUrl to a simulator.' },
      );
    }
    checkRoots(unsafeTrustRoots);
  }
  const { allowUnknown = true, gracePeriodHours = 48 } = options.gpuPolicy ?? {};
  const { responsesApi = false } = options;
  for (const [name, value] of Object.entries({ 'gpuPolicy.allowUnknown': allowUnknown, responsesApi })) {
    if (typeof value !== 'boolean')
      throw invalid(`${name} is not true or false: give one of them, without quotes`);
  }
  const { amd = URLS['collateralUrls.amd'], intel = URLS['collateralUrls.intel'] } = collateralUrls ?? {};
  const checked = {
    ...options,
    apiEndpoint,
    manifest,
    cdnBaseUrl: cdnBaseUrl.href,
    gpuPolicy: {
      allowUnknown,
      gracePeriodHours: within(
        'gpuPolicy.gracePeriodHours',
        gracePeriodHours,
        'hours',
        0,
        Number.MAX_SAFE_INTEGER,
      ),
    },
    collateralUrls: {
      amd: httpsUrl('collateralUrls.amd', amd).href.replace(/\/+$/, ''),
      intel: httpsUrl('collateralUrls.intel', intel).href.replace(/\/+$/, ''),
    },
    verificationTimeout: within('verificationTimeout', verificationTimeout, 'ms', 1, MAX_MS),
    firstByteTimeout: within('firstByteTimeout', firstByteTimeout, 'ms', 1, MAX_MS),
    streamIdleTimeout: within('streamIdleTimeout', streamIdleTimeout, 'ms', 1, MAX_MS),
    fetch,
    responsesApi,
    clock,
  };
  if (apiKey === undefined)
    throw invalid('apiKey is missing, and PRIVATEMODE_API_KEY is not set: give one of them');
  return { ...checked, apiKey };
}

export type ClientConfig = ReturnType<typeof readOptions>;

/** PRIVATEMODE_API_KEY; undefined also if there is no environment, or if Deno does not let us read it. */
function keyOfEnvironment(): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  try {
    return process?.env?.['PRIVATEMODE_API_KEY'];
  } catch {
    return undefined;
  }
}

/**
 * Throws config_invalid unless there are roots, and each is the PEM text of the certificate that belongs at
 * its place.
 */
function checkRoots({ snp, tdx }: { readonly snp?: unknown; readonly tdx?: unknown }): void {
  const products = membersOf('unsafeTrustRoots.snp', snp, PRODUCT_NAMES);
  for (const [product, pair] of products) {
    const place = `unsafeTrustRoots.snp.${product}`;
    const { ark, ask } = Object.fromEntries(membersOf(place, pair, ['ark', 'ask']));
    checkRoot(`${place}.ark`, ark, `ARK-${product}`);
    checkRoot(`${place}.ask`, ask, `SEV-${product}`);
  }
  if (tdx !== undefined) {
    const { root } = Object.fromEntries(membersOf('unsafeTrustRoots.tdx', tdx, ['root']));
    checkRoot('unsafeTrustRoots.tdx.root', root, 'Intel SGX Root CA');
  } else if (products.length === 0) throw invalid('unsafeTrustRoots holds no root: give snp, tdx or both');
}

function checkRoot(place: string, text: unknown, name: string): void {
  let found: string | undefined;
  try {
    found = commonName(certificateIn(text as string).subject);
  } catch {
    throw invalid(
      `${place} is not the PEM text of one certificate, as readFileSync(path, 'utf8') reads it from its file`,
    );
  }
  if (found !== name) throw invalid(`${place} is not the certificate of ${name}`);
}

/** The members of an object, which may have only the `known` ones. Throws config_invalid. */
function membersOf(name: string, value: unknown, known: readonly string[]): [string, unknown][] {
  const shape = `${name} is not an object of ${known.join(' and ')}`;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalid(shape);
  const members = Object.entries(value);
  if (members.some(([member]) => !known.includes(member))) throw invalid(shape);
  return members;
}

/** config_invalid, with a remedy for an application instead of an operator. */
export const invalid = (message: string): PrivatemodeError =>
  new PrivatemodeError('config_invalid', message, {
    remedy: 'See the options in the README of privatemode-ai.',
  });

/**
 * A copy of the manifest, which nobody can change afterwards. Throws config_invalid also for undefined: it
 * would leave the service unpinned where a pin was meant.
 */
function manifestBytes(manifest: unknown): Uint8Array {
  const bytes =
    typeof manifest === 'string'
      ? new TextEncoder().encode(manifest)
      : ArrayBuffer.isView(manifest) &&
        new Uint8Array(manifest.buffer, manifest.byteOffset, manifest.byteLength).slice();
  if (bytes === false)
    throw invalid(
      'manifest is neither a text nor a Uint8Array: give its JSON text as it was published, not parsed, or leave it out for no pin',
    );
  if (bytes.length === 0)
    throw invalid('manifest is empty: give its JSON text as it was published, or leave it out for no pin');
  if (typeof manifest === 'string' && !manifest.trimStart().startsWith('{'))
    throw invalid(
      'manifest is no JSON: it is the text of the manifest, not its hash or the path of its file',
    );
  return bytes;
}

/**
 * Whether the salt is well-formed text of at least 32 bytes. Two texts with lone surrogates could become the
 * same UTF-8, and share a cache that they should not share.
 */
const isSalt = (salt: unknown): boolean =>
  typeof salt === 'string' && salt.isWellFormed() && new TextEncoder().encode(salt).length >= SALT_BYTES;

function within(name: string, value: number, unit: string, least: number, most: number): number {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  const given = typeof value === 'number' ? value : JSON.stringify(value)?.slice(0, 24);
  throw invalid(
    `${name} is not a whole number of ${unit} from ${least} to ${most}, without a unit: ${given}`,
  );
}

/**
 * The text as an https origin; it may leave out the scheme. Https is required because requests name the
 * secret and the API key.
 */
function originOf(text: string): URL {
  const bare = typeof text === 'string' && !text.includes('://');
  const url = httpsUrl('apiEndpoint', bare ? `https://${text}` : text);
  if (url.pathname === '/') return url;
  throw invalid(`apiEndpoint is an origin, without a path, such as ${URLS.apiEndpoint}`);
}

/**
 * The text as an https URL. The error for a refused URL quotes nothing of it, because it may hold a password.
 */
function httpsUrl(name: keyof typeof URLS, text: string): URL {
  // canParse, because URL.parse exists only since Node 22.1
  const url = typeof text === 'string' && URL.canParse(text) ? new URL(text) : null;
  const plain = url !== null && `${url.username}${url.password}${url.search}${url.hash}` === '';
  if (plain && url.protocol === 'https:') return url;
  throw invalid(`${name} is not an https URL such as ${URLS[name]}, without a query or a password`);
}
