/**
 * A program that gives up, by every means the official clients offer, in every window of an exchange: the
 * service is told at once, so that nobody pays for words that nobody reads.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { proxyAlone } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { ANTHROPIC_CLIENTS, type AnthropicClass, OPENAI_CLIENTS, type OpenAIClass } from './versions.ts';

/** ms until the simulator must have seen the connection close. */
const AT_ONCE = 50;
/** A busy machine may be late once; a timer somewhere on the way would be late every time. */
const TRIES = 3;

interface Options {
  readonly signal?: AbortSignal;
  readonly timeout?: number;
}

interface Client {
  readonly UserAbort: new () => Error;
  readonly Timeout: new () => Error;
  unary(model: string, content: string, options: Options): Promise<unknown>;
  /** Resolves once the head of the answer is here. */
  stream(model: string, options: Options): Promise<AsyncIterable<unknown>>;
}

type Connect = (url: string) => Client;

const openai =
  (Class: OpenAIClass): Connect =>
  (url) => {
    const { completions } = new Class({ baseURL: `${url}/v1`, apiKey: 'k', maxRetries: 0 }).chat;
    const request = (model: string, content = 'x') => ({
      model,
      messages: [{ role: 'user' as const, content }],
    });
    return {
      UserAbort: Class.APIUserAbortError,
      Timeout: Class.APIConnectionTimeoutError,
      unary: (model, content, options) => completions.create(request(model, content), options),
      stream: (model, options) => completions.create({ ...request(model), stream: true }, options),
    };
  };

const anthropic =
  (Class: AnthropicClass): Connect =>
  (url) => {
    const { messages } = new Class({ baseURL: url, apiKey: 'k', maxRetries: 0 });
    const request = (model: string, content = 'x') => ({
      model,
      max_tokens: 100,
      messages: [{ role: 'user' as const, content }],
    });
    return {
      UserAbort: Class.APIUserAbortError,
      Timeout: Class.APIConnectionTimeoutError,
      unary: (model, content, options) => messages.create(request(model, content), options),
      stream: (model, options) => messages.create({ ...request(model), stream: true }, options),
    };
  };

const CLIENTS: readonly (readonly [name: string, connect: Connect])[] = [
  ...Object.entries(OPENAI_CLIENTS).map(([name, Class]) => [name, openai(Class)] as const),
  ...Object.entries(ANTHROPIC_CLIENTS).map(([name, Class]) => [name, anthropic(Class)] as const),
];

interface Scene {
  readonly client: Client;
  readonly stack: Stack;
}

/** The newest exchange is known to the service, its body opened. */
async function underWay({ stack }: Scene): Promise<void> {
  const { exchanges } = stack.simulator;
  await eventually('the request to arrive', () => exchanges.inFlight() > 0);
  await eventually('the request to be opened', () => exchanges.last()?.opened !== '');
}

/** Aborts once `due` resolves; what was asked must then end as an abort. Resolves with when that was. */
async function abortWhen(
  scene: Scene,
  ask: (signal: AbortSignal) => Promise<unknown>,
  due: () => Promise<unknown>,
): Promise<number> {
  const abort = new AbortController();
  const asked = assert.rejects(ask(abort.signal), (error) => {
    assert.ok(error instanceof scene.client.UserAbort, String(error));
    return true;
  });
  await due();
  const left = Date.now();
  abort.abort();
  await asked;
  return left;
}

type Phase = 'before_headers' | 'before_first_token' | 'mid_stream';

interface Way {
  readonly what: string;
  /** What the proxy counts it as. */
  readonly phase: Phase;
  /** Leaves; resolves with when that was, wall clock. */
  readonly leave: (scene: Scene) => Promise<number>;
}

const WAYS: readonly Way[] = [
  {
    what: 'abort while the service still reads the request',
    phase: 'before_headers',
    leave: (scene) =>
      abortWhen(
        scene,
        (signal) => scene.client.unary('sim-1x0+fault=slow_drain:100', 'x', { signal }),
        () => eventually('the request to arrive', () => scene.stack.simulator.exchanges.inFlight() > 0),
      ),
  },
  {
    what: 'abort of a stream before any answer',
    phase: 'before_headers',
    leave: (scene) =>
      abortWhen(
        scene,
        (signal) => scene.client.stream('sim-5x0+fault=stall_before', { signal }),
        () => underWay(scene),
      ),
  },
  {
    what: 'abort of a whole answer while it is generated',
    phase: 'before_headers',
    leave: (scene) =>
      abortWhen(
        scene,
        (signal) => scene.client.unary('sim-500x20', 'x', { signal }),
        () => underWay(scene),
      ),
  },
  {
    what: 'abort of a stream before its first token',
    phase: 'before_first_token',
    async leave({ client }) {
      const abort = new AbortController();
      const stream = await client.stream('sim-5x0+fault=stall_mid:0', { signal: abort.signal });
      const left = Date.now();
      abort.abort();
      for await (const _ of stream) assert.fail('an event came');
      return left;
    },
  },
  {
    what: 'abort of a stream in the middle',
    phase: 'mid_stream',
    async leave({ client }) {
      const abort = new AbortController();
      let left = 0;
      for await (const _ of await client.stream('sim-500x20', { signal: abort.signal })) {
        left ||= Date.now();
        abort.abort();
      }
      return left;
    },
  },
  {
    what: 'break out of the loop over a stream',
    phase: 'mid_stream',
    async leave({ client }) {
      for await (const _ of await client.stream('sim-500x20', {})) break;
      return Date.now();
    },
  },
  {
    what: "time-out of the client's own",
    phase: 'before_headers',
    async leave({ client }) {
      const asked = client.unary('sim-500x20', 'x', { timeout: 1_000 });
      await assert.rejects(asked, (error) => error instanceof client.Timeout);
      return Date.now();
    },
  },
];

describe('a client that gives up a request', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.close());

  const aborted = (phase: Phase): number =>
    proxyAlone('counters') ? 0 : (stack.proxy.counters.clientAborts.get(phase) ?? 0);

  for (const [name, connect] of CLIENTS) {
    describe(name, () => {
      for (const { what, phase, leave } of WAYS) {
        it(`${what}: the service sees the end within ${AT_ONCE} ms`, async () => {
          const scene = { client: connect(stack.url), stack };
          const { exchanges } = stack.simulator;
          const counted = aborted(phase);
          const lateness: number[] = [];
          while (lateness.length < TRIES && (lateness.at(-1) ?? AT_ONCE) >= AT_ONCE) {
            const left = await leave(scene);
            await eventually('the service to notice', () => exchanges.inFlight() === 0);
            const exchange = exchanges.last();
            assert.ok(exchange?.closedEarlyAt !== undefined, 'the answer was completed');
            lateness.push(exchange.closedEarlyAt - left);
          }
          assert.ok((lateness.at(-1) ?? AT_ONCE) < AT_ONCE, `closed ${lateness.join(', ')} ms after`);
          if (proxyAlone('counters')) return;
          await eventually('the count', () => aborted(phase) === counted + lateness.length);
        });
      }

      it('gets an answer to its next request', async () => {
        await connect(stack.url).unary('sim-echo', 'hello', {});
        assert.equal(stack.simulator.exchanges.last()?.closedEarlyAt, undefined);
      });
    });
  }
});
