/** The coding agents that `run` starts, and the check for arguments that would undo the settings of `run`. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Clock } from '../clock.ts';
import type { Environment } from '../config/environment.ts';
import { invalid } from '../config/values.ts';
import { printable } from '../text.ts';
import { type Agent, KEY } from './agents/agent.ts';
import { CLAUDE } from './agents/claude.ts';
import { CODEX } from './agents/codex.ts';
import { OPENCODE } from './agents/opencode.ts';
import { PI } from './agents/pi.ts';

const AGENTS: Readonly<Record<string, Agent>> = { claude: CLAUDE, opencode: OPENCODE, codex: CODEX, pi: PI };

/**
 * Variables that agents do not get, because they decide where clients send prompts and telemetry, or hold
 * keys that clients would send.
 */
export const REMOVED = /^(?:ANTHROPIC_|CLAUDE_CODE_USE_|OPENAI_|OTEL_|PRIVATEMODE_)/i;

/** The environment that agents get. It is the caller's environment without the variables of REMOVED. */
export const withoutKeys = (env: Environment): Environment =>
  Object.fromEntries(Object.entries(env).filter(([variable]) => !REMOVED.test(variable)));

export const AGENT_NAMES: readonly string[] = Object.keys(AGENTS);

/**
 * Returns the agent called `name`. `url` is the URL of the proxy, for the message about other clients. Throws
 * config_invalid if AGENTS has no agent of that name.
 */
export function agentOf(name: string, url: string): Agent {
  if (Object.hasOwn(AGENTS, name)) return AGENTS[name] as Agent;
  throw invalid(
    `run starts ${AGENT_NAMES.join(', ')}, not ${printable(name, 100)}. Any other client needs the base URL ${url}/v1, or ${url} ` +
      `for the API of Anthropic, and the key "${KEY}"`,
  );
}

/**
 * Throws config_invalid for the first argument that would undo the settings of `run`. Each argument is
 * checked as the beginning of an option, and as the value of the argument before it. Arguments after `--` are
 * checked, too, because some agents read even `--` as the value of an option.
 */
export function refuseBypass(name: string, { refused }: Agent, args: readonly string[]): void {
  for (const [index, argument] of args.entries()) {
    const [found] = refused.exec(argument) ?? refused.exec(`${args[index - 1]}=${argument}`) ?? [];
    if (found !== undefined)
      throw invalid(
        `${name} cannot run with ${printable(found)}: its prompts could bypass the proxy. Leave it out; ` +
          '--model in front of -- chooses the model',
      );
  }
}

/** The error for an agent that the system could not start. */
export const cannotStart = (name: string, { install }: Agent, { code }: NodeJS.ErrnoException): Error =>
  invalid(`${name} cannot be started (${code}): is it installed, and on the PATH? ${install}`);

/** Throws config_invalid if the agent is older than `oldest` in its row, or does not tell its version. */
export async function demandVersion(
  name: string,
  agent: Agent,
  env: Environment,
  { agentTimeout }: Clock['times'],
): Promise<void> {
  const { oldest, install } = agent;
  if (oldest === undefined) return;
  // The agent runs in a directory without a project, because an old version might run code of a project.
  const at = { cwd: '/', env: withoutKeys(env), timeout: agentTimeout };
  const { stdout, stderr } = await promisify(execFile)(name, ['--version'], at).catch((thrown) => {
    throw cannotStart(name, agent, thrown);
  });
  const found = /^v?(\d+\.\d+\.\d+)/m.exec(`${stdout}\n${stderr}`)?.[1];
  if (found === undefined || found.localeCompare(oldest, 'en', { numeric: true }) < 0)
    throw invalid(
      `${name} ${found ?? 'of an unknown version'} cannot run: versions before ${oldest} change your settings, or run the extensions ` +
        `of a repository without asking. Install a newer one: ${install}`,
    );
}
