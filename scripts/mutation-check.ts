/**
 * Whether the tests bite: takes one defence after the other out of the program and expects the tests that
 * name it to go red. `npm run mutation`: all. `-- WORDS`: only the defences with these words. `-- --since
 * REV`: only those of the rooms, and with the tests, that have changed since that commit; all if the rows
 * have. Exit code 1 where a test stays green, is red without the fault, or where a row no longer applies. The
 * rows are in scripts/mutations.
 */
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MUTATIONS } from './mutations/all.ts';
import { type Mutation, mutated } from './mutations/mutation.ts';

const ROOT = join(import.meta.dirname, '..');
const REPORTER = join(import.meta.dirname, 'mutations/names-reporter.ts');
const PLANT = join(import.meta.dirname, 'mutations/plant.ts');

/** ms for the tests of one file as they are. */
const PATIENCE = 120_000;
/** ms for those with a fault, which may hang: for a file, a test, and a wait of a test. */
const FAULTY = { file: 20_000, test: 10_000, wait: 5_000 };
/** ms for a process to end by itself once its tests have. */
const LINGER = 1_000;
/** Files at a time: some wait while those of all processors run. */
const AT_ONCE = availableParallelism() + 2;

/** Full names of the tests that ended. `hung`: their file was ended, so the others never did. */
interface Outcome {
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

/** Runs the named tests of a file, with the fault if there is one. */
async function runTests(file: string, names: readonly string[], fault?: Mutation): Promise<Outcome> {
  const patterns = names.map((name) => `^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`);
  const args = [
    `--test-reporter=${REPORTER}`,
    ...(fault ? [`--test-timeout=${FAULTY.test}`] : []),
    ...patterns.map((pattern) => `--test-name-pattern=${pattern}`),
    file,
  ];
  const env = {
    ...process.env,
    // Most of the time of a unit test is that of compiling what it loads.
    NODE_COMPILE_CACHE: join(ROOT, 'node_modules/.cache/mutation'),
    // What says that this process runs tests itself must not reach them.
    NODE_TEST_CONTEXT: undefined,
    // Also without a fault: what the hook alone turns red would pass for noticed.
    NODE_OPTIONS: `--import=${PLANT}`,
    MUTATION: JSON.stringify(fault ?? { file: '', edits: [] }),
    ...(fault && { TEST_PATIENCE: `${FAULTY.wait}` }),
  };
  // A group of its own: what a test has started and not ended would go on.
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    env,
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  });
  const leader = child.pid as number;
  running.add(leader);
  child.once('exit', () => endGroup(leader));
  const outcome = { passed: new Set<string>(), failed: new Set<string>(), hung: false };
  const hangs = setTimeout(
    () => {
      outcome.hung = true;
      endGroup(leader);
    },
    fault ? FAULTY.file : PATIENCE,
  );
  let lingers: NodeJS.Timeout | undefined;
  for await (const line of createInterface({ input: child.stdout })) {
    if (!/^\["(?:passed|failed)",".*"\]$/.test(line)) continue;
    const [kind, name] = JSON.parse(line) as ['passed' | 'failed', string];
    outcome[kind].add(name);
    // Tests that failed often leave open what keeps their process alive.
    if (outcome.passed.size + outcome.failed.size === names.length) {
      lingers = setTimeout(endGroup, LINGER, leader);
    }
  }
  clearTimeout(hangs);
  clearTimeout(lingers);
  return outcome;
}

/**
 * What is wrong with the tests that should go red. One that a hang kept from passing is red; one that never
 * ran is not.
 */
const findingsOf = (names: readonly string[], { passed, failed, hung }: Outcome): string[] =>
  names
    .filter((name) => !failed.has(name) && !(hung && !passed.has(name)))
    .map((name) => `${passed.has(name) ? 'stays green' : 'did not run'}: ${name}`);

/** Does the work for all items, some at a time. */
async function forAll<Item>(
  left: IterableIterator<Item>,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const inTurn = async (): Promise<void> => {
    for (const item of left) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, inTurn));
}

/** The tests of these rows that are not green as they are, as `file name`. Each file runs once. */
async function findRed(mutations: readonly Mutation[]): Promise<Set<string>> {
  const byFile = new Map<string, Set<string>>();
  for (const { file, names } of mutations.flatMap(({ tests }) => tests)) {
    byFile.set(file, new Set([...(byFile.get(file) ?? []), ...names]));
  }
  const red = new Set<string>();
  await forAll(byFile.entries(), async ([file, names]) => {
    const { passed } = await runTests(file, [...names]);
    for (const name of names) if (!passed.has(name)) red.add(`${file} ${name}`);
  });
  return red;
}

/** What is wrong with a row; empty if its tests bite. */
async function check(mutation: Mutation, red: ReadonlySet<string>): Promise<string[]> {
  const { file, tests } = mutation;
  const before = tests.flatMap((each) => each.names.filter((name) => red.has(`${each.file} ${name}`)));
  if (before.length > 0) return before.map((name) => `not green without the fault: ${name}`);
  try {
    mutated(readFileSync(join(ROOT, file), 'utf8'), mutation);
  } catch (error) {
    return [(error as Error).message];
  }
  const findings: string[] = [];
  for (const each of tests) {
    findings.push(...findingsOf(each.names, await runTests(each.file, each.names, mutation)));
  }
  return findings;
}

/** The room that a file lies in: a folder of lib, or a file that is in none. */
const roomOf = (file: string): string => /^lib\/[^/]+/.exec(file)?.[0] ?? file;

/** The rows that the command line asks for. */
function chosen([option, ...rest]: readonly string[]): readonly Mutation[] {
  if (option !== '--since') {
    const words = [option, ...rest].join(' ');
    return MUTATIONS.filter(({ defence }) => defence.includes(words));
  }
  const names = ['diff', '--name-only', '--no-renames', rest[0] ?? 'HEAD', '--'];
  const files = execFileSync('git', names, { cwd: ROOT, encoding: 'utf8' }).split('\n');
  if (files.some((file) => file.startsWith('scripts/mutation'))) return MUTATIONS;
  const changed = new Set([...files, ...files.map(roomOf)]);
  return MUTATIONS.filter(
    ({ file, tests }) => changed.has(roomOf(file)) || tests.some((test) => changed.has(test.file)),
  );
}

async function main(args: readonly string[]): Promise<number> {
  const mutations = chosen(args);
  if (mutations.length === 0) {
    console.log(`No row for ${args.join(' ')}`);
    return args[0] === '--since' ? 0 : 1;
  }
  const began = performance.now();
  let missed = 0;
  const red = await findRed(mutations);
  await forAll(mutations.values(), async (mutation) => {
    const start = performance.now();
    const findings = await check(mutation, red);
    const ms = `${Math.round(performance.now() - start)}`.padStart(6);
    if (findings.length > 0) missed += 1;
    console.log(`${findings.length === 0 ? 'noticed' : 'MISSED '} ${ms} ms  ${mutation.defence}`);
    for (const finding of findings) console.log(`                    ${finding}`);
  });
  const seconds = Math.round((performance.now() - began) / 1000);
  console.log(`${mutations.length - missed} of ${mutations.length} faults noticed in ${seconds} s`);
  return missed === 0 ? 0 : 1;
}

// A group of its own does not hear the terminal.
process.once('SIGINT', () => {
  for (const leader of running) endGroup(leader);
  process.exit(130);
});
process.exitCode = await main(process.argv.slice(2));
