/** What `fast-check` is while fuzzing: the same, but for `assert`. */
import { relative } from 'node:path';
import { getTestContext } from 'node:test';
import fc, { type IAsyncProperty, type IProperty, type Parameters, type RunDetails } from 'fast-check';
import { decode, readRegression, saveRegression } from './regression.ts';

export * from 'fast-check';

const MILLISECONDS = Number(process.env['FUZZ_MS'] ?? 10_000);
const DIRECTORY = process.env['FUZZ_REGRESSIONS'] ?? 'test/fuzz/regressions';
const REPLAYED = process.env['FUZZ_REPLAY'];

/** What fast-check does where nothing is said. */
const DEFAULT_RUNS = 100;

const ROOT = process.cwd();
const file = relative(ROOT, process.argv[1] ?? '');
/** Properties of one test are told apart by their order. */
const ordinals = new Map<string, number>();

/** Where a property stands: stable as long as neither file nor test is renamed. */
function placeOf(): { file: string; test: string; ordinal: number } {
  const test = getTestContext()?.fullName ?? '';
  const ordinal = ordinals.get(test) ?? 0;
  ordinals.set(test, ordinal + 1);
  return { file, test, ordinal };
}

type Property<T> = IProperty<T> | IAsyncProperty<T>;

/** The run under way. One that the time limit interrupts goes on, and what comes after must not meet it. */
let running: Promise<unknown> = Promise.resolve();

const asyncProperty = ((...given: unknown[]) => {
  const predicate = given.pop() as (...values: unknown[]) => Promise<unknown>;
  const noted = (...values: unknown[]): Promise<unknown> => {
    const run = predicate(...values);
    running = run.catch(() => {});
    return run;
  };
  return (fc.asyncProperty as (...each: unknown[]) => unknown)(...given, noted);
}) as typeof fc.asyncProperty;

function fuzz<T>(property: Property<T>, given: Parameters<T> = {}): void | Promise<void> {
  const place = placeOf();
  const settled = (details: RunDetails<T>): void => {
    if (!details.failed) return;
    const { seed, counterexamplePath: path, counterexample } = details;
    if (counterexample !== null && REPLAYED === undefined) {
      saveRegression(DIRECTORY, { ...place, seed, path, counterexample });
    }
    throw new Error(fc.defaultReportMessage(details), { cause: details.errorInstance });
  };
  const details = fc.check(property as IProperty<T>, parametersFor(place, given)) as
    | RunDetails<T>
    | Promise<RunDetails<T>>;
  return details instanceof Promise
    ? details.then((all) => running.then(() => settled(all)))
    : settled(details);
}

function parametersFor<T>(place: ReturnType<typeof placeOf>, given: Parameters<T>): Parameters<T> {
  if (REPLAYED === undefined) {
    const { seed: _, numRuns: __, interruptAfterTimeLimit: own = MILLISECONDS, ...others } = given;
    const interruptAfterTimeLimit = Math.min(own, MILLISECONDS);
    return { ...others, numRuns: Number.MAX_SAFE_INTEGER, interruptAfterTimeLimit };
  }
  const { seed, path, example, ...where } = readRegression(REPLAYED);
  const isHere = where.file === place.file && where.test === place.test && where.ordinal === place.ordinal;
  if (!isHere) return given;
  console.log('the saved failure is tried again');
  // The value itself outlives a change of the generators; seed and path do not. The other runs follow: some
  // tests count them.
  if (example !== undefined) return { ...given, examples: [decode(example) as T] };
  const run = Number(path?.split(':')[0] ?? 0);
  return { ...given, seed, numRuns: Math.max(run + 1, given.numRuns ?? DEFAULT_RUNS) };
}

export default { ...fc, assert: fuzz, asyncProperty };
