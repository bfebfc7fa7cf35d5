/**
 * A gateway in front of a scripted remote, for one test; what must hold after every test is asserted when it
 * ends.
 */
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import type { TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Upstream } from '../../../lib/network/upstream.ts';
import { eventually } from '../processes/eventually.ts';
import { type Reply, startScriptedUpstream } from '../remote/scripted-upstream.ts';
import { MARK } from './canaries.ts';
import { fakeSession, startGateway, type TestGatewayOptions } from './gateway.ts';
import { watchScene } from './left-behind.ts';
import { type RawAnswer, type RawClient, rawClient, readAnswer } from './raw-client.ts';

/** Part of every prompt; must not appear where it has no business. */
export const CANARY = `${MARK}prompt-5d1f9`;

/**
 * Starts both; `answers` is what the remote answers until a test says otherwise. When the test ends, nothing
 * may be under way, the prompt neither on the wire nor in the log, and nothing may be left of the requests:
 * no listener, timer, sealed body or answer, and no memory that is reserved for them.
 */
export async function gatewayFixture(
  t: Pick<TestContext, 'after'>,
  { answers, ...options }: Omit<TestGatewayOptions, 'upstream'> & { readonly answers?: Reply } = {},
) {
  const upstream = await startScriptedUpstream();
  if (answers !== undefined) upstream.answers(answers);
  const scene = watchScene();
  const { session = fakeSession(), wrapUpstream = (unchanged: Upstream) => unchanged } = options;
  const gateway = await scene.run(() =>
    startGateway({
      upstream,
      ...options,
      session,
      wrapUpstream: (inner) => wrapUpstream(scene.upstream(inner)),
    }),
  );
  const clients: RawClient[] = [];
  /** A new connection; gone when the test ends. */
  const client = (): RawClient => {
    const opened = rawClient(gateway.port);
    clients.push(opened);
    return opened;
  };
  t.after(async () => {
    for (const { socket } of clients) socket.destroy();
    try {
      await eventually('the end of all exchanges', () => gateway.active() === 0, 20_000);
      await nothingLeft(scene.ofRequests, LINGER);
      assert.equal(gateway.counters.bufferedBytes, 0, 'memory that stayed reserved');
      assert.equal(gateway.heldResponses.bufferedBytes, 0, 'memory of responses that stayed reserved');
      assert.equal(getEventListeners(gateway.terminate, 'abort').length, 1, 'listeners of the shutdown');
      assert.deepEqual(upstream.violations, []);
      assert.ok(!upstream.received().includes(CANARY), 'the prompt was on the wire');
    } finally {
      await gateway.close().finally(() => upstream.close());
      await nothingLeft(scene.timers, 500); // less than any of them waits
    }
  });
  /** One that has sent this. */
  const sending = (request: string | Uint8Array): RawClient => {
    const opened = client();
    opened.send(request);
    return opened;
  };
  /** One request on a connection of its own, and its answer. */
  const ask = (request: string | Uint8Array): Promise<RawAnswer> => answerTo(sending(request));
  return { upstream, gateway, client, sending, ask };
}

export type Fixture = Awaited<ReturnType<typeof gatewayFixture>>;

/** ms; an answer that is complete may linger for five seconds. */
const LINGER = 20_000;

/** Waits until nothing is left. */
async function nothingLeft(left: () => string[], ms: number): Promise<void> {
  await eventually(
    () => `the end of ${left().join(', ')}`,
    () => left().length === 0,
    ms,
  );
}

/**
 * Waits for a complete answer, or for the end of the connection if that comes first; then for what there is.
 */
export async function answerTo(client: RawClient, ms = 60_000): Promise<RawAnswer> {
  const over = client.ended.then(() => true);
  const deadline = Date.now() + ms;
  for (let ended = false; ; ) {
    const text = client.received();
    const answer = readAnswer(text);
    if (answer?.complete === true) return answer;
    if (ended) {
      assert.ok(answer !== undefined, `the connection ended without an answer: ${await client.ended}`);
      return answer;
    }
    assert.ok(Date.now() < deadline, 'no answer in time');
    ended = await Promise.race([over, delay(2 + text.length / 50_000, false)]); // reading it all takes time
  }
}

/** A chat request with the canary in it. */
export const chatBody = (members: Readonly<Record<string, unknown>> = {}): string =>
  JSON.stringify({ model: 'm', messages: [{ role: 'user', content: `${CANARY} hello` }], ...members });

/** An HTTP/1.1 POST, byte for byte; Content-Length is added unless the headers decide otherwise. */
export function post(
  body: string | Uint8Array = chatBody(),
  options: {
    readonly path?: string;
    readonly version?: '1.0' | '1.1';
    readonly headers?: readonly string[];
  } = {},
): Buffer {
  const { path = '/v1/chat/completions', version = '1.1', headers = [] } = options;
  const bytes = Buffer.from(body as string);
  const framed = headers.some((line) => /^(content-length|transfer-encoding):/i.test(line));
  const lines = [
    `POST ${path} HTTP/${version}`,
    'Host: localhost:8080',
    ...(headers.some((line) => /^content-type:/i.test(line)) ? [] : ['Content-Type: application/json']),
    ...headers,
    ...(framed ? [] : [`Content-Length: ${bytes.length}`]),
  ];
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), bytes]);
}

export const get = (path: string, headers: readonly string[] = []): string =>
  `${[`GET ${path} HTTP/1.1`, 'Host: localhost:8080', ...headers].join('\r\n')}\r\n\r\n`;

/** The code of an error answer, in either dialect. */
export const codeOf = ({ body }: RawAnswer): string =>
  (JSON.parse(body) as { error: { code: string } }).error.code;

/** That it is this error, in either dialect. */
export const assertError = (answer: RawAnswer, status: number, code: string): void =>
  assert.deepEqual([answer.status, codeOf(answer)], [status, code]);
