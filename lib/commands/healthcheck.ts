/** `privatemode-proxy healthcheck`: is the proxy that was started with these settings ready? */
import { get as httpGet, type IncomingMessage } from 'node:http';
import { get as httpsGet } from 'node:https';
import { FLAGS } from '../config/flags.ts';
import { renderHelp } from '../config/help.ts';
import { valuesOf } from '../config/setting.ts';
import { socketPath } from '../config/values.ts';
import { reachableHost } from '../network/addresses.ts';
import { printable } from '../text.ts';
import type { Asked, Command } from './command.ts';

/** Accepts every flag of the proxy; reads only three. */
export const HEALTHCHECK: Command = {
  flags: FLAGS,
  takesEnvironment: true,
  help: renderHelp,
  run: printHealth,
};

async function printHealth({ given, io }: Asked): Promise<number> {
  const read = FLAGS.filter((row) => row.name === 'listen-address' || row.name === 'port');
  const tls = given.values.has('tls-cert-path');
  const { ready, message } = await probe({ ...valuesOf(read, given), tls });
  (ready ? io.stdout : io.stderr).write(`${printable(message)}\n`);
  return ready ? 0 : 1;
}

const TIMEOUT_MS = 5_000;
const LONGEST_REASON = 1_000;

interface Health {
  readonly ready: boolean;
  /** For a person. */
  readonly message: string;
  /** Why it could not be asked, for code. */
  readonly failure?: 'needs-tls' | 'nothing-listens';
}

/**
 * Asks a proxy on this machine whether it is ready, for the `healthcheck` command of containers without a shell.
 * `listenAddress` as configured; where it stands for every interface, loopback is asked. Resolves with the text of /readyz,
 * or why it could not be asked; never rejects.
 */
export function probe(options: {
  readonly listenAddress: string;
  readonly port: number;
  readonly tls: boolean;
  readonly timeoutMs?: number;
}): Promise<Health> {
  const { listenAddress, port, tls, timeoutMs = TIMEOUT_MS } = options;
  const socket = socketPath(listenAddress);
  const host = reachableHost(listenAddress);
  return new Promise((resolve) => {
    const failed = (message: string, failure?: Health['failure']): void =>
      resolve({ ready: false, message, ...(failure && { failure }) });
    const onResponse = (response: IncomingMessage): void => {
      let reason = '';
      response.setEncoding('utf8').on('data', (text: string) => {
        reason = (reason + text).slice(0, LONGEST_REASON);
      });
      const { statusCode, headers } = response;
      // Of /readyz, no other request is malformed: this one is plain HTTP where TLS is spoken.
      if (!tls && headers['privatemode-proxy-error'] === 'malformed_request')
        failed('the proxy serves HTTPS: give its --tls-cert-path and --tls-key-path here too', 'needs-tls');
      else if (statusCode === 204) resolve({ ready: true, message: 'ready' });
      else response.on('end', () => failed(`not ready (status ${statusCode}): ${reason.trim()}`));
      response.on('error', ({ message }) => failed(message));
    };
    const target = {
      ...(socket === undefined ? { host, port } : { socketPath: socket }),
      path: '/readyz',
      agent: false,
    };
    // The certificate is the operator's own and need not name loopback; nothing secret is sent, and one bit believed.
    const request = tls
      ? httpsGet({ ...target, rejectUnauthorized: false }, onResponse)
      : httpGet(target, onResponse);
    const tooLate = new Error(`no answer within ${timeoutMs} ms`);
    const deadline = setTimeout(() => request.destroy(tooLate), timeoutMs);
    request.on('close', () => clearTimeout(deadline));
    request.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      const [where, flags] =
        socket === undefined
          ? [`${host} port ${port}`, '--listen-address and --port']
          : [socket, '--listen-address'];
      if (code === 'ECONNREFUSED' || (socket !== undefined && code === 'ENOENT'))
        failed(`nothing listens on ${where} (${code}); give the ${flags} of the proxy`, 'nothing-listens');
      else failed(message);
    });
  });
}
