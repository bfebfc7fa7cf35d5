/**
 * The architecture as a test: imports point down the table or sideways inside a room, never up.
 * It lexes the import statements itself, and finds each edge that the table allows.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, it } from 'node:test';

const ROOT = resolve(import.meta.dirname, '..');
const LIB = join(ROOT, 'lib');

/** Room → rooms it may import. Files directly in lib/ are rooms of their own name. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  errors: [],
  times: [],
  clock: ['times'],
  version: [],
  text: [],
  'watch-files': ['clock', 'errors'],
  files: ['clock', 'errors'],
  json: ['errors'],
  'strict-json': ['errors', 'json'],
  crypto: ['errors'],
  attestation: ['clock', 'errors', 'text', 'crypto', 'strict-json'],
  envelope: ['errors', 'crypto'],
  api: ['errors', 'json'],
  network: ['times', 'clock', 'errors', 'files'],
  pipeline: ['clock', 'errors', 'crypto', 'json', 'envelope', 'api', 'network'],
  'responses-api': ['errors', 'json', 'crypto', 'pipeline'],
  verdict: ['errors', 'text', 'version', 'attestation'],
  'manifest-log': ['errors', 'files'],
  session: ['clock', 'errors', 'text', 'crypto', 'attestation', 'network', 'manifest-log', 'verdict'],
  receipts: ['clock', 'errors', 'files', 'session'],
  'http-rules': ['clock', 'errors', 'api', 'envelope', 'network'],
  listener: ['clock', 'errors', 'files', 'watch-files'],
  observe: ['clock', 'errors', 'text', 'version', 'session', 'verdict'],
  config: ['errors', 'files', 'text', 'api', 'network', 'attestation', 'watch-files'],
  access: ['clock', 'errors', 'files', 'strict-json', 'api', 'observe', 'config', 'watch-files'],
  limits: ['clock', 'errors', 'files', 'access'],
  gateway: [
    'clock',
    'errors',
    'version',
    'config',
    'files',
    'observe',
    'api',
    'network',
    'pipeline',
    'envelope',
    'http-rules',
    'session',
    'receipts',
    'access',
    'limits',
    'responses-api',
  ],
  'client-library': [
    'times',
    'clock',
    'errors',
    'text',
    'api',
    'attestation',
    'envelope',
    'network',
    'pipeline',
    'http-rules',
    'session',
    'verdict',
    'responses-api',
  ],
  'open-access': ['clock', 'access', 'config', 'files', 'limits', 'observe'],
  'gateway-server': [
    'clock',
    'errors',
    'config',
    'gateway',
    'network',
    'observe',
    'responses-api',
    'listener',
    'watch-files',
  ],
  'open-admin': [
    'clock',
    'errors',
    'version',
    'config',
    'files',
    'gateway',
    'gateway-server',
    'listener',
    'network',
    'observe',
    'open-access',
    'receipts',
  ],
  commands: [
    'clock',
    'errors',
    'text',
    'version',
    'config',
    'files',
    'api',
    'attestation',
    'access',
    'network',
    'session',
    'receipts',
    'verdict',
    'observe',
    'listener',
    'proxy',
  ],
  cli: ['clock', 'errors', 'text', 'version', 'config', 'observe', 'commands'],
};

/** Rooms that are functions of bytes: nothing of Node's network or file system, no logger. */
const PURE = [
  'crypto',
  'strict-json',
  'attestation',
  'envelope',
  'api',
  'pipeline',
  'responses-api',
  'http-rules',
  'verdict',
  'session',
  'client-library',
];
const IMPURE_MODULES =
  /^(node:)?(http|https|http2|net|tls|fs|fs\/promises|child_process|cluster|dgram|dns)$|^(undici|pino|mri|http-proxy-3)$/;

interface Edge {
  readonly from: string;
  readonly to: string;
}

function importsOf(source: string): string[] {
  const withoutComments = source.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$/gm, '');
  const specifiers = [
    ...withoutComments.matchAll(/^\s*(?:import|export)\b[^;'"]*?\bfrom\s*['"]([^'"]+)['"]/gm),
    ...withoutComments.matchAll(/^\s*import\s*['"]([^'"]+)['"]/gm),
    ...withoutComments.matchAll(/\bimport\(\s*['"]([^'"]+)['"]\s*\)/g),
  ];
  return specifiers.map((match) => match[1] as string);
}

function edgesOf(files: ReadonlyMap<string, string>): Edge[] {
  const edges: Edge[] = [];
  for (const [file, source] of files) {
    for (const specifier of importsOf(source)) {
      edges.push({
        from: file,
        to: specifier.startsWith('.')
          ? relative(LIB, resolve(LIB, dirname(file), specifier))
          : specifier.replace(/^#crypto$/, 'crypto/node.ts'),
      });
    }
  }
  return edges;
}

/** Every module that loading `entry` loads: imports of types alone are erased. */
function loadedBy(entry: string, files: ReadonlyMap<string, string>): Set<string> {
  const withoutTypes = new Map(
    [...files].map(([file, source]) => [file, source.replace(/^(?:import|export) type\b[^;]*;/gm, '')]),
  );
  const edges = edgesOf(withoutTypes);
  const loaded = new Set([entry]);
  for (const file of loaded) {
    for (const { from, to } of edges) if (from === file) loaded.add(to);
  }
  return loaded;
}

const roomOf = (file: string): string =>
  file.includes('/') ? (file.split('/')[0] as string) : file.replace(/\.ts$/, '');

function violations(edges: readonly Edge[]): string[] {
  const found: string[] = [];
  for (const { from, to } of edges) {
    const room = roomOf(from);
    if (room === 'proxy') continue; // the composition root wires every room
    if (to.endsWith('.ts') && !to.startsWith('node:')) {
      const target = roomOf(to);
      if (target === room) continue;
      const allowed = MAY_IMPORT[room];
      if (allowed === undefined) found.push(`${from}: room "${room}" is not in the table`);
      else if (!allowed.includes(target)) found.push(`${from} imports ${to}`);
    } else if (PURE.includes(room) && IMPURE_MODULES.test(to)) {
      found.push(`${from} imports ${to}`);
    }
  }
  return found;
}

function readLib(): Map<string, string> {
  const files = readdirSync(LIB, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  return new Map(files.map((name) => [name, readFileSync(join(LIB, name), 'utf8')]));
}

/** Groups of files that import each other, directly or not (Tarjan's strongly connected components). */
function circles(edges: readonly Edge[]): string[][] {
  const targets = Map.groupBy(edges, ({ from }) => from);
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const path: string[] = [];
  const found: string[][] = [];
  const visit = (file: string): void => {
    order.set(file, order.size);
    lowest.set(file, order.get(file)!);
    path.push(file);
    for (const { to } of targets.get(file) ?? []) {
      if (!order.has(to)) visit(to);
      if (path.includes(to)) lowest.set(file, Math.min(lowest.get(file)!, lowest.get(to)!));
    }
    if (lowest.get(file) !== order.get(file)) return;
    const circle = path.splice(path.indexOf(file));
    if (circle.length > 1) found.push(circle.sort());
  };
  for (const { from } of edges) if (!order.has(from)) visit(from);
  return found;
}

describe('layering', () => {
  it('has no circle of imports, types included', () => {
    assert.deepEqual(circles(edgesOf(readLib())), []);
  });

  it('keeps every import pointing down or sideways', () => {
    assert.deepEqual(violations(edgesOf(readLib())), []);
  });

  it('matches the table of docs/architecture.md', () => {
    const page = join(ROOT, 'docs/architecture.md');
    const text = readFileSync(page, 'utf8');
    const shown = new Set<string>();
    const current = text.replace(/^\| `([\w-]+)` \| (.+) \| .+ \|$/gm, (row, room: string, holds: string) => {
      const imports = MAY_IMPORT[room];
      if (imports === undefined) return row;
      shown.add(room);
      return `| \`${room}\` | ${holds} | ${imports.join(', ') || '-'} |`;
    });
    assert.deepEqual([...shown].sort(), Object.keys(MAY_IMPORT).sort(), 'rooms without a row of their own');
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(page, current);
    else assert.equal(text, current, 'run: UPDATE_DOCS=1 npx node --test test/layering.test.ts');
  });

  it('finds each import that the table allows in lib, so no entry is superfluous and no import is overlooked', () => {
    const seen = new Set(edgesOf(readLib()).map(({ from, to }) => `${roomOf(from)} → ${roomOf(to)}`));
    const allowed = Object.entries(MAY_IMPORT).flatMap(([room, rooms]) =>
      rooms.map((to) => `${room} → ${to}`),
    );
    assert.deepEqual(
      allowed.filter((edge) => !seen.has(edge)),
      [],
    );
  });

  it('lets a session load nothing of the network, the file system or a logger, not even indirectly', () => {
    const files = readLib();
    const impure = (entry: string): string[] =>
      [...loadedBy(entry, files)].filter((name) => IMPURE_MODULES.test(name) || roomOf(name) === 'observe');
    for (const entry of [...files.keys()].filter((file) => roomOf(file) === 'session')) {
      assert.deepEqual(impure(entry), [], entry);
    }
    assert.ok(loadedBy('session/session.ts', files).has('attestation/verify-evidence.ts'));
    assert.ok(impure('proxy.ts').includes('undici'), 'is the lexer blind?');
  });
});

describe('object literals', () => {
  it('are not spread into others in lib, because the compiler then overlooks members that do not exist', () => {
    const spread = [...readLib()].filter(([, source]) => source.includes('...{ '));
    assert.deepEqual(
      spread.map(([file]) => file),
      [],
    );
  });
});

/** Rooms in which the same names stand twice: `#crypto` chooses one of the two engines. */
const TWINS = /^crypto\/(?:node|portable)\.ts$/;

describe('exported names', () => {
  it('stand for one type each in lib; only the two engines of cryptography may both export the same name', () => {
    const TYPE = /^export (?:type|interface|class|enum) (\w+)/gm;
    const names = [...readLib()]
      .filter(([file]) => !TWINS.test(file))
      .flatMap(([, source]) => [...source.matchAll(TYPE)].map(([, name]) => name));
    assert.ok(names.length > 100);
    assert.deepEqual(
      names.filter((name, at) => names.indexOf(name) !== at),
      [],
    );
  });

  it('keep to the vocabulary of docs/architecture.md', () => {
    const EXPORTED = /^export (?:async )?(?:const|function\*?|class|interface|type|let) (\w+)/gm;
    const names = [...readLib().values()].flatMap((source) =>
      [...source.matchAll(EXPORTED)].map(([, name = '']) => name),
    );
    assert.ok(names.length > 500);
    assert.deepEqual(
      names.filter((name) => /answer|reply|dialect|tally|surroundings|world|proof/i.test(name)),
      [],
    );
  });
});
