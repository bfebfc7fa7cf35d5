/**
 * A program that gives up, by every means the official clients offer: the service is told, so that nobody
 * pays for words that nobody reads. Each window of an exchange: test/gateway/client-aborts.test.ts.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Asked, CLIENTS, type Client } from './ask.ts';

/** An answer that would take longer than any of these tests. */
const MODEL = 'sim-5000x20';

/** Aborts what was asked once the service has it; it must then end as an abort. */
const abortWhenAsked =
  (ask: (client: Client, asked: Asked) => Promise<unknown>): Leave =>
  async (client, asked, { simulator: { exchanges } }) => {
    const abort = new AbortController();
    const left = assert.rejects(
      ask(client, { ...asked, signal: abort.signal }),
      client.classes.APIUserAbortError,
    );
    await eventually('the request to be opened', () => Boolean(exchanges.last()?.opened));
    abort.abort();
    await left;
  };

/** Leaves an exchange. */
type Leave = (client: Client, asked: Asked, stack: Stack) => Promise<unknown>;

const WAYS: Readonly<Record<string, Leave>> = {
  'the abort of a whole answer': abortWhenAsked((client, asked) => client.ask(asked)),
  'the abort of a stream before its head': abortWhenAsked((client, asked) =>
    client.open({ ...asked, model: 'sim-5x0+fault=stall_before' }),
  ),
  async 'the abort of a stream before its first token'(client, asked) {
    const abort = new AbortController();
    const model = 'sim-5x0+fault=stall_mid:0';
    const stream = await client.open({ ...asked, model, signal: abort.signal });
    abort.abort();
    for await (const _ of stream) assert.fail('an event came');
  },
  async 'the abort of a stream in its middle'(client, asked) {
    const abort = new AbortController();
    for await (const _ of await client.open({ ...asked, signal: abort.signal })) abort.abort();
  },
  async 'a break out of the loop over a stream'(client, asked) {
    for await (const _ of await client.open(asked)) break;
  },
  async "a time-out of the client's own"(client, asked) {
    const { APIConnectionTimeoutError } = client.classes;
    await assert.rejects(client.ask({ ...asked, timeout: 1_000 }), APIConnectionTimeoutError);
  },
};

describe('a client that gives up a request', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.close());

  for (const [name, client] of Object.entries(CLIENTS)) {
    for (const [what, leave] of Object.entries(WAYS)) {
      it(`${name}: ${what} ends the exchange at the service, and the next request is answered`, async () => {
        const { exchanges } = stack.simulator;
        exchanges.clear();
        const asked = { url: stack.url, model: MODEL, maxRetries: 0 };
        await leave(client, asked, stack);
        await eventually('the service to notice', () => exchanges.inFlight() === 0);
        assert.ok(exchanges.last()?.closedEarlyAt !== undefined, 'the answer was completed');
        assert.equal(await client.ask({ ...asked, model: 'sim-echo' }), 'hello');
      });
    }
  }
});
