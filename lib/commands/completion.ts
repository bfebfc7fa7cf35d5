/** `privatemode-proxy completion SHELL`: prints what a shell completes, one list of commands and flags. */
import { LISTED } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { AGENT_NAMES } from './agents.ts';
import { CLIENTS } from './clients.ts';
import { type Command, HELP } from './command.ts';
import { RECEIPTS } from './receipts.ts';
import { RUN } from './run.ts';
import { STATUS } from './status.ts';
import { USAGE } from './usage.ts';
import { VERIFY } from './verify.ts';

const PROGRAM = 'privatemode-proxy';
const BASH = (words: string): string => `complete -o default -W '${words}' ${PROGRAM}\n`;
/** The line of each shell; zsh can load that of bash. */
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
      Object.keys(SHELLS).map((shell) => `completion ${shell}`),
      [
        section('Examples', [
          ['  bash', `source <(${PROGRAM} completion bash), in ~/.bashrc`],
          ['  zsh', `source <(${PROGRAM} completion zsh), in ~/.zshrc after compinit`],
          ['  fish', `${PROGRAM} completion fish > ~/.config/fish/completions/${PROGRAM}.fish`],
        ]),
        section('Flags', [HELP]),
      ],
    ),
  run({ words: [shell = ''], io }) {
    io.stdout.write(SHELLS[shell]?.(allWords().join(' ')) ?? '');
    return 0;
  },
};

/** All commands, their words, the agents, and the flags that --help lists, each once. */
function allWords(): readonly string[] {
  const commands = { clients: CLIENTS, completion: COMPLETION, receipts: RECEIPTS, run: RUN };
  const others = { status: STATUS, usage: USAGE, verify: VERIFY };
  const all: readonly [string, Command][] = Object.entries({ ...commands, ...others });
  const words = all.flatMap(([name, { words: forms = [] }]) => [name, ...forms.map(([word = '']) => word)]);
  const flags = [...LISTED, ...all.flatMap(([, { flags: own }]) => own)];
  return [
    ...new Set([
      ...[...words, ...AGENT_NAMES, 'healthcheck', 'help', 'version'].filter((word) => /^[a-z]+$/.test(word)),
      ...flags
        .filter(({ hidden, retired }) => !hidden && retired === undefined)
        .map(({ name }) => `--${name}`),
    ]),
  ].toSorted();
}
