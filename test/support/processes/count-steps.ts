/**
 * How often the blocks of some files run: work that is counted is the same on every machine, however busy it
 * is. To be imported before what is counted, because the engine counts blocks only in functions that it
 * compiles from here on.
 */
import { type Profiler, Session } from 'node:inspector';

const session = new Session();
session.connect();
session.post('Profiler.enable');
session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });

/** What ran since the last time. */
function taken(): readonly Profiler.ScriptCoverage[] {
  let found: readonly Profiler.ScriptCoverage[] = [];
  session.post('Profiler.takePreciseCoverage', (_error, { result }) => {
    found = result;
  });
  return found;
}

/**
 * Runs `work`, and returns how often functions, loops and branches ran in the files of `lib` that `isCounted`
 * names. What the engine does by itself (sorting, searching, JSON) counts as one step of its caller. Throws
 * if no code of these files ran: the files have other names then.
 */
export function countSteps(isCounted: (file: string) => boolean, work: () => void): number {
  taken();
  work();
  const counted = taken().filter(
    ({ url }) => url.includes('/lib/') && isCounted(url.slice(url.lastIndexOf('/lib/') + 1)),
  );
  if (counted.length === 0) throw new Error('no code of the counted files ran');
  return counted
    .flatMap(({ functions }) => functions.flatMap(({ ranges }) => ranges))
    .reduce((sum, { count }) => sum + count, 0);
}
