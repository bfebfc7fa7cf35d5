/** `privatemode-proxy completion SHELL`: prints one list of commands and flags, which a shell completes. */
import { LISTED } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { CLIENTS } from './clients.ts';
import { type Command, HELP } from './command.ts';
import { RECEIPTS } from './receipts.ts';
import { RUN } from './run.ts';
import { AGENT_NAMES } from './run-agents.ts';
import { STATUS } from './status.ts';
import { USAGE } from './usage.ts';
import { VERIFY } from './verify.ts';

const PROGRAM = 'privatemode-proxy';
const BASH = (words: string): string => `complete -o default -W '${words}' ${PROGRAM}\n`;
/** The text that each shell loads. zsh can load the text for bash. */
const SHELLS: Readonly<Record<string, (words: string) => string>> = {
  bash: BASH,
  zsh: (words) => `autoload -U +X bashcompinit && bashcompinit\n${BASH(words)}`,
  fish: (words) => `complete -c ${PROGRAM} -a '${words}'\n`,
};

export const COMPLETION: Command = {
  flags: [HELP],
  words: Object.keys(SHELLS).map((shell) => [shell]),
  help: () =>
    helpPage(
      'Prints what a shell needs to complete the commands and flags of this program.',
      [
        `completion bash  in ~/.bashrc: source <(${PROGRAM} completion bash)`,
        `completion zsh   in ~/.zshrc, after compinit: source <(${PROGRAM} completion zsh)`,
        `completion fish  into ~/.config/fish/completions/${PROGRAM}.fish`,
      ],
      [section('Flags', [HELP])],
    ),
  run({ words: [shell = ''], io }) {
    io.stdout.write(SHELLS[shell]?.(allWords().join(' ')) ?? '');
    return 0;
  },
};

/** All commands, their words, the agents, and the flags that --help lists, each once. */
function allWords(): readonly string[] {
  const others = { receipts: RECEIPTS, run: RUN, status: STATUS, usage: USAGE, verify: VERIFY };
  const all = Object.entries<Command>({ clients: CLIENTS, completion: COMPLETION, ...others });
  const words = all.flatMap(([name, { words: forms = [] }]) => [name, ...forms.map(([word = '']) => word)]);
  const known = [...words, ...AGENT_NAMES, 'healthcheck', 'help', 'version'];
  const flags = [...LISTED, ...all.flatMap(([, command]) => command.flags)];
  const names = flags.flatMap(({ hidden, retired, name }) => (hidden || retired ? [] : [`--${name}`]));
  return [...new Set([...known.filter((word) => /^[a-z]+$/.test(word)), ...names])].toSorted();
}
