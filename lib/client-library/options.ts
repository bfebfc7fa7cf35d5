/** The options with which an application makes a client, and the types of what a client returns. */
import type { Verdict } from '../verdict/verdict.ts';

/** The type of the standard fetch. */
export type Fetch = typeof globalThis.fetch;

/** What an application chooses for a client; each option has a default. */
export interface PrivatemodeOptions {
  /** The API key. Default: the environment variable PRIVATEMODE_API_KEY, where there is an environment. */
  readonly apiKey?: string | undefined;
  /** Origin of the service; https. Default: `https://api.privatemode.ai`. */
  readonly apiEndpoint?: string | undefined;
  /**
   * The manifest that the service has to match: text or bytes, exactly as published. Default: the newest
   * published one. For the default, leave the option out: an option that is present but undefined is refused.
   */
  readonly manifest?: string | Uint8Array;
  /** Where the service publishes its manifest; https. Default: `https://cdn.confidential.cloud`. */
  readonly cdnBaseUrl?: string | undefined;
  /** At least 32 bytes. Requests with the same salt share the prompt cache. Default: a salt per request. */
  readonly promptCacheSalt?: string | undefined;
  /** Translates `POST /v1/responses`, which the service does not have, to chat and back. Default: false. */
  readonly responsesApi?: boolean | undefined;
  /** Which certificates of the service's GPUs are accepted. Default: as in the proxy. */
  readonly gpuPolicy?: {
    /** Accept a GPU whose vendor cannot be asked about the certificate or does not know it. Default: true. */
    readonly allowUnknown?: boolean;
    /** Hours for which a GPU with a revoked certificate is accepted; 0 rejects it at once. Default: 48. */
    readonly gracePeriodHours?: number;
  };
  /** Where certificates and revocation lists of the hardware come from; https. Default: AMD and Intel. */
  readonly collateralUrls?: {
    /** AMD's host, for SEV-SNP. Default: `https://kdsintf.amd.com`. */
    readonly amd?: string;
    /** Intel's host, for TDX. Default: `https://api.trustedservices.intel.com`. */
    readonly intel?: string;
  };
  /** PEM texts of hardware roots to trust instead of the vendors' roots. Only simulators need them. */
  readonly unsafeTrustRoots?: {
    /** AMD's roots, by product line of the processor; `ark` is the root, `ask` the certificate below it. */
    readonly snp: {
      readonly [Product in 'Milan' | 'Genoa']?: { readonly ark: string; readonly ask: string };
    };
    /** Intel's root; if undefined, no TDX machine is accepted. */
    readonly tdx: { readonly root: string } | undefined;
  };
  /** Milliseconds that a request waits for the service to be verified. Default: 30,000. */
  readonly verificationTimeout?: number | undefined;
  /** Milliseconds from the beginning of a request until its response has to begin. Default: 600,000. */
  readonly firstByteTimeout?: number | undefined;
  /** Milliseconds of silence after which a response counts as broken. Default: 300,000. */
  readonly streamIdleTimeout?: number | undefined;
  /** The fetch that sends every request. Default: the runtime's own. */
  readonly fetch?: ((url: URL | string, init?: RequestInit) => Promise<Response>) | undefined;
  /** Closes the client when it aborts: nothing is renewed, and requests fail with `shutting_down`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called whenever the service was judged, even if it is rejected. A verdict lists all checks. An error
   * that the callback throws is uncaught, as in an event listener.
   */
  readonly onVerdict?: ((verdict: ClientVerdict) => void) | undefined;
  /** Called when requests begin to use another secret. An error that the callback throws is uncaught. */
  readonly onEpoch?: ((protection: Protection) => void) | undefined;
}

/** Options of the OpenAI client that name another host, network path or credential. All are refused. */
export const ELSEWHERE = [
  'baseURL',
  'dataResidency',
  'provider',
  'adminAPIKey',
  'workloadIdentity',
  'credential',
  'fetchOptions',
  'x509Transport',
] as const;

/** What protects the requests of a client now. The headers of a response say what protected that response. */
export interface Protection {
  /** The id of the secret that encrypts the requests. The service chose the id. */
  readonly secretId: string;
  /** SHA-256 of the manifest that the service was verified against. Compare it with the one you reviewed. */
  readonly manifestSha256: string;
  /** When the service was verified for this secret. */
  readonly attestedAt: Date;
}

/** The verdict of a verification, in the shape of `privatemode-proxy verify --json`. */
export type ClientVerdict = Verdict;

/** A verdict that accepts the service, with the manifest against which the service was checked. */
export interface Verification extends ClientVerdict {
  readonly outcome: 'accepted';
  readonly manifestSha256: string;
  /** The manifest as data: which programs, hardware and keys the service may have. */
  readonly manifest: Readonly<Record<string, unknown>>;
  /** The manifest as it was published: `manifestSha256` is its hash, and the option `manifest` takes it. */
  readonly manifestText: string;
}
