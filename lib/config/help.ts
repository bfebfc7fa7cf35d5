import { variableOf } from './environment.ts';
import { FLAG_GROUPS } from './flags.ts';
import type { Flag } from './setting.ts';

const COLUMNS = 100;
const HELP_AT = 34;

/** The text of --help, for a terminal of 100 columns. */
export function renderHelp(): string {
  const groups = Object.entries(FLAG_GROUPS).map(([heading, flags]) => section(heading, flags));
  const precedence = 'a flag wins over its variable, a variable over the default; an empty one is unset';
  const example = `${variableOf('listen-address')}=127.0.0.1 or ${variableOf('dump-requests')}=true`;
  return `A local proxy that verifies a remote inference service, encrypts every prompt for it, and
streams the answers back decrypted.

Usage:
  privatemode-proxy [flags]
  privatemode-proxy healthcheck [flags]    whether a running proxy is ready: exit code 0 or 1
  privatemode-proxy verify [flags]         whether the remote is genuine: every check, by name

${groups.join('\n')}
${section(`Environment (${precedence})`, [
  ['  PRIVATEMODE_API_KEY', 'API key, as --api-key: KEY or @FILE.'],
  ['  PRIVATEMODE_PROXY_FLAG', `Every other flag, such as ${example}.`],
  ['  SSL_CERT_FILE', 'PEM bundle of the authorities to trust for outgoing connections.'],
  ['  https_proxy', 'HTTP proxy (CONNECT) for outgoing connections; no_proxy lists exceptions.'],
])}
Durations are written like 30s, 5m or 1h30m; booleans like --flag or --flag=false.
`;
}

type Term = readonly [term: string, description: string];

/** A part of a help text: its heading, and an entry for each flag or term. */
export const section = (heading: string, entries: readonly (Flag | Term)[]): string =>
  `${heading}:\n${entries.map((entry) => described(...('name' in entry ? flagTerm(entry) : entry))).join('')}`;

function flagTerm(flag: Flag): Term {
  const short = flag.short === undefined ? '      ' : `  -${flag.short}, `;
  const value = flag.value === undefined ? '' : ` ${flag.value}`;
  const isPlainSwitch = flag.default === undefined || (flag.type === 'boolean' && flag.default === 'false');
  const fallback = isPlainSwitch ? '' : ` (default ${flag.default})`;
  return [`${short}--${flag.name}${value}`, flag.help + fallback];
}

/** A term and its description, which is wrapped into a column of its own and starts a new line where the term is long. */
function described(term: string, description: string): string {
  const indent = ' '.repeat(HELP_AT);
  const lines = wrapped(description, COLUMNS - HELP_AT).map((line) => indent + line);
  const first = lines[0] as string;
  if (term.length > HELP_AT - 2) lines.unshift(term);
  else lines[0] = term + first.slice(term.length);
  return `${lines.join('\n')}\n`;
}

function wrapped(text: string, columns: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > columns) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}
