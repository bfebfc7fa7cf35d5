/** Command line in, exit code out: which command it is, and what goes to stdout and stderr. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import { type Command, type Io, runCommand } from './commands/command.ts';
import { type CommandWords, parseArgv } from './config/argv.ts';
import { type Config, configOf } from './config/config.ts';
import { type Environment, peekSetting, withEnvironment } from './config/environment.ts';
import { FLAGS } from './config/flags.ts';
import { fitHelp, renderHelp } from './config/help.ts';
import { asPrivatemodeError, PrivatemodeError } from './errors.ts';
import { printableLines } from './text.ts';
import { VERSION } from './version.ts';

type Run = (config: Config, warnings: readonly string[], io: Io) => Promise<number>;

/** Each is loaded only to be run: help, version and wrong flags answer at once. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  clients: async () => (await import('./commands/clients.ts')).CLIENTS,
  healthcheck: async () => (await import('./commands/healthcheck.ts')).HEALTHCHECK,
  receipts: async () => (await import('./commands/receipts.ts')).RECEIPTS,
  run: async () => (await import('./commands/run.ts')).RUN,
  status: async () => (await import('./commands/status.ts')).STATUS,
  usage: async () => (await import('./commands/usage.ts')).USAGE,
  verify: async () => (await import('./commands/verify.ts')).VERIFY,
};

/** Commands, and agents in the place of one. */
async function commandWords(): Promise<CommandWords> {
  const { AGENT_NAMES } = await import('./commands/agents.ts');
  const commands = [...Object.keys(COMMANDS), 'help', 'version'];
  return new Map([
    ...commands.map((name) => [name, name] as const),
    ...AGENT_NAMES.map((name) => [name, `run ${name}`] as const),
  ]);
}

/** Flags that print something in place of a start; where several are given, the first one here wins. */
const PRINTED: readonly (readonly [flag: string, render: (columns: number | undefined) => string])[] = [
  ['help', (columns) => fitHelp(renderHelp(), columns)],
  ['version', () => `privatemode-proxy version v${VERSION}\n`],
  ['licenses', licences],
];

const serve: Run = async (config, warnings, io) =>
  (await import('./commands/serve.ts')).run(config, warnings, io);

/**
 * Runs a command and resolves with its exit code: 1 where it cannot, with `Error: <text>` on stderr. Where the proxy itself cannot start
 * and its log would be JSON, that is a line of the log.
 */
export async function main(
  argv: readonly string[],
  env: Environment,
  io: Io,
  run: Run = serve,
): Promise<number> {
  const [name = '', ...rest] = argv;
  // Of the words behind that of a command, such as "clients new", its help speaks as well.
  const flagsOf = (words: readonly string[]) => words.filter((word) => word.startsWith('-'));
  if (name === 'help') return main([...rest.slice(0, 1), '--help', ...flagsOf(rest.slice(1))], env, io, run);
  if (name === 'version') return main(['--version', ...rest], env, io, run);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  try {
    if (command !== undefined) return await runCommand(name, await command(), rest, { io, env });

    const given = parseArgv(argv, FLAGS, await commandWords());
    for (const [flag, render] of PRINTED) {
      if (given.values.get(flag) !== 'true') continue;
      io.stdout.write(render(io.stdout.columns));
      return 0;
    }
    const { config, warnings } = configOf(withEnvironment(given, env), env);
    return await run(config, warnings, io);
  } catch (thrown) {
    if (command === undefined && peekSetting(argv, env, 'log-format') === 'json')
      await logFailure(thrown, io);
    else io.stderr.write(describe(thrown));
    return 1;
  }
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
