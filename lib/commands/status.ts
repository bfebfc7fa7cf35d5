/** `privatemode-proxy status`: asks the admin listener of a running proxy for its state, and prints it. */
import { get as httpGet, type IncomingMessage } from 'node:http';
import { get as httpsGet } from 'node:https';
import { abortAfter, type Clock, pause } from '../clock.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, hostPort, setting, valuesOf } from '../config/setting.ts';
import { invalid } from '../config/values.ts';
import { asPrivatemodeError } from '../errors.ts';
import { reachableHost, urlHost } from '../network/addresses.ts';
import type { StatusReport } from '../observe/status-report.ts';
import type { VerificationDocument } from '../observe/verification-document.ts';
import { hasColours, printable, safeJson } from '../text.ts';
import { CUSTOM_ROOTS_EXIT_CODE } from '../verdict/verdict.ts';
import type { Command, Invocation } from './command.ts';
import { renderStatus, type StatusFacts } from './status-text.ts';

export const ADMIN_ADDRESS = setting('admin-address', hostPort('HOST:PORT'), {
  help: 'The --admin-address that the proxy was started with (or PRIVATEMODE_PROXY_ADMIN_ADDRESS).',
});

const SETTINGS = [
  { ...ADMIN_ADDRESS, bare: 'the proxy to ask is named by its --admin-address HOST:PORT' },
  setting('watch', BOOLEAN, { help: 'Update the display every second, until Ctrl-C.' }),
  setting('json', BOOLEAN, {
    help: 'Print {"status", "verification"} as one JSON object; with --watch, one per line.',
  }),
] as const;
/** Accepted and ignored, so that the command line of the proxy can be used as it is. */
const OTHERS = FLAGS.filter(({ name }) => name !== 'admin-address');

const EXIT_CODES = { verified: 0, unverified: 10, customRoots: CUSTOM_ROOTS_EXIT_CODE, failing: 50 } as const;

export interface Address {
  readonly host: string;
  readonly port: number;
}

export const STATUS: Command = {
  flags: [...OTHERS, ...SETTINGS],
  takesEnvironment: true,
  help: renderHelp,
  run: (asked) => showStatus(asked),
};

/**
 * Accepts every proxy flag, but reads only --admin-address of them. Returns an exit code of EXIT_CODES, or 0
 * after --watch was ended. Throws config_invalid for a wrong flag, and if no proxy responds.
 */
async function showStatus({ given, env, io: { stdout, clock } }: Invocation): Promise<number> {
  const { adminAddress: address, watch, json } = valuesOf(SETTINGS, given);
  if (address === undefined) {
    throw invalid(
      'status asks the admin listener of the proxy: start the proxy with --admin-address 127.0.0.1:9090, and give the same to status ' +
        '(or set PRIVATEMODE_PROXY_ADMIN_ADDRESS for both)',
    );
  }
  const isTerminal = stdout.isTTY === true;
  const colours = hasColours(stdout, env);
  const facts = await factsOf(address, clock);
  if (!watch) {
    stdout.write(json ? `${safeJson(facts, 2)}\n` : renderStatus(facts, { colours }));
    const { verified, verdict } = facts.verification;
    if (!verified) return EXIT_CODES.unverified;
    if (verdict?.roots === 'custom') return EXIT_CODES.customRoots;
    const isFailing = facts.status.conditions.some(({ id }) => id === 'service_failing');
    return isFailing ? EXIT_CODES.failing : EXIT_CODES.verified;
  }

  const draw = (found: StatusFacts | Error): void => {
    if (json) stdout.write(`${safeJson(found instanceof Error ? { error: found.message } : found)}\n`);
    else {
      const text =
        found instanceof Error ? `${printable(found.message)}\n` : renderStatus(found, { colours });
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
    for (let found: StatusFacts | Error = facts; !signal.aborted; ) {
      draw(found);
      await pause(clock, clock.times.statusInterval, signal, 'waiting').catch(() => {});
      // Keep asking while the proxy restarts.
      if (!signal.aborted) found = await factsOf(address, clock).catch(asPrivatemodeError);
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

/** The content of both routes. Throws config_invalid with a message that says what to do. */
async function factsOf(address: Address, clock: Clock): Promise<StatusFacts> {
  const [status, verification] = await Promise.all([
    askFor(address, '/status', clock) as Promise<StatusReport>,
    askFor(address, '/verification', clock) as Promise<VerificationDocument>,
  ]);
  const facts = { status, verification };
  try {
    renderStatus(facts, { colours: false }); // what can be drawn has all that this command reads
  } catch (cause) {
    throw invalid(
      `the program that listens on ${nameOf(address)} is not a privatemode-proxy of this version`,
      cause,
    );
  }
  return facts;
}

const nameOf = ({ host, port }: Address): string => `${host} port ${port}`;

const MOST_BYTES = 64 * 1024 * 1024;

/** The JSON of one route of a running proxy. Throws config_invalid with a message that says what to do. */
export async function askFor(address: Address, path: string, clock: Clock): Promise<unknown> {
  const asked = { host: reachableHost(address.host), port: address.port };
  let answer: Answer;
  try {
    const url = `http://${urlHost(asked.host)}:${asked.port}${path}`;
    answer = await getText(clock, url, { timeoutMs: clock.times.statusTimeout });
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException;
    if (code === 'ECONNREFUSED') {
      throw invalid(
        `nothing listens on ${nameOf(asked)} (ECONNREFUSED): start the proxy with --admin-address ${urlHost(address.host)}:${address.port}, ` +
          'or give the address that it was started with',
      );
    }
    throw invalid(`${nameOf(asked)} cannot be asked: ${message}; give the --admin-address of the proxy`);
  }
  const parsed = answer.status === 200 ? parsedJson(answer.body) : undefined;
  if (parsed !== undefined) return parsed;
  throw invalid(
    `the program that listens on ${nameOf(asked)} does not serve ${path} (status ${answer.status}): give the --admin-address of the proxy, ` +
      'not the port for applications; the proxy and this command must have the same version',
  );
}

interface Answer {
  readonly status: number | undefined;
  readonly body: string;
}

/**
 * The response to a GET to a proxy on this network. `fetch` would refuse some ports, and go through an HTTP
 * proxy of the environment. Throws what Node throws, and if the response is not there in time or is too long.
 */
export async function getText(
  clock: Clock,
  url: string,
  {
    timeoutMs,
    headers = {},
    ca,
  }: {
    readonly timeoutMs: number;
    readonly headers?: Readonly<Record<string, string>>;
    /** The authorities to trust (PEM), for https. */
    readonly ca?: readonly string[] | undefined;
  },
): Promise<Answer> {
  const signal = abortAfter(clock, timeoutMs);
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const options = { headers, agent: false, signal } as const;
      const request =
        ca === undefined
          ? httpGet(url, options, resolve)
          : httpsGet(url, { ...options, ca: [...ca] }, resolve);
      request.on('error', reject);
    });
    let body = '';
    response.setEncoding('utf8');
    for await (const text of response) {
      body += text;
      if (body.length > MOST_BYTES) throw new Error('the answer is too long');
    }
    return { status: response.statusCode, body };
  } catch (thrown) {
    throw signal.aborted ? new Error(`no answer within ${timeoutMs} ms`) : thrown;
  }
}

export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function renderHelp(): string {
  return helpPage(
    `Shows whether a running proxy has verified the service, how, and what the proxy is doing.
Start the proxy with --admin-address.`,
    ['status --admin-address HOST:PORT [flags]'],
    [
      section("Flags (the proxy's other flags are accepted and ignored)", SETTINGS),
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
