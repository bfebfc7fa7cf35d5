/** The command line of the simulator: options to a running deployment, until a signal ends it. */
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { parseArgs } from 'node:util';
import { asPrivatemodeError, PrivatemodeError } from '../lib/errors.ts';
import { shellWord } from '../lib/text.ts';
import { temporaryDirectory } from './directory.ts';
import { FAULTS } from './faults.ts';
import { INFERENCE_FAULTS } from './inference/faults.ts';
import { type SimulatorOptions, startSimulator } from './simulator.ts';

const text = { type: 'string' } as const;
const list = { type: 'string', multiple: true } as const;
const flag = { type: 'boolean' } as const;

/** Every option: how it is parsed, what its value is called, and a line of help. */
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
}

/** Runs a simulator until `ended`; resolves with the exit code. Prints one JSON line when ready. */
export async function runSimulator(argv: readonly string[], terminal: Terminal): Promise<number> {
  const { stdout, stderr, ended } = terminal;
  try {
    const values = parse(argv);
    if (values.help) {
      stdout.write(usage());
      return 0;
    }
    const temporary = values.dir === undefined ? await temporaryDirectory() : undefined;
    try {
      const log = values.quiet ? undefined : (line: string) => stderr.write(`${line}\n`);
      const options = simulatorOptions(values, values.dir ?? (temporary?.path as string), log);
      await serve(options, { stdout, ended, tell: log });
    } finally {
      await temporary?.remove();
    }
    return 0;
  } catch (error) {
    stderr.write(`privatemode-simulator: ${wordsOf(error)}\n`);
    return 1;
  }
}

/** `tell` gets the next steps for a person; stdout is for programs. */
async function serve(
  options: SimulatorOptions,
  {
    stdout,
    ended,
    tell,
  }: Pick<Terminal, 'stdout' | 'ended'> & { readonly tell: SimulatorOptions['log'] | undefined },
): Promise<void> {
  const simulator = await startSimulator(options);
  try {
    const { port, url, directory, manifestSha256 } = simulator;
    stdout.write(`${JSON.stringify({ ready: true, port, url, dir: directory, manifestSha256 })}\n`);
    tell?.(nextSteps(port, directory as string, options));
    if (!ended.aborted)
      await new Promise((resolve) => ended.addEventListener('abort', resolve, { once: true }));
  } finally {
    await simulator.close();
  }
}

const nextSteps = (
  port: number,
  directory: string,
  { apiKey = 'any', backend }: Pick<SimulatorOptions, 'apiKey' | 'backend'>,
): string => `
To start the proxy in front of it, in another terminal:

  export PRIVATEMODE_PROXY_API_ENDPOINT=localhost:${port}
  export PRIVATEMODE_PROXY_MANIFEST_PATH=${shellWord(join(directory, 'manifest.json'))}
  export SSL_CERT_FILE=${shellWord(join(directory, 'ca.pem'))}
  npm start -- --unsafe-trust-roots ${shellWord(join(directory, 'roots'))} \\
    --api-key ${shellWord(apiKey)} --api-key-fallback always --listen-address 127.0.0.1

${
  backend === undefined
    ? 'The model sim-echo repeats what it is sent; sim-20x100 sends 20 tokens, one every 100 ms.'
    : `Requests are answered by ${backend}.`
} Each request is one line here:
`;

type Values = ReturnType<typeof parse>;

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, strict: true, allowPositionals: false }).values;
  } catch (error) {
    throw new PrivatemodeError('config_invalid', (error as Error).message);
  }
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
  return {
    tee,
    directory,
    anyName: false,
    port: wholeNumber('port', values.port ?? '0', 65_535),
    secretLifetime: wholeNumber('secret-lifetime', values['secret-lifetime'] ?? '3600', 1e9) * 1000,
    hostNames: values['host-name'] ?? [],
    faults: Object.fromEntries((values.fault ?? []).map(splitFault)),
    ...given({ host, backend, transcripts, cors, apiKey: values['api-key'], log }),
  };
}

/** The members that have a value. */
function given<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

function wholeNumber(option: string, value: string, maximum: number): number {
  if (/^\d{1,10}$/.test(value) && Number(value) <= maximum) return Number(value);
  throw new PrivatemodeError('config_invalid', `--${option} must be a whole number up to ${maximum}`);
}

/** `name=value`; a bare name switches a flag on. */
function splitFault(argument: string): [string, string] {
  const at = argument.indexOf('=');
  return at < 0 ? [argument, 'true'] : [argument.slice(0, at), argument.slice(at + 1)];
}

/** Our own errors in their words; what the system says of files and ports, as it says it. */
function wordsOf(error: unknown): string {
  const isSystemError = error instanceof Error && 'syscall' in error;
  return isSystemError ? error.message : asPrivatemodeError(error).message;
}
