/**
 * `privatemode-proxy completion SHELL`: prints the completion script of a shell, made from the tables of
 * commands and flags.
 */
import { LISTED } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import type { Flag } from '../config/setting.ts';
import { AGENT_NAMES } from './agents.ts';
import { CLIENTS } from './clients.ts';
import { type Command, HELP, type Invocation } from './command.ts';
import { RECEIPTS } from './receipts.ts';
import { RUN } from './run.ts';
import { STATUS } from './status.ts';
import { USAGE } from './usage.ts';
import { VERIFY } from './verify.ts';

const PROGRAM = 'privatemode-proxy';
const SHELLS = { bash, zsh, fish } as const;
type Shell = keyof typeof SHELLS;

export const COMPLETION: Command = {
  flags: [HELP],
  words: (Object.keys(SHELLS) as Shell[]).map((shell) => [shell]),
  help: renderHelp,
  run: printCompletion,
};

function printCompletion({ words: [shell], io }: Invocation): number {
  io.stdout.write(SHELLS[shell as Shell]());
  return 0;
}

/** The words and flags that may follow a command's name; the name '' means no command. */
interface Part {
  readonly words: readonly string[];
  readonly flags: readonly Flag[];
}

/** The flags to offer: none that are hidden or retired. */
const shown = (flags: readonly Flag[]): readonly Flag[] =>
  flags.filter(({ hidden, retired }) => !hidden && retired === undefined);

function parts(): ReadonlyMap<string, Part> {
  const commands = {
    clients: CLIENTS,
    completion: COMPLETION,
    receipts: RECEIPTS,
    run: RUN,
    status: STATUS,
    usage: USAGE,
    verify: VERIFY,
  };
  const firstWords = ({ words = [] }: Command): string[] =>
    words.flatMap(([word = '']) => (/^[a-z]+$/.test(word) ? [word] : []));
  const rows = Object.entries(commands).map(([name, command]): [string, Part] => [
    name,
    { words: name === 'run' ? AGENT_NAMES : firstWords(command), flags: shown(command.flags) },
  ]);
  const names = [...rows.map(([name]) => name), 'healthcheck', 'help', 'version'];
  return new Map([
    ['', { words: names.toSorted(), flags: LISTED }],
    ['healthcheck', { words: [], flags: LISTED }],
    ['help', { words: names.toSorted(), flags: [] }],
    ...rows,
  ]);
}

const spelled = ({ name }: Flag): string => `--${name}`;
const takesPath = ({ value = '' }: Flag): boolean => /^(?:FILE|DIR)\b/.test(value);

/** The flags of all commands, each name once. */
const everyFlag = (): readonly Flag[] => [
  ...new Map([...parts().values()].flatMap(({ flags }) => flags.map((flag) => [flag.name, flag]))).values(),
];

function bash(): string {
  const flags = everyFlag();
  const named = (of: readonly Flag[]): string => of.map(spelled).join('|');
  const choices = flags.filter(({ words }) => words !== undefined);
  const paths = flags.filter((flag) => takesPath(flag));
  const others = flags.filter(
    (flag) => flag.type !== 'boolean' && flag.words === undefined && !takesPath(flag),
  );
  const line = (flag: Flag): string => `    ${spelled(flag)}) offered='${flag.words?.join(' ')}' ;;\n`;
  const ofCommand = [...parts()].map(
    ([name, { words, flags }]) =>
      `    ${name === '' ? '*' : name}) offered='${[...words, ...flags.map(spelled)].join(' ')}' ;;\n`,
  );
  return `# bash completion for ${PROGRAM}: source it, or keep it in ~/.local/share/bash-completion/completions/${PROGRAM}
_privatemode_proxy() {
  local current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" offered=''
  if [ "$current" = '=' ]; then current=''
  elif [ "$before" = '=' ]; then before="\${COMP_WORDS[COMP_CWORD-2]}"
  fi
  case "$before" in
${choices.map(line).join('')}    ${named(paths)}) COMPREPLY=($(compgen -f -- "$current")); return ;;
    ${named(others)}) return ;;
    *)
    case "\${COMP_WORDS[1]}" in
${[...ofCommand.slice(1), ...ofCommand.slice(0, 1)].map((row) => `  ${row}`).join('')}    esac ;;
  esac
  COMPREPLY=($(compgen -W "$offered" -- "$current"))
}
complete -o default -F _privatemode_proxy ${PROGRAM}
`;
}

/** zsh can load the bash functions. */
function zsh(): string {
  return `#compdef ${PROGRAM}
# zsh completion for ${PROGRAM}: source it in ~/.zshrc, after compinit
autoload -U +X bashcompinit && bashcompinit
${bash()}`;
}

function fish(): string {
  const quote = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  const names = [...parts().keys()].filter((name) => name !== '');
  const lines = [...parts()].flatMap(([name, { words, flags }]) => {
    const where =
      name === ''
        ? `not __fish_seen_subcommand_from ${names.join(' ')}`
        : `__fish_seen_subcommand_from ${name}`;
    const begin = `complete -c ${PROGRAM} -n ${quote(where)}`;
    return [
      ...(words.length === 0 ? [] : [`${begin} -f -a ${quote(words.join(' '))}`]),
      ...flags.map(
        (flag) => `${begin} -l ${flag.name}${valueIn(flag)} -d ${quote(firstSentence(flag.help))}`,
      ),
    ];
  });
  return `# fish completion for ${PROGRAM}: keep it in ~/.config/fish/completions/${PROGRAM}.fish\n${lines.join('\n')}\n`;
}

/** How fish completes the value of a flag: from a list, as a path, or not at all. */
function valueIn(flag: Flag): string {
  if (flag.type === 'boolean') return '';
  if (flag.words !== undefined) return ` -x -a '${flag.words.join(' ')}'`;
  return takesPath(flag) ? ' -r -F' : ' -x';
}

const firstSentence = (text: string): string => /^.*?[.:;](?= |$)/.exec(text)?.[0].slice(0, -1) ?? text;

function renderHelp(): string {
  return helpPage(
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
  );
}
