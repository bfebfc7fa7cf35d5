/** Records traffic for the status page: each second of the last two minutes, and the last requests. */
import { type Clock, every } from '../clock.ts';
import type { Finished, Traffic, TrafficSecond } from './status-report.ts';

/** How many seconds of traffic are kept. */
const KEPT = 120;
const MOST_FINISHED = 50;

type Second = { -readonly [Name in keyof TrafficSecond]: TrafficSecond[Name] };

/**
 * Records requests when they end, and events of streams while they run. `inFlight` returns the number of
 * running requests, and `events` the number of events in their streams so far. `inFlight` and `events` are
 * called once a second and for each snapshot, never per token.
 */
export function createTrafficLog(
  { inFlight, events }: { readonly inFlight: () => number; readonly events: () => number },
  clock: Clock,
) {
  const { now } = clock;
  /** `seconds` and `finished` are rings: a new element takes the place of the oldest. */
  const seconds: Second[] = [];
  const finished: Finished[] = [];
  let ended = 0;
  /** `past`: events of all requests that ended. `counted`: events of all requests at the last sample. */
  let [past, counted] = [0, events()];

  function currentSecond(): Second {
    const second = Math.floor(now() / 1000);
    const known = seconds[second % KEPT];
    if (known?.at === second * 1000) return known;
    const next = { at: second * 1000, inFlight: 0, chunks: 0, firstTokenMs: null, gapMs: null };
    seconds[second % KEPT] = next;
    return next;
  }

  /** Adds the events since the last sample to the current second, and notes how many requests run now. */
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
    // The clock may go back, so a second that lies in the future is left out.
    const isKept = ({ at }: Second): boolean => at > now() - KEPT * 1000 && at <= now();
    const newest = (_: unknown, back: number) => finished[(ended - 1 - back) % MOST_FINISHED] as Finished;
    return {
      inFlight: inFlight(),
      seconds: seconds.filter(isKept).sort((a, b) => a.at - b.at),
      finished: Array.from({ length: finished.length }, newest),
    };
  }

  return { observe, snapshot, close: every(clock, clock.times.trafficSample, sample) };
}
