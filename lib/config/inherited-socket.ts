/** The open socket that systemd gives to a service. */
import type { Environment } from '../network/outbound-proxy.ts';
import { invalid } from './values.ts';

/** The file descriptor of the first inherited socket (sd_listen_fds(3)). */
const FIRST_SOCKET = 3;

/**
 * The file descriptor of the listening socket that the service manager opened for this process (socket
 * activation), or undefined without such a socket. Sockets for another process, such as the parent, do not
 * count. Throws config_invalid.
 */
export function inheritedSocket(env: Environment, pid: number = process.pid): number | undefined {
  const count = env['LISTEN_FDS'];
  if (count === undefined || count === '0' || env['LISTEN_PID'] !== String(pid)) return undefined;
  if (count !== '1') {
    throw invalid(
      `LISTEN_FDS is ${JSON.stringify(count)}: give the socket unit one ListenStream=, and no more`,
    );
  }
  return FIRST_SOCKET;
}
