/** The command line of the demo: its flags, and what it says to a wrong one. */
import { AGENT_NAMES } from '../lib/commands/agents.ts';
import { parseArgv } from '../lib/config/argv.ts';
import { refuseFlagsOfNpm } from '../lib/config/environment.ts';
import type { Flag } from '../lib/config/setting.ts';
import { parsePort } from '../lib/config/values.ts';
import { PrivatemodeError } from '../lib/errors.ts';

export const DEFAULT_PORT = 8080;
const FLAGS: readonly Flag[] = [
  {
    name: 'port',
    type: 'string',
    value: 'PORT',
    bare: 'a port is given as --port 9090, and what is for an agent behind --',
    help: '',
  },
  { name: 'once', type: 'boolean', help: '' },
  { name: 'agent', type: 'string', value: 'AGENT', help: '' },
  { name: 'api-key', type: 'string', value: 'KEY', help: '' }, // refused, with the reason
  { name: 'help', short: 'h', type: 'boolean', help: '' },
];
export const HELP = `Starts a simulated deployment and the proxy in front of it, and streams two answers through both.

Usage:
  npm run demo [-- flags]
  npm run demo -- --agent claude [-- ARGS]

Flags:
  --port PORT    Port for the proxy (default ${DEFAULT_PORT}, or the next free one; any with --agent and --once, or if it is 0).
  --once         Exit after the answers, with 0 or 1.
  --agent AGENT  Run a coding agent (${AGENT_NAMES.join(', ')}) in an empty directory, with ARGS, instead of the two clients.
                 The model can have it write one file there: "Write hello to note.txt".
                 The directory is removed at the end; Claude Code leaves an entry about it in ~/.claude.json.
  --help         Print this help.
`;

export interface Wanted {
  readonly help: boolean;
  readonly once: boolean;
  /** Undefined: the default port, or the next free one. */
  readonly port: number | undefined;
  readonly agent: string | undefined;
  /** Arguments for the agent. */
  readonly rest: readonly string[];
}

/** Throws config_invalid. */
export function readDemoFlags(line: readonly string[], env: NodeJS.ProcessEnv): Wanted {
  refuseFlagsOfNpm(FLAGS, env, 'demo');
  const [argv, rest] = line.includes('--')
    ? [line.slice(0, line.indexOf('--')), line.slice(line.indexOf('--') + 1)]
    : [line, []];
  const ofAgent = argv.find((word) => /^-[a-z]/i.test(word) && word !== '-h');
  if (ofAgent !== undefined)
    throw new PrivatemodeError(
      'config_invalid',
      `the demo has no flag ${ofAgent.slice(0, 2)}: what is for an agent stands behind --, as in --agent claude -- -p hi`,
    );
  const { values } = parseArgv(argv, FLAGS);
  if (values.has('api-key'))
    throw new PrivatemodeError('config_invalid', 'the demo needs no key: leave out --api-key');
  const port = values.get('port');
  const agent = values.get('agent');
  if (agent === undefined && rest.length > 0)
    throw new PrivatemodeError(
      'config_invalid',
      'what stands behind -- is for an agent: add --agent claude in front',
    );
  if (agent !== undefined && !AGENT_NAMES.includes(agent)) {
    const words = `--agent takes ${AGENT_NAMES.join(', ')}, not ${JSON.stringify(agent)}; without it the demo prints the settings of other clients`;
    throw new PrivatemodeError('config_invalid', words);
  }
  return {
    help: values.get('help') === 'true',
    once: values.get('once') === 'true',
    port: port === undefined ? undefined : parsePort('--port', port),
    agent,
    rest,
  };
}
