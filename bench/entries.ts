/** Who takes part: our own program in its variants, and what --subject enters. */

/** A proxy that the benchmark starts. */
export type Entry =
  /** A build of this program (dist/bin/privatemode-proxy.js): it has all variants. */
  | { readonly kind: 'build'; readonly file: string }
  /** Any other proxy, by the command that starts it. */
  | { readonly kind: 'command'; readonly command: readonly string[] };

/** What stands for `{name}` in a command. */
export interface Places {
  /** Where the proxy is to listen, on 127.0.0.1. */
  readonly port: number;
  /** The service's port on localhost. */
  readonly upstream: number;
  /** Of the run: ca.pem, roots/, manifest.json. */
  readonly directory: string;
  /** The proxy's own, kept over its starts. */
  readonly workspace: string;
}

/**
 * `NAME=FILE.js` (a build of this program) or `NAME=COMMAND ARGUMENT…` with {port}, {upstream}, {directory}
 * and {workspace} in it.
 */
export function entryOf(argument: string): [name: string, Entry] {
  const at = argument.indexOf('=');
  const [name, what] = [argument.slice(0, at), argument.slice(at + 1).trim()];
  if (at < 1 || what === '') throw new Error(`--subject wants NAME=FILE.js or NAME=COMMAND, not ${argument}`);
  const command = what.split(/\s+/);
  if (command.length > 1 || !what.endsWith('.js')) return [name, { kind: 'command', command }];
  return [name, { kind: 'build', file: what }];
}

/**
 * The Go reference, by its program; beside it lies `directory` with the simulated hardware whose roots it was
 * built with.
 */
export const referenceEntry = (file: string): Entry => ({
  kind: 'command',
  command: [
    ...[file, '--apiEndpoint', 'localhost:{upstream}', '--manifestPath', '{directory}/manifest.json'],
    ...['--port', '{port}', '--apiKey', 'bench', '--workspace', '{workspace}'],
  ],
});

/** A way to run a build: its further flags, by what comes after the comma in a subject's name. */
type Variant = readonly string[];

const VARIANTS: Readonly<Record<string, Variant>> = {
  '': [],
  'shared salt': ['--disable-prompt-cache=false'],
};

/** `ours, receipts`: the entry `ours` in its variant `receipts`. Throws for a variant that there is not. */
export function variantOf(name: string): { readonly entry: string; readonly variant: Variant } {
  const comma = name.indexOf(', ');
  const [entry, which] = comma < 0 ? [name, ''] : [name.slice(0, comma), name.slice(comma + 2)];
  const variant = VARIANTS[which];
  if (variant === undefined) throw new Error(`${entry} has no variant ${which}`);
  return { entry, variant };
}

const BUILD = [
  '--api-endpoint=localhost:{upstream}',
  '--manifest-path={directory}/manifest.json',
  '--unsafe-trust-roots={directory}/roots',
  '--workspace={workspace}',
  '--listen-address=127.0.0.1',
  '--port={port}',
  '--api-key=sk-bench',
];

/** The command line of an entry, every place filled in. `execArgv` is Node's, for builds. */
export function commandLine(
  entry: Entry,
  flags: Variant,
  places: Places,
  execArgv: readonly string[],
): string[] {
  const line =
    entry.kind === 'command'
      ? entry.command
      : [process.execPath, ...execArgv, entry.file, ...BUILD, ...flags];
  return line.map((part) =>
    part.replace(/\{(port|upstream|directory|workspace)\}/g, (_, place) =>
      String(places[place as keyof Places]),
    ),
  );
}
