/** The error for a port or a socket that cannot be opened: why, and which program has it. */
import { PrivatemodeError } from './errors.ts';

/** A command that names the program which listens on `port`. */
export const WHO_LISTENS = (port: number): string =>
  process.platform === 'win32' ? `netstat -ano | findstr :${port}` : `lsof -nP -iTCP:${port} -sTCP:LISTEN`;

/** Why a port cannot be opened, in words; EADDRINUSE comes with a command, see below. */
const LISTEN_REFUSALS: Readonly<Record<string, string>> = {
  EACCES: 'this user may not open this port; ports from 1024 on need no privilege',
  EADDRNOTAVAIL: 'this machine does not have that address',
  ENOTFOUND: 'that host name does not resolve',
  EAI_AGAIN: 'that host name does not resolve now',
};

/** Why a socket cannot be opened in the file system, in words. */
const SOCKET_REFUSALS: Readonly<Record<string, string>> = {
  EACCES: 'that directory does not exist, or this user may not use it', // libuv gives this code for both
  EEXIST: 'another file has that name; remove it, or choose another path',
};

/**
 * The error listen_failed for `where`, as `127.0.0.1 port 8080`. `at`: the port, or the path of a socket. If
 * another program has it, the message says how to find out which.
 */
export function listenFailed(
  where: string,
  at: number | string,
  cause: { readonly code?: string | undefined; readonly message?: string },
): PrivatemodeError {
  const reason = cause.code ?? cause.message ?? 'unknown';
  const socket = typeof at === 'string';
  const who = socket
    ? `another program answers there, and this shows which: lsof ${at}`
    : `another program has the port, and this shows which: ${WHO_LISTENS(at)}`;
  const words = reason === 'EADDRINUSE' ? who : (socket ? SOCKET_REFUSALS : LISTEN_REFUSALS)[reason];
  const message = `listening on ${where}: ${reason}${words === undefined ? '' : `; ${words}`}`;
  return new PrivatemodeError('listen_failed', message, { cause });
}

/** The error for an inherited socket on which Node cannot listen. No flag changes that socket. */
export function inheritedFailed(fd: number, cause: NodeJS.ErrnoException): PrivatemodeError {
  const message = `listening on the inherited socket ${fd}: ${cause.code ?? cause.message}`;
  const remedy = 'Give the socket unit one ListenStream=, which is a port or a path, and restart it.';
  return new PrivatemodeError('listen_failed', message, { cause, remedy });
}
