/**
 * Which files of lib one request goes through, and how often it changes from one to another: `npm run request-path`. A proxy in a
 * process of its own, in front of a simulated deployment, answers some streamed chat requests; the next ones are traced. The request
 * has a fixed body, sent in one piece on a connection that is open; the answer has ten tokens. `--json` prints it all. `--write` puts
 * the list of files into docs/architecture.md, `--check` exits with 1 where the page has another one.
 *
 * What counts is the begin of a call of a function of lib. `--count` says of which functions:
 *
 *     declared   those declared with their name: function declarations, methods, accessors and constructors; the default
 *     named      also those that are assigned to a variable or a property
 *     all        also those without a name: callbacks
 *
 * A change of file is two such calls in a row in different files. Returning, and going on after an `await`, is none. A file is entered
 * where the call before was in another one. The first byte is out where the proxy writes to the connection of the application: the
 * head of the answer. The whole ends when all that is done after the last byte is done.
 *
 * An earlier measurement, made by other means, found 61 files and 539 changes; of the three, `declared` comes closest, with the same
 * 61 files. `named` is the one that no way of writing a function escapes. Three requests are traced, and must be the same.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type Node, SyntaxKind } from 'typescript/unstable/ast';
import { API } from 'typescript/unstable/sync';
import { type Simulator, startSimulator } from '../simulator/simulator.ts';
import type { Naming, Place, Trace, TracedCall, TraceOptions } from './function-trace.ts';
import { replaceSection } from './marked-section.ts';

const ROOT = join(import.meta.dirname, '..');
const PAGE = join(ROOT, 'docs/architecture.md');
const WARM_UP = 20;
const ALIKE = 3;
const MOST_TRACED = 15;
/** ms after the last byte in which what is done afterwards is done. */
const AFTERMATH = 100;
const PATIENCE = 30_000;
const BODY = JSON.stringify({
  model: 'sim-10x0',
  stream: true,
  stream_options: { include_usage: true },
  messages: [{ role: 'user', content: 'How many files does this go through?' }],
});
const REQUEST = [
  'POST /v1/chat/completions HTTP/1.1',
  'Host: localhost',
  'Content-Type: application/json',
  `Content-Length: ${BODY.length}`,
  '',
  BODY,
].join('\r\n');
const END = '\r\n0\r\n\r\n';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    count: { type: 'string', default: 'declared' },
  },
});

/** What a node of the syntax tree may have; the tree's own types are unions of hundreds. */
interface Shape extends Node {
  readonly name?: Node;
  readonly body?: Node;
  readonly parent: Shape;
}

const DECLARED: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.FunctionDeclaration,
  SyntaxKind.MethodDeclaration,
  SyntaxKind.GetAccessor,
  SyntaxKind.SetAccessor,
  SyntaxKind.Constructor,
]);
const EXPRESSIONS: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.ArrowFunction,
  SyntaxKind.FunctionExpression,
]);
const NAMING: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.VariableDeclaration,
  SyntaxKind.PropertyAssignment,
  SyntaxKind.PropertyDeclaration,
]);

/** Where a node begins; its own position is that of the blanks and comments before it. */
function startOf({ pos, end }: Node, text: string): number {
  const before = /^(?:\s|\/\*[\s\S]*?\*\/|\/\/[^\n]*)*/.exec(text.slice(pos, end));
  return pos + (before?.[0].length ?? 0);
}

/** The name of a function, and how it has it; undefined where the node is no function. */
function nameOf(node: Shape, text: string): Pick<Place, 'name' | 'naming'> | undefined {
  const named = (name: Node, naming: Naming) => ({ name: text.slice(startOf(name, text), name.end), naming });
  if (DECLARED.has(node.kind)) {
    return node.name === undefined
      ? { name: 'constructor', naming: 'declared' }
      : named(node.name, 'declared');
  }
  if (!EXPRESSIONS.has(node.kind)) return undefined;
  const { name, kind } = node.name === undefined ? node.parent : node;
  return name !== undefined && (NAMING.has(kind) || EXPRESSIONS.has(kind))
    ? named(name, 'assigned')
    : { name: '(no name)', naming: 'none' };
}

/** Where the functions of a file begin. */
function functionsOf(source: Node, text: string): Place[] {
  const places: Place[] = [];
  const visit = (node: Shape): void => {
    const named = nameOf(node, text);
    const { body } = node;
    if (named !== undefined && body !== undefined) {
      const start = startOf(body, text);
      places.push(
        body.kind === SyntaxKind.Block ? { ...named, start: start + 1 } : { ...named, start, end: body.end },
      );
    }
    node.forEachChild((child) => visit(child as Shape));
  };
  visit(source as Shape);
  return places;
}

/** The functions of all files of lib that a proxy runs. */
function functionsOfLib(): TraceOptions {
  const api = new API({ cwd: ROOT });
  try {
    const project = api.updateSnapshot({ openProjects: [join(ROOT, 'tsconfig.json')] }).getProjects()[0]!;
    const names = project.program.getSourceFileNames().filter((name) => name.startsWith(join(ROOT, 'lib/')));
    const files = names.map((name) => {
      const source = project.program.getSourceFile(name)!;
      return [relative(ROOT, name), functionsOf(source, source.text)] as const;
    });
    return { root: ROOT, files: Object.fromEntries(files) };
  } finally {
    api.close();
  }
}

interface TracedProxy {
  readonly port: number;
  tell<T>(message: 'start' | 'stop'): Promise<T>;
  kill(): void;
}

async function startTracedProxy(
  directory: string,
  simulator: Simulator,
  traceFile: string,
): Promise<TracedProxy> {
  const flags = [
    `--api-endpoint=localhost:${simulator.port}`,
    `--manifest-path=${join(directory, 'manifest.json')}`,
    `--unsafe-trust-roots=${join(directory, 'roots')}`,
    `--workspace=${join(directory, 'workspace')}`,
    '--listen-address=127.0.0.1',
    '--port=0',
    '--api-key=request-path',
  ];
  const child = fork(join(ROOT, 'bin/privatemode-proxy.ts'), flags, {
    execArgv: ['--import', join(import.meta.dirname, 'function-trace.ts')],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { PATH: process.env['PATH'], SSL_CERT_FILE: join(directory, 'ca.pem'), FUNCTION_TRACE: traceFile },
  });
  const gone = once(child, 'exit').then(([code]) => {
    throw new Error(`the proxy ended with ${code}:\n${log}`);
  });
  gone.catch(() => {});
  let log = '';
  const { promise: listening, resolve } = Promise.withResolvers<number>();
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    log += text;
    const port = /server.*endpoint="?https?:\/\/[^\s"]+:(\d+)/.exec(log)?.[1];
    if (port !== undefined) resolve(Number(port));
  });
  return {
    port: await Promise.race([listening, gone]),
    async tell<T>(message: 'start' | 'stop') {
      child.send(message);
      const [answer] = await Promise.race([once(child, 'message'), gone]);
      return answer as T;
    },
    kill: () => void child.kill('SIGKILL'),
  };
}

/** One request on that connection, and its answer to the end. Throws where that is no stream that ends well. */
async function ask(socket: Socket): Promise<void> {
  let text = '';
  const take = (chunk: Buffer): void => {
    text += chunk.toString('latin1');
    if (text.endsWith(END)) socket.emit('answered');
  };
  socket.on('data', take);
  socket.write(REQUEST);
  await once(socket, 'answered', { signal: AbortSignal.timeout(PATIENCE) });
  socket.off('data', take);
  if (!text.startsWith('HTTP/1.1 200 OK\r\n') || !text.includes('data: [DONE]')) throw new Error(text);
}

/** The first trace that came three times. Throws where none did. */
async function agreedTrace(): Promise<Trace> {
  const directory = mkdtempSync(join(tmpdir(), 'privatemode-request-path-'));
  const opened = new AsyncDisposableStack();
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  try {
    const traceFile = join(directory, 'functions.json');
    writeFileSync(traceFile, JSON.stringify(functionsOfLib()));
    const simulator = await startSimulator({ directory });
    opened.defer(() => simulator.close());
    const proxy = await startTracedProxy(directory, simulator, traceFile);
    opened.defer(proxy.kill);
    const socket = connect({ port: proxy.port, host: '127.0.0.1', noDelay: true });
    opened.defer(() => void socket.destroy());
    await once(socket, 'connect');
    for (let i = 0; i < WARM_UP; i++) await ask(socket);
    const seen = new Map<string, number>();
    for (let i = 0; i < MOST_TRACED; i++) {
      await delay(1_000 - (Date.now() % 1_000)); // the MAC of the GPU policy is made anew each second
      await proxy.tell('start');
      await ask(socket);
      await delay(AFTERMATH);
      const trace = await proxy.tell<Trace>('stop');
      const key = JSON.stringify(trace);
      const times = (seen.get(key) ?? 0) + 1;
      if (times === ALIKE) return trace;
      seen.set(key, times);
    }
    throw new Error(`of ${MOST_TRACED} traced requests no ${ALIKE} took the same path`);
  } finally {
    await opened.disposeAsync();
  }
}

interface Totals {
  readonly calls: number;
  readonly files: number;
  readonly changes: number;
  /** Changes to a file that had been seen before. */
  readonly back: number;
}

interface FileRow {
  readonly file: string;
  /** The function that ran first. */
  readonly first: string;
  readonly calls: number;
  /** How often a call in it followed one in another file. */
  readonly entered: number;
}

/** Files in the order in which they are seen first. */
function summary(calls: readonly TracedCall[]): {
  readonly totals: Totals;
  readonly rows: readonly FileRow[];
} {
  const rows = new Map<string, { first: string; calls: number; entered: number }>();
  let before: string | undefined;
  for (const [file, name] of calls) {
    const row = rows.get(file) ?? { first: name, calls: 0, entered: 0 };
    rows.set(file, row);
    row.calls += 1;
    if (file !== before) row.entered += 1;
    before = file;
  }
  const entered = [...rows.values()].reduce((sum, row) => sum + row.entered, 0);
  const changes = Math.max(entered - 1, 0);
  return {
    totals: { calls: calls.length, files: rows.size, changes, back: Math.max(entered - rows.size, 0) },
    rows: [...rows].map(([file, row]) => ({ file, ...row })),
  };
}

const COUNTED = {
  declared: ['declared'],
  named: ['declared', 'assigned'],
  all: ['declared', 'assigned', 'none'],
} as const satisfies Readonly<Record<string, readonly Naming[]>>;
type Count = keyof typeof COUNTED;

interface Path {
  readonly toFirstByte: readonly TracedCall[];
  readonly whole: readonly TracedCall[];
}

function pathOf({ calls, beforeFirstByte }: Trace, count: Count): Path {
  const counts = ([, , naming]: TracedCall): boolean =>
    (COUNTED[count] as readonly Naming[]).includes(naming);
  return { toFirstByte: calls.slice(0, beforeFirstByte).filter(counts), whole: calls.filter(counts) };
}

function printFiles({ toFirstByte, whole }: Path): void {
  const { rows } = summary(whole);
  const early = summary(toFirstByte).rows.length;
  const width = Math.max(...rows.map(({ file }) => file.length));
  const line = (rank: string, file: string, entered: string, calls: string, first: string): void =>
    console.log(
      `${rank.padStart(4)}  ${file.padEnd(width)}  ${entered.padStart(7)}  ${calls.padStart(5)}  ${first}`,
    );
  line('rank', 'file', 'entered', 'calls', 'first function');
  for (const [i, { file, entered, calls, first }] of rows.entries()) {
    if (i === early) console.log('      -- the first byte is out --');
    line(`${i + 1}`, file, `${entered}`, `${calls}`, first);
  }
}

function printTotals(name: string, { toFirstByte, whole }: Path): void {
  const words = ({ calls, files, changes, back }: Totals): string =>
    `${files} files, ${changes} changes of file, ${back} of them back to a file seen before; ${calls} calls`;
  console.log(`${name.padEnd(8)}  to the first byte out: ${words(summary(toFirstByte).totals)}`);
  console.log(`${''.padEnd(8)}  whole:                 ${words(summary(whole).totals)}`);
}

/** The page with the list of files as it was traced. */
function renderPage({ toFirstByte, whole }: Path): string {
  const { rows } = summary(whole);
  const early = summary(toFirstByte).rows.length;
  const lines = rows.flatMap(({ file, first }, i) => [
    ...(i === early ? ['| | *the head of the response is out* | |'] : []),
    `| ${i + 1} | \`${file}\` | \`${first}\` |`,
  ]);
  const table = ['| | file | enters by |', '| --- | --- | --- |', ...lines].join('\n');
  return replaceSection(readFileSync(PAGE, 'utf8'), 'request-path', table);
}

if (!Object.hasOwn(COUNTED, values.count)) throw new Error('--count is declared, named or all');
const count = values.count as Count;
const trace = await agreedTrace();
const path = pathOf(trace, values.write || values.check ? 'declared' : count);
const counts = Object.keys(COUNTED) as Count[];
if (values.write) {
  writeFileSync(PAGE, renderPage(path));
} else if (values.check) {
  if (readFileSync(PAGE, 'utf8') !== renderPage(path)) {
    console.error('docs/architecture.md has another list: npm run request-path -- --write');
    process.exitCode = 1;
  }
} else if (values.json) {
  const totals = counts.map((name) => {
    const { toFirstByte, whole } = pathOf(trace, name);
    return [name, { toFirstByte: summary(toFirstByte).totals, whole: summary(whole).totals }];
  });
  const files = { toFirstByte: summary(path.toFirstByte).rows, whole: summary(path.whole).rows };
  console.log(JSON.stringify({ count, totals: Object.fromEntries(totals), files }, null, 2));
} else {
  printFiles(path);
  console.log('');
  for (const name of counts) printTotals(name, pathOf(trace, name));
}
