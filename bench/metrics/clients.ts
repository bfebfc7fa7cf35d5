import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { FLOODER_TOKEN } from '../fixtures.ts';
import { dial, openStream, requestHead, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds } from '../processes.ts';
import { quantile, shuffled } from '../stats.ts';
import type { Subject } from '../subjects.ts';
import { firstToken, warmed } from './first-token.ts';

const WITH = 'ours, clients';
const [FULL, FITTING] = ['ours, clients, 16 places', 'ours, clients, 17 places'] as const;

/**
 * Requests that the flooder has under way at any time; for each that ends it begins another. Beside the
 * client's one request, 15 of them run on both subjects, so the machine does the same: on the one they are
 * all that the flooder has, and two places are left; on the other they take all places but the kept one, and
 * 185 wait. Three things keep what else a flood costs out of the figure:
 * - A model thinks for a while, and places, not processors, are what is short. Otherwise whatever is slowest,
 *   the generator first of all, had the flood's backlog before it, and the client's request in it.
 * - The flood does not come in waves: 200 heads in the same moment keep the event loop from everybody while
 *   it reads them.
 * - Its answers end one after the other, as those of different lengths do, and not all together. What remains
 *   is the wait for a place. The client has nothing running, so the kept one is its own. Without it, the
 *   client waited for a sixteenth of an answer on average, and in order of arrival for twelve answers.
 */
const FLOODS = { [FULL]: 200, [FITTING]: 15 } as const;
const PLACES = 16;
const THINK = 60;
const SHORT = { events: 1, think: THINK };

/** The client's requests until the flood is a steady load. */
const SETTLE = 5;
/** In a round each flood has its turn so often: a disturbance from outside meets a part of one. */
const SLICES = 3;

/** Refused requests of a round, so many at a time. */
const [REFUSED, AT_A_TIME] = [800, 8];
/** Announced, and never sent. */
const BODY = 16_000_000;
const PATIENCE = 5_000;
/** From one address, of which more are told to wait (429). */
const MOST_OF_AN_ADDRESS = 20;

/**
 * What it costs that the gateway knows its clients, counts what they use and shares its places among them;
 * `features` has the rest.
 */
export const clients: Metric = {
  name: 'clients',
  rows: [
    {
      id: 'clients_fairness',
      title: 'Clients: first token beside a flood of another client that takes what places it can, p99',
      figure: '÷ beside a flood that leaves places free',
      bar: { limit: 1.2, kind: 'at most' },
    },
    {
      id: 'clients_refused',
      title: 'Clients: CPU of a request that is refused (401) before any of its body has come',
      figure: 'µs',
      bar: { limit: 1_000, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 0 },
  async round(subjects) {
    const times: Record<string, readonly number[]> = {};
    for (let slice = 0; slice < SLICES; slice++) {
      for (const name of shuffled([FULL, FITTING])) {
        const { target } = await warmed(subjects, name);
        times[name] = [...(times[name] ?? []), ...(await besideFlood(target, FLOODS[name], 100))];
      }
    }
    const p50 = (name: string): number => quantile(times[name] ?? [], 0.5);
    const p99 = (name: string): number => quantile(times[name] ?? [], 0.99);
    const refused = await cpuPerRefused(await warmed(subjects, WITH));
    return {
      figures: {
        clients_fairness: p99(FULL) / p99(FITTING),
        clients_refused: refused,
      },
      values: {
        ...Object.fromEntries(Object.keys(times).map((name) => [`${name}, p50 ms`, p50(name)])),
        ...Object.fromEntries([FULL, FITTING].map((name) => [`${name}, p99 ms`, p99(name)])),
      },
    };
  },
};

/**
 * ms to the first token of a client that asks one at a time, while another always has that many requests
 * under way.
 */
async function besideFlood(target: Target, requests: number, count: number): Promise<number[]> {
  const flooder = { ...target, token: FLOODER_TOKEN };
  let over = false;
  const askOnAndOn = async (): Promise<void> => {
    while (!over) await (await openStream(flooder, SHORT)).finished;
  };
  const flood: Promise<void>[] = [];
  for (let i = 0; i < requests; i++) {
    if (i < PLACES) await delay(THINK / PLACES);
    flood.push(askOnAndOn());
  }
  const times: number[] = [];
  for (let i = 0; i < SETTLE + count; i++) {
    const time = await firstToken(target, SHORT);
    if (i >= SETTLE) times.push(time);
  }
  over = true;
  await Promise.all(flood);
  return times;
}

/** Requests that were refused so far; each address makes a few. */
let asked = 0;

/** CPU microseconds of a request without a known token, its connection included. */
async function cpuPerRefused({ target, pid }: Subject): Promise<number> {
  const last = asked + REFUSED;
  const askOnAndOn = async (): Promise<void> => {
    while (asked < last) await askInVain(target, asked++);
  };
  const cpu = cpuMicroseconds(pid as number);
  await Promise.all(Array.from({ length: AT_A_TIME }, askOnAndOn));
  return (cpuMicroseconds(pid as number) - cpu) / REFUSED;
}

/** Rejects where the answer is not a 401, or does not come without the body. */
async function askInVain(target: Target, index: number): Promise<void> {
  const address = Math.floor(index / MOST_OF_AN_ADDRESS);
  const localAddress = `127.1.${address >> 8}.${address & 255}`;
  const socket = await dial({ ...target, localAddress });
  socket.write(requestHead({ ...target, token: 'nobody' }, {}, BODY));
  try {
    const [answer] = (await once(socket, 'data', { signal: AbortSignal.timeout(PATIENCE) })) as [Buffer];
    const status = answer.toString('latin1', 0, 'HTTP/1.1 401'.length);
    if (status !== 'HTTP/1.1 401') throw new Error(`a request without a known token got ${status}`);
  } finally {
    socket.destroy();
  }
}
