/** Combinations of settings: some stop the start, others are a line of the log. */
import type { Environment } from '../network/outbound-proxy.ts';
import { FLAGS, type Settings } from './flags.ts';
import type { Given } from './setting.ts';
import { type HostPort, invalid, socketPath, staysHere } from './values.ts';

/** The input of the rules: the values, and which flags were given at all. */
interface Facts extends Settings {
  readonly given: ReadonlySet<string>;
  /** Whether systemd has opened the port for applications. */
  readonly inheritsSocket: boolean;
}

/** The message names the flags, and says what to do. */
type Rule = readonly [applies: (facts: Facts) => boolean, message: string];

const isEverywhere = (host: string): boolean => host === '0.0.0.0' || host === '::';

/** Port 0 means any free port and never collides. */
const isSamePort = (one: HostPort, other: HostPort): boolean =>
  one.port === other.port &&
  one.port !== 0 &&
  (one.host === other.host || isEverywhere(one.host) || isEverywhere(other.host));

function sharePort({ listenAddress: host, port, adminAddress, metricsAddress }: Facts): boolean {
  const own = socketPath(host) === undefined ? { host, port } : undefined;
  const all = [own, adminAddress, metricsAddress].filter((address) => address !== undefined);
  return all.some((one, at) => all.slice(at + 1).some((other) => isSamePort(one, other)));
}

/** Combinations that stop the start, beside a flag without the one that it needs. */
export const CONTRADICTIONS: readonly Rule[] = [
  [
    ({ listenAddress, given }) => socketPath(listenAddress) !== undefined && given.has('tls-cert-path'),
    '--listen-address=unix:… needs no TLS, since a socket file does not leave this machine: drop --tls-cert-path and --tls-key-path',
  ],
  [
    ({ disablePromptCache, promptCacheSalt }) => disablePromptCache && promptCacheSalt !== 'random',
    '--prompt-cache-salt is set while the shared prompt cache is off: add --disable-prompt-cache=false, or drop the salt',
  ],
  [
    // To accept "good only", both flags are needed. The reference also refuses to start with one of them.
    ({ gpuOcspAllowUnknown: unknown, gpuOcspRevokedGracePeriod: grace }) => !unknown && grace > 0,
    'unknown OCSP statuses are disallowed (--gpu-ocsp-allow-unknown=false), but revoked statuses are allowed for a while: ' +
      'add --gpu-ocsp-revoked-grace-period=0 to accept good certificates only, or allow unknown ones',
  ],
  [sharePort, 'two of --port, --admin-address and --metrics-address name the same port: give each its own'],
  [
    ({ reusePort }) => reusePort && process.platform !== 'linux',
    '--reuse-port needs Linux: other systems do not spread connections over the processes that share a port; drop it',
  ],
  [
    ({ reusePort, inheritsSocket, listenAddress, port }) =>
      reusePort && (inheritsSocket || socketPath(listenAddress) !== undefined || port === 0),
    '--reuse-port needs one TCP port that each instance opens itself: give --port a number, --listen-address no socket file, ' +
      'and disable the socket unit of systemd',
  ],
  [
    ({ reusePort, disablePromptCache, promptCacheSalt: salt }) =>
      reusePort && !disablePromptCache && salt === 'random',
    '--reuse-port with a shared prompt cache needs one salt in all instances, and each would make its own: give all the same ' +
      '--prompt-cache-salt, or drop --disable-prompt-cache=false',
  ],
];

/** Throws config_invalid for a flag without the one that it needs, and for the first contradiction. */
export function requireConsistent(facts: Facts, { values, label }: Given): void {
  for (const { name, needs } of FLAGS) {
    const isOn = values.has(name) && values.get(name) !== 'false';
    if (needs === undefined || !isOn || values.has(needs.flag)) continue;
    throw invalid(`${needs.because}: ${label(name)} needs --${needs.flag}`);
  }
  const [, message] = CONTRADICTIONS.find(([applies]) => applies(facts)) ?? [];
  if (message === undefined) return;
  throw invalid(
    message.replace(/--([a-z-]+)/g, (flag, name) => (facts.given.has(name) ? label(name) : flag)),
  );
}

/** What --protocol-version means; `verify` prints it too. */
export const PROTOCOL_EXPERIMENT =
  '--protocol-version is an experiment: it changes the version that is announced, and not how prompts are sealed; nothing leaves unsealed, ' +
  'but the service may refuse or misread what it gets';

/** Settings with which the proxy starts, after a warning. */
export const CAUTIONS: readonly Rule[] = [
  [
    ({ given, clients }) => !given.has('api-key') && clients === undefined,
    'No API key provided. The proxy will not authenticate with the API. Give one with --api-key or PRIVATEMODE_API_KEY, unless ' +
      'each client sends its own',
  ],
  [
    ({ given, clients }) => given.has('api-key-fallback') && (clients !== undefined || !given.has('api-key')),
    '--api-key-fallback has no effect without --api-key, nor with --clients, whose tokens are never forwarded',
  ],
  [
    // The systemd units give a loopback address, for a start without their socket.
    ({ given, inheritsSocket, listenAddress }) =>
      inheritsSocket && (given.has('port') || (given.has('listen-address') && !staysHere(listenAddress))),
    '--listen-address and --port have no effect on the socket that systemd has opened: change ListenStream= of the socket unit, ' +
      'or start the proxy without it',
  ],
  [
    ({ reusePort, clients, limitsStore }) => reusePort && clients !== undefined && limitsStore === undefined,
    'With --reuse-port each instance counts the limits of --clients for itself, so a client has each limit once per instance: name a ' +
      'store in which they count together with --limits-store',
  ],
  [
    ({ given, clients, apiKeyFallback, corsAllowedOrigins }) =>
      clients === undefined &&
      given.has('api-key') &&
      apiKeyFallback !== 'never' &&
      corsAllowedOrigins.includes('*'),
    '--cors-allowed-origins=* lets every web page in a browser on this machine spend the configured key',
  ],
  [({ given }) => given.has('protocol-version'), PROTOCOL_EXPERIMENT],
  [
    ({ workspace }) => workspace.startsWith('~/'),
    '--workspace begins with ~ and makes a directory of that name: the shell replaces ~ only at the beginning of a word: write $HOME in place of ~',
  ],
  [
    ({ dumpRequests }) => dumpRequests,
    '--dump-requests writes every prompt and every answer to the workspace in plain text',
  ],
  [
    ({ given }) => given.has('unsafe-trust-roots'),
    'UNSAFE: --unsafe-trust-roots replaces the hardware roots of trust; whoever made them can read every prompt',
  ],
];

interface Reach
  extends Pick<Settings, 'listenAddress' | 'adminAddress' | 'tlsCertPath' | 'clients' | 'apiKeyFallback'> {
  readonly apiKey: unknown;
}

/**
 * What the log says of who can use the proxy, once it listens. A port that is open to other machines without
 * TLS is a warning if tokens cross the network, or if others can spend the configured key; it is none if
 * clients send keys of their own, because the reference leaves that open too. The admin listener asks for no
 * key. `inherited`: the address of a socket of systemd, which counts in place of --listen-address.
 */
export function tellReach(
  { listenAddress, adminAddress, tlsCertPath, clients, apiKey, apiKeyFallback }: Reach,
  env: Environment,
  log: Readonly<Record<'info' | 'warn', (line: string) => void>>,
  inherited?: string,
): void {
  // Our image and other container engines set the first variable, and Kubernetes the second. The network of a
  // container decides who reaches its listeners, which are meant to be open.
  const isMeant = Boolean(env['container']) || Boolean(env['KUBERNETES_SERVICE_HOST']);
  const tell = (line: string): void => (isMeant ? log.info(line) : log.warn(line));
  const isSpent = apiKey !== undefined && clients === undefined && apiKeyFallback !== 'never';
  const [address, change] =
    inherited === undefined ? [listenAddress, '--listen-address'] : [inherited, 'ListenStream='];
  if (tlsCertPath === undefined && !staysHere(address) && (clients !== undefined || isSpent)) {
    const what = isSpent ? 'can spend the key' : 'read the tokens of --clients on the way';
    tell(
      `Other machines reach ${address} without TLS, and ${what}: ${change} 127.0.0.1 keeps them out (docs/listening.md)`,
    );
  }
  if (adminAddress !== undefined && !staysHere(adminAddress.host))
    tell(`Other machines reach --admin-address ${adminAddress.host}, which asks for no key`);
  if (isSpent && apiKeyFallback === 'always')
    log.info(
      'Each request is sent with the configured key, also one that brings its own: --api-key-fallback always, which is to become never (docs/keys.md)',
    );
}
