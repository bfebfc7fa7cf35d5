/** The coding agents that `run` starts, by name, and which of their arguments would undo what it sets. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import type { Clock } from '../clock.ts';
import type { Environment } from '../config/environment.ts';
import { invalid } from '../config/values.ts';
import { nearest, printable } from '../text.ts';
import { type Agent, KEY } from './agents/agent.ts';
import { CLAUDE } from './agents/claude.ts';
import { CODEX } from './agents/codex.ts';
import { OPENCODE } from './agents/opencode.ts';
import { PI } from './agents/pi.ts';

const AGENTS: Readonly<Record<string, Agent>> = { claude: CLAUDE, opencode: OPENCODE, codex: CODEX, pi: PI };

/**
 * Variables that choose where clients send prompts, also in their telemetry, and the keys that they would
 * send along.
 */
export const REMOVED = /^(?:ANTHROPIC_|CLAUDE_CODE_USE_|OPENAI_|OTEL_|PRIVATEMODE_)/i;

/** The caller's environment without those variables. Agents get this one. */
export const withoutKeys = (env: Environment): Environment =>
  Object.fromEntries(Object.entries(env).filter(([variable]) => !REMOVED.test(variable)));

export const AGENT_NAMES: readonly string[] = Object.keys(AGENTS);

/**
 * The agent of that name. `url`: the proxy's, for the message about other clients. Throws config_invalid if
 * the table has no such agent.
 */
export function agentOf(name: string, url: string): Agent {
  if (Object.hasOwn(AGENTS, name)) return AGENTS[name] as Agent;
  const names = AGENT_NAMES.join(', ');
  if (name === '')
    throw invalid(
      `run wants the name of an agent before its flags: ${names}. To start the proxy itself, give no command`,
    );
  const lower = name.toLowerCase();
  const meant = nearest(lower, AGENT_NAMES) ?? AGENT_NAMES.find((agent) => lower.startsWith(agent));
  if (meant !== undefined) throw invalid(`run knows no agent ${printable(name)}. Did you mean ${meant}?`);
  throw invalid(
    `run starts ${names}, not ${printable(name, 100)}. Any other client needs the base URL ${url}/v1, or ${url} for the API of Anthropic, ` +
      `and the key "${KEY}". To start the proxy itself, give no command`,
  );
}

/**
 * Throws config_invalid for the first of ARGS that would undo what `run` sets. Checks each argument as if it
 * began an option, also after `--`: some agents take even `--` for the value of the option before it.
 */
export function refuseBypass(
  agent: string,
  { refused, refusedSettings }: Agent,
  args: readonly string[],
): void {
  const [setting, leave] = refusedSettings ?? [/^(?!)/, ''];
  const bypass = (found: string, instead: string): Error =>
    invalid(`${agent} cannot run with ${printable(found)}: its prompts could bypass the proxy. ${instead}`);
  for (const [index, argument] of args.entries()) {
    const [, instead] = refused.find(([pattern]) => pattern.test(argument)) ?? [];
    if (instead !== undefined) throw bypass(argument.split('=', 1)[0] as string, instead);
    const given = /^(?:-c|--config)$/.test(argument)
      ? args[index + 1]
      : /^(?:-c=?|--config=)(.*)$/s.exec(argument)?.[1];
    const name = settingName(given ?? '');
    if (setting.test(name)) throw bypass(`-c ${name}`, leave);
  }
}

/**
 * The first part of the name of a setting `NAME=VALUE`. Codex takes the text before the first `=`, without
 * white space, as names joined by dots.
 */
function settingName(given: string): string {
  const [name = ''] = given.split('=', 1)[0]?.split('.', 1) ?? [];
  return name.replace(/^[\p{White_Space}"']+|[\p{White_Space}"']+$/gu, '');
}

export const notInstalled = (name: string, install: string): Error =>
  invalid(`${name} is not installed, or not on the PATH: ${install}`);

/** Throws config_invalid if the agent is older than `oldest` in its row, or does not tell its version. */
export async function demandVersion(
  name: string,
  { oldest, install }: Agent,
  env: Environment,
  { agentTimeout }: Clock['times'],
): Promise<void> {
  if (oldest === undefined) return;
  // Run it in a directory without a project: an old version might run something of a project.
  const started = promisify(execFile)(name, ['--version'], {
    cwd: '/',
    env: withoutKeys(env),
    timeout: agentTimeout,
  });
  const { stdout, stderr } = await started.catch((thrown: NodeJS.ErrnoException) => {
    throw thrown.code === 'ENOENT'
      ? notInstalled(name, install)
      : invalid(`${name} --version fails: ${thrown.code}`);
  });
  const found = /^v?(\d+\.\d+\.\d+)/m.exec(`${stdout}\n${stderr}`)?.[1];
  if (found === undefined || found.localeCompare(oldest, 'en', { numeric: true }) < 0)
    throw invalid(
      `${name} ${found ?? 'of an unknown version'} cannot run: versions before ${oldest} change your settings, or run the extensions ` +
        `of a repository without asking. Install a newer one: ${install}`,
    );
}

/** Throws config_invalid if an agent of the table is not on the PATH. */
export function demandInstalled(name: string, { PATH = '' }: Environment): void {
  const files = PATH.split(delimiter).flatMap((directory) => [
    join(directory, name),
    join(directory, `${name}.exe`),
  ]);
  if (!files.some((file) => existsSync(file))) throw notInstalled(name, agentOf(name, '').install);
}
