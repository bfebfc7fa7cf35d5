/** Every flag of the proxy, once: the command line, the environment, --help and the README's table are made from these rows. */
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
  readonly aliases?: readonly FlagAlias[];
  /** Works, and is not listed. */
  readonly hidden?: true;
  /** No variable sets it: it asks for something else to be done, or must be seen in the list of processes. */
  readonly commandLineOnly?: true;
  /** No longer does anything: `ignored` warns, `refused` ends the start; with the reason. */
  readonly retired?: { readonly how: 'ignored' | 'refused'; readonly why: string };
}

const old = (name: string): FlagAlias => ({ name, deprecated: true });

const GROUPS = {
  'Remote service': [
    {
      name: 'api-endpoint',
      type: 'string',
      value: 'HOST[:PORT]',
      default: 'api.privatemode.ai:443',
      help: 'Endpoint of the remote API.',
      aliases: [old('apiEndpoint')],
    },
    {
      name: 'api-key',
      type: 'string',
      value: 'KEY|@FILE',
      help: 'API key: a literal, or a file path prefixed with @ (read again when it changes and on SIGHUP). If unset, the proxy does not authenticate to the API, and clients send their own keys.',
      aliases: [old('apiKey')],
    },
    {
      name: 'api-key-fallback',
      type: 'string',
      value: 'MODE',
      default: 'always',
      help: 'When the configured key replaces the one of a request: never, always, or if-placeholder (only where the request says exactly "Bearer placeholder"). The default will change to never in a future release.',
    },
    {
      name: 'manifest-path',
      type: 'string',
      value: 'FILE',
      help: 'Manifest file to verify the remote against. If unset, the manifest is fetched from the service and every enforced one is logged.',
      aliases: [old('manifestPath')],
    },
    {
      name: 'gpu-ocsp-allow-unknown',
      type: 'boolean',
      default: 'true',
      help: "Tolerate that the GPU vendor's certificate status service (OCSP) cannot be reached or knows nothing of a certificate.",
      aliases: [{ name: 'nvidia-ocsp-allow-unknown' }, old('nvidiaOCSPAllowUnknown')],
    },
    {
      name: 'gpu-ocsp-revoked-grace-period',
      type: 'integer',
      value: 'HOURS',
      default: '48',
      help: 'For how many hours GPU certificates are accepted after they were revoked; 0 rejects them at once.',
      aliases: [{ name: 'nvidia-ocsp-revoked-grace-period' }, old('nvidiaOCSPRevokedGracePeriod')],
    },
  ],
  'Application side': [
    {
      name: 'listen-address',
      type: 'string',
      value: 'HOST',
      default: '0.0.0.0',
      help: 'IP address or host name to listen on. 127.0.0.1 keeps other machines out.',
    },
    { name: 'port', type: 'string', value: 'PORT', default: '8080', help: 'Port to listen on.' },
    {
      name: 'tls-cert-path',
      type: 'string',
      value: 'FILE',
      help: 'TLS certificate (PEM, with its chain). Together with --tls-key-path it makes the proxy serve HTTPS; both files are read again when they change.',
      aliases: [old('tlsCertPath')],
    },
    {
      name: 'tls-key-path',
      type: 'string',
      value: 'FILE',
      help: 'TLS private key (PEM).',
      aliases: [old('tlsKeyPath')],
    },
    {
      name: 'cors-allowed-origins',
      type: 'list',
      value: 'ORIGIN,…',
      help: 'Web pages that may use the proxy, as exact origins such as https://chat.example.com; * allows any. Empty: none, and pages of other origins are refused.',
    },
    {
      name: 'allowed-hosts',
      type: 'list',
      value: 'HOST[:PORT],…',
      help: 'Host names under which web pages of the proxy itself may be opened, such as proxy.lab.example:8080, beside localhost, IP addresses, --listen-address and the names in the TLS certificate. Others are refused to browsers (DNS rebinding).',
    },
  ],
  'Prompt cache': [
    {
      name: 'disable-prompt-cache',
      type: 'boolean',
      default: 'true',
      help: 'Use a new random salt for each request, so that no two share a prompt cache. With false, all requests through this proxy share one.',
      aliases: [{ name: 'sharedPromptCache', deprecated: true, inverted: true }],
    },
    {
      name: 'prompt-cache-salt',
      type: 'string',
      value: 'SALT|@FILE|random',
      default: 'random',
      help: 'Salt that separates prompt caches: a literal or @file of at least 32 bytes and at most 128 characters (shared by all that know it), or random (one per start). Requires --disable-prompt-cache=false. A cache_salt in the request wins.',
      aliases: [old('promptCacheSalt')],
    },
  ],
  Limits: [
    {
      name: 'max-body-bytes',
      type: 'integer',
      value: 'BYTES',
      default: '134217728',
      help: 'Largest request body accepted (128 MiB).',
    },
    {
      name: 'max-buffered-bytes',
      type: 'integer',
      value: 'BYTES',
      help: 'Largest total of request bodies in memory; further ones wait for up to 10 s and then get 503, a larger one gets 413. Shared evenly by the workers. If unset, a quarter of the memory: of the limit of the container or service (cgroup), or of the machine if that is less.',
    },
    {
      name: 'min-upload-rate',
      type: 'integer',
      value: 'BYTES/S',
      default: '1024',
      help: 'Bytes per second, over the last 10 s, below which the upload of a request is given up; 0 never gives up.',
    },
    {
      name: 'connect-timeout',
      type: 'duration',
      value: 'DURATION',
      default: '10s',
      help: 'Time to reach the remote API, TLS included.',
    },
    {
      name: 'first-byte-timeout',
      type: 'duration',
      value: 'DURATION',
      default: '10m',
      help: 'Time from the end of a request to the start of its answer.',
    },
    {
      name: 'stream-idle-timeout',
      type: 'duration',
      value: 'DURATION',
      default: '5m',
      help: 'Longest silence inside an answer.',
    },
    {
      name: 'stream-keepalive',
      type: 'duration',
      value: 'DURATION',
      default: '0',
      help: 'Silence inside an event stream after which the client gets an SSE comment, for proxies in between that close silent connections; 0 sends none. Some clients fail on comments.',
    },
    {
      name: 'shutdown-grace',
      type: 'duration',
      value: 'DURATION',
      default: '30s',
      help: 'On SIGTERM, time for running answers to finish.',
    },
  ],
  Operation: [
    {
      name: 'workspace',
      type: 'string',
      value: 'DIR',
      default: '.',
      help: 'Directory for the files the proxy writes: manifests, collateral, request dumps.',
    },
    {
      name: 'dump-requests',
      type: 'boolean',
      default: 'false',
      help: 'Write requests and responses, in plain text, to the requests directory of the workspace.',
      aliases: [old('dumpRequests')],
    },
    { name: 'log-format', type: 'string', value: 'FORMAT', default: 'text', help: 'json or text.' },
    {
      name: 'log-level',
      short: 'l',
      type: 'string',
      value: 'LEVEL',
      default: 'info',
      help: 'debug, info, warn, error, or a number (-4 debug, 0 info, 4 warn, 8 error).',
    },
    {
      name: 'metrics-address',
      type: 'string',
      value: 'HOST:PORT',
      help: 'Serve /metrics (Prometheus), /healthz and /readyz on a listener of their own. If unset, there is none.',
    },
    {
      name: 'workers',
      type: 'string',
      value: 'N|auto',
      default: '1',
      help: 'Number of processes that share the port; auto: one per processor.',
    },
    { name: 'help', short: 'h', type: 'boolean', help: 'Print this help.', commandLineOnly: true },
    { name: 'version', type: 'boolean', help: 'Print the version.', commandLineOnly: true },
    {
      name: 'licenses',
      type: 'boolean',
      help: 'Print the licences of the program and of all its parts.',
      commandLineOnly: true,
    },
  ],
} as const satisfies Readonly<Record<string, readonly Flag[]>>;

/** These work and are not listed: for simulators and tests, and names of the past. */
const HIDDEN = [
  {
    name: 'unsafe-trust-roots',
    type: 'string',
    value: 'DIR',
    help: 'Trust these hardware roots instead of the real ones.',
    commandLineOnly: true,
  },
  {
    name: 'cdn-base-url',
    type: 'string',
    value: 'URL',
    default: 'https://cdn.confidential.cloud',
    help: 'Where the manifest comes from.',
    aliases: [old('cdnBaseURL')],
  },
  {
    name: 'amd-kds-url',
    type: 'string',
    value: 'URL',
    default: 'https://kdsintf.amd.com',
    help: "AMD's key distribution service.",
  },
  {
    name: 'intel-pcs-url',
    type: 'string',
    value: 'URL',
    default: 'https://api.trustedservices.intel.com',
    help: "Intel's provisioning certification service.",
  },
  {
    name: 'ssEndpoint',
    type: 'string',
    help: 'Retired.',
    retired: { how: 'ignored', why: 'secrets come through --api-endpoint' },
  },
  {
    name: 'coordinatorEndpoint',
    type: 'string',
    help: 'Retired.',
    retired: { how: 'ignored', why: 'the coordinator is reached through --api-endpoint' },
  },
  {
    name: 'insecureAPIConnection',
    type: 'boolean',
    help: 'Retired.',
    retired: {
      how: 'refused',
      why: 'it would switch off certificate checks; name the CA bundle to trust in SSL_CERT_FILE instead',
    },
  },
] as const satisfies readonly Flag[];

export type FlagName = ((typeof GROUPS)[keyof typeof GROUPS] | typeof HIDDEN)[number]['name'];

/** The flags that are shown to people, under the headings of --help. */
export const FLAG_GROUPS: Readonly<Record<string, readonly Flag[]>> = GROUPS;
export const LISTED: readonly Flag[] = Object.values(FLAG_GROUPS).flat();
export const FLAGS: readonly Flag[] = [
  ...LISTED,
  ...HIDDEN.map((flag) => ({ ...flag, hidden: true }) as const),
];
