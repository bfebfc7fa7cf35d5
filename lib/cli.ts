/** Runs a command line: finds its command, writes to stdout and stderr, and returns the exit code. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import { type Clock, every } from './clock.ts';
import { type Command, type Io, runCommand } from './commands/command.ts';
import { type CommandWords, parseArgv } from './config/argv.ts';
import { type Config, configOf } from './config/config.ts';
import { type Environment, wantsJson, withEnvironment } from './config/environment.ts';
import { FLAGS } from './config/flags.ts';
import { fitHelp, renderHelp } from './config/help.ts';
import { asPrivatemodeError, PrivatemodeError } from './errors.ts';
import { printable } from './text.ts';
import { VERSION } from './version.ts';

type Run = (config: Config, warnings: readonly string[], io: Io) => Promise<number>;

/**
 * The commands by name. Each is loaded only when it runs, so that help, version and wrong flags respond at
 * once.
 */
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

/** What the first word may be meant for: a command, or an agent, whose name stands for `run NAME`. */
async function commandWords(): Promise<CommandWords> {
  const { AGENT_NAMES } = await import('./commands/agents.ts');
  const commands = [...Object.keys(COMMANDS), 'help', 'version'];
  return new Map([
    ...commands.map((name) => [name, name] as const),
    ...AGENT_NAMES.map((name) => [name, `run ${name}`] as const),
  ]);
}

/** Flags that print something instead of a start. If several are given, the first one of this table wins. */
const PRINTED: readonly (readonly [flag: string, render: (columns?: number) => string])[] = [
  ['help', (columns) => fitHelp(renderHelp(), columns)],
  ['version', () => `privatemode-proxy version v${VERSION}\n`],
  ['licenses', licences],
];

const serve: Run = async (config, warnings, io) =>
  (await import('./commands/serve.ts')).run(config, warnings, io);

/**
 * Runs a command and resolves with its exit code. If the command fails, the code is 1, and stderr gets
 * `Error: <text>`. If the proxy itself cannot start and its log would be JSON, stderr gets a line of the log
 * instead.
 */
export async function main(
  argv: readonly string[],
  env: Environment,
  io: Io,
  run: Run = serve,
): Promise<number> {
  const [name = '', ...rest] = argv;
  if (name === 'help') return main([...rest.slice(0, 1), '--help'], env, io, run);
  if (name === 'version') return main(['--version', ...rest], env, io, run);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  try {
    const loaded = await command?.();
    if (loaded !== undefined) return await runCommand(name, loaded, rest, { io, env });

    const given = parseArgv(argv, FLAGS, await commandWords());
    for (const [flag, render] of PRINTED) {
      if (given.values.get(flag) !== 'true') continue;
      io.stdout.write(render(io.stdout.columns));
      return 0;
    }
    const { config, warnings } = configOf(withEnvironment(given, env), env);
    return await run(config, warnings, io);
  } catch (thrown) {
    if (command === undefined && wantsJson(argv, env)) await logFailure(thrown, io);
    else io.stderr.write(describe(thrown));
    return 1;
  }
}

/**
 * Runs the command line of this process, as `main` does, and leaves it with an exit code. `program`: how a
 * person starts it again.
 */
export async function runProcess(clock: Clock, program: string): Promise<void> {
  const { argv, env, stdout, stderr } = process;
  // A reader of the log that goes away, or a full disk below it, must not take the proxy with it.
  stderr.on('error', () => {});
  let unwritten = false;
  stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    if (code === 'EPIPE' || unwritten) return; // the reader has what it wanted, as with `| head`
    unwritten = true;
    stderr.write(
      `Error: the output cannot be written (${code}): make room for it, or send it elsewhere, and run the command again\n`,
    );
    process.exitCode = 1;
  });
  const exitCode = await main(argv.slice(2), env, { stdout, stderr, clock, program });
  process.exitCode = unwritten ? 1 : exitCode;
  // A reader that does not read the log must not keep the program alive: the rest of it is lost a second
  // later. What a command prints waits for its reader, such as a pager. Nothing else ends the program here,
  // because process.exit() would wait for a disk that does not answer (docs/hazards.md 42).
  every(clock, clock.times.unreadLog, () => {
    if (stdout.writableLength === 0 && stderr.writableLength > 0) process.exit();
  });
}

async function logFailure(thrown: unknown, { stderr }: Io): Promise<void> {
  const { createLogger } = await import('./observe/log.ts');
  const { code, message, remedy } = asPrivatemodeError(thrown);
  const fault = thrown instanceof PrivatemodeError ? undefined : thrown;
  const log = createLogger({ format: 'json', level: 50, output: stderr }); // 50 is "error" in pino
  log.error({ code, remedy, err: fault }, message);
}

/**
 * The message of config_invalid says how to mend the setting; the remedy of every other code comes from its
 * table.
 */
function describe(thrown: unknown): string {
  const error = asPrivatemodeError(thrown);
  const lines = [`Error: ${error.message}`];
  if (error.code !== 'config_invalid') lines.push(error.remedy);
  // A fault of the program: its place, not its message, which may quote anything.
  if (!(thrown instanceof PrivatemodeError) && thrown instanceof Error)
    lines.push(`${thrown.name}`, ...(thrown.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line)));
  const text = lines.join('\n').replace(/[^\n]+/g, (line) => printable(line, Number.POSITIVE_INFINITY));
  return `${text}\n`;
}

/**
 * The licences of the program and of everything that is part of it. The single executable holds them; the
 * built program has them beside it (scripts/build.ts). If the program runs from source, each dependency has
 * its own licence beside its code.
 */
function licences(): string {
  if (isSea()) return getAsset('licences', 'utf8');
  const built = join(import.meta.dirname, 'licences.txt');
  if (existsSync(built)) return readFileSync(built, 'utf8');
  const own = readFileSync(join(import.meta.dirname, '../LICENSE'), 'utf8');
  return `privatemode-proxy\n\n${own}\nThe licences of the packages it uses lie beside them, in node_modules.\n`;
}
