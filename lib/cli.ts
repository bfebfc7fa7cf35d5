/** Command line in, exit code out: which command it is, and what goes to stdout and stderr. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import { type CommandName, parseArgv } from './config/argv.ts';
import { type Config, parseConfig } from './config/config.ts';
import { type Environment, peekSetting, withEnvironment } from './config/environment.ts';
import { FLAGS } from './config/flags.ts';
import { renderHelp } from './config/help.ts';
import { valuesOf } from './config/setting.ts';
import { asPrivatemodeError, PrivatemodeError } from './errors.ts';
import { probe } from './observe/health.ts';
import { printable, printableLines } from './text.ts';
import { VERSION } from './version.ts';

export interface TextOutput {
  write(text: string): unknown;
}

export interface Io {
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
}

type Run = (config: Config, warnings: readonly string[], io: Io) => Promise<number>;
type Command = (argv: readonly string[], io: Io, env: Environment) => Promise<number>;

const COMMANDS: Readonly<Record<CommandName, Command>> = {
  clients: async (argv, io) => (await import('./commands/clients.ts')).runClients(argv, io),
  healthcheck,
  /** As `--help` of the command that is named, or of the program. */
  help: ([name, ...rest], io, env) =>
    main([...(name === undefined ? [] : [name]), '--help', ...rest], env, io),
  status: async (argv, io, env) => (await import('./commands/status.ts')).runStatus(argv, env, io),
  receipts: async (argv, io) => (await import('./commands/receipts.ts')).runReceipts(argv, io),
  usage: async (argv, io) => (await import('./commands/usage.ts')).runUsage(argv, io),
  version: (argv, io, env) => main(['--version', ...argv], env, io),
  verify: async (argv, io, env) => (await import('./commands/verify.ts')).runVerify(argv, env, io),
};

/** Flags that print something in place of a start; where several are given, the first one here wins. */
const PRINTED: readonly (readonly [flag: string, render: () => string])[] = [
  ['help', renderHelp],
  ['version', () => `privatemode-proxy version v${VERSION}\n`],
  ['licenses', licences],
];

/** The program is loaded only to run it: help, version and wrong flags answer at once. */
const runApp: Run = async (config, warnings, io) =>
  (await import('./commands/serve.ts')).run(config, warnings, io);

/**
 * Runs a command and resolves with its exit code: 1 where it cannot, with `Error: <text>` on stderr. Where the proxy itself cannot start
 * and its log would be JSON, that is a line of the log.
 */
export async function main(
  argv: readonly string[],
  env: Environment,
  io: Io,
  run: Run = runApp,
): Promise<number> {
  const [name, ...rest] = argv;
  const command = name !== undefined && Object.hasOwn(COMMANDS, name) ? (name as CommandName) : undefined;
  try {
    if (command !== undefined) return await COMMANDS[command](rest, io, env);

    const { values } = parseArgv(argv);
    for (const [flag, render] of PRINTED) {
      if (values.get(flag) !== 'true') continue;
      io.stdout.write(render());
      return 0;
    }
    const { config, warnings } = parseConfig(argv, env);
    return await run(config, warnings, io);
  } catch (thrown) {
    if (command === undefined && peekSetting(argv, env, 'log-format') === 'json')
      await logFailure(thrown, io);
    else io.stderr.write(describe(thrown));
    return 1;
  }
}

/** `healthcheck`: is the proxy that was started with these settings ready? Accepts every proxy flag; reads only three. */
async function healthcheck(argv: readonly string[], io: Io, env: Environment): Promise<number> {
  const given = withEnvironment(parseArgv(argv), env);
  if (given.values.get('help') === 'true') {
    io.stdout.write(renderHelp());
    return 0;
  }
  const read = FLAGS.filter((row) => row.name === 'listen-address' || row.name === 'port');
  const tls = given.values.has('tls-cert-path');
  const { ready, message } = await probe({ ...valuesOf(read, given), tls });
  (ready ? io.stdout : io.stderr).write(`${printable(message)}\n`);
  return ready ? 0 : 1;
}

async function logFailure(thrown: unknown, { stderr }: Io): Promise<void> {
  const { createLogger } = await import('./observe/log.ts');
  const { code, message, remedy } = asPrivatemodeError(thrown);
  const fault = thrown instanceof PrivatemodeError ? undefined : thrown;
  createLogger({ format: 'json', level: ERROR_LEVEL, output: stderr }).error(
    { code, remedy, err: fault },
    message,
  );
}

/** As pino counts. */
const ERROR_LEVEL = 50;

/** The message of config_invalid says how to mend the setting; the remedy of every other code comes from its table. */
function describe(thrown: unknown): string {
  const error = asPrivatemodeError(thrown);
  const lines = [`Error: ${error.message}`];
  if (error.code !== 'config_invalid') lines.push(error.remedy);
  // A fault of the program: its place, not its message, which may quote anything.
  if (!(thrown instanceof PrivatemodeError) && thrown instanceof Error) {
    lines.push(`${thrown.name}`, ...(thrown.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line)));
  }
  return `${printableLines(lines.join('\n'))}\n`;
}

/**
 * The licences of the program and of everything that is part of it. The single executable carries them in it, the built
 * program beside it (scripts/build.ts); run from source, each dependency has its own beside its code.
 */
function licences(): string {
  if (isSea()) return getAsset('licences', 'utf8');
  return textAt('licences.txt') ?? `privatemode-proxy\n\n${textAt('../LICENSE') ?? SPDX}\n${NOTE}\n`;
}

const SPDX = 'SPDX-License-Identifier: MIT\n';
const NOTE = 'The licences of the packages it uses lie beside them, in node_modules.';

function textAt(path: string): string | undefined {
  try {
    return readFileSync(join(import.meta.dirname, path), 'utf8');
  } catch {
    return undefined;
  }
}
