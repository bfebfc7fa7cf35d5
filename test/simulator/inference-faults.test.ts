/**
 * Faults of the inference side that leave an answer complete, so that the fault matrix, which has all of them
 * (test/faults/matrix.ts), would not miss them; and how faults are armed.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { armFault } from '../../simulator/inference/faults.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { clientOf, DIALECTS, type Exchanged, eventsIn, membersOf } from '../support/remote/literal-client.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const TEXT = 't0 t1 t2 t3 t4 t5';
const PLAIN = DIALECTS.chat.answer;

interface Opened {
  readonly choices?: { delta?: { content?: string }; message?: { content: string } }[];
}

/** What is odd about an answer, though it is complete. `writes`: how often the server wrote. */
function oddities({ attempt, answer }: Exchanged, stream: boolean, writes: number): string {
  const { informational, headers, body } = answer;
  const isZipped = headers['content-encoding'] === 'gzip';
  const text = (isZipped ? gunzipSync(body) : body).toString();
  const opened = stream
    ? attempt.openEvents(text, PLAIN).map(({ data }) => data as Opened | '[DONE]')
    : [attempt.openValue(text, PLAIN) as Opened, '[DONE]' as const];
  const pieces = opened.flatMap((data) => (data === '[DONE]' ? [] : (data.choices ?? [])));
  assert.equal(pieces.map(({ delta, message }) => delta?.content ?? message?.content).join(''), TEXT);
  return Object.entries({
    [`${informational} informational`]: informational > 0,
    zipped: isZipped,
    'other labels': text.includes('"other:000000000000000000000000:'),
    notes: eventsIn(text).every((event) => event.startsWith(': keep-alive\nid: 7\nretry: 1000\n')),
    'a line of 300 kB': text.split('\n').some(({ length }) => length > 300_000 && length < 302_000),
    'byte by byte': writes === body.length,
    'two ends': opened.filter((data) => data === '[DONE]').length === 2,
  })
    .flatMap(([oddity, isSo]) => (isSo ? [oddity] : []))
    .join(', ');
}

/**
 * Faults as asked for, what a client sees in a stream, and in a whole answer; and the ms that it takes at
 * least, where time is its effect.
 */
const OUTCOMES: readonly (readonly [asked: string, stream: string, whole: string, ms?: number])[] = [
  ['slow_drain:5000', '', '', 80], // about 700 bytes of body
  ['foreign_labels', 'other labels', 'other labels'],
  ['huge_line:300000', 'a line of 300 kB', 'a line of 300 kB'],
  ['duplicate_terminal', 'two ends', ''],
  ['trickle', 'byte by byte', 'byte by byte'],
  ['informational:2+fault=comments+fault=gzip', '2 informational, zipped, notes', '2 informational, zipped'],
];

describe('the faults of the inference side', () => {
  let simulator: Simulator;
  let client: ReturnType<typeof clientOf>;
  before(async () => {
    simulator = await startTestSimulator({ apiKey: 'key' });
    client = clientOf(simulator);
  });
  after(() => simulator.close());
  afterEach(() => {
    simulator.faults.clear();
    assert.deepEqual(simulator.exchanges.violations(), []);
  });

  const ask = (faults: string, stream = true, head = {}): Promise<Exchanged> =>
    client.ask('chat', membersOf('chat', `sim-6x0${faults}`, 'hello', stream), head);
  const statusOf = async (faults: string, head = {}) => (await ask(faults, true, head)).answer.status;

  for (const [asked, onStream, onUnary, ms = 0] of OUTCOMES) {
    it(`${asked}: a client sees "${onStream}" in a stream, "${onUnary}" in a whole response`, async () => {
      for (const [stream, expected] of [
        [true, onStream],
        [false, onUnary],
      ] as const) {
        const started = performance.now();
        const exchanged = await ask(`+fault=${asked}`, stream);
        const took = performance.now() - started;
        const last = simulator.exchanges.last();
        assert.equal(oddities(exchanged, stream, last?.written ?? 0), expected);
        assert.deepEqual(last?.faults, asked.split('+fault='));
        assert.ok(took >= ms, `took ${took} ms`);
      }
    });
  }

  it('are armed by name always, or for the first attempt of a request and not for its retry', async () => {
    const id = (last: string, attempt: number) => ({
      'privatemode-user-request-id': `proxy_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5${last}_${attempt}`,
    });
    for (const [faults, expected] of [
      ['+fault-once=no_secret', [500, 200, 500]],
      ['+fault=no_secret', [500, 500, 500]],
    ] as const) {
      const statuses = [await statusOf(faults, id('a', 0)), await statusOf(faults, id('a', 1))];
      assert.deepEqual([...statuses, await statusOf(faults, id('b', 0))], expected);
    }
  });

  it('are armed by switch, for every request, or for the next one with a body', async () => {
    const statuses = async () => [(await client.models()).status, await statusOf(''), await statusOf('')];
    simulator.faults.parse('inference', 'informational:1+status:503');
    assert.deepEqual(await statuses(), [503, 503, 503]);
    simulator.faults.clear();
    simulator.faults.parse('inference-once', 'status:502');
    assert.deepEqual(await statuses(), [200, 502, 200]);
  });

  it('are refused with status 400 if their name is unknown or their argument invalid', async () => {
    for (const fault of ['nope', 'flip_tag:x', 'status:-1', 'gpu_status:sold'])
      assert.equal(await statusOf(`+fault=${fault}`), 400, fault);
    assert.throws(() => armFault('constructor'), /no fault named/);
  });
});
