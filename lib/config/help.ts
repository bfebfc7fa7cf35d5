/**
 * Lays out help texts: builds the help page of the program or of a command, and wraps it to the width of a
 * terminal.
 */
import { FLAG_GROUPS } from './flags.ts';
import type { Flag } from './setting.ts';

/** The columns of the narrowest and the widest layout. Terminals of unknown width get the widest layout. */
const [FEWEST, MOST] = [80, 100];
/** The column at which the description of a flag or term starts. */
const START = 34;

/** The text of --help, before its lines are wrapped. */
export function renderHelp(): string {
  return helpPage(
    `A local proxy that verifies a remote inference service, encrypts every prompt for it, and
streams the answers back decrypted.`,
    ['[flags]', 'COMMAND …'],
    [
      section('Commands', [
        ['  healthcheck [flags]', 'Ask whether a running proxy is ready: exit code 0 or 1.'],
        ['  run AGENT -- ARGS', 'Start a coding agent on a running proxy.'],
        ['  status [flags]', 'Show what a running proxy does, and its verification.'],
        ['  verify [flags]', 'Check whether the remote is genuine.'],
        ['  receipts verify [flags]', 'Check that receipts are complete and unchanged.'],
        ['  clients new NAME…', 'Make a token for each client; also list, revoke.'],
        ['  completion SHELL', 'Print what bash, zsh or fish completes.'],
        ['  usage [flags]', 'Sum up who used what, from the receipts of a gateway.'],
      ]),
      ...Object.entries(FLAG_GROUPS).map(([heading, flags]) => section(heading, flags)),
      section('Environment (a flag overrides its variable, which overrides the default; empty is unset)', [
        ['  PRIVATEMODE_API_KEY', 'API key, as --api-key: KEY or @FILE.'],
        ['  PRIVATEMODE_PROXY_FLAG', 'Any other flag, as PRIVATEMODE_PROXY_DUMP_REQUESTS=true.'],
        ['  SSL_CERT_FILE', 'PEM bundle of the authorities to trust for outgoing connections.'],
        ['  https_proxy', 'HTTP proxy (CONNECT) for outgoing connections; no_proxy lists exceptions.'],
      ]),
      'Durations are written like 30s, 5m or 1h30m; booleans like --flag or --flag=false.\n',
    ],
  );
}

/**
 * The help text of a command: what it does, its usage, and parts with an empty line between them. Lines are
 * not wrapped, and a tab separates a term from its description, because `fitHelp` does the layout.
 */
export const helpPage = (about: string, usage: readonly string[], parts: readonly string[]): string =>
  `${about.replaceAll('\n', ' ')}\n\nUsage:\n${usage.map((line) => `  privatemode-proxy ${line}\n`).join('')}\n${parts.join('\n')}`;

type Term = readonly [term: string, description: string];

/** A part of a help text: its heading, and one entry for each flag or term. */
export const section = (heading: string, entries: readonly (Flag | Term)[]): string =>
  `${heading}:\n${entries.map((entry) => `${('name' in entry ? flagTerm(entry) : entry).join('\t')}\n`).join('')}`;

function flagTerm(flag: Flag): Term {
  const short = flag.short === undefined ? '      ' : `  -${flag.short}, `;
  const value = flag.value === undefined ? '' : ` ${flag.value}`;
  const isPlainSwitch = flag.default === undefined || (flag.type === 'boolean' && flag.default === 'false');
  const fallback = isPlainSwitch ? '' : ` (default ${flag.default})`;
  return [`${short}--${flag.name}${value}`, flag.help + fallback];
}

/** Wraps the text of `helpPage` to `columns` columns, or to the widest layout if undefined. */
export function fitHelp(text: string, columns: number = MOST): string {
  const width = Math.min(Math.max(columns, FEWEST), MOST);
  const fit = (line: string): string => {
    const [term = '', description] = line.split('\t');
    if (description === undefined) return wrapped(line, width, line.startsWith(' ') ? 6 : 0);
    const lines = wrapped(' '.repeat(START) + description, width, START);
    return term.length <= START - 2
      ? term.padEnd(START) + lines.trimStart()
      : `${wrapped(term, width, 6)}\n${lines}`;
  };
  return text.split('\n').map(fit).join('\n');
}

/** Wraps text. All lines but the first are indented. A word longer than a line is not split. */
function wrapped(text: string, width: number, indent: number): string {
  if (text.length <= width) return text;
  const [before = ''] = /^ */.exec(text) ?? [];
  const line = new RegExp(`\\S.{0,${width - Math.max(indent, before.length) - 1}}(?= |$)|\\S+`, 'g');
  return before + (text.trim().match(line) ?? []).join(`\n${' '.repeat(indent)}`);
}
