/** Clients that leave, and clients that read slowly. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { eventually } from '../support/eventually.ts';
import { type InferenceServer, membersOf, startInference } from '../support/inference-server.ts';

/** How soon the server must have noticed; generous, as the machine may be busy. */
const NOTICE_MS = 200;

describe('a client that leaves', () => {
  let server: InferenceServer;
  before(async () => {
    server = await startInference();
  });
  after(() => server.close());
  beforeEach(() => server.exchanges.clear());

  /** Aborts when `due` resolves; returns when that was, by the wall clock. */
  async function leave(
    model: string,
    stream: boolean,
    due: (gotChunk: Promise<void>) => Promise<unknown>,
  ): Promise<number> {
    const client = new AbortController();
    const { promise, resolve } = Promise.withResolvers<void>();
    const members = membersOf('chat', model, 'x', stream);
    const asked = server.ask('chat', members, {}, { signal: client.signal, onChunk: () => resolve() });
    await due(promise);
    const left = Date.now();
    client.abort();
    await asked;
    return left;
  }

  const inFlight = (): Promise<true> =>
    eventually('the request to be opened', () => (server.exchanges.last()?.opened ?? '') !== '');

  const windows: [string, string, boolean, (gotChunk: Promise<void>) => Promise<unknown>][] = [
    ['before the head', 'sim-5x0+fault=stall_before', true, inFlight],
    ['while a unary answer is generated', 'sim-200x20', false, inFlight],
    ['in the middle of a stream', 'sim-200x20', true, (gotChunk) => gotChunk],
    ['in the middle of an event', 'sim-20x0+fault=stall_mid:2', true, (gotChunk) => gotChunk],
  ];
  for (const [when, model, stream, due] of windows) {
    it(`${when} is noticed within ${NOTICE_MS} ms, and generation stops`, async () => {
      const left = await leave(model, stream, due);
      const exchange = await server.finished();
      assert.ok(exchange.closedEarlyAt !== undefined, 'not noticed');
      assert.ok(
        exchange.closedEarlyAt - left < NOTICE_MS,
        `noticed after ${exchange.closedEarlyAt - left} ms`,
      );
      assert.ok((exchange.finishedAt ?? 0) - left < 2 * NOTICE_MS, 'went on generating');
      assert.equal(exchange.failure, '');
      assert.ok(exchange.written < 20);
    });
  }

  it('during the upload is noticed', async () => {
    const client = new AbortController();
    const asked = server.ask(
      'chat',
      membersOf('chat', 'sim-1x0+fault=slow_drain:10', 'x', true),
      {},
      { signal: client.signal },
    );
    await eventually('the request', () => server.exchanges.last() !== undefined);
    client.abort();
    await asked;
    const exchange = await server.finished();
    assert.notEqual(exchange.closedEarlyAt, undefined);
    assert.equal(exchange.status, 0);
  });

  it('after a complete answer has not left early', async () => {
    await server.ask('chat', membersOf('chat', 'sim-5x0', 'x', true));
    assert.equal((await server.finished()).closedEarlyAt, undefined);
  });

  it('and one that reads nothing stops the generation, without an end in memory', async () => {
    const client = new AbortController();
    const members = membersOf('chat', 'sim-1000000x0', 'x', true);
    const asked = server.ask(
      'chat',
      members,
      {},
      {
        signal: client.signal,
        onRequest: (request) => request.once('response', (response) => setImmediate(() => response.pause())),
      },
    );
    const written = (): number => server.exchanges.last()?.written ?? 0;
    let before = -1;
    for (let quiet = 0, looks = 0; quiet < 3 && looks < 100; looks++) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      quiet = written() > 0 && written() === before ? quiet + 1 : 0;
      before = written();
    }
    assert.ok(before < 100_000, `${before} events were written to nobody`);
    client.abort();
    await asked;
    assert.notEqual((await server.finished()).closedEarlyAt, undefined);
  });
});
