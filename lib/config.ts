/** The whole configuration, validated and frozen. Durations in ms, sizes in bytes. */
export interface Config {
  /** host:port of the remote API, normalised (lower case, no trailing dot, port always present). */
  readonly apiEndpoint: { readonly host: string; readonly port: number };
  /** The configured key, or where to read it from; undefined = clients bring their own. */
  readonly apiKey:
    | { readonly kind: 'literal'; readonly value: string }
    | { readonly kind: 'file'; readonly path: string }
    | undefined;
  readonly apiKeyFallback: 'never' | 'always' | 'if-placeholder';
  /** True where the flag was given: an unset flag with a key configured earns a warning. */
  readonly apiKeyFallbackGiven: boolean;
  readonly corsAllowedOrigins: readonly string[];
  readonly disablePromptCache: boolean;
  /** A fixed salt (literal, or read from a file); undefined = random per process where sharing is on. */
  readonly promptCacheSalt: string | undefined;
  readonly dumpRequests: boolean;
  readonly listenAddress: string;
  readonly port: number;
  readonly logFormat: 'text' | 'json';
  /** pino level number: 20 debug, 30 info, 40 warn, 50 error; slog numbers are mapped onto these. */
  readonly logLevel: number;
  readonly manifestPath: string | undefined;
  readonly cdnBaseUrl: string;
  readonly gpuOcspAllowUnknown: boolean;
  readonly gpuOcspRevokedGracePeriodHours: number;
  readonly tlsCertPath: string | undefined;
  readonly tlsKeyPath: string | undefined;
  readonly workspace: string;
  readonly unsafeTrustRoots: string | undefined;
  readonly amdKdsUrl: string;
  readonly intelPcsUrl: string;
  readonly maxBodyBytes: number;
  readonly minUploadRate: number;
  readonly connectTimeout: number;
  readonly firstByteTimeout: number;
  readonly streamIdleTimeout: number;
  readonly shutdownGrace: number;
  readonly workers: number;
}
