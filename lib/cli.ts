/** Runs a command line: finds its command, writes to stdout and stderr, and returns the exit code. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import { type Clock, every } from './clock.ts';
import { type Command, type Io, runCommand } from './commands/command.ts';
import { parseArgv } from './config/argv.ts';
import { type Config, configOf } from './config/config.ts';
import { type Environment, wantsJson, withEnvironment } from './config/environment.ts';
import { FLAGS } from './config/flags.ts';
import { fitHelp, renderHelp } from './config/help.ts';
import { asPrivatemodeError, PrivatemodeError } from './errors.ts';
import { printable } from './text.ts';
import { VERSION } from './version.ts';

/** Commands are loaded only when they run, so that help, version and wrong flags respond at once. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  clients: async () => (await import('./commands/clients.ts')).CLIENTS,
  completion: async () => (await import('./commands/completion.ts')).COMPLETION,
  healthcheck: async () => (await import('./commands/status.ts')).HEALTHCHECK,
  receipts: async () => (await import('./commands/receipts.ts')).RECEIPTS,
  run: async () => (await import('./commands/run.ts')).RUN,
  status: async () => (await import('./commands/status.ts')).STATUS,
  usage: async () => (await import('./commands/usage.ts')).USAGE,
  verify: async () => (await import('./commands/verify.ts')).VERIFY,
};

/** Flags with which the program only prints something. If several are given, the first in this table wins. */
const PRINTED: readonly (readonly [flag: string, render: (columns?: number) => string])[] = [
  ['help', (columns) => fitHelp(renderHelp(), columns)],
  ['version', () => `privatemode-proxy version v${VERSION}\n`],
  ['licenses', licences],
];

/**
 * Runs a command and resolves with its exit code. If the command fails, the exit code is 1, and `Error:
 * <text>` is written to stderr. If the proxy itself cannot start and its log is in JSON, a line of the log is
 * written to stderr instead.
 */
export async function main(
  argv: readonly string[],
  env: Environment,
  io: Io,
  run = async (config: Config, warnings: readonly string[], io: Io): Promise<number> =>
    (await import('./commands/serve.ts')).run(config, warnings, io),
): Promise<number> {
  const [name = '', ...rest] = argv;
  if (name === 'help') return main([...rest.slice(0, 1), '--help'], env, io, run);
  if (name === 'version') return main(['--version', ...rest], env, io, run);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  try {
    if (command !== undefined) return await runCommand(name, await command(), rest, { io, env });

    const given = parseArgv(argv, FLAGS, [...Object.keys(COMMANDS), 'help', 'version']);
    const printed = PRINTED.find(([flag]) => given.values.get(flag) === 'true');
    if (printed !== undefined) {
      io.stdout.write(printed[1](io.stdout.columns));
      return 0;
    }
    const { config, warnings } = configOf(withEnvironment(given, env), env);
    return await run(config, warnings, io);
  } catch (thrown) {
    await report(thrown, command === undefined && wantsJson(argv, env), io);
    return 1;
  }
}

/**
 * Runs the command line of this process, as `main` does, and sets the exit code of the process. `program` is
 * the command with which a person starts the program.
 */
export async function runProcess(clock: Clock, program: string): Promise<void> {
  const { argv, env, stdout, stderr } = process;
  // The proxy must continue if the reader of its log disappears, or if the disk of the log is full.
  stderr.on('error', () => {});
  stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    // EPIPE means that the reader has read all that it wanted. An example is `| head`.
    if (code === 'EPIPE' || process.exitCode === 1) return;
    process.exitCode = 1;
    stderr.write(
      `Error: the output cannot be written (${code}): make room for it, or send it elsewhere, and run the command again\n`,
    );
  });
  const exitCode = await main(argv.slice(2), env, { stdout, stderr, clock, program });
  process.exitCode ||= exitCode;
  // If nobody reads the log, the program ends a second later, and the rest of the log is lost. The output of
  // a command waits for its reader, such as a pager. Nothing else in this function ends the program, because
  // process.exit() would wait for a disk that does not respond (docs/architecture.md H42).
  every(clock, clock.times.unreadLog, () => {
    if (stdout.writableLength === 0 && stderr.writableLength > 0) process.exit();
  });
}

/** Says what failed and what to do, in one line for a person or in a log line in JSON. */
async function report(thrown: unknown, isJson: boolean, { stderr }: Io): Promise<void> {
  const { code, message, remedy } = asPrivatemodeError(thrown);
  const fault = thrown instanceof PrivatemodeError ? undefined : thrown;
  if (isJson) {
    const { createLogger } = await import('./observe/log.ts');
    const log = createLogger({ format: 'json', level: 50, output: stderr }); // 50 is "error" in pino
    return log.error({ code, remedy, err: fault }, message);
  }
  // The message of config_invalid already says how to correct the setting.
  const text = code === 'config_invalid' ? message : `${message.replace(/\.$/, '')}. ${remedy}`;
  stderr.write(`${printable(`Error: ${text}`, Number.POSITIVE_INFINITY)}\n`);
  // For a fault of the program, only the stack is shown, because the message may quote private text.
  if (!(fault instanceof Error)) return;
  const places = (fault.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line));
  stderr.write(`${[fault.name, ...places].join('\n')}\n`);
}

/**
 * The licences of the program and its parts, in the single executable or beside the built program
 * (scripts/build.ts). A run from source shows only the program's own licence: each dependency has its licence
 * beside its code.
 */
function licences(): string {
  if (isSea()) return getAsset('licences', 'utf8');
  const files = ['licences.txt', '../LICENSE'].map((name) => join(import.meta.dirname, name));
  return readFileSync(files.find(existsSync) as string, 'utf8');
}
