/** The table of all flags, from which command line, environment, --help and tables in docs are made. */
import { totalmem } from 'node:os';
import { parseApiKey } from './api-key.ts';
import { parseSalt, parseStoreUrl } from './input-files.ts';
import type { Flag, FlagAlias, ValuesOf } from './setting.ts';
import { BOOLEAN, duration, integer, kind, list, setting, text } from './setting.ts';
import * as values from './values.ts';

const old = (name: string): FlagAlias => ({ name, deprecated: true });

const retired = (name: string, why: string): Flag => ({ name, type: 'string', help: why, retired: why });

/** The bytes that this process may use: the memory of the machine, or the limit of its control group. */
const MEMORY = Math.min(totalmem(), process.constrainedMemory() || totalmem());

/** An error message of the reference proxy, word for word. */
const TOGETHER = 'TLS certificate and key must be provided together';

/** Flags that print something. With such a flag, the proxy does not start. */
const PRINTS = { type: 'boolean', commandLineOnly: true } as const;

const GROUPS = {
  'Remote service': [
    setting('api-endpoint', text('HOST[:PORT]', values.hostPort(443)), {
      default: 'api.privatemode.ai:443',
      help: 'Endpoint of the remote API.',
      aliases: [old('apiEndpoint')],
    }),
    setting('api-key', text('KEY|@FILE', parseApiKey), {
      help: 'API key: a literal, or a file path prefixed with @ (reloaded when it changes and on SIGHUP). If unset, the proxy adds no key, and clients send their own.',
      aliases: [old('apiKey')],
    }),
    setting('api-key-fallback', text('MODE', values.oneOf('never', 'always', 'if-placeholder')), {
      default: 'always',
      help: 'When the configured key replaces the key of a request: never, always, or if-placeholder (only if the request says exactly "Bearer placeholder", or "placeholder" in x-api-key). The default will change to never in a future release.',
    }),
    setting('manifest-path', text('FILE', values.parsePath), {
      help: 'Manifest file to verify the remote against. If unset, the proxy fetches the manifest from the service and logs every one that it enforces.',
      aliases: [old('manifestPath')],
    }),
    setting('cdn-base-url', text('URL', values.parseBaseUrl), {
      default: 'https://cdn.confidential.cloud',
      help: 'Where the manifest is fetched from, if --manifest-path is unset: for a mirror, or a simulator.',
      aliases: [old('cdnBaseURL')],
    }),
    setting('protocol-version', text('vX.Y.Z', values.parseProtocolVersion), {
      default: 'v1.40.0',
      help: 'An experiment: announce another protocol version to the service, to find out which versions it takes. Prompts are sealed as before.',
    }),
    setting('gpu-ocsp-allow-unknown', BOOLEAN, {
      default: 'true',
      help: "Accept a GPU even if its vendor's certificate status service (OCSP) cannot be reached or does not know a certificate.",
      aliases: [{ name: 'nvidia-ocsp-allow-unknown' }, old('nvidiaOCSPAllowUnknown')],
    }),
    setting('gpu-ocsp-revoked-grace-period', integer('HOURS', 0), {
      default: '48',
      help: 'Hours for which a revoked GPU certificate is still accepted; 0 rejects it at once.',
      aliases: [{ name: 'nvidia-ocsp-revoked-grace-period' }, old('nvidiaOCSPRevokedGracePeriod')],
    }),
  ],
  'Application side': [
    setting('listen-address', text('HOST|unix:PATH', values.parseListenAddress), {
      default: '0.0.0.0',
      help: 'IP address or host name to listen on. 127.0.0.1 keeps other machines out; unix:/run/privatemode/proxy.sock listens on a socket file, which other users of this machine cannot open.',
    }),
    setting('port', text('PORT', values.parsePort), { default: '8080', help: 'Port to listen on.' }),
    setting('reuse-port', BOOLEAN, {
      needs: ['api-key', 'a shared port opens once the service is verified, which takes a key'],
      default: 'false',
      help: 'Share the port with other instances of the proxy (Linux, same user): the system spreads connections over those that listen. An instance listens only while it has verified the service, and stops listening before it ends its responses.',
    }),
    setting('tls-cert-path', text('FILE', values.parsePath), {
      needs: ['tls-key-path', TOGETHER],
      help: 'TLS certificate (PEM, with its chain). With it and --tls-key-path the proxy serves HTTPS; both files are reloaded when they change.',
      aliases: [old('tlsCertPath')],
    }),
    setting('tls-key-path', text('FILE', values.parsePath), {
      needs: ['tls-cert-path', TOGETHER],
      help: 'TLS private key (PEM).',
      aliases: [old('tlsKeyPath')],
    }),
    setting('clients', text('FILE', values.parsePath), {
      help: 'File that lists who may use the proxy, with the tokens and limits of each (JSON, to which "privatemode-proxy clients new NAME" adds; reloaded when it changes and on SIGHUP). If unset, everybody who reaches the port may use it.',
    }),
    setting('cors-allowed-origins', list('ORIGIN,…', values.parseOrigin), {
      help: 'Web pages that may use the proxy, as exact origins such as https://chat.example.com; * allows any. If empty, pages of other origins are refused.',
    }),
    setting('allowed-hosts', list('HOST[:PORT],…', values.parseOwnHost), {
      help: 'More host names under which browsers may open the proxy, such as proxy.lab.example:8080. Always allowed: localhost, IP addresses, --listen-address and the names in the TLS certificate. Browsers that use another name are refused (DNS rebinding).',
    }),
  ],
  'Prompt cache': [
    setting('disable-prompt-cache', BOOLEAN, {
      default: 'true',
      help: 'Use a new random salt for each request, so that no two requests share a prompt cache. If false, all requests through this proxy share one; with --clients, those of each client.',
      aliases: [{ name: 'sharedPromptCache', deprecated: true, inverted: true }],
    }),
    setting('prompt-cache-salt', text('SALT|@FILE|random', parseSalt), {
      default: 'random',
      help: 'Salt that separates prompt caches: a literal or @FILE of at least 32 bytes and at most 128 characters (who knows it shares the cache), or random (new at each start). Requires --disable-prompt-cache=false. A cache_salt in the request overrides it; with --clients it is mixed with the salt of the client.',
      aliases: [old('promptCacheSalt')],
    }),
  ],
  Limits: [
    setting('max-in-flight', integer('N', 1), {
      help: 'Most requests that may run at the same time, for all clients together. More wait for up to 10 s and then get 429. With --clients, one place in 16 is reserved for clients that have nothing running. If unset, there is no limit.',
    }),
    setting('max-body-bytes', integer('BYTES', 1), {
      default: '134217728',
      help: 'Largest request body accepted (128 MiB).',
    }),
    setting('max-buffered-bytes', integer('BYTES', 1), {
      unset: String(Math.floor(MEMORY / 4)),
      help: 'Memory for request bodies. When it is full, requests get 503 with Retry-After; a body larger than all of it gets 413. Responses have the same amount again for what is not authenticated yet (503, 502). If unset: a quarter of the memory of the machine, or of what the container or service may use (cgroup).',
    }),
    setting('first-byte-timeout', duration(1), {
      default: '10m',
      help: 'Longest time from the end of a request to the start of its response.',
    }),
    setting('stream-idle-timeout', duration(1), { default: '5m', help: 'Longest pause inside a response.' }),
    setting('stream-keepalive', duration(0), {
      default: '0',
      help: 'Send the client an SSE comment (in the Responses API: an event keepalive) when an event stream pauses for this long, so that nobody closes the connection; 0 sends none. Some clients fail on them.',
    }),
    setting('shutdown-grace', duration(0), {
      default: '30s',
      help: 'On SIGTERM, time for running responses to finish.',
    }),
    setting('shutdown-delay', duration(0), {
      default: '0',
      help: 'On SIGTERM, time for which the port stays open while /readyz is 503 and responses end their connections, so that a load balancer stops sending requests here first. A second signal ends it. Not with a socket of systemd, which stays open anyway; with --reuse-port the time is for open connections alone.',
    }),
    setting('limits-store', text('URL|@FILE', parseStoreUrl), {
      needs: ['clients', 'only clients have limits'],
      help: 'Redis or Valkey in which several replicas count the limits of --clients together: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// with TLS, or @FILE with such a URL. If unset, each replica counts for itself.',
    }),
    setting('limits-store-failure', text('POLICY', values.oneOf('closed', 'open')), {
      needs: ['limits-store', 'there is no store to fail'],
      default: 'closed',
      help: 'What to do with requests of clients with limits while that store is unavailable: closed refuses them with 503, open admits them without counting.',
    }),
  ],
  Operation: [
    setting('workspace', text('DIR', values.parsePath), {
      default: '.',
      help: 'Directory for the files the proxy writes: manifests, collateral, request dumps, receipts.',
    }),
    setting('dump-requests', BOOLEAN, {
      default: 'false',
      help: 'Write requests and responses, in plain text, to the requests directory of the workspace.',
      aliases: [old('dumpRequests')],
    }),
    setting('log-format', text('FORMAT', values.oneOf('json', 'text')), {
      default: 'text',
      help: 'json or text.',
    }),
    setting('log-level', text('LEVEL', values.parseLogLevel), {
      short: 'l',
      default: 'info',
      help: 'debug, info, warn, error, or a number (-4 debug, 0 info, 4 warn, 8 error).',
    }),
    setting('receipts', BOOLEAN, {
      default: 'false',
      help: 'Write a signed receipt of each request, without its content, to the receipts directory of the workspace.',
    }),
    setting('admin-address', text('HOST:PORT', values.hostPort()), {
      help: 'Serve the status page, /status, /verification, /metrics (Prometheus), /healthz and /readyz on a listener of their own. If unset, there is none.',
    }),
    setting('metrics-address', text('HOST:PORT', values.hostPort()), {
      help: 'Serve /metrics, /healthz and /readyz, and nothing else, on a listener of their own: for a network that must not see the status page. If unset, there is none.',
    }),
    setting('responses-api', BOOLEAN, {
      default: 'false',
      help: 'Serve POST /v1/responses, which the service does not offer: the proxy translates each request to a chat completion, and the response back.',
    }),
    setting('model-alias', kind('list')('NAME=MODEL,…', values.parseAliases), {
      unset: '',
      help: 'Other names for models: a request for NAME goes to MODEL, and GET /v1/models lists NAME. A NAME may end in * for any characters; it is then not listed. An alias wins over a model of the service with that name.',
    }),
    { name: 'help', short: 'h', ...PRINTS, help: 'Print this help.' },
    { name: 'version', short: 'v', ...PRINTS, help: 'Print the version.' },
    { name: 'licenses', ...PRINTS, help: 'Print the licences of the program and of all its parts.' },
  ],
} as const;

/** Flags that --help does not list: flags for simulators and tests, and the names of retired flags. */
const HIDDEN = [
  setting('unsafe-trust-roots', text('DIR', values.parsePath), {
    help: 'Trust these hardware roots instead of the real ones.',
    commandLineOnly: true,
  }),
  setting('amd-kds-url', text('URL', values.parseBaseUrl), {
    default: 'https://kdsintf.amd.com',
    help: "AMD's key distribution service.",
  }),
  setting('intel-pcs-url', text('URL', values.parseBaseUrl), {
    default: 'https://api.trustedservices.intel.com',
    help: "Intel's provisioning certification service.",
  }),
  retired('ssEndpoint', 'secrets come through --api-endpoint'),
  retired('coordinatorEndpoint', 'the coordinator is reached through --api-endpoint'),
] as const;

/** A row of the flag tables, with the type of its value. */
export type Row = Flag & ((typeof GROUPS)[keyof typeof GROUPS][number] | (typeof HIDDEN)[number]);

/**
 * The configuration: the value of each setting, under the flag's name in camel case. Durations are in ms and
 * sizes in bytes. A value is undefined if its flag was not given and has no default.
 */
export type Config = ValuesOf<Row>;

/** The flags that are shown to people, under the headings of --help. */
export const FLAG_GROUPS: Readonly<Record<string, readonly Row[]>> = GROUPS;
export const LISTED: readonly Row[] = Object.values(FLAG_GROUPS).flat();
export const FLAGS: readonly Row[] = [...LISTED, ...HIDDEN.map((row) => ({ ...row, hidden: true as const }))];
