/** The traffic on the status page: the last two minutes by the second, and the last requests. */
import { type Clock, every } from '../clock.ts';
import type { FinishedRequest, RefusedRequests, Traffic, TrafficSecond } from './status-report.ts';

/** Seconds that are kept. */
const KEPT = 120;
const MOST_FINISHED = 50;
const MOST_SAMPLES = 20;
/** Kinds of refused requests with a row of their own. There is a limit because clients choose the paths. */
const MOST_REFUSED = 20;
/** The row that counts all other kinds together, so that the counts add up to all since the start. */
const OTHERS = { method: '*', path: '/*', code: 'others' } as const;

type Second = { -readonly [Name in keyof TrafficSecond]: TrafficSecond[Name] } & {
  readonly firstTokenMs: number[];
  readonly gapMs: number[];
};

export type TrafficLog = ReturnType<typeof createTrafficLog>;

/**
 * Records requests as they end, and the events of streams while they run. `inFlight` returns how many
 * requests run, and `events` how many events of streams went out since the start. Both are called once a
 * second and for each snapshot, never per token.
 */
export function createTrafficLog(
  { inFlight, events }: { readonly inFlight: () => number; readonly events: () => number },
  clock: Clock,
) {
  const { now } = clock;
  let seconds: Second[] = [];
  let finished: FinishedRequest[] = [];
  let refused: readonly RefusedRequests[] = [];
  let counted = events();

  function currentSecond(): Second {
    const at = Math.floor(now() / 1000) * 1000;
    const last = seconds.at(-1);
    if (last?.at === at) return last;
    seconds = seconds.filter((second) => second.at < at); // the clock may have been set back
    const next: Second = { at, requests: 0, inFlight: 0, chunks: 0, firstTokenMs: [], gapMs: [] };
    seconds.push(next);
    return next;
  }

  /**
   * Adds the events since the last sample to the current second, and the requests that run now. Drops seconds
   * older than two minutes.
   */
  function sample(): void {
    const oldest = now() - KEPT * 1000;
    seconds = seconds.filter(({ at }) => at > oldest);
    const all = events();
    const running = inFlight();
    if (all === counted && running === 0) return;
    const second = currentSecond();
    second.chunks += all - counted;
    second.inFlight = Math.max(second.inFlight, running);
    counted = all;
  }

  const stop = every(clock, clock.times.trafficSample, sample);
  return {
    /** `gapMs`: mean ms between the events of the stream of `request`; undefined if it had fewer than two. */
    observe(request: FinishedRequest, gapMs: number | undefined): void {
      const second = currentSecond();
      second.requests += 1;
      const { firstTokenMs } = request;
      if (firstTokenMs !== null && second.firstTokenMs.length < MOST_SAMPLES)
        second.firstTokenMs.push(firstTokenMs);
      if (gapMs !== undefined && second.gapMs.length < MOST_SAMPLES) second.gapMs.push(gapMs);
      finished = [request, ...finished.slice(0, MOST_FINISHED - 1)];
    },
    refuse(request: Pick<RefusedRequests, 'method' | 'path' | 'code'>): void {
      refused = joinRefused([{ ...request, count: 1, at: now() }, ...refused]);
    },
    snapshot(): Traffic {
      sample();
      return { inFlight: inFlight(), seconds, finished, refused };
    },
    close: stop,
  };
}

/** Adds up the rows of one kind. Beyond the most that are kept, the oldest kinds become one row. */
function joinRefused(all: readonly RefusedRequests[]): readonly RefusedRequests[] {
  const kinds = new Map<string, RefusedRequests>();
  for (const one of all) {
    const kind = `${one.method} ${one.path} ${one.code}`;
    const { count = 0, at = 0 } = kinds.get(kind) ?? {};
    kinds.set(kind, { ...one, count: one.count + count, at: Math.max(one.at, at) });
  }
  const isOthers = ({ code }: RefusedRequests): boolean => code === OTHERS.code;
  const newest = [...kinds.values()].toSorted(
    (a, b) => Number(isOthers(a)) - Number(isOthers(b)) || b.at - a.at,
  );
  const rest = newest.splice(MOST_REFUSED);
  if (rest.length === 0) return newest;
  const count = rest.reduce((sum, kind) => sum + kind.count, 0);
  return [...newest, { ...OTHERS, count, at: Math.max(...rest.map(({ at }) => at)) }];
}
