/** The traffic on the status page: the last two minutes by the second, and the last requests. */
import { type Clock, every } from '../clock.ts';
import type { Finished, Traffic, TrafficSecond } from './status-report.ts';

/** Seconds that are kept. */
const KEPT = 120;
const MOST_FINISHED = 50;

type Second = { -readonly [Name in keyof TrafficSecond]: TrafficSecond[Name] };

/**
 * Records requests as they end, and the events of streams while they run. `inFlight` returns how many
 * requests run, and `events` how many events their streams have had. Both are called once a second and for
 * each snapshot, never per token.
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
  /** Events of the requests that ended, and of all requests at the last sample. */
  let [past, counted] = [0, events()];

  function currentSecond(): Second {
    const second = Math.floor(now() / 1000);
    const known = seconds[second % KEPT];
    if (known?.at === second * 1000) return known;
    const next = { at: second * 1000, inFlight: 0, chunks: 0, firstTokenMs: null, gapMs: null };
    seconds[second % KEPT] = next;
    return next;
  }

  /** Adds the events since the last sample to the current second, and the requests that run now. */
  function sample(): void {
    const all = past + events();
    const running = inFlight();
    if (all === counted && running === 0) return;
    const second = currentSecond();
    second.chunks += all - counted;
    second.inFlight = Math.max(second.inFlight, running);
    counted = all;
  }

  function observe(request: Finished): void {
    const second = currentSecond();
    second.firstTokenMs = request.firstTokenMs ?? second.firstTokenMs;
    second.gapMs = request.gapMs ?? second.gapMs;
    past += request.events;
    finished[ended++ % MOST_FINISHED] = request;
  }

  function snapshot(): Traffic {
    sample();
    const isKept = ({ at }: Second): boolean => at > now() - KEPT * 1000 && at <= now(); // it may be set back
    const newest = (_: unknown, back: number) => finished[(ended - 1 - back) % MOST_FINISHED] as Finished;
    return {
      inFlight: inFlight(),
      seconds: seconds.filter(isKept).sort((a, b) => a.at - b.at),
      finished: Array.from({ length: finished.length }, newest),
    };
  }

  return { observe, snapshot, close: every(clock, clock.times.trafficSample, sample) };
}
