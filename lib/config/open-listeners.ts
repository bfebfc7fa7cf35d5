/**
 * Finds the listeners that other machines can reach although nothing protects what passes through them, or
 * what they show.
 */
import type { Config } from './config.ts';
import { staysHere } from './values.ts';

export interface OpenListener {
  readonly listener: 'proxy' | 'admin';
  /**
   * Whether the proxy runs in a container. The container's network then decides who reaches the listener, and
   * listening on every interface is meant.
   */
  readonly isMeant: boolean;
  readonly message: string;
}

type Facts = Pick<
  Config,
  'listenAddress' | 'adminAddress' | 'tlsCertPath' | 'clients' | 'apiKey' | 'apiKeyFallback'
>;

/**
 * The listeners of this configuration that are open without protection. The port for applications is one if
 * other machines can reach it, it has no TLS, and either tokens of clients cross the network or others can
 * spend the configured key. It is none if clients send keys of their own: the reference leaves that open too.
 * The admin listener is one whenever other machines can reach it, since it asks for no key. `inherited`: the
 * address of a socket that systemd opened, which counts in place of --listen-address.
 */
export function openListeners(
  { listenAddress, adminAddress, tlsCertPath, clients, apiKey, apiKeyFallback }: Facts,
  env: Readonly<Record<string, string | undefined>>,
  inherited?: string,
): readonly OpenListener[] {
  // Our image and other container engines set the first variable; Kubernetes sets the second in each
  // container.
  const isMeant = Boolean(env['container']) || Boolean(env['KUBERNETES_SERVICE_HOST']);
  const open: OpenListener[] = [];
  const where =
    inherited === undefined ? `--listen-address ${listenAddress}` : `the socket of systemd on ${inherited}`;
  const proxy = (what: string): unknown =>
    open.push({
      listener: 'proxy',
      isMeant,
      message: `${where} without TLS: ${what}`,
    });
  if (tlsCertPath === undefined && !staysHere(inherited ?? listenAddress)) {
    if (clients !== undefined)
      proxy('the tokens of --clients and all prompts cross the network in plain text');
    else if (apiKey !== undefined && apiKeyFallback !== 'never')
      proxy('everybody who reaches the port can spend the key, and prompts cross the network in plain text');
  }
  if (adminAddress !== undefined && !staysHere(adminAddress.host))
    open.push({ listener: 'admin', isMeant, message: `--admin-address names ${adminAddress.host}` });
  return open;
}
