/** The traffic on the status page: the last two minutes by the second, and the last requests. */
import { type Clock, every } from '../clock.ts';
import type { Finished, RefusedRequests, Traffic, TrafficSecond } from './status-report.ts';

/** Seconds that are kept. */
const KEPT = 120;
const MOST_FINISHED = 50;
const MOST_SAMPLES = 20;
/** Kinds of refused requests with a row of their own. There is a limit because clients choose the paths. */
const MOST_REFUSED = 20;

type Second = { -readonly [Name in keyof TrafficSecond]: TrafficSecond[Name] } & {
  readonly firstTokenMs: number[];
  readonly gapMs: number[];
};

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
  /** Each second and each request has its place in a ring, and takes that of the oldest. */
  const seconds: Second[] = [];
  const finished: Finished[] = [];
  let ended = 0;
  /** By kind, the newest last. */
  const refused = new Map<string, RefusedRequests>();
  /** All other kinds together, so that the counts add up to all since the start. */
  let others: RefusedRequests = { method: '*', path: '/*', code: 'others', count: 0, at: 0 };
  let counted = events();

  function currentSecond(): Second {
    const second = Math.floor(now() / 1000);
    const known = seconds[second % KEPT];
    if (known?.at === second * 1000) return known;
    const next = { at: second * 1000, requests: 0, inFlight: 0, chunks: 0, firstTokenMs: [], gapMs: [] };
    seconds[second % KEPT] = next;
    return next;
  }

  /** Adds the events since the last sample to the current second, and the requests that run now. */
  function sample(): void {
    const all = events();
    const running = inFlight();
    if (all === counted && running === 0) return;
    const second = currentSecond();
    second.chunks += all - counted;
    second.inFlight = Math.max(second.inFlight, running);
    counted = all;
  }

  function observe(request: Finished): void {
    const { firstTokenMs, gapMs } = request;
    const second = currentSecond();
    second.requests += 1;
    if (firstTokenMs !== null && second.firstTokenMs.length < MOST_SAMPLES)
      second.firstTokenMs.push(firstTokenMs);
    if (gapMs !== null && second.gapMs.length < MOST_SAMPLES) second.gapMs.push(gapMs);
    finished[ended++ % MOST_FINISHED] = request;
  }

  function refuse({ method, path, code }: Pick<RefusedRequests, 'method' | 'path' | 'code'>): void {
    const kind = `${method} ${path} ${code}`;
    const count = (refused.get(kind)?.count ?? 0) + 1;
    refused.delete(kind);
    refused.set(kind, { method, path, code, count, at: now() });
    if (refused.size <= MOST_REFUSED) return;
    const [[oldestKind, oldest]] = refused as unknown as [[string, RefusedRequests]];
    refused.delete(oldestKind);
    others = { ...others, count: others.count + oldest.count, at: oldest.at };
  }

  function snapshot(): Traffic {
    sample();
    const isKept = ({ at }: Second): boolean => at > now() - KEPT * 1000 && at <= now(); // it may be set back
    const newest = (_: unknown, back: number) => finished[(ended - 1 - back) % MOST_FINISHED] as Finished;
    return {
      inFlight: inFlight(),
      seconds: seconds.filter(isKept).sort((a, b) => a.at - b.at),
      finished: Array.from({ length: finished.length }, newest),
      refused: [...refused.values()].reverse().concat(others.count === 0 ? [] : others),
    };
  }

  return { observe, refuse, snapshot, close: every(clock, clock.times.trafficSample, sample) };
}
