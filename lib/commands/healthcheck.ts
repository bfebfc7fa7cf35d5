/** `privatemode-proxy healthcheck`: asks whether the proxy with these settings is ready. */
import { get as httpGet, type IncomingMessage } from 'node:http';
import { get as httpsGet } from 'node:https';
import type { Clock } from '../clock.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { valuesOf } from '../config/setting.ts';
import { socketPath } from '../config/values.ts';
import { reachableHost } from '../network/addresses.ts';
import { printable } from '../text.ts';
import type { Command, Invocation } from './command.ts';

const BARE = 'the proxy to ask is named by its --listen-address HOST and --port PORT';

/** Accepts every flag of the proxy; reads only three. */
export const HEALTHCHECK: Command = {
  flags: FLAGS.map((row) => (row.name === 'port' ? { ...row, bare: BARE } : row)),
  takesEnvironment: true,
  help: renderHelp,
  run: printHealth,
};

function renderHelp(): string {
  return helpPage(
    'Asks the proxy on this machine whether it is ready. Exit code 0: it is; 1: it is not, or cannot be asked, and stderr says why.',
    ['healthcheck [flags]'],
    [
      section('Flags', [
        ...FLAGS.filter(({ name }) => READ.includes(name)),
        ['  -h, --help', 'Print this help.'],
      ]),
      'Give the flags of the proxy, or set its variables; all others are accepted, and nothing reads them.\n',
    ],
  );
}

/** The flags that say where the proxy listens. */
const READ: readonly string[] = ['listen-address', 'port', 'tls-cert-path'];

async function printHealth({ given, io }: Invocation): Promise<number> {
  const read = FLAGS.filter((row) => row.name === 'listen-address' || row.name === 'port');
  const tls = given.values.has('tls-cert-path');
  const asked = valuesOf(read, given);
  const { ready, message, failure } = await probe({ ...asked, tls, clock: io.clock });
  const isDefault = !given.values.has('port') && socketPath(asked.listenAddress) === undefined;
  const note =
    failure === 'nothing-listens' && isDefault
      ? `; ${asked.port} is the default of --port, and only ${READ.map((name) => `--${name}`).join(', ')} are read here`
      : '';
  (ready ? io.stdout : io.stderr).write(`${printable(message)}${note}\n`);
  return ready ? 0 : 1;
}

const LONGEST_REASON = 1_000;

interface Health {
  readonly ready: boolean;
  /** Message for a person. */
  readonly message: string;
  /** Why the proxy could not be asked, for other code. */
  readonly failure?: 'needs-tls' | 'nothing-listens';
}

/**
 * Asks a proxy on this machine whether it is ready, for the `healthcheck` command of containers without a
 * shell. `listenAddress`: as configured; if it means every interface, the request goes to loopback. Resolves
 * with the text of /readyz, or with the reason why the proxy could not be asked; never rejects.
 */
export function probe(options: {
  readonly listenAddress: string;
  readonly port: number;
  readonly tls: boolean;
  readonly clock: Clock;
}): Promise<Health> {
  const { listenAddress, port, tls, clock } = options;
  const { healthcheckTimeout } = clock.times;
  const socket = socketPath(listenAddress);
  const host = reachableHost(listenAddress);
  const [where, flags] =
    socket === undefined
      ? [`${host} port ${port}`, '--listen-address and --port']
      : [socket, '--listen-address'];
  return new Promise((resolve) => {
    const failed = (message: string, failure?: Health['failure']): void =>
      resolve({ ready: false, message, ...(failure && { failure }) });
    const onResponse = (response: IncomingMessage): void => {
      let reason = '';
      response.setEncoding('utf8').on('data', (text: string) => {
        reason = (reason + text).slice(0, LONGEST_REASON);
      });
      const { statusCode, headers } = response;
      // A request for /readyz counts as malformed only if it is plain HTTP on a TLS port.
      if (!tls && headers['privatemode-proxy-error'] === 'malformed_request')
        failed(`the proxy on ${where} serves HTTPS: give its --tls-cert-path here too`, 'needs-tls');
      else if (statusCode === 204) resolve({ ready: true, message: 'ready' });
      else response.on('end', () => failed(`not ready (status ${statusCode}): ${reason.trim()}`));
      response.on('error', ({ message }) => failed(message));
    };
    const target = {
      ...(socket === undefined ? { host, port } : { socketPath: socket }),
      path: '/readyz',
      agent: false,
    };
    // The certificate is the operator's own and need not name loopback. The request holds no secret, and the
    // response counts only as ready or not.
    const request = tls
      ? httpsGet({ ...target, rejectUnauthorized: false }, onResponse)
      : httpGet(target, onResponse);
    const tooLate = new Error(`no answer within ${healthcheckTimeout} ms`);
    request.on(
      'close',
      clock.after(healthcheckTimeout, () => request.destroy(tooLate)),
    );
    request.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      if (code === 'ECONNREFUSED' || (socket !== undefined && code === 'ENOENT'))
        failed(`nothing listens on ${where} (${code}); give the ${flags} of the proxy`, 'nothing-listens');
      else if (tls && code === 'EPROTO')
        failed(
          `what listens on ${where} speaks no TLS; leave out --tls-cert-path, or give the ${flags} of the proxy`,
        );
      else
        failed(
          `what listens on ${where} gave no answer (${code ?? message}); give the ${flags} of the proxy`,
        );
    });
  });
}
