/** The program of bin/privatemode-proxy.ts, but with the times of TEST_TIMES, as in {"stopMargin": 500}. */
import { runProcess } from '../../../lib/cli.ts';
import { clockWith } from '../../../lib/clock.ts';
import { TIMES } from '../../../lib/times.ts';

/** ms. On a busy machine a shorter wait would be over before what it waits for has begun. */
const SHORTEST = 250;

const times = JSON.parse(process.env['TEST_TIMES'] ?? '{}') as Readonly<Record<string, number>>;
for (const [name, ms] of Object.entries(times)) {
  const own: number | undefined = TIMES[name as keyof typeof TIMES];
  if (own === undefined) throw new Error(`lib/times.ts has no row ${name}`);
  if (!(ms >= Math.min(SHORTEST, own))) throw new Error(`${name}: at least ${Math.min(SHORTEST, own)} ms`);
}
await runProcess(clockWith({ ...TIMES, ...times }), 'privatemode-proxy');
