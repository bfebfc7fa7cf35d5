/**
 * Whether the tests bite: takes one defence after the other out of a copy of the tree and expects the tests
 * that name it to go red. `npm run mutation [-- WORDS]`: only of the defences with these words. Exit code 1
 * where one stays green, is red without a mutation, or no longer applies. The faults are in
 * scripts/mutations.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { MUTATIONS } from './mutations/all.ts';
import { type Mutation, mutated } from './mutations/mutation.ts';

const ROOT = join(import.meta.dirname, '..');
/** What the tests need of the tree. */
const COPIED = ['lib', 'simulator', 'bin', 'docs', 'scripts', 'test', 'package.json', 'tsconfig.json'];

const REPORTER = join(import.meta.dirname, 'mutations/names-reporter.ts');

/** A place to run tests in, of which nobody else changes anything. */
function copyTree(scratch: string): string {
  const copy = mkdtempSync(join(scratch, 'tree-'));
  for (const name of COPIED) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

/** ms for the tests of one file without a mutation. */
const PATIENCE = 300_000;
/** ms for those with one, which often hang, and for each of their waits. */
const MUTATED = { file: 45_000, wait: 15_000 };
/** Files at a time without a mutation: the tests of a third one run while those of two wait. */
const UNCHANGED_AT_ONCE = availableParallelism() + 1;
/** Mutations at a time: most of their tests wait, in vain, for what the mutation prevents. */
const MUTATED_AT_ONCE = 2 * availableParallelism() + 1;

/**
 * Full names of the tests that ended. `hung`: the file took too long and was ended, so the others never did.
 */
export interface Outcome {
  readonly passed: ReadonlySet<string>;
  readonly failed: ReadonlySet<string>;
  readonly hung: boolean;
}

/** The processes whose groups run tests. */
const running = new Set<number>();

/** Ends a group of processes: that of the leader, and the programs that it has started. */
function endGroup(leader: number): void {
  running.delete(leader);
  try {
    process.kill(-leader, 'SIGKILL');
  } catch {
    // All of them have ended.
  }
}

/**
 * Runs the named tests of a file in that tree, for `patience` ms at most. `wait`: ms after which each wait of
 * a test fails; undefined: those of `npm test`.
 */
export async function runTests(
  tree: string,
  file: string,
  names: readonly string[],
  { file: patience, wait }: { readonly file: number; readonly wait?: number } = { file: PATIENCE },
): Promise<Outcome> {
  const report = join(tree, '.ended-tests');
  const patterns = names.map((name) => `^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`);
  const args = [
    `--test-reporter=${REPORTER}`,
    `--test-reporter-destination=${report}`,
    ...patterns.map((pattern) => `--test-name-pattern=${pattern}`),
    file,
  ];
  // Each file compiles once, not once per mutation. What says that this process runs tests itself must not
  // reach them.
  const env = {
    ...process.env,
    NODE_COMPILE_CACHE: join(tree, '.compiled'),
    NODE_TEST_CONTEXT: undefined,
    TEST_PATIENCE: wait?.toString(),
  };
  rmSync(report, { force: true });
  // A group of its own: what a test has started and not ended would go on writing to the tree.
  const child = spawn(process.execPath, args, { cwd: tree, env, stdio: 'ignore', detached: true });
  const leader = child.pid as number;
  running.add(leader);
  let hung = false;
  const timer = setTimeout(() => {
    hung = true;
    endGroup(leader);
  }, patience);
  await once(child, 'exit');
  clearTimeout(timer);
  endGroup(leader);
  const outcome = { passed: new Set<string>(), failed: new Set<string>(), hung };
  const lines = existsSync(report) ? readFileSync(report, 'utf8').split('\n') : [];
  for (const line of lines.filter((each) => each.endsWith(']'))) {
    const [kind, name] = JSON.parse(line) as ['passed' | 'failed', string];
    outcome[kind].add(name);
  }
  return outcome;
}

/**
 * What is wrong with the tests that should go red. One that a hang kept from passing is red; one that never
 * ran is not.
 */
export const findingsOf = (names: readonly string[], { passed, failed, hung }: Outcome): string[] =>
  names
    .filter((name) => !failed.has(name) && !(hung && !passed.has(name)))
    .map((name) => `${passed.has(name) ? 'stays green' : 'did not run'}: ${name}`);

/** Does the work for all items, as many at a time as there are places. */
async function inPlaces<Item, Place>(
  items: readonly Item[],
  places: readonly Place[],
  work: (item: Item, place: Place) => Promise<void>,
): Promise<void> {
  const left = items.values();
  const inPlace = async (place: Place): Promise<void> => {
    for (const item of left) await work(item, place);
  };
  await Promise.all(places.map(inPlace));
}

/** The tests of these rows that are not green without a mutation, as `file name`. Each file runs once. */
async function findRed(mutations: readonly Mutation[], trees: readonly string[]): Promise<Set<string>> {
  const byFile = new Map<string, Set<string>>();
  for (const { file, names } of mutations.flatMap(({ tests }) => tests)) {
    const all = byFile.get(file) ?? new Set();
    byFile.set(file, all);
    for (const name of names) all.add(name);
  }
  const red = new Set<string>();
  await inPlaces([...byFile], trees, async ([file, names], tree) => {
    const { passed } = await runTests(tree, file, [...names]);
    for (const name of names) if (!passed.has(name)) red.add(`${file} ${name}`);
  });
  return red;
}

/** What is wrong with a mutation and its tests; empty if they bite. */
async function check(mutation: Mutation, tree: string, red: ReadonlySet<string>): Promise<string[]> {
  const { file, tests } = mutation;
  const before = tests.flatMap((each) => each.names.filter((name) => red.has(`${each.file} ${name}`)));
  if (before.length > 0) return before.map((name) => `not green without the mutation: ${name}`);
  const path = join(tree, file);
  const source = readFileSync(path, 'utf8');
  try {
    writeFileSync(path, mutated(source, mutation));
  } catch (error) {
    return [(error as Error).message];
  }
  const findings: string[] = [];
  for (const each of tests) {
    findings.push(...findingsOf(each.names, await runTests(tree, each.file, each.names, MUTATED)));
  }
  writeFileSync(path, source);
  return findings;
}

async function main(words: string): Promise<number> {
  const mutations = MUTATIONS.filter(({ defence }) => defence.includes(words));
  if (mutations.length === 0) {
    console.error(`No defence has these words: ${words}`);
    return 1;
  }
  const began = performance.now();
  const scratch = mkdtempSync(join(tmpdir(), 'privatemode-mutation-'));
  let missed = 0;
  try {
    const trees = Array.from({ length: MUTATED_AT_ONCE }, () => copyTree(scratch));
    const red = await findRed(mutations, trees.slice(0, UNCHANGED_AT_ONCE));
    await inPlaces(mutations, trees, async (mutation, tree) => {
      const findings = await check(mutation, tree, red);
      if (findings.length > 0) missed += 1;
      console.log(`${findings.length === 0 ? 'noticed ' : 'MISSED  '} ${mutation.defence}`);
      for (const finding of findings) console.log(`         ${finding}`);
    });
  } finally {
    // What has just been ended may still be writing.
    rmSync(scratch, { recursive: true, force: true, maxRetries: 10 });
  }
  const seconds = Math.round((performance.now() - began) / 1000);
  console.log(`${mutations.length - missed} of ${mutations.length} faults noticed in ${seconds} s`);
  return missed === 0 ? 0 : 1;
}

if (import.meta.main) {
  // A group of its own does not hear the terminal.
  process.once('SIGINT', () => {
    for (const leader of running) endGroup(leader);
    process.exit(130);
  });
  process.exitCode = await main(process.argv.slice(2).join(' '));
}
