/**
 * Faults of the inference side, seen by a client that checks everything. With the program in front of it,
 * test/faults/matrix.test.ts has all of them.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { armFault } from '../../simulator/inference/faults.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { clientOf, DIALECTS, type Exchanged, eventsIn, membersOf } from '../support/remote/literal-client.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const TEXT = 't0 t1 t2 t3 t4 t5';

interface Opened {
  readonly error?: unknown;
  readonly choices?: { delta?: { content?: string }; message?: { content: string } }[];
}

/** What is odd about an answer, though it may be complete. `writes`: how often the server wrote. */
function oddities({ answer }: Exchanged, text: string, writes: number): string[] {
  const { informational, headers, body } = answer;
  const events = eventsIn(text);
  return Object.entries({
    [`${informational} informational`]: informational > 0,
    zipped: headers['content-encoding'] === 'gzip',
    'other labels': text.includes('"other:000000000000000000000000:'),
    notes: events.every((event) => event.startsWith(': keep-alive\nid: 7\nretry: 1000\n')),
    'a line of 300 kB': text.split('\n').some(({ length }) => length > 300_000 && length < 302_000),
    'byte by byte': writes === body.length,
    'one in two': writes === events.length + 1,
  })
    .filter(([, isSo]) => isSo)
    .map(([oddity]) => oddity);
}

/** What such a client would report of what it finds inside. */
function contents({ attempt }: Exchanged, text: string, stream: boolean): string {
  const { answer } = DIALECTS.chat;
  let events: (Opened | '[DONE]')[];
  try {
    events = stream
      ? attempt.openEvents(text, answer).map(({ data }) => data as Opened)
      : [attempt.openValue(text, answer) as Opened, '[DONE]'];
  } catch (error) {
    return /not encrypted/.test(String(error)) ? 'in clear' : 'not authentic';
  }
  const opened = events.filter((event) => event !== '[DONE]');
  if (opened.some(({ error }) => error !== undefined)) return 'error event';
  const ends = events.length - opened.length;
  if (ends !== 1) return `${ends} ends`;
  const words = opened.map(({ choices = [] }) => choices[0]?.delta?.content ?? choices[0]?.message?.content);
  return words.join('') === TEXT ? 'complete' : 'shortened';
}

function verdict(exchanged: Exchanged, writes: number, stream: boolean): string {
  const { status, headers, body, broken } = exchanged.answer;
  const { 'privatemode-encrypted': mark, 'retry-after': seconds, location } = headers;
  if (broken !== undefined) return `${status} broken`;
  if (status !== 200) {
    const where = location?.replace(/^https:\/\/localhost:\d+/, ' to ') ?? '';
    return `${status}${mark === undefined ? '' : ` marked ${mark}`}${seconds ? ` in ${seconds} s` : ''}${where}`;
  }
  const text = (headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body).toString();
  return [...oddities(exchanged, text, writes), contents(exchanged, text, stream)].join(', ');
}

/**
 * One or more faults for each place where they act: as asked for, what a client sees in a stream, and in a
 * whole answer; and the ms that it takes at least, where time is its effect.
 */
const OUTCOMES: readonly (readonly [asked: string, stream: string, whole: string, ms?: number])[] = [
  ['status:429,7', '429 marked false in 7 s', '429 marked false in 7 s'],
  ['redirect', '307 to /v1/chat/completions?redirected', '307 to /v1/chat/completions?redirected'],
  ['gpu_status:revoked,1', '500 marked false', '500 marked false'],
  ['early_413', '413 marked false', '413 marked false'],
  ['slow_drain:5000', 'complete', 'complete', 80], // about 700 bytes of body
  ['stall_before:80', 'complete', 'complete', 79],
  ['reset_before_headers', 'ECONNRESET', 'ECONNRESET'],
  ['flip_tag:2', 'not authentic', 'not authentic'],
  ['plain_member', 'in clear', 'in clear'],
  ['wrong_nonce', 'not authentic', 'not authentic'],
  ['foreign_labels', 'other labels, complete', 'other labels, complete'],
  ['plain_unmarked', 'in clear', 'in clear'],
  ['huge_line:300000', 'a line of 300 kB, complete', 'a line of 300 kB, complete'],
  ['error_event:4', 'error event', 'complete'],
  ['reorder', 'not authentic', 'complete'],
  ['replay', 'not authentic', 'complete'],
  ['missing_terminal', '0 ends', 'complete'],
  ['duplicate_terminal', '2 ends', 'complete'],
  ['truncate:4', '0 ends', 'complete'],
  ['forged_terminal:4', 'shortened', 'complete'],
  ['half_close:4', '200 broken', '200 broken'],
  ['stall_mid:4,80', 'one in two, complete', 'one in two, complete', 79],
  ['trickle', 'byte by byte, complete', 'byte by byte, complete'],
  [
    'informational:2+fault=comments+fault=gzip',
    '2 informational, zipped, notes, complete',
    '2 informational, zipped, complete',
  ],
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
        const seen = await ask(`+fault=${asked}`, stream).then(
          (exchanged) => verdict(exchanged, simulator.exchanges.last()?.written ?? 0, stream),
          ({ code }: NodeJS.ErrnoException) => code,
        );
        const took = performance.now() - started;
        assert.deepEqual([seen, simulator.exchanges.last()?.faults], [expected, asked.split('+fault=')]);
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
