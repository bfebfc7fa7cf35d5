import { parseArgv } from './config/argv.ts';
import type { Config } from './config/config.ts';
import { parseConfig } from './config/config.ts';
import { type Environment, withEnvironment } from './config/environment.ts';
import { renderHelp } from './config/help.ts';
import { parseHost } from './config/network.ts';
import { parsePort } from './config/values.ts';
import { asPrivatemodeError, PrivatemodeError } from './errors.ts';
import { licences } from './licences.ts';
import { probe } from './observe/healthcheck.ts';
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

const COMMANDS: Readonly<Record<string, Command>> = {
  healthcheck,
  /** As `--help` of the command that is named, or of the program. */
  help: ([name, ...rest], io, env) =>
    main([...(name === undefined ? [] : [name]), '--help', ...rest], env, io),
  version: (argv, io, env) => main(['--version', ...argv], env, io),
  verify: async (argv, io, env) => (await import('./verify/command.ts')).runVerify(argv, env, io),
};

/** The program is loaded only to run it: help, version and wrong flags answer at once. */
const runApp: Run = async (config, warnings, io) => (await import('./proxy.ts')).run(config, warnings, io);

/**
 * Command line in, exit code out. What is wrong with it goes to stderr as `Error: <text>` (docs/protocol/inference.md 12), exit code 1.
 */
export async function main(
  argv: readonly string[],
  env: Environment,
  io: Io,
  run: Run = runApp,
): Promise<number> {
  try {
    const [name, ...rest] = argv;
    if (name !== undefined && Object.hasOwn(COMMANDS, name))
      return await (COMMANDS[name] as Command)(rest, io, env);

    const { values } = parseArgv(argv);
    if (values.get('help') === 'true') {
      io.stdout.write(renderHelp());
      return 0;
    }
    if (values.get('version') === 'true') {
      io.stdout.write(`privatemode-proxy version v${VERSION}\n`);
      return 0;
    }
    if (values.get('licenses') === 'true') {
      io.stdout.write(licences());
      return 0;
    }
    const { config, warnings } = parseConfig(argv, env);
    return await run(config, warnings, io);
  } catch (thrown) {
    io.stderr.write(describe(thrown));
    return 1;
  }
}

/** `healthcheck`: is the proxy that was started with these settings ready? Accepts every proxy flag; reads only three. */
async function healthcheck(argv: readonly string[], io: Io, env: Environment): Promise<number> {
  const { values, label } = withEnvironment(parseArgv(argv), env);
  if (values.get('help') === 'true') {
    io.stdout.write(renderHelp());
    return 0;
  }
  const { ready, words } = await probe({
    listenAddress: parseHost(label('listen-address'), values.get('listen-address') ?? '0.0.0.0'),
    port: parsePort(label('port'), values.get('port') ?? '8080'),
    tls: values.has('tls-cert-path'),
  });
  (ready ? io.stdout : io.stderr).write(`${words}\n`);
  return ready ? 0 : 1;
}

/** The message says what is wrong with a setting and how to mend it; other errors have their remedy in the table. */
function describe(thrown: unknown): string {
  const error = asPrivatemodeError(thrown);
  const lines = [`Error: ${error.message}`];
  if (error.code !== 'config_invalid') lines.push(error.remedy);
  // A fault of the program: the place, not the words, which may quote anything.
  if (!(thrown instanceof PrivatemodeError) && thrown instanceof Error) {
    lines.push(`${thrown.name}`, ...(thrown.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line)));
  }
  return `${lines.join('\n')}\n`;
}
