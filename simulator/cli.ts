/** The command line of the simulator: reads the options, runs a deployment, and ends it on a signal. */
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { parseArgs } from 'node:util';
import { asPrivatemodeError, PrivatemodeError } from '../lib/errors.ts';
import { reasonOf } from '../lib/files/path-refusal.ts';
import { listenFailed } from '../lib/listener/listen.ts';
import { nearest, shellWord } from '../lib/text.ts';
import { temporaryDirectory } from './directory.ts';
import { FAULTS } from './faults.ts';
import { INFERENCE_FAULTS } from './inference/faults.ts';
import { type SimulatorOptions, startSimulator } from './simulator.ts';

const text = { type: 'string' } as const;
const list = { type: 'string', multiple: true } as const;
const flag = { type: 'boolean' } as const;

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
  cors: { ...flag, value: '', help: 'let web pages of any origin read the answers' },
  quiet: { ...flag, value: '', help: 'no next steps and no line per request on stderr' },
  help: { ...flag, value: '', help: 'show this text' },
} as const;

const usage = (): string => {
  const rows = Object.entries(OPTIONS).map(
    ([name, { value, help }]) => `  ${`--${name} ${value}`.padEnd(26)}${help}`,
  );
  const faults = Object.entries(FAULTS).map(
    ([name, { kind, help }]) => `  ${`${name}=${kind}`.padEnd(34)}${help}`,
  );
  const ofInference = Object.entries(INFERENCE_FAULTS).map(
    ([name, { does, applies }]) => `  ${name.padEnd(26)}${does}${applies === 'stream' ? ' [streams]' : ''}`,
  );
  return [
    'Usage: privatemode-simulator [options]',
    rows.join('\n'),
    `Faults:\n${faults.join('\n')}`,
    `Faults of inference=, as NAME or NAME:ARGUMENT,ARGUMENT, several with + between them:\n${ofInference.join('\n')}`,
    WHILE_IT_RUNS,
  ].join('\n\n');
};

const WHILE_IT_RUNS = `While it runs, this machine can ask it (curl --cacert DIR/ca.pem -X METHOD https://localhost:PORT/_simulator/NAME):
  POST rotate-manifest      publishes another manifest, and writes it to DIR/manifest.json
  POST rotate-mesh          makes new mesh certificates, as a restart of the service does
  POST drop-secrets         forgets all secrets that it gave
  PUT faults                sets these faults in place of those in force: -d '{"inference":"flip_tag:3"}'
  GET state                 shows manifest, secrets, requests and faults
`;

export interface Terminal {
  readonly stdout: Writable;
  readonly stderr: Writable;
  /** Aborted by the signal that ends the program. */
  readonly ended: AbortSignal;
  /** The command that starts the proxy on this machine, for a line to copy. */
  readonly proxy: string;
}

/** Runs a simulator until `ended`; resolves with the exit code. Prints one JSON line when ready. */
export async function runSimulator(argv: readonly string[], terminal: Terminal): Promise<number> {
  const { stdout, stderr, ended, proxy } = terminal;
  let values: Values | undefined;
  try {
    values = parse(argv);
    if (values.help) {
      stdout.write(usage());
      return 0;
    }
    const temporary = values.dir === undefined ? await temporaryDirectory() : undefined;
    try {
      const log = values.quiet ? undefined : (line: string) => stderr.write(`${line}\n`);
      const options = simulatorOptions(values, values.dir ?? (temporary?.path as string), log);
      await serve(options, { stdout, ended, proxy, tell: log });
    } finally {
      await temporary?.remove();
    }
    return 0;
  } catch (error) {
    stderr.write(`privatemode-simulator: ${wordsOf(error, values)}\n`);
    return 1;
  }
}

/** Runs the simulator until `ended`. `tell` gets the next steps for a person; stdout is for programs. */
async function serve(
  options: SimulatorOptions,
  {
    stdout,
    ended,
    proxy,
    tell,
  }: Pick<Terminal, 'stdout' | 'ended' | 'proxy'> & { readonly tell: SimulatorOptions['log'] | undefined },
): Promise<void> {
  const simulator = await startSimulator(options);
  try {
    const { port, url, directory, manifestSha256 } = simulator;
    stdout.write(`${JSON.stringify({ ready: true, port, url, dir: directory, manifestSha256 })}\n`);
    tell?.(nextSteps({ url, directory: directory as string, proxy }, options));
    if (!ended.aborted)
      await new Promise((resolve) => ended.addEventListener('abort', resolve, { once: true }));
  } finally {
    await simulator.close();
  }
}

const nextSteps = (
  { url, directory, proxy }: { readonly url: string; readonly directory: string; readonly proxy: string },
  { apiKey = 'any', backend, tee }: Pick<SimulatorOptions, 'apiKey' | 'backend' | 'tee'>,
): string => `
To start the proxy in front of it, in another terminal:

  export PRIVATEMODE_PROXY_API_ENDPOINT=${new URL(url).host}
  export PRIVATEMODE_PROXY_MANIFEST_PATH=${shellWord(join(directory, 'manifest.json'))}
  export SSL_CERT_FILE=${shellWord(join(directory, 'ca.pem'))}
  ${proxy} --unsafe-trust-roots ${shellWord(join(directory, 'roots'))} \\
${tee === 'tdx' ? `    --intel-pcs-url ${url} \\\n` : ''}    --api-key ${shellWord(apiKey)} --listen-address 127.0.0.1

${
  backend === undefined
    ? 'The model sim-chat says back what you say; sim-20x100 sends 20 tokens, one every 100 ms.'
    : `Requests are answered by ${backend}.`
} The client library finds its options
in ${shellWord(join(directory, 'service.mjs'))}. Each request is one line here:
`;

type Values = ReturnType<typeof parse>;

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, strict: true, allowPositionals: false }).values;
  } catch (error) {
    throw new PrivatemodeError(
      'config_invalid',
      `${refusedArgument(argv) ?? (error as Error).message}; ${LISTED}`,
    );
  }
}

const LISTED = '--help lists all options';

/** A simulator may run for days, and its clients may send long conversations. */
const RECORDED_BYTES = 64 * 1024 * 1024;

/** Names that the proxy and other programs have for options of this one. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  ...{ 'listen-address': 'host', bind: 'host', address: 'host', key: 'api-key', token: 'api-key' },
  ...{ workspace: 'dir', directory: 'dir', faults: 'fault', 'cors-allowed-origins': 'cors' },
};

/**
 * What is wrong with an argument that is no known option, or no option at all; undefined if the mistake is
 * elsewhere.
 */
function refusedArgument(argv: readonly string[]): string | undefined {
  const names = Object.keys(OPTIONS);
  for (const [at, argument] of argv.entries()) {
    const [, hyphens, name = ''] = /^(--?)([a-z][^=]*)/i.exec(argument) ?? [];
    if (hyphens === '-' || (hyphens !== undefined && !names.includes(name))) {
      const meant =
        (Object.hasOwn(ELSEWHERE, name) ? ELSEWHERE[name] : undefined) ??
        nearest(name, names) ??
        names.find((each) => name.length === 1 && each.startsWith(name));
      return `unknown option ${hyphens}${name}${meant === undefined ? '' : `: write --${meant}`}`;
    }
    const before = /^--([a-z-]+)$/.exec(argv[at - 1] ?? '')?.[1] as keyof typeof OPTIONS | undefined;
    const isValue = before !== undefined && OPTIONS[before]?.type === 'string';
    if (!argument.startsWith('-') && !isValue)
      return `unexpected argument ${JSON.stringify(argument)}: every option begins with two hyphens, as --port 8443`;
  }
  return undefined;
}

function simulatorOptions(
  values: Values,
  directory: string,
  log: SimulatorOptions['log'] | undefined,
): SimulatorOptions {
  const { tee = 'snp', host, backend, transcripts, cors } = values;
  if (tee !== 'snp' && tee !== 'tdx') {
    throw new PrivatemodeError('config_invalid', `--tee must be snp or tdx, not ${tee}`);
  }
  if (values['api-key']?.startsWith('@')) {
    const words = '--api-key takes the key itself here, not @FILE; leave it out to accept any key';
    throw new PrivatemodeError('config_invalid', words);
  }
  if (backend !== undefined && !isServer(URL.parse(backend))) {
    const wanted = '--backend must be the URL of a server without a path, such as http://127.0.0.1:8000';
    throw new PrivatemodeError('config_invalid', `${wanted}, not ${JSON.stringify(backend)}`);
  }
  return {
    tee,
    directory,
    anyName: false,
    recorderLimits: { maxTotalBytes: RECORDED_BYTES },
    port: wholeNumber('port', values.port ?? '0', 65_535),
    secretLifetime:
      wholeNumber('secret-lifetime', values['secret-lifetime'] ?? '3600', 1e9, 'seconds') * 1000,
    hostNames: values['host-name'] ?? [],
    faults: faultsOf(values.fault ?? []),
    ...given({ host, backend, transcripts, cors, apiKey: values['api-key'], log }),
  };
}

/** Whether a URL names a server and no more: the path of each request is that of the API. */
const isServer = (url: URL | null): boolean =>
  url !== null && /^https?:$/.test(url.protocol) && `${url.pathname}${url.search}${url.hash}` === '/';

/** The members that are not undefined. */
function given<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

function wholeNumber(option: string, value: string, maximum: number, unit?: string): number {
  if (/^\d{1,10}$/.test(value) && Number(value) <= maximum) return Number(value);
  throw new PrivatemodeError(
    'config_invalid',
    `--${option} must be a whole number${unit === undefined ? '' : ` of ${unit}, without a unit,`} up to ${maximum}, not ${JSON.stringify(value)}`,
  );
}

/** Faults of inference add up as with `+`; of any other given twice, one value would be lost. */
function faultsOf(given: readonly string[]): Record<string, string> {
  const faults: Record<string, string> = {};
  for (const [name, value] of given.map(splitFault)) {
    const before = faults[name];
    if (before !== undefined && !name.startsWith('inference')) {
      throw new PrivatemodeError('config_invalid', `--fault ${name} is given twice: leave one out`);
    }
    faults[name] = before === undefined ? value : `${before}+${value}`;
  }
  return faults;
}

/** Splits `name=value`; a name alone switches a flag on. */
function splitFault(argument: string): [string, string] {
  const at = argument.indexOf('=');
  return at < 0 ? [argument, 'true'] : [argument.slice(0, at), argument.slice(at + 1)];
}

/**
 * The message for a person: our own errors have one; an error of the system about a file or a port gets what
 * to do about it.
 */
function wordsOf(error: unknown, { host = '127.0.0.1', port = '0' }: Partial<Values> = {}): string {
  if (!(error instanceof Error && 'syscall' in error)) return asPrivatemodeError(error).message;
  const { path, syscall = '' } = error as NodeJS.ErrnoException;
  if (path !== undefined) return `${path} cannot be used: ${reasonOf(error)}`;
  if (!['listen', 'bind', 'getaddrinfo'].includes(syscall)) return error.message;
  return `${listenFailed(`${host} port ${port}`, Number(port), error).message} (--host, --port)`;
}
