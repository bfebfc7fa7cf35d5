/**
 * How large the program and what stands beside it may be. `node scripts/budgets.ts`, a part of `npm run
 * check`, prints what is there, and fails above a number under "at most" in docs/architecture.md, or where a
 * room has too few comments. To raise a budget, edit its number there, with the reason in the same commit.
 * `--lower` lowers each budget to what is there, with a margin for a small change.
 */
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';
import { readOptions } from './options.ts';

const ROOT = join(import.meta.dirname, '..');
const PAGE = 'docs/architecture.md';

/** A row of either table: its beginning with the name, and at most how much may be there. */
const ROW = /^(\| `([\w-]+)` \| .+? \| )([\d,]+)(?= \|)/gm;

/** The least share of a room's lines of TypeScript that are comments. */
const LEAST_COMMENTS = 0.12;
const COMMENT = /^[ \t]*(?:\/\/.*|\/\*(?:(?!\*\/)[\s\S])*\*\/)$/gm;

const PROJECT_PAGES = ['CHANGELOG.md', 'test/README.md', 'CONTRIBUTING.md', 'AGENTS.md'];

type Files = readonly (readonly [path: string, text: string])[];
type Sizes = ReadonlyMap<string, number>;

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);
const lines = (text: string): number => text.replace(/\n$/, '').split('\n').length;
const words = (text: string): number => text.split(/\s+/).filter(Boolean).length;
const comments = (text: string): number => sum((text.match(COMMENT) ?? []).map(lines));
const total = (files: Files, sizeOf: (text: string) => number): number =>
  sum(files.map(([, text]) => sizeOf(text)));

const shown = (number: number): string => number.toLocaleString('en-US');
const numberOf = (cell = ''): number => Number(cell.replaceAll(',', ''));
const budgetsOf = (page: string): Sizes =>
  new Map([...page.matchAll(ROW)].map(([, , name = '', most]) => [name, numberOf(most)]));

/** The lines of each room. `lib`: its files, by their path in it. */
function roomSizes(lib: Files): Sizes {
  const rooms = Map.groupBy(lib, ([path]) => path.split(/[/.]/)[0] as string);
  return new Map([...rooms].map(([room, files]) => [room, total(files, lines)]));
}

/** What is above its budget, or has none, or has one and is not there: a sentence each. */
function aboveBudget(sizes: Sizes, page: string): string[] {
  const budgets = budgetsOf(page);
  return [...new Set([...sizes.keys(), ...budgets.keys()])].flatMap((name) => {
    const [size, most] = [sizes.get(name), budgets.get(name)];
    if (size === undefined) return [`${name} has a row in ${PAGE}, and is not there`];
    if (most === undefined) return [`${name} has no row in ${PAGE}`];
    return size > most ? [`${name} has ${shown(size)}, and at most ${shown(most)} in ${PAGE}`] : [];
  });
}

/** Which rooms explain too little. Files that stand alone in lib are judged together: most only connect. */
function tooFewComments(lib: Files): string[] {
  const sources = lib.filter(([path]) => path.endsWith('.ts'));
  const rooms = Map.groupBy(sources, ([path]) => /^[^/]+(?=\/)/.exec(path)?.[0] ?? 'files alone in lib');
  return [...rooms]
    .map(([room, files]) => ({ room, share: total(files, comments) / total(files, lines) }))
    .filter(({ share }) => share < LEAST_COMMENTS)
    .map(({ room, share }) => `${room}: ${(100 * share).toFixed(1)} % of the lines are comments, not 12 %`);
}

/** Which budgets are higher than in an earlier state of the page, or new. */
function raises(before: string, page: string): string[] {
  const earlier = budgetsOf(before);
  return [...budgetsOf(page)].flatMap(([name, most]) => {
    const was = earlier.get(name) ?? 0;
    return most > was ? [`budget of ${name} raised from ${shown(was)} to ${shown(most)}`] : [];
  });
}

/** A round number, at least 5 lines or words above the size, or 500 bytes above that of the program. */
const withMargin = (size: number, step = size < 100_000 ? 10 : 1000): number =>
  Math.ceil((size + step / 2) / step) * step;

/** The page with no budget above what is there and the margin of a small change. */
const lowered = (page: string, sizes: Sizes): string =>
  page.replace(ROW, (_row, begin: string, name: string, most: string) => {
    const size = sizes.get(name) ?? Number.POSITIVE_INFINITY;
    return `${begin}${shown(Math.min(withMargin(size), numberOf(most)))}`;
  });

/** The page as it was before its last change, committed or not; undefined if git does not know. */
function earlierPage(page: string): string | undefined {
  const git = (...args: string[]): string =>
    spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' }).stdout ?? '';
  const commits = git('log', '-2', '--format=%H', '--', PAGE).split('\n').filter(Boolean);
  return commits.map((commit) => git('show', `${commit}:${PAGE}`)).find((text) => text !== page);
}

/** Files by their path below `cwd`. */
function read(cwd: string, patterns: string | string[], leftOut: readonly string[] = []): Files {
  const exclude = ['**/node_modules', 'dist', ...leftOut];
  const found = globSync(patterns, { cwd: join(ROOT, cwd), exclude, withFileTypes: true });
  return found
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => [path.slice(join(ROOT, cwd).length + 1), readFileSync(path, 'utf8')]);
}

/** Bytes of the program without packages, minified: no formatting moves this number. */
async function programSize(): Promise<number> {
  const { outputFiles } = await build({
    entryPoints: ['bin/privatemode-proxy.ts'],
    absWorkingDir: ROOT,
    ...{ bundle: true, packages: 'external', platform: 'node', format: 'esm', minify: true, write: false },
  });
  return sum(outputFiles.map(({ contents }) => contents.length));
}

if (import.meta.main) {
  const { values } = readOptions(import.meta.filename, { options: { lower: { type: 'boolean' } } });
  const lib = read('lib', '**/*.{ts,html,css,json,sh}');
  const rooms = roomSizes(lib);
  const sizes: Sizes = new Map([
    ...rooms,
    ...['bin', 'simulator', 'scripts', 'deploy'].map((of) => [of, total(read(of, '**'), lines)] as const),
    ...['test', 'bench'].map((of) => [of, total(read(of, '**/*.ts'), lines)] as const),
    ['pages', total(read('.', '**/*.md', ['docs/protocol', ...PROJECT_PAGES]), words)],
    ['project-pages', total(read('.', PROJECT_PAGES), words)],
    ['program', await programSize()],
  ]);
  const found = readFileSync(join(ROOT, PAGE), 'utf8');
  const page = values.lower ? lowered(found, sizes) : found;
  if (page !== found) writeFileSync(join(ROOT, PAGE), page);

  for (const [name, most] of budgetsOf(page))
    console.log(`${name.padEnd(15)} ${shown(sizes.get(name) ?? 0).padStart(7)} of ${shown(most)}`);
  console.log(`all rooms of lib: ${shown(sum([...rooms.values()]))} lines`);

  const before = earlierPage(page);
  const raised =
    before === undefined ? [`git knows no earlier ${PAGE}: no raise is told`] : raises(before, page);
  for (const raise of raised) console.log(raise);
  for (const failure of [...aboveBudget(sizes, page), ...tooFewComments(lib)]) {
    console.error(`refused: ${failure}`);
    process.exitCode = 1;
  }
}
