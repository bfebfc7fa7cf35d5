/**
 * Fresh processes of each subject, for one round: how V8 happens to compile one process must not decide a
 * whole run.
 */
import { openStream, type Target } from './load.ts';
import { shuffled } from './stats.ts';
import type { Subject, Subjects } from './subjects.ts';

/** A short request: its answer is there at once. */
const SHORT = { events: 3, pace: 0 };

export async function askShortly(target: Target): Promise<void> {
  await (await openStream(target, SHORT)).finished;
}

/**
 * Requests until CPU per request is flat. By 250 requests from the start, ours takes 1.40 ms, 1.01, 0.82,
 * 0.53, and from the 1,250th on 0.53 to 0.60 (at the 4,000th as well); the pass-through 0.63, 0.40, 0.33, and
 * from the 1,000th on 0.23 to 0.26.
 */
const WARM_UP = { full: 2_000, quick: 300 };

export async function warmUp({ target }: Subject, quick: boolean): Promise<void> {
  for (let asked = 0; asked < WARM_UP[quick ? 'quick' : 'full']; asked++) await askShortly(target);
}

/** Starts one of each name, warms all of them up at the same time, and stops them when `use` is done. */
export async function withFresh<T>(
  subjects: Subjects,
  names: readonly string[],
  quick: boolean,
  use: (warm: readonly Subject[]) => Promise<T>,
): Promise<T> {
  const fresh = await Promise.all(shuffled(names).map((name) => subjects.fresh(name)));
  try {
    await Promise.all(fresh.map((subject) => warmUp(subject, quick)));
    return await use(fresh);
  } finally {
    await Promise.all(fresh.map(({ stop }) => stop()));
  }
}
