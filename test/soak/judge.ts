/** What the measurements of a soak mean. */
import { slope } from '../../bench/stats.ts';
import type { Measurement } from './proxy-child.ts';

/** One measurement at rest, after so many minutes under load. */
export interface Sample {
  readonly minutes: number;
  readonly measurement: Measurement;
}

/** MB a minute that memory may grow by. */
export const STEEPEST = 1;

/**
 * MB a minute; the first third of the samples warms up: code is compiled, pools and caches fill. 0 for fewer
 * than two after it.
 */
export function heapSlope(samples: readonly Sample[]): number {
  const warm = samples.slice(Math.floor(samples.length / 3));
  return warm.length < 2
    ? 0
    : slope(warm.map(({ minutes, measurement }) => [minutes, measurement.heapUsed / 1e6]));
}

const SOCKETS = 'TCPSocketWrap';
/** The control path keeps its connection for a few seconds, and a renewal may be under way. */
const CONTROL_SOCKETS = 3;
/** Of each class, what those and the next renewal may need. */
const OBJECTS = 16;

export interface Facts {
  /** Measurements at rest, in order. */
  readonly samples: readonly Sample[];
  /** Taken after the proxy was closed. */
  readonly closed: Measurement;
  /** What the script injected, by counter. */
  readonly injected: ReadonlyMap<string, number>;
  /** Log lines above info that it explains. */
  readonly explained: ReadonlySet<string>;
  readonly unexplained: readonly string[];
}

/** One line of the verdict: what was found, what is allowed, and whether it is within that. */
export interface Finding {
  readonly what: string;
  readonly found: string;
  readonly allowed: string;
  readonly good: boolean;
}

const finding = (what: string, found: number | string, allowed: string, good: boolean): Finding => ({
  what,
  found: String(found),
  allowed,
  good,
});

/** Every rule of the soak, with what was found. */
export function judge(facts: Facts): Finding[] {
  const { samples, closed, injected, explained, unexplained } = facts;
  const steep = heapSlope(samples);
  const most = (of: (measurement: Measurement) => number): number =>
    Math.max(...samples.map(({ measurement }) => of(measurement)));
  const last = samples.at(-1)?.measurement ?? closed;
  const first = samples[Math.floor(samples.length / 3)]?.measurement ?? closed;
  const strange = Object.keys(last.log).filter((label) => !explained.has(label));
  const failures = Object.keys(last.counters).filter((name) => name.startsWith('decryptFailures.'));
  const counted = [...new Set([...injected.keys(), ...failures, 'truncatedStreams', 'upstreamRetries'])];
  const miscounted = counted.filter((name) => (last.counters[name] ?? 0) !== (injected.get(name) ?? 0));
  const left = Object.entries(closed.resources).filter(([kind]) => kind !== 'PipeWrap');

  return [
    finding('errors that nobody injected', unexplained.length, '0', unexplained.length === 0),
    finding('log lines that no fault explains', strange.join(', ') || 0, '0', strange.length === 0),
    finding(
      'failures counted but not injected, or not counted',
      miscounted
        .map((name) => `${name} ${last.counters[name] ?? 0} instead of ${injected.get(name) ?? 0}`)
        .join(', ') || 0,
      '0',
      miscounted.length === 0,
    ),
    finding('heap slope, MB a minute', steep.toFixed(2), `< ${STEEPEST}`, steep < STEEPEST),
    finding(
      'requests in flight at rest',
      most(({ inFlight }) => inFlight),
      '0',
      most(({ inFlight }) => inFlight) === 0,
    ),
    finding(
      'sockets at rest',
      most(({ resources }) => resources[SOCKETS] ?? 0),
      `<= ${CONTROL_SOCKETS}`,
      most(({ resources }) => resources[SOCKETS] ?? 0) <= CONTROL_SOCKETS,
    ),
    finding(
      'timers at rest',
      most(({ resources }) => resources['Timeout'] ?? 0),
      `<= ${first.resources['Timeout'] ?? 0}`,
      (last.resources['Timeout'] ?? 0) <= (first.resources['Timeout'] ?? 0),
    ),
    finding(
      'listeners on the process',
      last.listeners,
      `${first.listeners}`,
      last.listeners === first.listeners,
    ),
    ...(['ServerResponse', 'ClientRequest', 'AbortSignal'] as const).map((name) => {
      const bound = (first.objects[name] ?? 0) + OBJECTS;
      return finding(
        `${name} objects at rest`,
        last.objects[name] ?? 0,
        `<= ${bound}`,
        (last.objects[name] ?? 0) <= bound,
      );
    }),
    finding('warnings of the runtime', last.warnings.join(', ') || 0, '0', last.warnings.length === 0),
    finding(
      'left after closing',
      left.map(([kind, count]) => `${count} ${kind}`).join(', ') || 0,
      '0',
      left.length === 0,
    ),
  ];
}
