/** What an application chooses when it makes a client. */
import { PrivatemodeError } from '../errors.ts';

/** Standard fetch, or one with the same contract: a proxy, a test, a runtime of its own. */
export type Fetch = typeof globalThis.fetch;

export interface PrivatemodeOptions {
  /** Default: the environment variable PRIVATEMODE_API_KEY, where there is an environment. */
  readonly apiKey?: string | undefined;
  /** Origin of the service. Default: `https://api.privatemode.ai`. */
  readonly apiEndpoint?: string | undefined;
  /** The manifest that the service has to match, byte for byte. Default: the one that the service publishes. */
  readonly manifest?: string | Uint8Array | undefined;
  /** Where the service publishes its manifest. Default: `https://cdn.confidential.cloud`. */
  readonly cdnBaseUrl?: string | undefined;
  /** Requests with the same salt share the service's prompt cache; at least 32 bytes. Default: a fresh one for each request. */
  readonly promptCacheSalt?: string | undefined;
  /** Which certificates of the service's GPUs are accepted. Default: good ones only. */
  readonly gpuPolicy?: { readonly allowUnknown?: boolean; readonly gracePeriodHours?: number } | undefined;
  /** Where certificates and revocation lists of the hardware come from. Default: the vendors' own hosts. */
  readonly collateralUrls?: { readonly amd?: string; readonly intel?: string } | undefined;
  /** Hardware roots to trust instead of the vendors': for simulators only, refused for the real service. */
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
  /** Called after each verification, accepted or not. */
  readonly onVerdict?: ((verdict: ClientVerdict) => void) | undefined;
  /** Called when requests begin to use another secret. */
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
export interface ClientVerdict {
  readonly outcome: 'accepted' | 'rejected' | 'unsupported' | 'malformed' | 'unavailable';
  readonly tee: 'snp' | 'tdx' | null;
  readonly manifestSha256: string | null;
  /** RFC 3339 in UTC. */
  readonly at: string;
  readonly roots: 'vendor' | 'custom';
  readonly checks: readonly {
    readonly id: string;
    readonly outcome: 'pass' | 'fail' | 'not-applicable' | 'not-evaluated';
    readonly expected: string;
    readonly found: string;
    readonly source: string;
  }[];
  /** Null exactly if accepted. */
  readonly failure: {
    readonly id: string | null;
    readonly code: string;
    readonly expected: string | null;
    readonly found: string;
    readonly source: string | null;
  } | null;
}

const MIN_SALT_BYTES = 32;
const GPU_POLICY = { allowUnknown: false, gracePeriodHours: 0 };

/** The options with their defaults, checked. Throws config_invalid. */
export function readOptions(options: PrivatemodeOptions) {
  const environment = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env;
  const salt = options.promptCacheSalt;
  if (salt !== undefined && new TextEncoder().encode(salt).length < MIN_SALT_BYTES) {
    throw new PrivatemodeError('config_invalid', `promptCacheSalt has less than ${MIN_SALT_BYTES} bytes`);
  }
  return {
    ...options,
    apiKey: options.apiKey ?? environment?.['PRIVATEMODE_API_KEY'],
    apiEndpoint: originOf('apiEndpoint', options.apiEndpoint ?? 'https://api.privatemode.ai'),
    cdnBaseUrl: options.cdnBaseUrl ?? 'https://cdn.confidential.cloud',
    gpuPolicy: { ...GPU_POLICY, ...options.gpuPolicy },
    verificationTimeout: options.verificationTimeout ?? 30_000,
    firstByteTimeout: options.firstByteTimeout ?? 600_000,
    streamIdleTimeout: options.streamIdleTimeout ?? 300_000,
    fetch: options.fetch ?? globalThis.fetch.bind(globalThis),
  };
}

export type ClientConfig = ReturnType<typeof readOptions>;

/** An https origin: what is sent there names the secret and the API key. */
function originOf(name: string, text: string): URL {
  const url = URL.parse(text.includes('://') ? text : `https://${text}`);
  if (url?.protocol === 'https:' && url.username === '' && url.pathname === '/' && url.search === '')
    return url;
  throw new PrivatemodeError(
    'config_invalid',
    `${name} is no https origin such as https://api.privatemode.ai`,
  );
}
