import { setTimeout as delay } from 'node:timers/promises';
import type { LinkProfile } from '../link.ts';
import { dial, openStreamOn, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { shuffled } from '../stats.ts';
import type { Subjects } from '../subjects.ts';

const PLAN = { events: 3, pace: 0 };
const TOGETHER = 8;
/**
 * Requests one by one before the eight: the compilers do their work, and nobody shows that eight connections
 * will be needed.
 */
const ONE_BY_ONE = 20;
/** ms. */
const IDLE = 10_000;

const LINKS: Readonly<Record<string, LinkProfile>> = {
  link: { roundTrip: 50, stalls: 0, stall: 0 },
  link_stalls: { roundTrip: 50, stalls: 0.01, stall: 200 },
};
/** Each with its bar in ms. */
const MOMENTS = {
  start: ['first request after the start', 45],
  together: ['slowest of eight at once, after twenty one by one', 6],
  idle: ['first request after idling', 5],
  again: ['slowest of eight at once again, after idling for ten seconds', 15],
} as const;
type Moment = keyof typeof MOMENTS;

/**
 * ms to the first token of the slowest of `count` requests at once, on connections to the target that are
 * open.
 */
async function slowest(target: Target, count: number): Promise<number> {
  const sockets = await Promise.all(Array.from({ length: count }, () => dial(target)));
  const streams = await Promise.all(sockets.map((socket) => openStreamOn(socket, target, PLAN)));
  await Promise.all(streams.map(({ finished }) => finished));
  return Math.max(...streams.map(({ arrivals, askedAt }) => arrivals[0]! - askedAt));
}

type Times = Readonly<Record<Moment, number>>;

/**
 * The moments after a start of each that can be started, over that link; `idled` resolves with all of them
 * once they have idled.
 */
async function over(
  all: Subjects,
  link: LinkProfile,
): Promise<{ readonly idled: () => Promise<Record<string, Times>> }> {
  // One round trip, as this link has it: what the generator waits for on connections of its own.
  const direct = await all.fresh('direct', { link });
  const alone = Math.min(await slowest(direct.target, 1), await slowest(direct.target, 1));
  const eight = await slowest(direct.target, TOGETHER);
  const running: (Awaited<ReturnType<Subjects['fresh']>> & Pick<Times, 'start' | 'together'>)[] = [];
  for (const name of shuffled(all.startable)) {
    const subject = await all.fresh(name, { link });
    const start = (await slowest(subject.target, 1)) - alone;
    for (let asked = 0; asked < ONE_BY_ONE; asked++) await slowest(subject.target, 1);
    running.push({ ...subject, start, together: (await slowest(subject.target, TOGETHER)) - eight });
  }
  return {
    async idled() {
      const found: Record<string, Times> = {};
      for (const { name, target, start, together, stop } of running) {
        const idle = (await slowest(target, 1)) - alone;
        found[name] = { start, together, idle, again: (await slowest(target, TOGETHER)) - eight };
        await stop();
      }
      return found;
    },
  };
}

export const link: Metric = {
  name: 'link',
  rows: Object.keys(LINKS).flatMap((name) =>
    Object.entries(MOMENTS).map(([moment, [what, limit]]) => ({
      id: `${name}_${moment}`,
      title: `First token over 50 ms of round trip${name === 'link' ? '' : ', 1 % of chunks stalled'}: ${what}`,
      figure: 'ms over one round trip',
      bar: { limit, kind: 'at most' as const },
    })),
  ),
  rounds: { full: 5, quick: 0 },
  async round(all) {
    const running: [name: string, found: Awaited<ReturnType<typeof over>>][] = [];
    for (const [name, profile] of shuffled(Object.entries(LINKS)))
      running.push([name, await over(all, profile)]);
    await delay(IDLE);
    const values: Record<string, number> = {};
    const figures: Record<string, number> = {};
    for (const [link, { idled }] of running) {
      for (const [name, times] of Object.entries(await idled())) {
        for (const [moment, ms] of Object.entries(times)) {
          values[`${name}, ${link}_${moment} ms`] = ms;
          if (name === 'ours') figures[`${link}_${moment}`] = ms;
        }
      }
    }
    return { figures, values };
  },
};
