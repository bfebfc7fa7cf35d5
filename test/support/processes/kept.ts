/**
 * How much of something that is over V8 keeps until a full collection, for which every stream would wait
 * (docs/architecture.md H25).
 */
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as (how: { type: 'minor' }) => void;

/** An object of 800 KB, to hang on what should go. */
const createBallast = (): unknown[][] => Array.from({ length: 50 }, () => new Array(2_000).fill(1));

/**
 * Runs `once`, which hangs the ballast on what it releases, three times 30 times; resolves with the KB that
 * small collections leave of each, at best: what a collection finds under way is kept too, and on a busy
 * machine that may be many.
 */
export async function keptOfEach(once: (ballast: unknown) => Promise<unknown>): Promise<number> {
  const heapAfter = async (times: number): Promise<number> => {
    for (let i = 0; i < times; i++) await once(createBallast());
    await delay(10);
    collect({ type: 'minor' });
    collect({ type: 'minor' });
    return process.memoryUsage().heapUsed;
  };
  const kept: number[] = [];
  for (let i = 0; i < 3; i++) {
    const before = await heapAfter(2);
    kept.push(((await heapAfter(30)) - before) / 30 / 1024);
  }
  return Math.min(...kept);
}
