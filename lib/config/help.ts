import { variableOf } from './environment.ts';
import { FLAG_GROUPS } from './flags.ts';
import type { Flag } from './setting.ts';

const HELP_AT = 34;
/** Words up to column 100, from HELP_AT on. */
const LINE = /\S.{0,65}(?= |$)/g;

/** The text of --help, for a terminal of 100 columns. */
export function renderHelp(): string {
  const precedence = 'a flag wins over its variable, a variable over the default; an empty one is unset';
  const example = `${variableOf('listen-address')}=127.0.0.1 or ${variableOf('dump-requests')}=true`;
  return helpPage(
    `A local proxy that verifies a remote inference service, encrypts every prompt for it, and
streams the answers back decrypted.`,
    [
      '[flags]',
      'healthcheck [flags]      whether a running proxy is ready: exit code 0 or 1',
      'run AGENT -- ARGS        a coding agent whose prompts go to a running proxy',
      'status [flags]           what a running proxy does, how it verified the remote',
      'verify [flags]           whether the remote is genuine: every check, by name',
      'receipts verify [flags]  whether receipts are whole and unchanged',
      'clients new NAME         a token for a client of the gateway (--clients)',
      'usage [flags]            who used what, by the receipts of a gateway (--clients)',
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

/** The help text of a command: what it does, the ways to write it, and parts with an empty line between them. */
export const helpPage = (about: string, usage: readonly string[], parts: readonly string[]): string =>
  `${about}\n\nUsage:\n${usage.map((line) => `  privatemode-proxy ${line}\n`).join('')}\n${parts.join('\n')}`;

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
  const text = description.match(LINE)?.join(`\n${' '.repeat(HELP_AT)}`);
  const gap = term.length > HELP_AT - 2 ? `\n${' '.repeat(HELP_AT)}` : ' '.repeat(HELP_AT - term.length);
  return `${term}${gap}${text}\n`;
}
