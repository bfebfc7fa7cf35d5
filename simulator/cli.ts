/** The command line of the simulator: reads the options, runs a deployment, and ends it on a signal. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { parseArgs } from 'node:util';
import { asPrivatemodeError, PrivatemodeError } from '../lib/errors.ts';
import { reasonOf } from '../lib/files/path-refusal.ts';
import { nearest, shellWord } from '../lib/text.ts';
import { FAULTS } from './faults.ts';
import { INFERENCE_FAULTS } from './inference/faults.ts';
import { type Simulator, type SimulatorOptions, startSimulator } from './simulator.ts';

const text = { type: 'string' } as const;
const list = { type: 'string', multiple: true } as const;
const flag = { type: 'boolean', value: '' } as const;

/** Every option: how to parse it, the placeholder for its value, and its line of help. */
const OPTIONS = {
  port: { ...text, value: 'NUMBER', help: 'port to listen on; 0, the default, takes any' },
  host: { ...text, value: 'ADDRESS', help: 'address to listen on (default 127.0.0.1)' },
  'host-name': { ...list, value: 'NAME', help: 'further name in the TLS certificate, e.g. of the CDN' },
  dir: { ...text, value: 'DIR', help: 'where certificates, manifest and hardware keys are kept' },
  tee: { ...text, value: 'snp|tdx', help: 'hardware the coordinator runs on (default snp)' },
  'api-key': { ...text, value: 'KEY', help: 'accept this key only (default: any)' },
  'secret-lifetime': { ...text, value: 'SECONDS', help: 'how long a secret is kept (default 3600)' },
  backend: { ...text, value: 'URL', help: 'OpenAI-compatible server that answers decrypted requests' },
  transcripts: { ...text, value: 'FILE', help: 'recorded answers' },
  fault: { ...list, value: 'NAME=VALUE', help: 'make something go wrong (repeatable)' },
  cors: { ...flag, help: 'let web pages of any origin read the answers' },
  quiet: { ...flag, help: 'no next steps and no line per request on stderr' },
  help: { ...flag, help: 'show this text' },
} as const;

const WHILE_IT_RUNS = `While it runs, this machine can ask it (curl --cacert DIR/ca.pem -X METHOD https://localhost:PORT/_simulator/NAME):
  POST rotate-manifest      publishes another manifest, and writes it to DIR/manifest.json
  POST rotate-mesh          makes new mesh certificates, as a restart of the service does
  POST drop-secrets         forgets all secrets that it gave
  PUT faults                sets these faults in place of those in force: -d '{"inference":"flip_tag:3"}'
  GET state                 shows manifest, secrets, requests and faults
`;

function usage(): string {
  const rows = <T>(table: Record<string, T>, width: number, row: (name: string, of: T) => [string, string]) =>
    Object.entries(table).map((entry) => {
      const [left, help] = row(...entry);
      return `  ${left.padEnd(width)}${help}`;
    });
  return [
    'Usage: privatemode-simulator [options]\n',
    ...rows(OPTIONS, 26, (name, { value, help }) => [`--${name} ${value}`, help]),
    '\nFaults:',
    ...rows(FAULTS, 34, (name, { kind, help }) => [`${name}=${kind}`, help]),
    '\nFaults of inference=, as NAME or NAME:ARGUMENT,ARGUMENT, several with + between them:',
    ...rows(INFERENCE_FAULTS, 26, (name, { does, streams }) => [name, streams ? `${does} [streams]` : does]),
    `\n${WHILE_IT_RUNS}`,
  ].join('\n');
}

export interface Terminal {
  readonly stdout: Writable;
  readonly stderr: Writable;
  /** Aborted by the signal that ends the program. */
  readonly ended: AbortSignal;
  /** The command that starts the proxy on this machine, for a line to copy. */
  readonly proxy: string;
}

/**
 * Runs a simulator until `ended`; resolves with the exit code. Prints one JSON line when ready on stdout, for
 * programs, and the next steps for a person on stderr.
 */
export async function runSimulator(argv: readonly string[], terminal: Terminal): Promise<number> {
  const { stdout, stderr, ended, proxy } = terminal;
  try {
    const values = parse(argv);
    if (values.help) {
      stdout.write(usage());
      return 0;
    }
    const log = values.quiet ? undefined : (line: string) => stderr.write(`${line}\n`);
    const options = simulatorOptions(values, log);
    const temporary = values.dir ?? (await mkdtemp(join(tmpdir(), 'privatemode-simulator-')));
    try {
      await using simulator = await startSimulator({ ...options, directory: temporary });
      const { port, url, directory, manifestSha256 } = simulator;
      stdout.write(`${JSON.stringify({ ready: true, port, url, dir: directory, manifestSha256 })}\n`);
      log?.(nextSteps(simulator, options, proxy));
      if (!ended.aborted)
        await new Promise((resolve) => ended.addEventListener('abort', resolve, { once: true }));
    } finally {
      if (values.dir === undefined) await rm(temporary, { recursive: true, force: true });
    }
    return 0;
  } catch (error) {
    stderr.write(`privatemode-simulator: ${wordsOf(error)}\n`);
    return 1;
  }
}

function nextSteps(
  { url, directory = '' }: Simulator,
  { apiKey = 'any', backend, tee }: SimulatorOptions,
  proxy: string,
): string {
  const [manifest, ca, roots, service] = ['manifest.json', 'ca.pem', 'roots', 'service.mjs'].map((name) =>
    shellWord(join(directory, name)),
  );
  const models = 'The model sim-chat says back what you say; sim-20x100 sends 20 tokens, one every 100 ms.';
  return `
To start the proxy in front of it, in another terminal:

  export PRIVATEMODE_PROXY_API_ENDPOINT=${new URL(url).host}
  export PRIVATEMODE_PROXY_MANIFEST_PATH=${manifest}
  export SSL_CERT_FILE=${ca}
  ${proxy} --unsafe-trust-roots ${roots} \\
${tee === 'tdx' ? `    --intel-pcs-url ${url} \\\n` : ''}    --api-key ${shellWord(apiKey)} --listen-address 127.0.0.1

${backend === undefined ? models : `Requests are answered by ${backend}.`} The client library finds its options
in ${service}. Each request is one line here:
`;
}

type Values = ReturnType<typeof parse>;

const refused = (words: string): PrivatemodeError => new PrivatemodeError('config_invalid', words);

/** Throws config_invalid. */
function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, strict: true, allowPositionals: false }).values;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const name = argv
      .map((each) => /^--?([^=]*)/.exec(each)?.[1] ?? '')
      .find((each) => /\w/.test(each) && !(each in OPTIONS));
    if (code !== 'ERR_PARSE_ARGS_UNKNOWN_OPTION' || name === undefined)
      throw refused(`${message}; --help lists all options`);
    const meant = nearest(name, Object.keys(OPTIONS));
    const hint = meant === undefined ? '' : `: write --${meant}`;
    throw refused(`unknown option --${name}${hint}; --help lists all options`);
  }
}

/** Throws config_invalid. */
function simulatorOptions(values: Values, log: SimulatorOptions['log']): SimulatorOptions {
  const { tee = 'snp', host, backend, transcripts, cors, port = '0', fault = [] } = values;
  if (tee !== 'snp' && tee !== 'tdx') throw refused(`--tee must be snp or tdx, not ${tee}`);
  if (values['api-key']?.startsWith('@'))
    throw refused('--api-key takes the key itself here, not @FILE; leave it out to accept any key');
  if (backend !== undefined && !isServer(URL.parse(backend))) {
    const wanted = '--backend must be the URL of a server without a path, such as http://127.0.0.1:8000';
    throw refused(`${wanted}, not ${JSON.stringify(backend)}`);
  }
  const seconds = wholeNumber('secret-lifetime', values['secret-lifetime'] ?? '3600', 1e9, ' of seconds');
  return {
    ...{ tee, host, backend, transcripts, cors, log, anyName: false, apiKey: values['api-key'] },
    recorded: 0,
    port: wholeNumber('port', port, 65_535),
    secretLifetime: seconds * 1000,
    hostNames: values['host-name'],
    faults: faultsOf(fault),
  };
}

/** Whether a URL names a server and no more: the path of each request is that of the API. */
const isServer = (url: URL | null): boolean =>
  url !== null && /^https?:$/.test(url.protocol) && `${url.pathname}${url.search}${url.hash}` === '/';

function wholeNumber(option: string, value: string, maximum: number, unit = ''): number {
  if (/^\d{1,10}$/.test(value) && Number(value) <= maximum) return Number(value);
  const wanted = `--${option} must be a whole number${unit} up to ${maximum}`;
  throw refused(`${wanted}, not ${JSON.stringify(value)}`);
}

/** A name alone switches a flag on. Faults of inference add up; of any other, one value would be lost. */
function faultsOf(given: readonly string[]): Record<string, string> {
  const faults: Record<string, string> = {};
  for (const each of given) {
    const [name = '', value = 'true'] = each.split(/=(.*)/s, 2);
    const before = faults[name];
    if (before !== undefined && !name.startsWith('inference'))
      throw refused(`--fault ${name} is given twice: leave one out`);
    faults[name] = before === undefined ? value : `${before}+${value}`;
  }
  return faults;
}

/** For a person: our own errors have a message; of the system about a file, what to do about it. */
function wordsOf(error: unknown): string {
  const { path } = error as NodeJS.ErrnoException;
  if (path !== undefined) return `${path} cannot be used: ${reasonOf(error)}`;
  return error instanceof Error && 'syscall' in error ? error.message : asPrivatemodeError(error).message;
}
