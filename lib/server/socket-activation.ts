import { PrivatemodeError } from '../errors.ts';

/** sd_listen_fds(3): inherited sockets start here. */
const FIRST = 3;

/**
 * The listening socket that the service manager opened for this process (socket activation): its file descriptor, or
 * undefined where there is none. Sockets meant for another process, such as the parent, do not count. Throws config_invalid.
 */
export function inheritedSocket(
  env: Readonly<Record<string, string | undefined>>,
  pid: number = process.pid,
): number | undefined {
  const count = env['LISTEN_FDS'];
  if (count === undefined || env['LISTEN_PID'] !== String(pid)) return undefined;
  if (count === '0') return undefined;
  if (count !== '1') {
    const words = `LISTEN_FDS is ${JSON.stringify(count)}: one socket can be inherited, so give the socket unit one ListenStream=`;
    throw new PrivatemodeError('config_invalid', words);
  }
  return FIRST;
}
