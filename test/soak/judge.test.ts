/** The verdict of a soak, on measurements that were made up: each leak is noticed, and chance is not. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { seededRandom } from '../../bench/stats.ts';
import { type Facts, heapSlope, judge, type Sample } from './judge.ts';
import { createPlan } from './plan.ts';
import type { Measurement } from './proxy-child.ts';

const AT_REST: Measurement = {
  heapUsed: 24e6,
  rss: 200e6,
  resources: { PipeWrap: 3, TCPServerWrap: 1 },
  objects: { ServerResponse: 0, ClientRequest: 0, AbortSignal: 2 },
  listeners: 8,
  inFlight: 0,
  counters: {
    truncatedStreams: 2,
    upstreamRetries: 1,
    'decryptFailures.response_malformed': 3,
  },
  log: { response_malformed: 3 },
  warnings: [],
};

/** Ten minutes, one sample each; `at` changes a measurement. */
const samples = (at: (minutes: number) => Partial<Measurement> = () => ({})): Sample[] =>
  Array.from({ length: 10 }, (_, i) => ({ minutes: i + 1, measurement: { ...AT_REST, ...at(i + 1) } }));

const facts = (changes: Partial<Facts> = {}): Facts => ({
  samples: samples(),
  closed: { ...AT_REST, resources: { PipeWrap: 3 } },
  injected: new Map([
    ['decryptFailures.response_malformed', 3],
    ['truncatedStreams', 2],
    ['upstreamRetries', 1],
  ]),
  explained: new Set(['response_malformed']),
  unexplained: [],
  ...changes,
});

const failed = (changes: Partial<Facts>): string[] =>
  judge(facts(changes))
    .filter(({ good }) => !good)
    .map(({ what }) => what);

describe('the heap slope of a soak test', () => {
  it('leaves out the first third of the samples: warming up is no leak', () => {
    const warmingUp = samples((minutes) => ({ heapUsed: 24e6 + Math.min(minutes, 4) * 5e6 }));
    assert.equal(heapSlope(warmingUp), 0);
    assert.equal(heapSlope(warmingUp.slice(0, 1)), 0);
  });
});

describe('the verdict of a soak test', () => {
  it('is good if nothing is wrong', () => assert.deepEqual(failed({}), []));

  const WRONG: Readonly<Record<string, Partial<Facts>>> = {
    'errors that nobody injected': { unexplained: ['an answer that is not whole'] },
    'log lines that no fault explains': { explained: new Set() },
    'failures counted but not injected, or not counted': { injected: new Map([['truncatedStreams', 3]]) },
    'heap slope, MB a minute': { samples: samples((minutes) => ({ heapUsed: 24e6 + minutes * 1.1e6 })) },
    'requests in flight at rest': { samples: samples((minutes) => ({ inFlight: minutes === 3 ? 1 : 0 })) },
    'sockets at rest': { samples: samples((minutes) => ({ resources: { TCPSocketWrap: minutes } })) },
    'timers at rest': { samples: samples((minutes) => ({ resources: { Timeout: minutes } })) },
    'listeners on the process': { samples: samples((minutes) => ({ listeners: 8 + minutes })) },
    'AbortSignal objects at rest': {
      samples: samples((minutes) => ({ objects: { AbortSignal: minutes * 10 } })),
    },
    'ClientRequest objects at rest': {
      samples: samples((minutes) => ({ objects: { ClientRequest: minutes * 10 } })),
    },
    'warnings of the runtime': { samples: samples(() => ({ warnings: ['MaxListenersExceededWarning'] })) },
    'left after closing': { closed: { ...AT_REST, resources: { PipeWrap: 3, TCPSocketWrap: 1 } } },
  };
  for (const [what, changes] of Object.entries(WRONG)) {
    it(`names ${what}`, () => assert.deepEqual(failed(changes), [what]));
  }
});

describe('the plan of a soak test', () => {
  it('is the same for the same seed', () => {
    const [one, two, other] = [createPlan(1), createPlan(1), createPlan(2)];
    const jobs = Array.from({ length: 200 }, () => one());
    assert.deepEqual(
      jobs,
      Array.from({ length: 200 }, () => two()),
    );
    assert.notDeepEqual(
      jobs,
      Array.from({ length: 200 }, () => other()),
    );
  });

  it('contains clients that leave, faults, both API styles and requests without a stream', () => {
    const next = createPlan(1);
    const jobs = Array.from({ length: 1_000 }, () => next());
    const share = (of: (job: (typeof jobs)[number]) => boolean): number =>
      jobs.filter(of).length / jobs.length;
    for (const part of [
      share(({ leavesAfter }) => leavesAfter !== undefined),
      share(({ question }) => question.model.includes('+fault')),
      share(({ question }) => question.style === 'anthropic'),
      share(({ question }) => question.mode === 'unary'),
    ]) {
      assert.ok(part > 0.05 && part < 0.6, `${part}`);
    }
  });

  it('draws numbers that are evenly spread', () => {
    const random = seededRandom(7);
    const draws = Array.from({ length: 10_000 }, random);
    assert.ok(draws.every((draw) => draw >= 0 && draw < 1));
    assert.ok(Math.abs(draws.reduce((sum, draw) => sum + draw, 0) / draws.length - 0.5) < 0.02);
  });
});
