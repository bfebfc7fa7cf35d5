/**
 * Whether the tests bite: takes one defence after the other out of the program (scripts/mutations.ts), and
 * expects the test that names it to go red. `npm run mutation`: all; `-- WORDS`: only the defences with these
 * words. Exit code 1 where a test stays green, is red without the fault, or where a row no longer applies.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MUTATIONS, type Mutation, mutated } from './mutations.ts';

const ROOT = join(import.meta.dirname, '..');
const REPORTER = join(import.meta.dirname, 'names-reporter.ts');
const PLANT = join(import.meta.dirname, 'plant.ts');
/** ms for a test as it is, and with a fault, which may hang. */
const PATIENCE = { asItIs: 120_000, faulty: 20_000 };
/** Files at a time: some wait while those of all processors run. */
const AT_ONCE = availableParallelism() + 2;
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

/** What became of a test, with the fault if there is one: what a fault hangs never ends. */
async function outcomeOf(
  { test, name }: Mutation,
  fault?: Mutation,
): Promise<'passed' | 'failed' | 'hung' | 'absent'> {
  const pattern = `^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
  const args = [`--test-reporter=${REPORTER}`, `--test-name-pattern=${pattern}`, test];
  const env = {
    ...process.env,
    // Most of the time of a unit test is that of compiling what it loads.
    NODE_COMPILE_CACHE: join(ROOT, 'node_modules/.cache/mutation'),
    // What says that this process runs tests itself must not reach them.
    NODE_TEST_CONTEXT: undefined,
    // Also without a fault: what the hook alone turns red would pass for noticed.
    NODE_OPTIONS: `--import=${PLANT}`,
    MUTATION: JSON.stringify(fault ?? { file: '' }),
    ...(fault && { TEST_PATIENCE: '5000' }),
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
  let outcome: 'passed' | 'failed' | 'hung' | 'absent' = 'absent';
  const hangs = setTimeout(
    () => {
      outcome = 'hung';
      endGroup(leader);
    },
    fault ? PATIENCE.faulty : PATIENCE.asItIs,
  );
  for await (const line of createInterface({ input: child.stdout })) {
    const [, kind, found] = /^\["(passed|failed)",(".*")\]$/.exec(line) ?? [];
    if (kind === undefined || JSON.parse(found as string) !== name) continue;
    outcome = kind as 'passed' | 'failed';
    // A test that failed often leaves open what keeps its process alive.
    setTimeout(endGroup, 1_000, leader).unref();
  }
  clearTimeout(hangs);
  return outcome;
}

/** What is wrong with a row; undefined if its test bites. */
async function check(mutation: Mutation): Promise<string | undefined> {
  try {
    mutated(mutation);
  } catch (error) {
    return (error as Error).message;
  }
  const before = await outcomeOf(mutation);
  if (before !== 'passed') return `${before} without the fault: ${mutation.name}`;
  const after = await outcomeOf(mutation, mutation);
  return after === 'failed' || after === 'hung' ? undefined : `${after} with the fault: ${mutation.name}`;
}

async function main(words: string): Promise<number> {
  const mutations = MUTATIONS.filter(({ defence }) => defence.includes(words));
  const left = mutations.values();
  const began = performance.now();
  let missed = 0;
  async function inTurn(): Promise<void> {
    for (const mutation of left) {
      const finding = await check(mutation);
      if (finding !== undefined) missed += 1;
      console.log(`${finding === undefined ? 'noticed' : 'MISSED '}  ${mutation.defence}`);
      if (finding !== undefined) console.log(`         ${finding}`);
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, inTurn));
  const seconds = Math.round((performance.now() - began) / 1000);
  console.log(`${mutations.length - missed} of ${mutations.length} faults noticed in ${seconds} s`);
  return missed === 0 && mutations.length > 0 ? 0 : 1;
}

// A group of its own does not hear the terminal.
process.once('SIGINT', () => {
  for (const leader of running) endGroup(leader);
  process.exit(130);
});
process.exitCode = await main(process.argv.slice(2).join(' '));
