/**
 * Request heads with random damage: whatever arrives at the remote is well-formed, sealed, and not more than
 * was asked.
 */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import {
  CANARY,
  chatBody,
  type Fixture,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { rawClient, readAnswer } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { completion, http } from '../support/remote/sealed-answers.ts';

/** Changes a head, given as latin1 text. */
type Damage = (head: string) => string;

const NASTY_BYTES = [...'\r\n\0 \t:/%.;,\\\x0b\x7f\x80\xff0é', '\r\n'];
const NASTY_LINES = [
  ...['Transfer-Encoding: chunked', 'Transfer-Encoding: identity', 'Transfer-Encoding : chunked', ' chunked'],
  ...['TE: trailers', 'Content-Length: 0', 'Content-Length: 5', 'Content-Length: -1', 'Host: evil.example'],
  ...['Host:', 'Connection: close', 'Connection: Upgrade', 'Upgrade: h2c', 'Expect: 100-continue'],
  ...['Content-Encoding: gzip', 'Authorization: Bearer x', 'Origin: https://evil.example'],
  ...['Sec-Fetch-Site: cross-site', 'Privatemode-Secret-ID: x', '__proto__: x', 'X', ''],
];
const NASTY_TARGETS = [
  ...['/', '*', '//v1/models', '/v1/../v1/models', 'http://x/v1/models', 'x:443', '/v1/models?\\'],
  ...['/unstructured/x', '/v1/%6dodels'],
];

const at = fc.integer({ min: 0, max: 9_999 }).map((n) => n / 10_000);
const byte = fc.constantFrom(...NASTY_BYTES);

/** Replaces `count` characters, somewhere in the head, by `text`. */
const splice =
  (where: number, count: number, text: string): Damage =>
  (head) => {
    const i = Math.floor(where * head.length);
    return head.slice(0, i) + text + head.slice(i + count);
  };

/** Puts that line, or another one of the head once more, somewhere into the head. */
const addLine =
  (where: number, added?: string): Damage =>
  (head) => {
    const lines = head.split('\r\n');
    const i = Math.floor(where * (lines.length - 2));
    return lines.toSpliced(i + 1, 0, added ?? (lines[i] as string)).join('\r\n');
  };

const damages: fc.Arbitrary<Damage> = fc.oneof(
  fc.tuple(at, fc.constantFrom(0, 1), byte).map((drawn) => splice(...drawn)),
  fc.tuple(at, fc.integer({ min: 1, max: 12 })).map(([where, count]) => splice(where, count, '')),
  fc.tuple(at, fc.constantFrom(...NASTY_LINES)).map((drawn) => addLine(...drawn)),
  at.map((where) => addLine(where)),
  fc.constantFrom(...NASTY_TARGETS).map(
    (target): Damage =>
      (head) =>
        head.replace(/ \S+ /, ` ${target} `),
  ),
);

const requests = fc
  .tuple(fc.constantFrom('chat', 'chunked', 'models'), fc.array(damages, { minLength: 1, maxLength: 2 }))
  .map(([kind, list]) => {
    const body = chatBody();
    const chunks = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
    const kinds: Readonly<Record<string, Buffer | string>> = {
      chat: post(body),
      chunked: post(chunks, { headers: ['Transfer-Encoding: chunked'] }),
      models: get('/v1/models'),
    };
    const whole = kinds[kind]!.toString('latin1');
    const end = whole.indexOf('\r\n\r\n') + 4;
    return list.reduce((head, damage) => damage(head), whole.slice(0, end)) + whole.slice(end);
  });

/**
 * Sends it, and gives an answer until `late` to begin: some damage makes a request that is never complete.
 */
async function outcome({ gateway }: Fixture, request: string, late: AbortSignal): Promise<string> {
  const client = rawClient(gateway.port);
  client.send(request);
  const began = (): boolean => late.aborted || /HTTP\/1\.1 [2-5]/.test(client.received());
  await Promise.race([client.ended, eventually('the beginning of an answer', began)]);
  const text = client.received();
  client.socket.destroy();
  return text;
}

const ANSWERS = new Set([200, 400, 401, 403, 404, 405, 408, 413, 415, 417, 431, 501, 502, 505]);

it('damaged request heads reach the remote only as well-formed requests, at most one for each head', {
  timeout: 600_000,
}, async (t) => {
  const fixture = await gatewayFixture(t);
  const { upstream, ask } = fixture;
  upstream.on(async (scripted) => {
    const body = await scripted.body();
    await scripted.write(scripted.request.method === 'POST' ? completion(body) : http(200, '{"data":[]}'));
  });
  let sealed = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(requests, { minLength: 25, maxLength: 25 }), async (batch) => {
      upstream.clear();
      // A good request that is sent behind them tells how long answers take on this machine.
      const late = new AbortController();
      const texts = Promise.all(batch.map((request) => outcome(fixture, request, late.signal)));
      assert.equal((await ask(post())).status, 200);
      setTimeout(() => late.abort(), 100);
      const answers = await texts;
      await delay(20); // in which what should not arrive would
      assert.deepEqual(upstream.violations, []);
      const arrived = upstream.requests.length - 1;
      assert.ok(arrived <= batch.length, 'more arrived than were sent');
      assert.ok(!upstream.received().includes(CANARY), 'the prompt was on the wire');
      for (const text of answers) {
        const unfinished = text === '' || text === 'HTTP/1.1 100 Continue\r\n\r\n';
        const status = unfinished ? 200 : readAnswer(text)?.status;
        assert.ok(status !== undefined && ANSWERS.has(status), `answered ${JSON.stringify(text)}`);
      }
      sealed += arrived;
    }),
    { numRuns: 24, seed: 20_260_801, endOnFailure: true },
  );
  assert.ok(sealed > 50, `only ${sealed} requests got through: the damage is too great to show anything`);
});
