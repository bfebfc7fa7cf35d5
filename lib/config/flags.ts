/** Headings of --help, in its order. */
export type FlagGroup = 'Remote service' | 'Application side' | 'Prompt cache' | 'Limits' | 'Operation';

export interface FlagAlias {
  readonly name: string;
  /** An older spelling: works, with a warning. */
  readonly deprecated?: true;
  /** A boolean that says the opposite. */
  readonly inverted?: true;
}

export interface Flag {
  readonly name: string;
  readonly short?: string;
  readonly type: 'string' | 'boolean' | 'list' | 'integer' | 'duration';
  /** What stands for the value in --help, e.g. `HOST:PORT`; booleans have none. */
  readonly value?: string;
  /** As it would be written; undefined: unset. */
  readonly default?: string;
  readonly help: string;
  readonly group: FlagGroup;
  readonly aliases?: readonly FlagAlias[];
  /** Works, and is not listed: for simulators and tests. */
  readonly hidden?: true;
  /** No longer does anything: `ignored` warns, `refused` ends the start; with the reason. */
  readonly retired?: { readonly how: 'ignored' | 'refused'; readonly why: string };
}

const old = (name: string): FlagAlias => ({ name, deprecated: true });

const ROWS = [
  {
    name: 'api-endpoint',
    type: 'string',
    value: 'HOST[:PORT]',
    default: 'api.privatemode.ai:443',
    help: 'Endpoint of the remote API.',
    group: 'Remote service',
    aliases: [old('apiEndpoint')],
  },
  {
    name: 'api-key',
    type: 'string',
    value: 'KEY|@FILE',
    help: 'API key: a literal, or a file path prefixed with @ (read again when it changes and on SIGHUP). If unset, the proxy does not authenticate to the API, and clients send their own keys.',
    group: 'Remote service',
    aliases: [old('apiKey')],
  },
  {
    name: 'api-key-fallback',
    type: 'string',
    value: 'MODE',
    default: 'always',
    help: 'When the configured key replaces the one of a request: never, always, or if-placeholder (only where the request says exactly "Bearer placeholder"). The default will change to never in a future release.',
    group: 'Remote service',
  },
  {
    name: 'manifest-path',
    type: 'string',
    value: 'FILE',
    help: 'Manifest file to verify the remote against. If unset, the manifest is fetched from the service and every enforced one is logged.',
    group: 'Remote service',
    aliases: [old('manifestPath')],
  },
  {
    name: 'gpu-ocsp-allow-unknown',
    type: 'boolean',
    default: 'true',
    help: "Tolerate that the GPU vendor's certificate status service (OCSP) cannot be reached or knows nothing of a certificate.",
    group: 'Remote service',
    aliases: [{ name: 'nvidia-ocsp-allow-unknown' }, old('nvidiaOCSPAllowUnknown')],
  },
  {
    name: 'gpu-ocsp-revoked-grace-period',
    type: 'integer',
    value: 'HOURS',
    default: '48',
    help: 'For how many hours GPU certificates are accepted after they were revoked; 0 rejects them at once.',
    group: 'Remote service',
    aliases: [{ name: 'nvidia-ocsp-revoked-grace-period' }, old('nvidiaOCSPRevokedGracePeriod')],
  },
  {
    name: 'listen-address',
    type: 'string',
    value: 'HOST',
    default: '0.0.0.0',
    help: 'IP address or host name to listen on. 127.0.0.1 keeps other machines out.',
    group: 'Application side',
  },
  {
    name: 'port',
    type: 'string',
    value: 'PORT',
    default: '8080',
    help: 'Port to listen on.',
    group: 'Application side',
  },
  {
    name: 'tls-cert-path',
    type: 'string',
    value: 'FILE',
    help: 'TLS certificate (PEM, with its chain). Together with --tls-key-path it makes the proxy serve HTTPS; both files are read again when they change.',
    group: 'Application side',
    aliases: [old('tlsCertPath')],
  },
  {
    name: 'tls-key-path',
    type: 'string',
    value: 'FILE',
    help: 'TLS private key (PEM).',
    group: 'Application side',
    aliases: [old('tlsKeyPath')],
  },
  {
    name: 'cors-allowed-origins',
    type: 'list',
    value: 'ORIGIN,…',
    help: 'Web pages that may use the proxy, as exact origins such as https://chat.example.com; * allows any. Empty: none, and pages of other origins are refused.',
    group: 'Application side',
  },
  {
    name: 'allowed-hosts',
    type: 'list',
    value: 'HOST[:PORT],…',
    help: 'Host names under which web pages of the proxy itself may be opened, such as proxy.lab.example:8080, beside localhost, IP addresses, --listen-address and the names in the TLS certificate. Others are refused to browsers (DNS rebinding).',
    group: 'Application side',
  },
  {
    name: 'disable-prompt-cache',
    type: 'boolean',
    default: 'true',
    help: 'Use a new random salt for each request, so that no two share a prompt cache. With false, all requests through this proxy share one.',
    group: 'Prompt cache',
    aliases: [{ name: 'sharedPromptCache', deprecated: true, inverted: true }],
  },
  {
    name: 'prompt-cache-salt',
    type: 'string',
    value: 'SALT|@FILE|random',
    default: 'random',
    help: 'Salt that separates prompt caches: a literal or @file of at least 32 bytes and at most 128 characters (shared by all that know it), or random (one per start). Requires --disable-prompt-cache=false. A cache_salt in the request wins.',
    group: 'Prompt cache',
    aliases: [old('promptCacheSalt')],
  },
  {
    name: 'max-body-bytes',
    type: 'integer',
    value: 'BYTES',
    default: '134217728',
    help: 'Largest request body accepted (128 MiB).',
    group: 'Limits',
  },
  {
    name: 'max-buffered-bytes',
    type: 'integer',
    value: 'BYTES',
    help: 'Largest total of request bodies in memory; further ones wait for up to 10 s and then get 503, a larger one gets 413. Shared evenly by the workers. If unset, a quarter of the memory: of the limit of the container or service (cgroup), or of the machine if that is less.',
    group: 'Limits',
  },
  {
    name: 'min-upload-rate',
    type: 'integer',
    value: 'BYTES/S',
    default: '1024',
    help: 'Bytes per second, over the last 10 s, below which the upload of a request is given up; 0 never gives up.',
    group: 'Limits',
  },
  {
    name: 'connect-timeout',
    type: 'duration',
    value: 'DURATION',
    default: '10s',
    help: 'Time to reach the remote API, TLS included.',
    group: 'Limits',
  },
  {
    name: 'first-byte-timeout',
    type: 'duration',
    value: 'DURATION',
    default: '10m',
    help: 'Time from the end of a request to the start of its answer.',
    group: 'Limits',
  },
  {
    name: 'stream-idle-timeout',
    type: 'duration',
    value: 'DURATION',
    default: '5m',
    help: 'Longest silence inside an answer.',
    group: 'Limits',
  },
  {
    name: 'stream-keepalive',
    type: 'duration',
    value: 'DURATION',
    default: '0',
    help: 'Silence inside an event stream after which the client gets an SSE comment, for proxies in between that close silent connections; 0 sends none. Some clients fail on comments.',
    group: 'Limits',
  },
  {
    name: 'shutdown-grace',
    type: 'duration',
    value: 'DURATION',
    default: '30s',
    help: 'On SIGTERM, time for running answers to finish.',
    group: 'Limits',
  },
  {
    name: 'workspace',
    type: 'string',
    value: 'DIR',
    default: '.',
    help: 'Directory for the files the proxy writes: manifests, collateral, request dumps.',
    group: 'Operation',
  },
  {
    name: 'dump-requests',
    type: 'boolean',
    default: 'false',
    help: 'Write requests and responses, in plain text, to the requests directory of the workspace.',
    group: 'Operation',
    aliases: [old('dumpRequests')],
  },
  {
    name: 'log-format',
    type: 'string',
    value: 'FORMAT',
    default: 'text',
    help: 'json or text.',
    group: 'Operation',
  },
  {
    name: 'log-level',
    short: 'l',
    type: 'string',
    value: 'LEVEL',
    default: 'info',
    help: 'debug, info, warn, error, or a number (-4 debug, 0 info, 4 warn, 8 error).',
    group: 'Operation',
  },
  {
    name: 'metrics-address',
    type: 'string',
    value: 'HOST:PORT',
    help: 'Serve /metrics (Prometheus), /healthz and /readyz on a listener of their own. If unset, there is none.',
    group: 'Operation',
  },
  {
    name: 'workers',
    type: 'string',
    value: 'N|auto',
    default: '1',
    help: 'Number of processes that share the port; auto: one per processor.',
    group: 'Operation',
  },
  { name: 'help', short: 'h', type: 'boolean', help: 'Print this help.', group: 'Operation' },
  { name: 'version', type: 'boolean', help: 'Print the version.', group: 'Operation' },
  {
    name: 'licenses',
    type: 'boolean',
    help: 'Print the licences of the program and of all its parts.',
    group: 'Operation',
  },
  {
    name: 'unsafe-trust-roots',
    type: 'string',
    value: 'DIR',
    help: 'Trust these hardware roots instead of the real ones.',
    group: 'Remote service',
    hidden: true,
  },
  {
    name: 'cdn-base-url',
    type: 'string',
    value: 'URL',
    default: 'https://cdn.confidential.cloud',
    help: 'Where the manifest comes from.',
    group: 'Remote service',
    aliases: [old('cdnBaseURL')],
    hidden: true,
  },
  {
    name: 'amd-kds-url',
    type: 'string',
    value: 'URL',
    default: 'https://kdsintf.amd.com',
    help: "AMD's key distribution service.",
    group: 'Remote service',
    hidden: true,
  },
  {
    name: 'intel-pcs-url',
    type: 'string',
    value: 'URL',
    default: 'https://api.trustedservices.intel.com',
    help: "Intel's provisioning certification service.",
    group: 'Remote service',
    hidden: true,
  },
  {
    name: 'ssEndpoint',
    type: 'string',
    help: 'Retired.',
    group: 'Remote service',
    hidden: true,
    retired: { how: 'ignored', why: 'secrets come through --api-endpoint' },
  },
  {
    name: 'coordinatorEndpoint',
    type: 'string',
    help: 'Retired.',
    group: 'Remote service',
    hidden: true,
    retired: { how: 'ignored', why: 'the coordinator is reached through --api-endpoint' },
  },
  {
    name: 'insecureAPIConnection',
    type: 'boolean',
    help: 'Retired.',
    group: 'Remote service',
    hidden: true,
    retired: {
      how: 'refused',
      why: 'it would switch off certificate checks; name the CA bundle to trust in SSL_CERT_FILE instead',
    },
  },
] as const satisfies readonly Flag[];

/** Every flag (spec "Proxy configuration"; older names: inference.md 12). Parser, help and README derive from it. */
export const FLAGS: readonly Flag[] = ROWS;

export type FlagName = (typeof ROWS)[number]['name'];

/** The flags that are shown to people. */
export const LISTED: readonly Flag[] = FLAGS.filter((flag) => !flag.hidden);

/** The README's table, as Markdown, between its markers (test/config/readme-table.test.ts keeps it current). */
export function renderFlagTable(): string {
  const rows = LISTED.map((flag) => {
    const names = [flag.short && `-${flag.short}`, `--${flag.name}`]
      .filter(Boolean)
      .map((name) => `\`${name}\``);
    const also = (flag.aliases ?? [])
      .filter((alias) => !alias.deprecated)
      .map((alias) => `\`--${alias.name}\``);
    const meaning = flag.help + (also.length > 0 ? ` Also written ${also.join(', ')}.` : '');
    const fallback =
      flag.default === undefined ? (flag.type === 'boolean' ? '' : 'unset') : `\`${flag.default}\``;
    return [names.join(', '), flag.type, fallback, meaning].map((cell) => cell.replaceAll('|', '\\|'));
  });
  const header = ['Flag', 'Type', 'Default', 'Meaning'];
  return [header, header.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
}
