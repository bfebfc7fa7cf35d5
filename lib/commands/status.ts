/**
 * `privatemode-proxy status`: asks the admin listener of a running proxy for its state, and prints it.
 * Without --admin-address, and as `healthcheck`, the command asks at the port for applications whether the
 * proxy is ready.
 */
import { pause } from '../clock.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, setting, text, valuesOf } from '../config/setting.ts';
import { hostPort, invalid, socketPath } from '../config/values.ts';
import { reachableHost } from '../network/addresses.ts';
import type { StatusReport } from '../observe/status-report.ts';
import { viewOf } from '../observe/status-view.ts';
import { hasColours, printable, safeJson } from '../text.ts';
import { CUSTOM_ROOTS_EXIT_CODE } from '../verdict/verdict.ts';
import { askStatus, getText } from './ask-proxy.ts';
import type { Command, Invocation } from './command.ts';
import { toText } from './status-text.ts';

export const ADMIN_ADDRESS = setting('admin-address', text('HOST:PORT', hostPort()), {
  help: 'The --admin-address that the proxy was started with (or PRIVATEMODE_PROXY_ADMIN_ADDRESS).',
});

const BARE = 'a proxy is named by its --admin-address, or its --listen-address and --port';
const OWN = [
  { ...ADMIN_ADDRESS, bare: BARE },
  setting('watch', BOOLEAN, { help: 'Update the display every second, until Ctrl-C.' }),
  setting('json', BOOLEAN, { help: 'Print the JSON of GET /status; with --watch, one line each second.' }),
] as const;
const SETTINGS = [
  ...OWN,
  ...FLAGS.filter(({ name }) => name === 'listen-address' || name === 'port' || name === 'tls-cert-path'),
] as const;

/** Accepts every flag of the proxy, so that the proxy's command line can be used as it is. */
export const STATUS: Command = {
  flags: [...FLAGS, ...SETTINGS],
  takesEnvironment: true,
  help: renderHelp,
  run: showStatus,
};

/** The exit code of `healthcheck` is 0 or 1 whatever else is set, because containers expect that. */
export const HEALTHCHECK: Command = { ...STATUS, run: showReadiness };

/** Prints whether the proxy is ready. Returns 0 if so, and 1 if the proxy is not ready or cannot be asked. */
async function showReadiness({ given, io: { stdout, stderr, clock } }: Invocation): Promise<number> {
  const { listenAddress, port, tlsCertPath, watch, json } = valuesOf(SETTINGS, given);
  if (watch || json) throw invalid('--watch and --json go with status --admin-address HOST:PORT');
  const path = socketPath(listenAddress);
  const host = reachableHost(listenAddress);
  const place = path === undefined ? { host, port } : { socketPath: path };
  // The certificate is not checked: it need not name loopback, and the request holds no secret.
  const tls = tlsCertPath === undefined ? {} : { protocol: 'https:', rejectUnauthorized: false };
  const timeout = clock.times.healthcheckTimeout;
  try {
    const { status, body } = await getText(clock, { ...place, ...tls, path: '/readyz' }, timeout);
    if (status !== 204 && status !== 503) throw new Error(`HTTP status ${status}`);
    if (status === 204) stdout.write('ready\n');
    else stderr.write(`not ready: ${printable(body.trim())}\n`);
    return status === 204 ? 0 : 1;
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException;
    const why = printable(`no proxy answers on ${path ?? `${host} port ${port}`} (${code ?? message})`);
    stderr.write(`${why}: give its --listen-address, --port and --tls-cert-path\n`);
    return 1;
  }
}

/**
 * Returns the exit code that the report leads to, or 0 after --watch was ended. Without --admin-address,
 * returns the exit code of `healthcheck`. Throws config_invalid for a wrong flag, and if no proxy responds.
 */
async function showStatus(asked: Invocation): Promise<number> {
  const { stdout, stderr, clock } = asked.io;
  const { adminAddress, watch, json } = valuesOf(SETTINGS, asked.given);
  if (adminAddress === undefined) {
    const code = await showReadiness(asked);
    stderr.write(
      'To see more, start the proxy with --admin-address 127.0.0.1:9090, and give the same to status (or set PRIVATEMODE_PROXY_ADMIN_ADDRESS for both)\n',
    );
    return code;
  }
  const colours = hasColours(stdout, asked.env);
  const look = () =>
    askStatus(adminAddress, clock, (report) => {
      const text = toText(viewOf(report), colours); // throws unless the report is complete
      return { code: exitCodeOf(report), text: json ? `${safeJson(report, watch ? 0 : 2)}\n` : text };
    });
  const first = await look();
  if (!watch) {
    stdout.write(first.text);
    return first.code;
  }
  const failed = ({ message }: Error) => ({
    text: json ? `${safeJson({ error: message })}\n` : `${printable(message)}\n`,
  });
  const ended = new AbortController();
  const end = (): void => ended.abort();
  process.once('SIGINT', end);
  stdout.once?.('error', end); // the reader is gone, for example `| head`
  let { text }: { text: string } = first;
  while (!ended.signal.aborted) {
    if (stdout.isTTY && !json) stdout.write(redrawn(text, stdout.rows));
    else stdout.write(json ? text : `${text}\n`);
    await pause(clock, clock.times.statusInterval, ended.signal, 'waiting').catch(() => {});
    // The command goes on asking while the proxy restarts.
    if (!ended.signal.aborted) ({ text } = await look().catch(failed));
  }
  process.off('SIGINT', end);
  return 0;
}

const EXIT_CODES = { verified: 0, unverified: 10, customRoots: CUSTOM_ROOTS_EXIT_CODE, failing: 50 } as const;

function exitCodeOf({ verification: { verified, verdict }, conditions }: StatusReport): number {
  if (!verified) return EXIT_CODES.unverified;
  if (verdict?.roots === 'custom') return EXIT_CODES.customRoots;
  return conditions.some(({ id }) => id === 'service_failing') ? EXIT_CODES.failing : EXIT_CODES.verified;
}

/**
 * Overwrites a terminal of `rows` rows line by line, so that nothing flickers. Text that is too wide or too
 * high for the terminal is left out, because line wrapping is off meanwhile.
 */
function redrawn(text: string, rows = Number.POSITIVE_INFINITY): string {
  const lines = text.trimEnd().split('\n');
  const shown = lines.slice(0, Math.max(1, rows - 1)).map((line) => `${line}\u001b[K\n`);
  return `\u001b[?7l\u001b[H${shown.join('')}\u001b[J\u001b[?7h`;
}

function renderHelp(): string {
  return helpPage(
    `Shows whether a running proxy has verified the service, how, and what it is doing. Without
--admin-address, and as healthcheck, says only whether the proxy on this machine is ready.`,
    ['status --admin-address HOST:PORT [flags]', 'healthcheck [flags]'],
    [
      section('Flags (all those of the proxy are accepted)', [
        ...OWN,
        ['      --listen-address, --port, --tls-cert-path', 'For healthcheck: as the proxy has them.'],
      ]),
      section('Exit codes', [
        ['   0', 'The service is verified; requests are protected. Or --watch was stopped.'],
        ['  10', 'It is not verified; nothing is sent.'],
        ['  35', 'It is verified, but under roots other than those of AMD and Intel.'],
        ['  50', 'It is verified, but cannot be reached: requests fail.'],
        ['   1', 'A flag is wrong, or no proxy answers; stderr says what to do.'],
      ]),
      'Of healthcheck, and without --admin-address: 0 if the proxy is ready, else 1.\n',
    ],
  );
}
