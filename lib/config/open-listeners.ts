/** Which listeners other machines can reach although nothing protects what passes, or what they show. */
import type { Config } from './config.ts';
import { isLoopback, socketPath } from './values.ts';

export interface OpenListener {
  readonly listener: 'proxy' | 'admin';
  /** A container, whose network decides who reaches it: listening on every interface is meant there. */
  readonly isMeant: boolean;
  readonly message: string;
}

type Facts = Pick<
  Config,
  'listenAddress' | 'adminAddress' | 'tlsCertPath' | 'clients' | 'apiKey' | 'apiKeyFallback'
>;

/**
 * The listeners of this configuration that are open without protection. The port for applications: without TLS, where tokens of clients
 * cross the network, or the configured key can be spent; not where clients bring keys of their own, which the reference leaves open too.
 * The admin listener: always, since it asks for no key.
 */
export function openListeners(
  { listenAddress, adminAddress, tlsCertPath, clients, apiKey, apiKeyFallback }: Facts,
  env: Readonly<Record<string, string | undefined>>,
): readonly OpenListener[] {
  // Our image and other engines set the first; Kubernetes sets the other in each of its containers.
  const isMeant = Boolean(env['container']) || Boolean(env['KUBERNETES_SERVICE_HOST']);
  const open: OpenListener[] = [];
  const proxy = (what: string): unknown =>
    open.push({
      listener: 'proxy',
      isMeant,
      message: `--listen-address ${listenAddress} without TLS: ${what}`,
    });
  if (tlsCertPath === undefined && !staysHere(listenAddress)) {
    if (clients !== undefined)
      proxy('the tokens of --clients and all prompts cross the network in plain text');
    else if (apiKey !== undefined && apiKeyFallback !== 'never')
      proxy('everybody who reaches the port can spend the key, and prompts cross the network in plain text');
  }
  if (adminAddress !== undefined && !staysHere(adminAddress.host))
    open.push({ listener: 'admin', isMeant, message: `--admin-address names ${adminAddress.host}` });
  return open;
}

/** Whether only this machine can connect. */
const staysHere = (host: string): boolean => socketPath(host) !== undefined || isLoopback(host);
