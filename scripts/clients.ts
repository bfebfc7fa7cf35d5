/**
 * Runs clients that people use, in several languages, against the program and a simulated service, and writes
 * the table of docs/clients.md: `npm run test:clients -- [NAME…]` (names of clients to run; the page is
 * written only if all ran). Exit code 1 where a cell failed.
 *
 * The programs are in scripts/clients/LANGUAGE. Each takes the base URL from the environment, prints one JSON
 * line per feature, and waits for a line on its standard input before it goes on: in between this script
 * looks at what the service saw. What they need is installed below .tools/clients, once per version.
 */
import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { type Simulator, startSimulator } from '../simulator/simulator.ts';
import { startProxyProcess } from '../test/support/processes/program.ts';
import { CLIENTS, type Client, type Language } from './clients/list.ts';
import { replaceSection } from './marked-section.ts';

const ROOT = join(import.meta.dirname, '..');
const PAGE = join(ROOT, 'docs/clients.md');
const INSTALLED = join(ROOT, '.tools/clients');
const CLIENT_MS = 60_000;
const INSTALL_MS = 900_000;
/** ms in which the service must see that a client left. */
const ABORT_MS = 2_000;
const FEATURES = ['whole', 'stream', 'loop', 'usage', 'tools', 'errors', 'abort'] as const;
type Feature = (typeof FEATURES)[number];

/** What a program says of a feature. */
interface Line {
  readonly feature: Feature;
  readonly ok: boolean;
  readonly detail?: string;
  /** Tokens in and out, as the client counted them for its last request. */
  readonly counted?: readonly [input: number, output: number];
}

/** Undefined: the client has no such feature. Otherwise why it failed, empty if it did not. */
type Results = Partial<Record<Feature, string>>;

interface Installation {
  /** What an installation depends on: it is repeated when one of these files changes. */
  readonly sources: RegExp;
  readonly commands: readonly (readonly string[])[];
}

const pip = (group: string): readonly (readonly string[])[] => [
  ['python3', '-m', 'venv', group],
  [`${group}/bin/pip`, 'install', '--quiet', '--disable-pip-version-check', '-r', `${group}.txt`],
];

const INSTALLATIONS: Readonly<Record<Language, Installation>> = {
  javascript: {
    sources: /^package\.json$/,
    commands: [['npm', 'install', '--no-audit', '--no-fund', '--no-package-lock', '--ignore-scripts']],
  },
  python: { sources: /\.txt$/, commands: [...pip('current'), ...pip('openai-2')] },
  go: { sources: /\.(go|mod)$/, commands: [['go', 'build', '-mod=mod', '-o', 'bin/', './...']] },
  java: {
    sources: /\.(java|xml)$/,
    commands: [['mvn', '-q', '-B', 'compile', 'dependency:copy-dependencies', '-DoutputDirectory=lib']],
  },
  rust: { sources: /\.(rs|toml)$/, commands: [['cargo', 'build', '--quiet']] },
  shell: { sources: /^$/, commands: [] },
};

/**
 * Copies the programs of a language to where their packages are, and installs those unless they are there.
 */
function install(language: Language): void {
  const from = join(import.meta.dirname, 'clients', language);
  const to = join(INSTALLED, language);
  const { sources, commands } = INSTALLATIONS[language];
  mkdirSync(to, { recursive: true });
  cpSync(from, to, { recursive: true });
  const hash = createHash('sha256').update(JSON.stringify(commands));
  const files = readdirSync(from, { recursive: true, encoding: 'utf8' });
  for (const name of files.filter((file) => sources.test(file)).sort()) {
    hash.update(name).update(readFileSync(join(from, name)));
  }
  const stamp = join(to, `.installed-${hash.digest('hex').slice(0, 16)}`);
  if (existsSync(stamp)) return;
  process.stderr.write(`installing: ${language}\n`);
  for (const [program, ...args] of commands) {
    execFileSync(program as string, args, { cwd: to, stdio: ['ignore', 2, 2], timeout: INSTALL_MS });
  }
  writeFileSync(stamp, '');
}

/** Nothing of ours, where credentials may be, and a dead end for whatever is not on loopback. */
function environment(url: string, home: string): Record<string, string> {
  const { PATH = '', JAVA_HOME } = process.env;
  return {
    PATH,
    HOME: home,
    LANG: 'C.UTF-8',
    BASE_URL: url,
    HTTPS_PROXY: 'http://127.0.0.1:9',
    HTTP_PROXY: 'http://127.0.0.1:9',
    NO_PROXY: '127.0.0.1',
    no_proxy: '127.0.0.1',
    ...(JAVA_HOME === undefined ? {} : { JAVA_HOME }),
    LITELLM_LOCAL_MODEL_COST_MAP: 'True',
    OPENAI_AGENTS_DISABLE_TRACING: '1',
    AI_SDK_LOG_WARNINGS: 'false',
  };
}

/**
 * The tokens that the service counted for the last request: those of the prompt by the rule of the simulator,
 * and 20.
 */
function countedByService({ exchanges }: Simulator): readonly [number, number] {
  const { messages } = JSON.parse(exchanges.last()?.opened ?? '{}') as { messages?: unknown };
  return [Math.ceil(Buffer.byteLength(JSON.stringify(messages ?? '')) / 4), 20];
}

/** Empty if the feature works: the program says so, and so does what the service saw. */
async function verdict(line: Line, simulator: Simulator): Promise<string> {
  if (!line.ok) return line.detail || 'failed without a word';
  if (simulator.exchanges.all().length === 0) return 'nothing reached the service';
  const broken = simulator.exchanges.violations();
  if (broken.length > 0) return broken.join('; ');
  if (line.counted !== undefined) {
    const expected = countedByService(simulator);
    if (line.counted.join() !== expected.join()) {
      return `counted ${line.counted.join(' in, ')} out; the service ${expected.join(' in, ')} out`;
    }
  }
  if (line.feature === 'abort') {
    const deadline = Date.now() + ABORT_MS;
    const last = simulator.exchanges.last();
    while (last?.closedEarlyAt === undefined) {
      if (Date.now() > deadline) return 'the service was not told';
      await delay(20);
    }
  }
  return '';
}

async function runClient({ command, language }: Client, url: string, simulator: Simulator): Promise<Results> {
  const home = mkdtempSync(join(tmpdir(), 'client-'));
  const [program, ...args] = command;
  const child: ChildProcessWithoutNullStreams = spawn(
    program === 'node' ? process.execPath : (program as string),
    args,
    {
      cwd: join(INSTALLED, language),
      env: environment(url, home),
      detached: true,
    },
  );
  const results: Results = {};
  let stderr = '';
  let late = false;
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-4_000);
  });
  child.stdin.on('error', () => undefined);
  const { promise: ended, resolve: ends } = Promise.withResolvers<string>();
  child.on('error', (error) => ends(error.message));
  child.on('close', (code, signal) => ends(code === 0 ? '' : `ended with ${code ?? signal}`));
  const end = (): void => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    process.kill(-child.pid, 'SIGKILL');
  };
  const timer = setTimeout(() => {
    late = true;
    end();
  }, CLIENT_MS);
  try {
    simulator.exchanges.clear();
    for await (const text of createInterface({ input: child.stdout })) {
      if (!text.startsWith('{"feature":')) continue;
      const line = JSON.parse(text) as Line;
      results[line.feature] = await verdict(line, simulator);
      simulator.exchanges.clear();
      child.stdin.write('\n');
    }
    const trouble = await ended;
    if (late || trouble !== '') {
      const missing = FEATURES.find((feature) => results[feature] === undefined) ?? 'abort';
      results[missing] =
        `${late ? `not done in ${CLIENT_MS / 1000} s` : trouble}: ${stderr.trim().split('\n').at(-1) ?? ''}`;
      process.stderr.write(`${stderr}\n`);
    }
  } finally {
    clearTimeout(timer);
    end();
    rmSync(home, { recursive: true, force: true });
  }
  return results;
}

const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ').slice(0, 300);

/** The table, and below it why a cell failed. */
function render(rows: readonly (readonly [Client, Results])[]): string {
  const mark = (result: string | undefined, known: string | undefined): string => {
    if (result === undefined) return '-';
    if (result === '') return 'yes';
    return known === undefined ? '**no**' : 'client';
  };
  const head = ['Client', 'Version', 'Language', ...FEATURES];
  const cells = rows.map(([{ name, version, languageName, known = {} }, results]) => [
    ...[name, version, languageName],
    ...FEATURES.map((feature) => mark(results[feature], known[feature])),
  ]);
  const lines = [head, head.map(() => '---'), ...cells].map((row) => `| ${row.join(' | ')} |`);
  const reasons = rows.flatMap(([{ name, languageName, known = {} }, results]) =>
    FEATURES.filter((feature) => (results[feature] ?? '') !== '').map(
      (feature) =>
        `- ${name} (${languageName}), ${feature}: ${oneLine(known[feature] ?? (results[feature] as string))}`,
    ),
  );
  const date = new Date().toISOString().slice(0, 10);
  return [`Run on ${date}.`, lines.join('\n'), reasons.join('\n')].join('\n\n');
}

const wanted = process.argv.slice(2);
const chosen = CLIENTS.filter(({ name }) => wanted.length === 0 || wanted.includes(name));
if (chosen.length === 0)
  throw new Error(`no such client; there are: ${CLIENTS.map(({ name }) => name).join(', ')}`);
for (const language of new Set(chosen.map((client) => client.language))) install(language);

const directory = mkdtempSync(join(tmpdir(), 'privatemode-clients-'));
const simulator = await startSimulator({ directory });
try {
  const proxy = await startProxyProcess(
    [
      `--api-endpoint=localhost:${simulator.port}`,
      `--manifest-path=${join(directory, 'manifest.json')}`,
      `--unsafe-trust-roots=${join(directory, 'roots')}`,
      `--workspace=${join(directory, 'workspace')}`,
      '--listen-address=127.0.0.1',
      '--port=0',
      '--api-key=placeholder-of-the-table',
    ],
    { SSL_CERT_FILE: join(directory, 'ca.pem') },
  );
  try {
    const rows: [Client, Results][] = [];
    for (const client of chosen) {
      const results = await runClient(client, proxy.url, simulator);
      rows.push([client, results]);
      const words = FEATURES.map((feature) => {
        const result = results[feature];
        return `${feature} ${result === undefined ? '-' : result === '' ? 'yes' : `NO (${oneLine(result)})`}`;
      });
      process.stderr.write(`${client.name}: ${words.join(', ')}\n`);
    }
    const table = render(rows);
    process.stdout.write(`${table}\n`);
    if (chosen.length === CLIENTS.length) {
      writeFileSync(PAGE, replaceSection(readFileSync(PAGE, 'utf8'), 'clients', table));
    }
    const failed = rows.some(([{ known = {} }, results]) =>
      FEATURES.some((feature) => (results[feature] ?? '') !== '' && known[feature] === undefined),
    );
    process.exitCode = failed ? 1 : 0;
  } finally {
    await proxy.stop();
  }
} finally {
  await simulator.close();
  rmSync(directory, { recursive: true, force: true });
}
