/** Combinations of settings: some keep the proxy from starting, others cause a warning in the log. */
import type { Environment } from '../network/outbound-proxy.ts';
import { type Config, FLAGS } from './flags.ts';
import type { Given } from './setting.ts';
import { invalid, socketPath, staysHere } from './values.ts';

/** A combination of settings, and its message, which names the flags and says what to do. */
type Rule<Facts> = readonly [applies: (facts: Facts) => boolean, message: string];

/** `inheritsSocket`: systemd has opened the port for applications. */
type Facts = Config & { readonly inheritsSocket: boolean };

/** Combinations that keep the proxy from starting. What a single flag needs is stated in the flag's row. */
const CONTRADICTIONS: readonly Rule<Facts>[] = [
  [
    ({ listenAddress, tlsCertPath }) => socketPath(listenAddress) !== undefined && tlsCertPath !== undefined,
    '--listen-address=unix:… stays on this machine and needs no TLS: drop --tls-cert-path and --tls-key-path',
  ],
  [
    ({ disablePromptCache, promptCacheSalt }) => disablePromptCache && promptCacheSalt !== undefined,
    '--prompt-cache-salt is set while the shared prompt cache is off: add --disable-prompt-cache=false, or drop the salt',
  ],
  [
    // To accept only "good", both flags are needed; the reference proxy refuses one flag alone, too.
    ({ gpuOcspAllowUnknown: unknown, gpuOcspRevokedGracePeriod: grace }) => !unknown && grace > 0,
    'unknown OCSP statuses are disallowed (--gpu-ocsp-allow-unknown=false), but revoked statuses are allowed for a while: ' +
      'add --gpu-ocsp-revoked-grace-period=0 to accept good certificates only, or allow unknown ones',
  ],
  [
    ({ reusePort }) => reusePort && process.platform !== 'linux',
    '--reuse-port needs Linux: other systems do not spread connections over the processes that share a port; drop it',
  ],
  [
    ({ reusePort, inheritsSocket, listenAddress, port }) =>
      reusePort && (inheritsSocket || socketPath(listenAddress) !== undefined || port === 0),
    '--reuse-port needs one TCP port that each instance opens itself: no --port=0, socket file, or socket unit of systemd',
  ],
  [
    ({ reusePort, disablePromptCache, promptCacheSalt }) =>
      reusePort && !disablePromptCache && promptCacheSalt === undefined,
    '--reuse-port with --disable-prompt-cache=false needs the same --prompt-cache-salt in all instances: give one, or drop the flag',
  ],
];

/** Throws config_invalid if a flag lacks another flag that it needs, and for the first contradiction. */
export function requireConsistent(facts: Facts, { values, label }: Given): void {
  for (const { name, needs: [needed, because] = [] } of FLAGS) {
    const isOn = values.has(name) && values.get(name) !== 'false';
    if (needed !== undefined && isOn && !values.has(needed))
      throw invalid(`${because}: ${label(name)} needs --${needed}`);
  }
  const [, message] = CONTRADICTIONS.find(([applies]) => applies(facts)) ?? [];
  if (message !== undefined) throw invalid(message.replace(/--([a-z-]+)/g, (_, name) => label(name)));
}

/** The warning about --protocol-version, which the command `verify` prints, too. */
export const PROTOCOL_EXPERIMENT =
  '--protocol-version is an experiment: it changes the version that is announced, and not how prompts are sealed; nothing leaves unsealed, ' +
  'but the service may refuse or misread what it gets';

const USUAL_VERSION = FLAGS.find(({ name }) => name === 'protocol-version')?.default;

/** Combinations of settings with which the proxy starts after a warning. */
export const CAUTIONS: readonly Rule<Config>[] = [
  [
    ({ apiKey, clients }) => apiKey === undefined && clients === undefined,
    'No API key provided. The proxy will not authenticate with the API. Give one with --api-key or PRIVATEMODE_API_KEY, unless ' +
      'each client sends its own',
  ],
  [
    ({ reusePort, clients, limitsStore }) => reusePort && clients !== undefined && limitsStore === undefined,
    'With --reuse-port each instance counts the limits of --clients for itself; with --limits-store all count together',
  ],
  [
    (config) => isSpent(config) && config.corsAllowedOrigins.includes('*'),
    '--cors-allowed-origins=* lets every web page in a browser on this machine spend the configured key',
  ],
  [({ protocolVersion }) => protocolVersion !== USUAL_VERSION, PROTOCOL_EXPERIMENT],
  [
    ({ dumpRequests }) => dumpRequests,
    '--dump-requests writes every prompt and every answer to the workspace in plain text',
  ],
  [
    ({ unsafeTrustRoots }) => unsafeTrustRoots !== undefined,
    'UNSAFE: --unsafe-trust-roots replaces the hardware roots of trust; whoever made them can read every prompt',
  ],
];

/** Whether everybody who can connect to the port can spend the configured API key. */
const isSpent = ({ apiKey, clients, apiKeyFallback }: Config): boolean =>
  apiKey !== undefined && clients === undefined && apiKeyFallback !== 'never';

/**
 * Logs who else can use the proxy, once the proxy listens. Warns if other machines can connect without TLS,
 * provided that tokens would cross the network or others could spend the configured key. Does not warn if
 * clients send keys of their own, because the reference proxy does not warn either. An open admin listener is
 * logged, because the admin listener asks for no key. `inherited`: the address of a systemd socket, which
 * replaces --listen-address.
 */
export function tellReach(
  config: Config,
  env: Environment,
  log: Readonly<Record<'info' | 'warn', (line: string) => void>>,
  inherited?: string,
): void {
  // Our image and other container engines set `container`, and Kubernetes sets KUBERNETES_SERVICE_HOST. The
  // network of a container decides who can connect, so open listeners are intended in a container.
  const isMeant = Boolean(env['container']) || Boolean(env['KUBERNETES_SERVICE_HOST']);
  const tell = (line: string): void => (isMeant ? log.info(line) : log.warn(line));
  const { adminAddress, clients, tlsCertPath, listenAddress } = config;
  const address = inherited ?? listenAddress;
  const what = isSpent(config) ? 'can spend the key' : 'read the tokens of --clients on the way';
  const change = inherited === undefined ? '--listen-address' : 'ListenStream=';
  if (tlsCertPath === undefined && !staysHere(address) && (clients !== undefined || isSpent(config)))
    tell(
      `Other machines reach ${address} without TLS, and ${what}: ${change} 127.0.0.1 keeps them out, and --tls-cert-path makes it HTTPS`,
    );
  if (adminAddress !== undefined && !staysHere(adminAddress.host))
    tell(`Other machines reach --admin-address ${adminAddress.host}, which asks for no key`);
}
