/**
 * Every fault of the inference side, seen by a client that checks everything: what arrives, and how it ends.
 * A fault that did nothing would say so here.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { FORGED } from '../../simulator/inference/faults/messages.ts';
import { armFault, type INFERENCE_FAULTS } from '../../simulator/inference/faults.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { clientOf, DIALECTS, type Exchanged, eventsIn, membersOf } from '../support/remote/literal-client.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const TEXT = 't0 t1 t2 t3 t4 t5';

interface Opened {
  readonly error?: unknown;
  readonly choices?: { delta?: { content?: string }; message?: { content: string } }[];
}

/** What is odd about an answer, though it may be complete. `writes`: how often the server wrote. */
function oddities({ attempt, answer }: Exchanged, text: string, writes: number): string[] {
  const { informational, headers, body } = answer;
  const mark = headers['privatemode-encrypted'];
  const events = eventsIn(text);
  const nonces = text.match(/(?<=":?[^":]+:)[0-9a-f]{24}(?=:[0-9a-f]{24}:)/g) ?? [];
  return Object.entries({
    [`${informational} informational`]: informational > 0,
    [`marked ${mark}`]: mark !== undefined,
    zipped: headers['content-encoding'] === 'gzip',
    'other labels': nonces.some((nonce) => nonce !== attempt.nonce.toString('hex')),
    forged: text.includes(FORGED),
    'CR LF': text.includes('\r\n') && !/[^\r]\n/.test(text),
    notes: events.every((event) => event.startsWith(': keep-alive\nid: 7\nretry: 1000\n')),
    'a line of 300 kB': text.split('\n').some(({ length }) => length > 300_000 && length < 302_000),
    'byte by byte': writes === body.length,
    'each in two': writes === 2 * events.length,
    'one in two': events.length > 1 && writes === events.length + 1,
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

const both = (outcome: string) => [outcome, outcome] as const;
const streamOnly = (outcome: string) => [outcome, 'complete'] as const;

/**
 * Fault as asked for → outcome on a stream, and on a whole answer; and the ms that it takes at least, where
 * time is its effect.
 */
const OUTCOMES: Record<
  keyof typeof INFERENCE_FAULTS,
  readonly [asked: string, stream: string, unary: string, ms?: number]
> = {
  status: ['status:429,7', ...both('429 marked false in 7 s')],
  gateway_status: ['gateway_status:503', ...both('503')],
  redirect: ['redirect', ...both('307 to /v1/chat/completions?redirected')],
  no_secret: ['no_secret', ...both('500 marked false')],
  gpu_status: ['gpu_status:revoked,1', ...both('500 marked false')],
  early_413: ['early_413', ...both('413 marked false')],
  early_413_abrupt: ['early_413_abrupt', ...both('413 marked false')],
  slow_drain: ['slow_drain:5000', ...both('complete'), 80], // about 700 bytes of body
  stall_before: ['stall_before:80', ...both('complete'), 79],
  reset_before_headers: ['reset_before_headers', ...both('ECONNRESET')],
  informational: ['informational:3,20', ...both('3 informational, complete'), 58],
  flip_tag: ['flip_tag:2', ...both('not authentic')],
  short_iv: ['short_iv', ...both('not authentic')],
  plain_member: ['plain_member', ...both('forged, in clear')],
  wrong_nonce: ['wrong_nonce', ...both('other labels, not authentic')],
  foreign_labels: ['foreign_labels', ...both('other labels, complete')],
  plain_unmarked: ['plain_unmarked', ...both('in clear')],
  plain_marked: ['plain_marked', ...both('marked false, in clear')],
  sealed_marked: ['sealed_marked:FALSE', ...both('marked FALSE, complete')],
  gzip: ['gzip', ...both('zipped, complete')],
  huge_line: ['huge_line:300000', ...both('a line of 300 kB, complete')],
  replay: ['replay', ...streamOnly('not authentic')],
  reorder: ['reorder', ...streamOnly('not authentic')],
  drop: ['drop', ...streamOnly('not authentic')],
  missing_terminal: ['missing_terminal', ...streamOnly('0 ends')],
  duplicate_terminal: ['duplicate_terminal', ...streamOnly('2 ends')],
  truncate: ['truncate:4', ...streamOnly('0 ends')],
  forged_terminal: ['forged_terminal:4', ...streamOnly('shortened')],
  error_event: ['error_event:4', ...streamOnly('error event')],
  crlf: ['crlf', ...streamOnly('CR LF, complete')],
  comments: ['comments', ...streamOnly('notes, complete')],
  reset_after_headers: ['reset_after_headers', ...both('200 broken')],
  reset_mid_event: ['reset_mid_event:4', ...both('200 broken')],
  half_close: ['half_close:4', ...both('200 broken')],
  stall_mid: ['stall_mid:4,80', 'one in two, complete', 'each in two, complete', 79],
  trickle: ['trickle', ...both('byte by byte, complete')],
  split_events: ['split_events', ...both('each in two, complete')],
};

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

  for (const [asked, onStream, onUnary, ms = 0] of [
    [
      'informational:2+fault=comments+fault=gzip',
      '2 informational, zipped, notes, complete',
      '2 informational, zipped, complete',
    ],
    ...Object.values(OUTCOMES),
  ] as (typeof OUTCOMES)['gzip'][]) {
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
