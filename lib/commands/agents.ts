/** The coding agents that `run` starts, by name, and which of their arguments would undo what it sets. */
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
  throw invalid(
    `run starts ${AGENT_NAMES.join(', ')}, not ${printable(name, 100)}. Any other client needs the base URL ${url}/v1, or ${url} ` +
      `for the API of Anthropic, and the key "${KEY}"`,
  );
}

/**
 * Throws config_invalid for the first of ARGS that would undo what `run` sets. Checks each argument as if it
 * began an option, also after `--`, and as if it were the value of the one before it: some agents take even
 * `--` for the value of an option.
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

/** The error about an agent that the system does not start. */
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
  // Run it in a directory without a project: an old version might run something of a project.
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
