/** What an application chooses when it makes a client. */
import { isProductionHost } from '../attestation/roots/production.ts';
import { PRODUCT_NAMES } from '../attestation/snp/product.ts';
import { decodeOneCertificate, parseCertificate } from '../attestation/x509/certificate.ts';
import { commonName } from '../attestation/x509/name.ts';
import { PrivatemodeError } from '../errors.ts';
import { SALT_BYTES } from '../pipeline/shard-key.ts';
import type { VerdictReport } from '../verdict/verdict.ts';

/** Standard fetch, or one with the same contract: a proxy, a test, a runtime of its own. */
export type Fetch = typeof globalThis.fetch;

export interface PrivatemodeOptions {
  /** Default: the environment variable PRIVATEMODE_API_KEY, where there is an environment. */
  readonly apiKey?: string | undefined;
  /** Origin of the service. Default: `https://api.privatemode.ai`. */
  readonly apiEndpoint?: string | undefined;
  /**
   * The manifest that the service has to match: text or bytes, just as it was published. Default: the newest published one. Leave
   * it out for the default: a pin that is named but undefined is refused.
   */
  readonly manifest?: string | Uint8Array;
  /** Where the service publishes its manifest; https. Default: `https://cdn.confidential.cloud`. */
  readonly cdnBaseUrl?: string | undefined;
  /** Requests with the same salt share the service's prompt cache; at least 32 bytes. Default: a fresh one for each request. */
  readonly promptCacheSalt?: string | undefined;
  /** Translates `POST /v1/responses`, which the service does not have, to a chat completion and back. Default: false, it is refused. */
  readonly responsesApi?: boolean | undefined;
  /** Which certificates of the service's GPUs are accepted. Default: as the proxy's, unknown ones too, and revoked ones for 48 hours. */
  readonly gpuPolicy?: { readonly allowUnknown?: boolean; readonly gracePeriodHours?: number } | undefined;
  /** Where certificates and revocation lists of the hardware come from; https. Default: the vendors' own hosts. */
  readonly collateralUrls?: { readonly amd?: string; readonly intel?: string } | undefined;
  /** Hardware roots to trust instead of the vendors', each the PEM text of its certificate: for simulators only, refused for the real service. */
  readonly unsafeTrustRoots?:
    | {
        readonly snp: Readonly<
          Partial<Record<'Milan' | 'Genoa', { readonly ark: string; readonly ask: string }>>
        >;
        readonly tdx: { readonly root: string } | undefined;
      }
    | undefined;
  /** ms that a request waits for the service to be verified. Default: 30,000. */
  readonly verificationTimeout?: number | undefined;
  /** ms from the beginning of a request until its response has to begin. Default: 600,000. */
  readonly firstByteTimeout?: number | undefined;
  /** ms of silence after which a response counts as broken. Default: 300,000. */
  readonly streamIdleTimeout?: number | undefined;
  /** The network below. Default: the runtime's own fetch. */
  readonly fetch?: Fetch | undefined;
  /** Closes the client when it aborts: nothing is renewed any more, and requests fail with `shutting_down`. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each verification, accepted or not. What it throws is uncaught, as from an event listener. */
  readonly onVerdict?: ((verdict: ClientVerdict) => void) | undefined;
  /** Called when requests begin to use another secret. What it throws is uncaught, as from an event listener. */
  readonly onEpoch?: ((protection: Protection) => void) | undefined;
}

/** What protects the requests of a client at the moment; response headers say the same of each response. */
export interface Protection {
  /** Standard base64. */
  readonly secretId: string;
  /** Lower-case hex. */
  readonly manifestSha256: string;
  readonly attestedAt: Date;
}

/** The verdict of a verification, in the shape of `privatemode-proxy verify --json`. */
export type ClientVerdict = VerdictReport;

/** A verdict that accepts the service, and the manifest that the service was held against. */
export interface Verification extends ClientVerdict {
  readonly outcome: 'accepted';
  readonly manifestSha256: string;
  readonly failure: null;
  /** Parsed. */
  readonly manifest: Readonly<Record<string, unknown>>;
  /** Just as it was published: `manifestSha256` is the hash of its UTF-8, and the option `manifest` pins it. */
  readonly manifestText: string;
}

/** What is wrong with an API key, said without the key. */
const KEY_MISTAKES: readonly (readonly [(key: unknown) => boolean, string])[] = [
  [(key) => typeof key !== 'string', 'is not a text'],
  [(key) => key === '', 'is empty'],
  [(key) => /^bearer\s/i.test(String(key)), 'begins with "Bearer": give the key alone'],
  [(key) => /^\s|\s$/.test(String(key)), 'begins or ends with a blank or a line break: trim it'],
  [(key) => /[^\x21-\x7e]/.test(String(key)), 'holds characters that no API key has'],
];

/** Origins of the real service and of the hardware's vendors, by option. */
const URLS = {
  apiEndpoint: 'https://api.privatemode.ai',
  cdnBaseUrl: 'https://cdn.confidential.cloud',
  'collateralUrls.amd': 'https://kdsintf.amd.com',
  'collateralUrls.intel': 'https://api.trustedservices.intel.com',
} as const;

/** setTimeout fires at once beyond it. */
const MAX_MS = 2 ** 31 - 1;

/**
 * The options with their defaults, checked; their names have been (option-names.ts). Throws config_invalid, and
 * unsafe_roots_refused where unsafeTrustRoots would let anybody pass for the real service. Errors quote neither key nor salt.
 */
export function readOptions(options: PrivatemodeOptions) {
  const { promptCacheSalt, collateralUrls, unsafeTrustRoots } = options;
  const apiKey = options.apiKey ?? keyOfEnvironment();
  // It travels in a header, and the error of a runtime that refuses it there would quote it.
  const wrong = apiKey === undefined ? undefined : KEY_MISTAKES.find(([isMade]) => isMade(apiKey))?.[1];
  if (wrong !== undefined) throw invalid(`apiKey (or PRIVATEMODE_API_KEY) ${wrong}`);
  if (promptCacheSalt !== undefined && !isSalt(promptCacheSalt)) {
    throw invalid(`promptCacheSalt is not a text of at least ${SALT_BYTES} bytes`);
  }
  const manifest = Object.hasOwn(options, 'manifest') ? manifestBytes(options.manifest) : undefined;
  // Null is no default: it would lead to the real service where another was meant.
  const { apiEndpoint: origin = URLS.apiEndpoint, cdnBaseUrl: cdn = URLS.cdnBaseUrl } = options;
  const { verificationTimeout = 30_000, firstByteTimeout = 600_000, streamIdleTimeout = 300_000 } = options;
  const { fetch = globalThis.fetch.bind(globalThis), onVerdict, onEpoch } = options;
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal))
    throw invalid('signal is not an AbortSignal');
  for (const [name, value] of Object.entries({ fetch, onVerdict, onEpoch })) {
    if (value !== undefined && typeof value !== 'function') throw invalid(`${name} is not a function`);
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
    if (typeof value !== 'boolean') throw invalid(`${name} is not true or false`);
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
  };
  if (apiKey === undefined) throw invalid('apiKey is missing, and PRIVATEMODE_API_KEY is not set');
  return { ...checked, apiKey };
}

export type ClientConfig = ReturnType<typeof readOptions>;

/** Undefined too where there is no environment, and where Deno does not let us read it. */
function keyOfEnvironment(): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  try {
    return process?.env?.['PRIVATEMODE_API_KEY'];
  } catch {
    return undefined;
  }
}

/** Throws config_invalid unless there are roots, and each is the PEM text of the certificate that belongs at its place. */
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
  } else if (products.length === 0) throw invalid('unsafeTrustRoots holds no root');
}

function checkRoot(place: string, text: unknown, name: string): void {
  let found: string | undefined;
  try {
    found = commonName(parseCertificate(decodeOneCertificate(text as string)).subject);
  } catch {
    throw invalid(
      `${place} is not the PEM text of one certificate, as readFileSync(path, 'utf8') reads it from its file`,
    );
  }
  if (found !== name) throw invalid(`${place} is not the certificate of ${name}`);
}

/** The members of an object that may have these alone. Throws config_invalid. */
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

/** A copy, which nobody changes afterwards. A name without a value would leave the service unpinned where a pin was meant. */
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
  if (bytes.length === 0) throw invalid('manifest is empty');
  if (typeof manifest === 'string' && !manifest.trimStart().startsWith('{'))
    throw invalid(
      'manifest is no JSON: it is the text of the manifest, not its hash or the path of its file',
    );
  return bytes;
}

/** Two texts with lone surrogates could become one in UTF-8, and share a cache that they should not. */
const isSalt = (salt: unknown): boolean =>
  typeof salt === 'string' && salt.isWellFormed() && new TextEncoder().encode(salt).length >= SALT_BYTES;

function within(name: string, value: number, unit: string, least: number, most: number): number {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw invalid(`${name} is not a whole number of ${unit} from ${least} to ${most}`);
}

/** An https origin, its scheme left out or not: what is sent there names the secret and the API key. */
function originOf(text: string): URL {
  const bare = typeof text === 'string' && !text.includes('://');
  const url = httpsUrl('apiEndpoint', bare ? `https://${text}` : text);
  if (url.pathname === '/') return url;
  throw invalid(`apiEndpoint is an origin, without a path, such as ${URLS.apiEndpoint}`);
}

/** Nothing of a URL that is refused is quoted: it may hold a password. */
function httpsUrl(name: keyof typeof URLS, text: string): URL {
  // URL.parse is of Node 22.1.
  const url = typeof text === 'string' && URL.canParse(text) ? new URL(text) : null;
  const plain = url !== null && `${url.username}${url.password}${url.search}${url.hash}` === '';
  if (plain && url.protocol === 'https:') return url;
  throw invalid(`${name} is not an https URL such as ${URLS[name]}, without a query or a password`);
}
