/**
 * `privatemode-proxy status`: asks the admin listener of a running proxy for its state, and prints it.
 * Without --admin-address, and as `healthcheck`, it asks at the port for applications whether the proxy is
 * ready.
 */
import { type Clock, pause } from '../clock.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, setting, text, valuesOf } from '../config/setting.ts';
import { hostPort, invalid, socketPath } from '../config/values.ts';
import { asPrivatemodeError } from '../errors.ts';
import type { StatusReport } from '../observe/status-report.ts';
import { viewOf } from '../observe/status-view.ts';
import { hasColours, printable, safeJson } from '../text.ts';
import { CUSTOM_ROOTS_EXIT_CODE } from '../verdict/verdict.ts';
import { type Address, askFor, nameOf, probe } from './ask-proxy.ts';
import type { Command, Invocation } from './command.ts';
import { toText } from './status-text.ts';

export const ADMIN_ADDRESS = setting('admin-address', text('HOST:PORT', hostPort()), {
  help: 'The --admin-address that the proxy was started with (or PRIVATEMODE_PROXY_ADMIN_ADDRESS).',
});

const SETTINGS = [
  { ...ADMIN_ADDRESS, bare: 'the proxy to ask is named by its --admin-address HOST:PORT' },
  setting('watch', BOOLEAN, { help: 'Update the display every second, until Ctrl-C.' }),
  setting('json', BOOLEAN, { help: 'Print the JSON of GET /status; with --watch, one line each second.' }),
] as const;
/** The flags that say where the proxy listens for applications. */
const PLACE: readonly string[] = ['listen-address', 'port', 'tls-cert-path'];
const BARE = 'the proxy to ask is named by its --listen-address HOST and --port PORT';

const EXIT_CODES = { verified: 0, unverified: 10, customRoots: CUSTOM_ROOTS_EXIT_CODE, failing: 50 } as const;

/** Both commands accept every flag of the proxy, so that its command line can be used as it is. */
export const STATUS: Command = {
  flags: [...FLAGS.filter(({ name }) => name !== 'admin-address'), ...SETTINGS],
  takesEnvironment: true,
  help: renderStatusHelp,
  run: showStatus,
};

/** Its exit code is 0 or 1 whatever else is set, as containers want it. */
export const HEALTHCHECK: Command = {
  flags: FLAGS.map((row) => (row.name === 'port' ? { ...row, bare: BARE } : row)),
  takesEnvironment: true,
  help: renderHealthcheckHelp,
  run: showReadiness,
};

/** Prints whether the proxy is ready. Returns 0 if it is; 1 if it is not, or cannot be asked. */
async function showReadiness({ given, io }: Invocation): Promise<number> {
  const asked = valuesOf(
    FLAGS.filter((row) => row.name === 'listen-address' || row.name === 'port'),
    given,
  );
  const tls = given.values.has('tls-cert-path');
  const { ready, message, failure } = await probe({ ...asked, tls, clock: io.clock });
  const isDefault = !given.values.has('port') && socketPath(asked.listenAddress) === undefined;
  const note =
    failure === 'nothing-listens' && isDefault
      ? `; ${asked.port} is the default of --port, and only ${PLACE.map((name) => `--${name}`).join(', ')} are read here`
      : '';
  (ready ? io.stdout : io.stderr).write(`${printable(message)}${note}\n`);
  return ready ? 0 : 1;
}

/**
 * Returns an exit code of EXIT_CODES, 0 after --watch was ended, or without --admin-address that of
 * `healthcheck`. Throws config_invalid for a wrong flag, and if no proxy responds.
 */
async function showStatus(asked: Invocation): Promise<number> {
  const { stdout, stderr, clock } = asked.io;
  const { adminAddress: address, watch, json } = valuesOf(SETTINGS, asked.given);
  if (address === undefined) {
    const more =
      'start the proxy with --admin-address 127.0.0.1:9090, and give the same to status (or set PRIVATEMODE_PROXY_ADMIN_ADDRESS for both)';
    if (watch || json) throw invalid(`--watch and --json ask the admin listener of the proxy: ${more}`);
    const code = await showReadiness(asked);
    stderr.write(`To see more, ${more}\n`);
    return code;
  }
  const isTerminal = stdout.isTTY === true;
  const colours = hasColours(stdout, asked.env);
  const first = await shownOf(address, clock, colours);
  if (!watch) {
    stdout.write(json ? `${safeJson(first.report, 2)}\n` : first.text);
    const { verified, verdict } = first.report.verification;
    if (!verified) return EXIT_CODES.unverified;
    if (verdict?.roots === 'custom') return EXIT_CODES.customRoots;
    const isFailing = first.report.conditions.some(({ id }) => id === 'service_failing');
    return isFailing ? EXIT_CODES.failing : EXIT_CODES.verified;
  }

  const draw = (found: Shown | Error): void => {
    if (json) stdout.write(`${safeJson(found instanceof Error ? { error: found.message } : found.report)}\n`);
    else {
      const text = found instanceof Error ? `${printable(found.message)}\n` : found.text;
      stdout.write(isTerminal ? redrawn(text, stdout.rows) : `${text}\n`);
    }
  };
  const ended = new AbortController();
  const { signal } = ended;
  const end = (): void => ended.abort();
  process.once('SIGINT', end);
  stdout.once?.('error', end); // the reader is gone, as with `| head`
  if (isTerminal && !json) stdout.write(`${NO_WRAP}${CLEAR}`);
  try {
    for (let found: Shown | Error = first; !signal.aborted; ) {
      draw(found);
      await pause(clock, clock.times.statusInterval, signal, 'waiting').catch(() => {});
      // Keep asking while the proxy restarts.
      if (!signal.aborted) found = await shownOf(address, clock, colours).catch(asPrivatemodeError);
    }
  } finally {
    process.off('SIGINT', end);
    if (isTerminal && !json) stdout.write(WRAP);
  }
  return 0;
}

const CLEAR = '\u001b[2J';
const [NO_WRAP, WRAP] = ['\u001b[?7l', '\u001b[?7h'];

/** Overwrites the terminal line by line, so that nothing flickers; lines beyond its height are left out. */
function redrawn(text: string, rows = Number.POSITIVE_INFINITY): string {
  const lines = text
    .trimEnd()
    .split('\n')
    .slice(0, Math.max(1, rows - 1));
  return `\u001b[H${lines.map((line) => `${line}\u001b[K\n`).join('')}\u001b[J`;
}

interface Shown {
  readonly report: StatusReport;
  readonly text: string;
}

/** The status now, and its text. Throws config_invalid with a message that says what to do. */
async function shownOf(address: Address, clock: Clock, colours: boolean): Promise<Shown> {
  const report = (await askFor(address, '/status', clock)) as StatusReport;
  try {
    return { report, text: toText(viewOf(report), colours) }; // what can be drawn has all that is read here
  } catch (cause) {
    throw invalid(
      `the program that listens on ${nameOf(address)} is not a privatemode-proxy of this version`,
      cause,
    );
  }
}

function renderStatusHelp(): string {
  return helpPage(
    `Shows whether a running proxy has verified the service, how, and what the proxy is doing.
Start the proxy with --admin-address. Without that flag, says as healthcheck does whether the proxy is ready.`,
    ['status --admin-address HOST:PORT [flags]'],
    [
      section("Flags (the proxy's other flags are accepted)", SETTINGS),
      section('Exit codes', [
        ['   0', 'The service is verified; requests are protected. Or --watch was stopped.'],
        ['  10', 'It is not verified; nothing is sent.'],
        ['  35', 'It is verified, but under roots other than those of AMD and Intel.'],
        ['  50', 'It is verified, but cannot be reached: requests fail.'],
        ['   1', 'A flag is wrong, or no proxy answers; "Error: …" says what to do.'],
      ]),
    ],
  );
}

function renderHealthcheckHelp(): string {
  return helpPage(
    'Asks the proxy on this machine whether it is ready. Exit code 0: it is; 1: it is not, or cannot be asked, and stderr says why.',
    ['healthcheck [flags]'],
    [
      section('Flags', [
        ...FLAGS.filter(({ name }) => PLACE.includes(name)),
        ['  -h, --help', 'Print this help.'],
      ]),
      'Give the flags of the proxy, or set its variables; all others are accepted, and nothing reads them.\n',
    ],
  );
}
