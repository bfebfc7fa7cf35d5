/** Every fault of the inference side, seen by a literal client: what arrives, and how it ends. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { FORGED } from '../../simulator/inference/faults/messages.ts';
import { armFault, INFERENCE_FAULTS } from '../../simulator/inference/faults.ts';
import {
  DIALECTS,
  type Exchanged,
  type InferenceServer,
  membersOf,
  startInference,
} from '../support/remote/inference-server.ts';
import { Attempt, call, libraryHeaders, modelsHeaders } from '../support/remote/literal-client.ts';

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

/** What a client that checks everything would report, in a word or two. */
function verdict({ attempt, answer }: Exchanged, dialect: Dialect, stream: boolean): string {
  if (answer.broken !== undefined) return `${answer.status} broken: ${answer.broken}`;
  const mark = answer.headers['privatemode-encrypted'];
  if (answer.status !== 200) return `${answer.status} ${mark === undefined ? 'unmarked' : `marked ${mark}`}`;
  const zipped = answer.headers['content-encoding'] === 'gzip';
  const text = (zipped ? gunzipSync(answer.body) : answer.body).toString();
  const prefix = `${mark === undefined ? '' : `marked ${mark}, `}${zipped ? 'zipped, ' : ''}`;
  let events: Opened[];
  try {
    const plain = DIALECTS[dialect].answer;
    events = stream
      ? (attempt.openEvents(text, plain) as Opened[])
      : [{ data: attempt.openValue(text, plain) as Opened['data'] }];
  } catch (error) {
    return `${prefix}${/not encrypted/.test(String(error)) ? 'in clear' : 'not authentic'}`;
  }
  if (events.some(({ data }) => data.error !== undefined)) return `${prefix}error event`;
  const isEnd = ({ data }: Opened): boolean => (data as unknown) === '[DONE]' || data.type === 'message_stop';
  const ends = stream ? events.filter(isEnd).length : 1;
  if (ends !== 1) return `${prefix}${ends} ends`;
  return `${prefix}${events.map(wordsOf).join('') === TEXT ? 'complete' : 'shortened'}`;
}

const RESET = 'broken: ECONNRESET read';
const both = (outcome: string) => [outcome, outcome] as const;
const streamOnly = (outcome: string) => [outcome, 'complete'] as const;

/** Fault as asked for → outcome on a stream, and on a unary answer. */
const OUTCOMES: Record<
  keyof typeof INFERENCE_FAULTS,
  readonly [asked: string, stream: string, unary: string]
> = {
  status: ['status:429,7', ...both('429 marked false')],
  gateway_status: ['gateway_status:503', ...both('503 unmarked')],
  redirect: ['redirect', ...both('307 unmarked')],
  no_secret: ['no_secret', ...both('500 marked false')],
  gpu_status: ['gpu_status:revoked,1', ...both('500 marked false')],
  early_413: ['early_413', ...both('413 marked false')],
  early_413_abrupt: ['early_413_abrupt', ...both('413 marked false')],
  slow_drain: ['slow_drain:20000', ...both('complete')],
  stall_before: ['stall_before:30', ...both('complete')],
  reset_before_headers: ['reset_before_headers', ...both(`0 ${RESET}`)],
  informational: ['informational:3', ...both('complete')],
  flip_tag: ['flip_tag:2', ...both('not authentic')],
  short_iv: ['short_iv', ...both('not authentic')],
  plain_member: ['plain_member', ...both('not authentic')],
  wrong_nonce: ['wrong_nonce', ...both('not authentic')],
  foreign_labels: ['foreign_labels', ...both('complete')],
  plain_unmarked: ['plain_unmarked', ...both('in clear')],
  plain_marked: ['plain_marked', ...both('marked false, in clear')],
  sealed_marked: ['sealed_marked:FALSE', ...both('marked FALSE, complete')],
  gzip: ['gzip', ...both('zipped, complete')],
  huge_line: ['huge_line', ...both('complete')],
  replay: ['replay', ...streamOnly('not authentic')],
  reorder: ['reorder', ...streamOnly('not authentic')],
  drop: ['drop', ...streamOnly('not authentic')],
  missing_terminal: ['missing_terminal', ...streamOnly('0 ends')],
  duplicate_terminal: ['duplicate_terminal', ...streamOnly('2 ends')],
  truncate: ['truncate:4', ...streamOnly('0 ends')],
  forged_terminal: ['forged_terminal:4', ...streamOnly('shortened')],
  error_event: ['error_event:4', ...streamOnly('error event')],
  crlf: ['crlf', ...streamOnly('complete')],
  comments: ['comments', ...streamOnly('complete')],
  reset_after_headers: ['reset_after_headers', ...both(`200 ${RESET}`)],
  reset_mid_event: ['reset_mid_event:4', ...both(`200 ${RESET}`)],
  half_close: ['half_close:4', ...both('200 broken: ECONNRESET')],
  stall_mid: ['stall_mid:4,30', ...both('complete')],
  trickle: ['trickle', ...both('complete')],
  split_events: ['split_events', ...both('complete')],
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

  const ask = (fault: string, dialect: Dialect = 'chat', stream = true): Promise<Exchanged> =>
    server.ask(dialect, membersOf(dialect, `sim-6x0+fault=${fault}`, 'hello', stream));

  it('begin from a complete answer', async () => {
    for (const dialect of ['chat', 'messages'] as const) {
      for (const stream of [true, false]) {
        const exchanged = await server.ask(dialect, membersOf(dialect, 'sim-6x0', 'hello', stream));
        assert.equal(verdict(exchanged, dialect, stream), 'complete');
      }
    }
  });

  for (const [name, [asked, onStream, onUnary]] of Object.entries(OUTCOMES)) {
    const row = INFERENCE_FAULTS[name as keyof typeof INFERENCE_FAULTS];
    it(`${asked}: ${row.does}`, async () => {
      for (const dialect of ['chat', 'messages'] as const) {
        for (const [stream, expected] of [
          [true, onStream],
          [false, onUnary],
        ] as const) {
          const exchanged = await ask(asked, dialect, stream);
          assert.equal(
            verdict(exchanged, dialect, stream),
            expected,
            `${dialect}, ${stream ? 'stream' : 'unary'}`,
          );
          const exchange = await server.finished();
          assert.deepEqual(exchange.faults, [asked]);
          assert.equal(exchange.failure, '');
        }
      }
    });
  }

  describe('in detail', () => {
    it('statuses carry Retry-After only where asked for', async () => {
      assert.equal((await ask('status:429,7')).answer.headers['retry-after'], '7');
      assert.equal((await ask('status:503')).answer.headers['retry-after'], undefined);
      assert.equal((await ask('gateway_status:503,3')).answer.headers['retry-after'], '3');
      for (const status of [401, 403, 409, 429, 500, 502, 503]) {
        assert.equal((await ask(`status:${status}`)).answer.status, status);
      }
    });

    it('a redirect points back here, so that following it would be recorded', async () => {
      const { location } = (await ask('redirect:308')).answer.headers;
      assert.equal(location, `https://localhost:${server.port}/v1/chat/completions?redirected`);
    });

    it('an unknown secret is named', async () => {
      const { body } = (await ask('no_secret')).answer;
      const { error } = JSON.parse(body.toString()) as { error: { message: string } };
      assert.equal(
        error.message,
        `getting secret for OCSP verification: no secret for ID "${server.secret.id}"`,
      );
    });

    it('the GPU is judged by the policy of the request', async () => {
      assert.equal((await ask('gpu_status:good')).answer.status, 200);
      assert.equal((await ask('gpu_status:unknown')).answer.status, 200);
      assert.equal((await ask('gpu_status:revoked,1700000000')).answer.status, 200);
      assert.equal((await ask('gpu_status:revoked,1699999999')).answer.status, 500);
    });

    it('without a policy in the request only a good GPU passes', async () => {
      for (const [status, expected] of [
        ['good', 200],
        ['unknown', 500],
      ] as const) {
        const model = `sim-6x0+fault=gpu_status:${status}`;
        const headers = libraryHeaders(server.port, server.secret, model);
        const { path, request } = DIALECTS.chat;
        const body = new Attempt(server.secret).sealObject(membersOf('chat', model, 'x', true), request);
        const answer = await call({ port: server.port, path, headers, body });
        assert.equal(answer.status, expected, answer.body.toString());
      }
    });

    it('an early 413 comes before the body, and the body is drained', async () => {
      const body = Buffer.alloc(4 * 1024 * 1024);
      let sent = false;
      let sentWhenAnswered: boolean | undefined;
      const { answer } = await server.ask(
        'chat',
        membersOf('chat', 'sim-6x0+fault=early_413', 'x', true),
        { 'content-length': String(body.length) },
        {
          body: body.subarray(0, 1),
          onRequest(request) {
            request.end = ((first: Uint8Array) => {
              request.write(first);
              return request;
            }) as typeof request.end;
            request.once('response', () => {
              sentWhenAnswered = sent;
              sent = true;
              request.write(body.subarray(1));
            });
          },
        },
      );
      assert.equal(sentWhenAnswered, false);
      assert.equal(answer.status, 413);
      assert.equal(answer.broken, undefined);
      assert.equal((await server.finished()).status, 413);
      assert.equal(server.recorder.requests().at(-1)?.bodyBytes, body.length);
    });

    it('an abrupt 413 closes on a large upload', async () => {
      const { answer } = await server.ask(
        'chat',
        membersOf('chat', 'sim-6x0+fault=early_413_abrupt', 'x'.repeat(8 * 1024 * 1024), true),
      );
      await server.finished();
      assert.ok((server.recorder.requests().at(-1)?.bodyBytes ?? 0) < 8 * 1024 * 1024);
      assert.ok(answer.status === 413 || answer.broken !== undefined);
    });

    it('a slow drain takes the time of the body', async () => {
      const started = performance.now();
      await ask('slow_drain:5000'); // about 700 bytes of body
      const took = performance.now() - started;
      assert.ok(took > 80 && took < 2000, `took ${took} ms`);
    });

    it('informational answers come first, spaced as asked for', async () => {
      const started = performance.now();
      const { answer } = await ask('informational:4,20');
      assert.equal(answer.informational, 4);
      assert.ok(performance.now() - started >= 78);
    });

    it('a stall delays the second half of an event', async () => {
      const { answer } = await ask('stall_mid:3,80');
      const gaps = answer.chunks.slice(1).map(({ at }, index) => at - answer.chunks[index]!.at);
      assert.ok(Math.max(...gaps) > 70, String(gaps));
    });

    it('a stall without an end lasts until the client leaves', async () => {
      for (const fault of ['stall_before', 'stall_mid:1']) {
        const members = membersOf('chat', `sim-6x0+fault=${fault}`, 'x', true);
        const { answer } = await server.ask('chat', members, {}, { signal: AbortSignal.timeout(60) });
        assert.match(String(answer.broken), /ABORT|TIMEOUT|ECONNRESET/);
        assert.equal(answer.status, fault === 'stall_before' ? 0 : 200);
        const exchange = await server.finished();
        assert.notEqual(exchange.closedEarlyAt, undefined);
      }
    });

    it('a trickle is one write per byte', async () => {
      const { answer } = await ask('trickle');
      assert.equal((await server.finished()).written, answer.body.length);
    });

    it('split events arrive in two reads each', async () => {
      const { answer } = await ask('split_events');
      assert.ok(answer.chunks.length > 8, `${answer.chunks.length}`);
    });

    it('the long line is as long as asked for, and authentic', async () => {
      const { answer } = await ask('huge_line:300000');
      const longest = Math.max(
        ...answer.body
          .toString()
          .split('\n')
          .map((line) => line.length),
      );
      assert.ok(longest > 300_000 && longest < 302_000, String(longest));
    });

    it('the forged member stands in clear where a message belongs', async () => {
      const { answer } = await ask('plain_member:3');
      const events = answer.body.toString().split('\n\n');
      assert.deepEqual(
        events.map((event) => event.includes(FORGED)),
        events.map((_, index) => index === 3),
      );
    });

    it('the event that is named is the one that is hit', async () => {
      const clean = (await ask('informational:1')).answer.body.toString().split('\n\n');
      for (const position of [0, 2, 5]) {
        const { attempt, answer } = await ask(`flip_tag:${position}`);
        const events = answer.body.toString().split('\n\n');
        assert.equal(events.length, clean.length);
        const before = events.slice(0, position).join('\n\n');
        assert.equal(attempt.openEvents(before, DIALECTS.chat.answer).length, position);
        assert.throws(() => attempt.openEvents(events[position]!, DIALECTS.chat.answer));
      }
    });

    it('dropped, replayed and swapped events change the stream by just that', async () => {
      const ids = async (fault: string): Promise<number> =>
        (await ask(fault)).answer.body.toString().split('\n\n').length;
      const length = await ids('informational:1');
      assert.equal(await ids('drop'), length - 1);
      assert.equal(await ids('replay'), length + 1);
      assert.equal(await ids('reorder'), length);
    });

    it('the error event is encrypted and in the dialect', async () => {
      const chat = await ask('error_event:4');
      const openai = chat.attempt.openEvents(chat.answer.body.toString(), DIALECTS.chat.answer);
      assert.deepEqual(openai.at(-1), { data: '[DONE]' });
      assert.match(JSON.stringify(openai.at(-2)), /broke off/);
      assert.doesNotMatch(chat.answer.body.toString(), /broke off/);
      const messages = await ask('error_event:4', 'messages');
      const anthropic = messages.attempt.openEvents(
        messages.answer.body.toString(),
        DIALECTS.messages.answer,
      );
      assert.equal(anthropic.at(-1)?.event, 'error');
    });

    it('comments, ids and retry lines stand before every event', async () => {
      const text = (await ask('comments')).answer.body.toString();
      assert.equal(
        text.match(/^: keep-alive\nid: 7\nretry: 1000\ndata: /gm)?.length,
        text.match(/^data: /gm)?.length,
      );
    });

    it('several faults go together', async () => {
      const members = membersOf('chat', 'sim-6x0+fault=informational:2+fault=gzip+fault=trickle', 'x', true);
      const exchanged = await server.ask('chat', members);
      assert.equal(exchanged.answer.informational, 2);
      assert.equal(verdict(exchanged, 'chat', true), 'zipped, complete');
    });
  });

  describe('are armed', () => {
    const uuid = '0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b';
    const requestId = (id: string) => ({ 'privatemode-user-request-id': id });

    it('once by name: for the first attempt of a request, not for its retry', async () => {
      const members = membersOf('chat', 'sim-6x0+fault-once=no_secret', 'x', true);
      const statuses: number[] = [];
      for (const id of [`proxy_${uuid}_0`, `proxy_${uuid}_1`, `proxy_${uuid.replace('5b', '5c')}_0`]) {
        statuses.push((await server.ask('chat', members, requestId(id))).answer.status);
      }
      assert.deepEqual(statuses, [500, 200, 500]);
    });

    it('always by name, also for the retry', async () => {
      const members = membersOf('chat', 'sim-6x0+fault=no_secret', 'x', true);
      for (const id of [`proxy_${uuid}_0`, `proxy_${uuid}_1`]) {
        assert.equal((await server.ask('chat', members, requestId(id))).answer.status, 500);
      }
    });

    it('by switch, always or once', async () => {
      const members = membersOf('chat', 'sim-6x0', 'x', true);
      const statuses = async (count: number): Promise<number[]> => {
        const all: number[] = [];
        for (let sent = 0; sent < count; sent++) all.push((await server.ask('chat', members)).answer.status);
        return all;
      };
      server.faults.set('inference', 'informational:1+status:503');
      assert.deepEqual(await statuses(2), [503, 503]);
      server.faults.clear();
      server.faults.parse('inference-once', 'status:502');
      assert.deepEqual(await statuses(2), [502, 200]);
    });

    it('by switch for endpoints without a model name', async () => {
      server.faults.set('inference', 'status:418');
      const headers = modelsHeaders(server.port, server.secret);
      const { status } = await call({ port: server.port, method: 'GET', path: '/v1/models', headers });
      assert.equal(status, 418);
    });

    it('with arguments that are numbers where numbers belong', async () => {
      for (const fault of ['flip_tag:x', 'status:-1', 'gpu_status:sold']) {
        const { answer } = await ask(fault);
        assert.equal(answer.status, 400, fault);
      }
      assert.throws(() => armFault('constructor'), /no fault named/);
    });
  });
});
