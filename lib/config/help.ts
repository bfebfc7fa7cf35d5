/**
 * Lays out help texts: builds the page of the program or of a command, and wraps it to the width of a
 * terminal.
 */
import { variableOf } from './environment.ts';
import { FLAG_GROUPS } from './flags.ts';
import type { Flag } from './setting.ts';

/** Columns of the narrowest layout, and of the widest, which is also that of an unknown terminal. */
const [FEWEST, MOST] = [60, 100];
/** From this many columns on, descriptions start at column 34; on narrower terminals, at column 10. */
const WIDE = 80;

/** The text of --help, as helpPage gives it. */
export function renderHelp(): string {
  const precedence =
    'a flag overrides its variable, a variable the default; an empty variable counts as unset';
  const example = `${variableOf('listen-address')}=127.0.0.1 or ${variableOf('dump-requests')}=true`;
  return helpPage(
    `A local proxy that verifies a remote inference service, encrypts every prompt for it, and
streams the answers back decrypted.`,
    [
      '[flags]',
      'healthcheck [flags]      ask whether a running proxy is ready: exit code 0 or 1',
      'run AGENT -- ARGS        start a coding agent on a running proxy',
      'status [flags]           show what a running proxy does, and its verification',
      'verify [flags]           check whether the remote is genuine',
      'receipts verify [flags]  check that receipts are complete and unchanged',
      'clients new NAME…        make a token for each client; also list, revoke',
      'completion SHELL         print what bash, zsh or fish completes',
      'usage [flags]            sum up who used what, from the receipts of a gateway',
    ],
    [
      ...Object.entries(FLAG_GROUPS).map(([heading, flags]) => section(heading, flags)),
      section(`Environment (${precedence})`, [
        ['  PRIVATEMODE_API_KEY', 'API key, as --api-key: KEY or @FILE.'],
        ['  PRIVATEMODE_PROXY_FLAG', `Every other flag, such as ${example}.`],
        ['  SSL_CERT_FILE', 'PEM bundle of the authorities to trust for outgoing connections.'],
        ['  https_proxy', 'HTTP proxy (CONNECT) for outgoing connections; no_proxy lists exceptions.'],
      ]),
      'Durations are written like 30s, 5m or 1h30m; booleans like --flag or --flag=false.\n',
    ],
  );
}

/**
 * The help text of a command: what it does, the ways to write it, and parts with an empty line between them.
 * Lines are not wrapped yet, and a tab separates a term from its description; `fitHelp` lays them out.
 */
export const helpPage = (about: string, usage: readonly string[], parts: readonly string[]): string =>
  `${about.replaceAll('\n', ' ')}\n\nUsage:\n${usage.map((line) => `  privatemode-proxy ${line}\n`).join('')}\n${parts.join('\n')}`;

type Term = readonly [term: string, description: string];

/** A part of a help text: its heading, and an entry for each flag or term. */
export const section = (heading: string, entries: readonly (Flag | Term)[]): string =>
  `${heading}:\n${entries.map((entry) => `${('name' in entry ? flagTerm(entry) : entry).join('\t')}\n`).join('')}`;

function flagTerm(flag: Flag): Term {
  const short = flag.short === undefined ? '      ' : `  -${flag.short}, `;
  const value = flag.value === undefined ? '' : ` ${flag.value}`;
  const isPlainSwitch = flag.default === undefined || (flag.type === 'boolean' && flag.default === 'false');
  const fallback = isPlainSwitch ? '' : ` (default ${flag.default})`;
  return [`${short}--${flag.name}${value}`, flag.help + fallback];
}

/** Wraps the text of `helpPage` for a terminal of that many columns; undefined if the width is unknown. */
export function fitHelp(text: string, columns: number = MOST): string {
  const width = Math.min(Math.max(columns, FEWEST), MOST);
  const at = width < WIDE ? 10 : 34;
  const fit = (line: string): string => {
    const [term = '', description] = line.split('\t');
    if (description !== undefined) {
      const lines = wrapped(' '.repeat(at) + description, width, at);
      const isBeside = term.length <= at - 2;
      return isBeside ? term.padEnd(at) + lines.trimStart() : `${wrapped(term, width, 6)}\n${lines}`;
    }
    const [, usage, what] = /^(\s+\S.*?) {2,}(\S.*)$/.exec(line) ?? [];
    if (line.length <= width || usage === undefined)
      return wrapped(line, width, line.startsWith(' ') ? 6 : 0);
    return `${usage}\n${wrapped(' '.repeat(8) + what, width, 8)}`;
  };
  return text.split('\n').map(fit).join('\n');
}

/**
 * Wraps text to `width` columns. All lines but the first are indented by `indent` columns. A word longer than
 * a line stays whole.
 */
function wrapped(text: string, width: number, indent: number): string {
  if (text.length <= width) return text;
  const [before = ''] = /^ */.exec(text) ?? [];
  const line = new RegExp(`\\S.{0,${width - Math.max(indent, before.length) - 1}}(?= |$)|\\S+`, 'g');
  return before + (text.trim().match(line) ?? []).join(`\n${' '.repeat(indent)}`);
}
