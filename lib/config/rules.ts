/**
 * Rules about combinations of flags: which contradict each other and stop the start, and which only cause a
 * warning.
 */
import { TILDE } from '../files/path-refusal.ts';
import type { Settings } from './flags.ts';
import { socketPath, staysHere } from './values.ts';

/** The input of the rules: the values, and which flags were given at all. */
export interface Facts extends Settings {
  readonly given: ReadonlySet<string>;
  /** Whether systemd has opened the port for applications. */
  readonly inheritsSocket: boolean;
}

const isEverywhere = (host: string): boolean => host === '0.0.0.0' || host === '::';

interface Address {
  readonly host: string;
  readonly port: number;
}

/**
 * Whether two listeners would use the same port of the same address. Port 0 means any free port and never
 * collides.
 */
const isSamePort = (one: Address | undefined, other: Address | undefined): boolean =>
  one !== undefined &&
  other !== undefined &&
  one.port === other.port &&
  one.port !== 0 &&
  (one.host === other.host || isEverywhere(one.host) || isEverywhere(other.host));

interface Rule {
  readonly applies: (facts: Facts) => boolean;
  /** Names the flags, and says what to do. */
  readonly message: string;
}

/** Combinations of flags that contradict each other. Each is an error at start. */
export const CONTRADICTIONS: readonly (Rule & { readonly flags: readonly string[] })[] = [
  {
    flags: ['tls-cert-path', 'tls-key-path'],
    applies: ({ given }) => given.has('tls-cert-path') !== given.has('tls-key-path'),
    message:
      'TLS certificate and key must be provided together: give both --tls-cert-path and --tls-key-path, or neither',
  },
  {
    flags: ['listen-address', 'tls-cert-path'],
    applies: ({ given, listenAddress }) =>
      socketPath(listenAddress) !== undefined && given.has('tls-cert-path'),
    message:
      '--listen-address=unix:… needs no TLS, since a socket file does not leave this machine: drop ' +
      '--tls-cert-path and --tls-key-path',
  },
  {
    flags: ['prompt-cache-salt', 'disable-prompt-cache'],
    applies: ({ disablePromptCache, promptCacheSalt }) => disablePromptCache && promptCacheSalt !== 'random',
    message:
      '--prompt-cache-salt is set while the shared prompt cache is off: add --disable-prompt-cache=false, or drop the salt',
  },
  {
    // To accept "good only", both flags are needed. The reference also refuses to start with one of them
    // alone.
    flags: ['gpu-ocsp-allow-unknown', 'gpu-ocsp-revoked-grace-period'],
    applies: ({ gpuOcspAllowUnknown, gpuOcspRevokedGracePeriod }) =>
      !gpuOcspAllowUnknown && gpuOcspRevokedGracePeriod > 0,
    message:
      'unknown OCSP statuses are disallowed (--gpu-ocsp-allow-unknown=false), but revoked statuses are allowed for a ' +
      'while: add --gpu-ocsp-revoked-grace-period=0 to accept good certificates only, or allow unknown ones',
  },
  {
    flags: ['admin-address', 'port'],
    applies: ({ adminAddress, listenAddress: host, port }) =>
      socketPath(host) === undefined && isSamePort(adminAddress, { host, port }),
    message:
      '--admin-address and --port name the same port: give the admin listener another one, such as 9090',
  },
  {
    flags: ['metrics-address', 'port'],
    applies: ({ metricsAddress, listenAddress: host, port }) =>
      socketPath(host) === undefined && isSamePort(metricsAddress, { host, port }),
    message: '--metrics-address and --port name the same port: give the metrics another one, such as 9090',
  },
  {
    flags: ['admin-address', 'metrics-address'],
    applies: ({ adminAddress, metricsAddress }) => isSamePort(adminAddress, metricsAddress),
    message:
      '--admin-address and --metrics-address name the same port: give them different ones, or drop --metrics-address, ' +
      'since the admin listener serves the metrics too',
  },
  {
    flags: ['reuse-port'],
    applies: ({ reusePort }) => reusePort && process.platform !== 'linux',
    message:
      '--reuse-port needs Linux: other systems do not spread connections over the processes that share a port; drop it',
  },
  {
    flags: ['reuse-port', 'api-key'],
    applies: ({ reusePort, apiKey }) => reusePort && apiKey === undefined,
    message:
      '--reuse-port listens only once the service is verified, and without --api-key a request must bring the key for that: ' +
      'add --api-key, or drop --reuse-port',
  },
  {
    flags: ['reuse-port', 'listen-address', 'port'],
    applies: ({ reusePort, inheritsSocket, listenAddress, port }) =>
      reusePort && (inheritsSocket || socketPath(listenAddress) !== undefined || port === 0),
    message:
      '--reuse-port needs one TCP port that each instance opens itself: give --port a number, --listen-address no socket file, ' +
      'and disable the socket unit of systemd',
  },
  {
    flags: ['reuse-port', 'prompt-cache-salt'],
    applies: ({ reusePort, disablePromptCache, promptCacheSalt }) =>
      reusePort && !disablePromptCache && promptCacheSalt === 'random',
    message:
      '--reuse-port with a shared prompt cache needs one salt in all instances, and each would make its own: give all the same ' +
      '--prompt-cache-salt, or drop --disable-prompt-cache=false',
  },
  {
    flags: ['limits-store', 'clients'],
    applies: ({ limitsStore, clients }) => limitsStore !== undefined && clients === undefined,
    message:
      '--limits-store counts the requests of clients, but none are configured: name their file with --clients, or ' +
      'drop --limits-store',
  },
];

/** What --protocol-version means; `verify` prints it too. */
export const PROTOCOL_EXPERIMENT =
  '--protocol-version is an experiment: it changes the version that is announced, and not how prompts are sealed; nothing leaves unsealed, ' +
  'but the service may refuse or misread what it gets';

/** Settings with which the proxy starts, after a warning. */
export const CAUTIONS: readonly Rule[] = [
  {
    applies: ({ given, clients }) => !given.has('api-key') && clients === undefined,
    message:
      'No API key provided. The proxy will not authenticate with the API. Give one with --api-key or PRIVATEMODE_API_KEY, unless ' +
      'each client sends its own',
  },
  {
    applies: ({ given, clients }) =>
      given.has('api-key') && !given.has('api-key-fallback') && clients === undefined,
    message:
      '--api-key-fallback is not set: it means always today, and never in a future release, which refuses clients that send ' +
      '"placeholder"; set it to always, or to if-placeholder for clients with keys of their own',
  },
  {
    applies: ({ given, clients }) => clients !== undefined && given.has('api-key-fallback'),
    message:
      '--api-key-fallback has no effect with --clients: requests carry tokens of this gateway, which it never forwards',
  },
  {
    applies: ({ given, clients }) =>
      !given.has('api-key') && given.has('api-key-fallback') && clients === undefined,
    message: '--api-key-fallback has no effect without --api-key: requests keep their own keys',
  },
  {
    applies: ({ given, listenAddress }) => given.has('port') && socketPath(listenAddress) !== undefined,
    message: '--port has no effect with --listen-address=unix:…',
  },
  {
    // The systemd units give a loopback address, for a start without their socket.
    applies: ({ given, inheritsSocket, listenAddress }) =>
      inheritsSocket && (given.has('port') || (given.has('listen-address') && !staysHere(listenAddress))),
    message:
      '--listen-address and --port have no effect on the socket that systemd has opened: change ListenStream= of the socket ' +
      'unit, or start the proxy without it',
  },
  {
    applies: ({ reusePort, clients, limitsStore }) =>
      reusePort && clients !== undefined && limitsStore === undefined,
    message:
      'With --reuse-port each instance counts the limits of --clients for itself, so a client has each limit once per instance: name a ' +
      'store in which they count together with --limits-store',
  },
  {
    applies: ({ given, limitsStore }) => given.has('limits-store-failure') && limitsStore === undefined,
    message: '--limits-store-failure has no effect without --limits-store',
  },
  {
    applies: ({ given, clients, apiKeyFallback, corsAllowedOrigins }) =>
      clients === undefined &&
      given.has('api-key') &&
      apiKeyFallback !== 'never' &&
      corsAllowedOrigins.includes('*'),
    message:
      '--cors-allowed-origins=* lets every web page in a browser on this machine spend the configured key',
  },
  {
    applies: ({ given, disablePromptCache, promptCacheSalt }) =>
      given.has('prompt-cache-salt') && disablePromptCache && promptCacheSalt === 'random',
    message:
      '--prompt-cache-salt=random has no effect while the shared prompt cache is off; add --disable-prompt-cache=false',
  },
  {
    applies: ({ given }) => given.has('protocol-version'),
    message: PROTOCOL_EXPERIMENT,
  },
  {
    applies: ({ workspace }) => workspace.startsWith('~/'),
    message: `--workspace begins with ~ and makes a directory of that name: ${TILDE}`,
  },
  {
    applies: ({ dumpRequests }) => dumpRequests,
    message: '--dump-requests writes every prompt and every answer to the workspace in plain text',
  },
  {
    applies: ({ given }) => given.has('unsafe-trust-roots'),
    message:
      'UNSAFE: --unsafe-trust-roots replaces the hardware roots of trust; whoever made them can read every prompt',
  },
];
