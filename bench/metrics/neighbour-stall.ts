import { setTimeout as delay } from 'node:timers/promises';
import { chatBody, sealedChatBody } from '../fixtures.ts';
import { openPaced, openStream, type RunningStream, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { monotonicMs } from '../processes.ts';
import { median, shuffled } from '../stats.ts';

export const PACE = 20;
const PLAN = { events: 1 };
const UPLOAD = 16_000_000;
const REPEATS = 3;
/** Of each stream: before the upload, and enough for all of it. */
const [BEFORE, EVENTS] = [8, 40];

/**
 * Made once: it would stall the generator. Bare relays get as many bytes of prompt, which are twice as many
 * sealed.
 */
const bodies = new Map<boolean, Buffer>();
function bodyFor({ sealed }: Target): Buffer {
  const body = bodies.get(sealed) ?? (sealed ? sealedChatBody(PLAN, UPLOAD) : chatBody(PLAN, UPLOAD));
  bodies.set(sealed, body);
  return body;
}

/** The longest gap of which any part lies between the two times. */
const worstGap = (streams: readonly RunningStream[], from: number, to: number): number =>
  Math.max(
    ...streams.flatMap(({ arrivals }) =>
      arrivals.slice(1).map((at, i) => (at >= from && arrivals[i]! <= to ? at - arrivals[i]! : 0)),
    ),
  );

/** ms between two tokens of 20 streams at worst, while `meanwhile` runs. */
export async function worstDuring(target: Target, meanwhile: () => Promise<unknown>): Promise<number> {
  const streams = await openPaced(target, { count: 20, events: EVENTS, pace: PACE, lead: 200 });
  await Promise.all(streams.map((stream) => stream.reached(BEFORE)));
  const from = monotonicMs();
  await meanwhile();
  const to = monotonicMs();
  await Promise.all(streams.map(({ finished }) => finished));
  return worstGap(streams, from, to);
}

export const neighbourStall: Metric = {
  name: 'neighbour_stall',
  rows: [
    {
      id: 'neighbour_stall',
      title: 'Worst gap of 20 streams × 20 ms during a 16 MB upload',
      figure: '÷ pace',
      bar: { limit: 2, kind: 'at most' },
    },
  ],
  rounds: { full: 5, quick: 1 },
  async round(subjects, quick) {
    const { target } = await subjects.get('ours');
    const without = await worstDuring(target, () => delay(150));
    const names = ['passthrough', 'ours', ...subjects.entered];
    const worst = Object.fromEntries(names.map((name) => [name, [] as number[]]));
    for (let i = 0; i < (quick ? 1 : REPEATS); i++) {
      for (const name of shuffled(Object.keys(worst))) {
        const subject = await subjects.get(name);
        const body = bodyFor(subject.target);
        const upload = async (): Promise<void> => (await openStream(subject.target, PLAN, body)).finished;
        await upload(); // the first of its size is not like the others
        worst[name]!.push(await worstDuring(subject.target, upload));
      }
    }
    return {
      figures: { neighbour_stall: median(worst['ours']!) / PACE },
      values: {
        ...Object.fromEntries(Object.entries(worst).map(([name, gaps]) => [`${name}, ms`, median(gaps)])),
        'ours, without it, ms': without,
      },
    };
  },
};
