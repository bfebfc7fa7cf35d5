/**
 * Every fault of the inference side, seen by a literal client: what arrives, and how it ends. A fault that
 * did nothing would say so here.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { FORGED } from '../../simulator/inference/faults/messages.ts';
import { armFault, type INFERENCE_FAULTS } from '../../simulator/inference/faults.ts';
import {
  DIALECTS,
  type Exchanged,
  type InferenceServer,
  membersOf,
  startInference,
} from '../support/remote/inference-server.ts';
import { type Answer, call, modelsHeaders } from '../support/remote/literal-client.ts';

const TEXT = 't0 t1 t2 t3 t4 t5';
type Dialect = 'chat' | 'messages';

interface Opened {
  readonly data: {
    readonly type?: string;
    readonly error?: unknown;
    readonly choices?: { delta?: { content?: string }; message?: { content: string } }[];
    readonly delta?: { text?: string };
    readonly content?: { text: string }[];
  };
}

const wordsOf = ({ data }: Opened): string =>
  data.choices?.[0]?.delta?.content ??
  data.choices?.[0]?.message?.content ??
  data.delta?.text ??
  data.content?.[0]?.text ??
  '';

const eventsIn = (text: string): string[] => text.split(/\r?\n\r?\n/).filter((block) => block !== '');

/** What a client that checks everything would report of an answer in place of the model's. */
function refusal({ status, headers }: Answer, path: string): string {
  const { 'privatemode-encrypted': mark, 'retry-after': seconds, location } = headers;
  const isItself = location?.replace(/^https:\/\/localhost:\d+/, '') === `${path}?redirected`;
  return [
    `${status} ${mark === undefined ? 'unmarked' : `marked ${mark}`}`,
    ...(seconds === undefined ? [] : [`in ${seconds} s`]),
    ...(location === undefined ? [] : [isItself ? 'to itself' : `to ${location}`]),
  ].join(', ');
}

/** What is odd about an answer, though it may be complete. */
function oddities({ attempt, answer }: Exchanged, text: string, writes: number): string[] {
  const { informational, headers, body } = answer;
  const mark = headers['privatemode-encrypted'];
  const events = eventsIn(text);
  const labels = text.match(/"[^":]+:[0-9a-f]{24}:/g) ?? [];
  const ours = `"${attempt.secret.id}:${attempt.nonce.toString('hex')}:`;
  const isNoted = (event: string): boolean => event.startsWith(': keep-alive\nid: 7\nretry: 1000\n');
  return Object.entries({
    [`${informational} informational`]: informational > 0,
    [`marked ${mark}`]: mark !== undefined,
    zipped: headers['content-encoding'] === 'gzip',
    'other labels': labels.some((label) => label !== ours),
    forged: text.includes(FORGED),
    'CR LF': text.includes('\r\n') && !/[^\r]\n/.test(text),
    notes: events.every(isNoted),
    'a line of 300 kB': text.split('\n').some(({ length }) => length > 300_000 && length < 302_000),
    'byte by byte': writes === body.length,
    'each in two': writes === 2 * events.length,
    'one in two': events.length > 1 && writes === events.length + 1,
  })
    .filter(([, isSo]) => isSo)
    .map(([oddity]) => oddity);
}

/** What such a client would report of what it finds inside. */
function contents(attempt: Exchanged['attempt'], text: string, dialect: Dialect, stream: boolean): string {
  let events: Opened[];
  try {
    const plain = DIALECTS[dialect].answer;
    events = stream
      ? (attempt.openEvents(text, plain) as Opened[])
      : [{ data: attempt.openValue(text, plain) as Opened['data'] }];
  } catch (error) {
    return /not encrypted/.test(String(error)) ? 'in clear' : 'not authentic';
  }
  if (events.some(({ data }) => data.error !== undefined)) return 'error event';
  const isEnd = ({ data }: Opened): boolean => (data as unknown) === '[DONE]' || data.type === 'message_stop';
  const ends = stream ? events.filter(isEnd).length : 1;
  if (ends !== 1) return `${ends} ends`;
  return events.map(wordsOf).join('') === TEXT ? 'complete' : 'shortened';
}

/** `writes`: how often the server wrote. */
function verdict(exchanged: Exchanged, writes: number, dialect: Dialect, stream: boolean): string {
  const { attempt, answer } = exchanged;
  if (answer.broken !== undefined) return `${answer.status} broken: ${answer.broken}`;
  if (answer.status !== 200) return refusal(answer, DIALECTS[dialect].path);
  const zipped = answer.headers['content-encoding'] === 'gzip';
  const text = (zipped ? gunzipSync(answer.body) : answer.body).toString();
  return [...oddities(exchanged, text, writes), contents(attempt, text, dialect, stream)].join(', ');
}

const RESET = 'broken: ECONNRESET read';
const both = (outcome: string) => [outcome, outcome] as const;
const streamOnly = (outcome: string) => [outcome, 'complete'] as const;

/**
 * Fault as asked for → outcome on a stream, and on a unary answer; and the ms that it takes at least, where
 * time is its effect.
 */
const OUTCOMES: Record<
  keyof typeof INFERENCE_FAULTS,
  readonly [asked: string, stream: string, unary: string, ms?: number]
> = {
  status: ['status:429,7', ...both('429 marked false, in 7 s')],
  gateway_status: ['gateway_status:503', ...both('503 unmarked')],
  redirect: ['redirect', ...both('307 unmarked, to itself')],
  no_secret: ['no_secret', ...both('500 marked false')],
  gpu_status: ['gpu_status:revoked,1', ...both('500 marked false')],
  early_413: ['early_413', ...both('413 marked false')],
  early_413_abrupt: ['early_413_abrupt', ...both('413 marked false')],
  slow_drain: ['slow_drain:5000', ...both('complete'), 80], // about 700 bytes of body
  stall_before: ['stall_before:80', ...both('complete'), 79],
  reset_before_headers: ['reset_before_headers', ...both(`0 ${RESET}`)],
  informational: ['informational:3,20', ...both('3 informational, complete'), 58],
  flip_tag: ['flip_tag:2', ...both('not authentic')],
  short_iv: ['short_iv', ...both('not authentic')],
  plain_member: ['plain_member', ...both('forged, not authentic')],
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
  reset_after_headers: ['reset_after_headers', ...both(`200 ${RESET}`)],
  reset_mid_event: ['reset_mid_event:4', ...both(`200 ${RESET}`)],
  half_close: ['half_close:4', ...both('200 broken: ECONNRESET')],
  stall_mid: ['stall_mid:4,80', 'one in two, complete', 'each in two, complete', 79],
  trickle: ['trickle', ...both('byte by byte, complete')],
  split_events: ['split_events', ...both('each in two, complete')],
};

describe('the faults of the inference side', () => {
  let server: InferenceServer;
  before(async () => {
    server = await startInference();
  });
  after(() => server.close());
  afterEach(() => {
    server.faults.clear();
    assert.deepEqual(server.exchanges.violations(), []);
  });

  const ask = (faults: string, dialect: Dialect = 'chat', stream = true): Promise<Exchanged> =>
    server.ask(dialect, membersOf(dialect, `sim-6x0${faults}`, 'hello', stream));

  const ROWS: readonly (readonly [asked: string, stream: string, unary: string, ms?: number])[] = [
    ['', ...both('complete')],
    ...Object.values(OUTCOMES),
    [
      'informational:2+fault=comments+fault=gzip',
      '2 informational, zipped, notes, complete',
      '2 informational, zipped, complete',
    ],
  ];
  for (const [asked, onStream, onUnary, ms = 0] of ROWS) {
    it(`${asked || 'none'}: a client sees "${onStream}" in a stream, "${onUnary}" in a whole response`, async () => {
      for (const dialect of ['chat', 'messages'] as const) {
        for (const [stream, expected] of [
          [true, onStream],
          [false, onUnary],
        ] as const) {
          const started = performance.now();
          const exchanged = await ask(asked === '' ? '' : `+fault=${asked}`, dialect, stream);
          const took = performance.now() - started;
          const { faults, failure, written } = await server.finished();
          const where = `${dialect}, ${stream ? 'stream' : 'unary'}`;
          assert.equal(verdict(exchanged, written, dialect, stream), expected, where);
          assert.deepEqual([faults, failure], [asked.split('+fault=').filter(Boolean), ''], where);
          assert.ok(took >= ms, `${where} took ${took} ms`);
        }
      }
    });
  }

  it('the fault early_413 answers before the body has come, and drains it', async () => {
    const body = Buffer.alloc(4 * 1024 * 1024);
    let sent = 0;
    let sentWhenAnswered: number | undefined;
    const { answer } = await server.ask(
      'chat',
      membersOf('chat', 'sim-6x0+fault=early_413', 'x', true),
      { 'content-length': String(body.length) },
      {
        onRequest(request) {
          request.end = () => request; // the head alone, for now
          request.flushHeaders();
          request.once('response', () => {
            sentWhenAnswered = sent;
            sent = body.length;
            request.write(body);
          });
        },
      },
    );
    assert.equal(sentWhenAnswered, 0);
    assert.deepEqual([answer.status, answer.broken], [413, undefined]);
    await server.finished();
    assert.equal(server.recorder.requests().at(-1)?.bodyBytes, body.length);
  });

  it('affect, remove, double or swap exactly the event whose number they name', async () => {
    const sealedBy = async (fault: string) => {
      const { attempt, answer } = await ask(`+fault=${fault}`);
      const events = eventsIn(answer.body.toString());
      const open = (list: readonly string[]) => attempt.openEvents(list.join('\n\n'), DIALECTS.chat.answer);
      return { events, open };
    };
    const { length } = (await sealedBy('informational:1')).events;
    for (const position of [0, 2, 5]) {
      for (const [fault, events] of [
        ['flip_tag', length],
        ['plain_member', length],
        ['drop', length - 1],
        ['reorder', length],
      ] as const) {
        const hit = await sealedBy(`${fault}:${position}`);
        assert.equal(hit.events.length, events, fault);
        assert.equal(hit.open(hit.events.slice(0, position)).length, position, fault);
        assert.throws(() => hit.open(hit.events.slice(position, position + 1)), fault);
      }
      const { events } = await sealedBy(`replay:${position}`);
      assert.equal(events.length, length + 1);
      assert.equal(events[position], events[position + 1]);
    }
  });

  const ID = '0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b';
  const OTHER = ID.replace('5b', '5c');
  for (const [how, faults, ids, expected] of [
    [
      'once by name: for the first attempt of a request, not for its retry',
      '+fault-once=no_secret',
      [`${ID}_0`, `${ID}_1`, `${OTHER}_0`],
      [500, 200, 500],
    ],
    ['always by name, also for the retry', '+fault=no_secret', [`${ID}_0`, `${ID}_1`], [500, 500]],
  ] as const) {
    it(`are armed ${how}`, async () => {
      const members = membersOf('chat', `sim-6x0${faults}`, 'x', true);
      const statuses: number[] = [];
      for (const id of ids) {
        const head = { 'privatemode-user-request-id': `proxy_${id}` };
        statuses.push((await server.ask('chat', members, head)).answer.status);
      }
      assert.deepEqual(statuses, expected);
    });
  }

  it('are armed by switch, always or once, also for endpoints without a model name', async () => {
    const headers = modelsHeaders(server.port, server.secret);
    const statuses = async () => [
      (await ask('')).answer.status,
      (await ask('')).answer.status,
      (await call({ port: server.port, method: 'GET', path: '/v1/models', headers })).status,
    ];
    server.faults.set('inference', 'informational:1+status:503');
    assert.deepEqual(await statuses(), [503, 503, 503]);
    server.faults.clear();
    server.faults.parse('inference-once', 'status:502');
    assert.deepEqual(await statuses(), [502, 200, 200]);
  });

  it('are not spent on a list of models if they are for the next request', async () => {
    server.faults.parse('inference-once', 'status:502');
    const headers = modelsHeaders(server.port, server.secret);
    assert.equal((await call({ port: server.port, method: 'GET', path: '/v1/models', headers })).status, 200);
    assert.equal((await ask('')).answer.status, 502);
  });

  it('are refused with status 400 if their name is unknown or their argument invalid', async () => {
    for (const fault of ['nope', 'flip_tag:x', 'status:-1', 'gpu_status:sold']) {
      const { answer } = await ask(`+fault=${fault}`);
      assert.equal(answer.status, 400, fault);
    }
    assert.throws(() => armFault('constructor'), /no fault named/);
  });
});
