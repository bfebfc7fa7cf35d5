/**
 * What is written down of a request: dumps where they are asked for, readable by one user; logs without
 * contents.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { EPOCH, fakeSession } from '../support/doors/gateway.ts';
import { answerTo, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Script, saying } from '../support/remote/scripted-upstream.ts';
import {
  beginning,
  COMPLETION,
  chatStream,
  chunked,
  completion,
  http,
  inTwoParts,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });
const SECRETS = [
  'Authorization: Bearer CANARY-KEY-1',
  'X-Api-Key: CANARY-KEY-2',
  'Cookie: session=CANARY-KEY-3',
  'Proxy-Authorization: Basic CANARY-KEY-4',
];

describe('request dumps', { concurrency: true }, () => {
  const broken: Script = async (scripted) => {
    await scripted.write(beginning(await scripted.body()));
    scripted.end();
  };
  const withCookie = saying((request) => completion(request, { 'Set-Cookie': 'CANARY-KEY-5' }));
  it('hold what the application sent and saw, the error of a broken stream or a refusal too, without credentials', async (t) => {
    for (const [script, body, shown] of [
      [withCookie, chatBody(), /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\ncontent-type: application\/json\r\n/],
      [broken, STREAMING, /"hel"[\s\S]*"code":"stream_unfinished"[\s\S]*\n\n$/],
      [broken, '{"a":}', /^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*"code":"invalid_json"/],
    ] as const) {
      const { upstream, gateway, ask } = await gatewayFixture(t, { settings: { dumpRequests: true } });
      upstream.on(script);
      const path = '/v1/chat/completions?x=1&key=';
      const answer = await ask(post(body, { headers: SECRETS, path: `${path}CANARY-KEY-6` }));
      const folder = join(gateway.directory, 'requests');
      await eventually('whole dumps', () => {
        if (gateway.active() > 0) return false;
        const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort().slice(-2);
        const [req = '', resp = ''] = names.map((name) => readFileSync(join(folder, name), 'utf8'));
        if (!req.endsWith(`\r\n\r\n${body}`) || !resp.endsWith(`\r\n\r\n${answer.body}`)) return false;
        assert.ok(req.startsWith(`POST ${path}[redacted] HTTP/1.1\r\nHost: localhost:8080\r\n`), req);
        assert.match(resp, shown);
        assert.doesNotMatch(req + resp, /CANARY-KEY/);
        return true;
      });
    }
  });

  it('are not written by default', async (t) => {
    const { gateway, ask } = await gatewayFixture(t, { answers: completion });
    await ask(post());
    assert.deepEqual(readdirSync(gateway.directory), ['ca.pem']);
  });
});

describe('the gateway, logging at level debug', { concurrency: true }, () => {
  it('writes neither contents nor keys, whether requests succeed or fail', async (t) => {
    const { upstream, gateway, ask, sending } = await gatewayFixture(t, {
      settings: { streamIdleTimeout: 200 },
    });
    const private_ = {
      user: 'CANARY-BODY',
      cache_salt: 'CANARY-SALT-of-32-bytes-or-more-is-it',
      tools: ['CANARY-BODY'],
    };
    const request = (members: object = {}, path = '/v1/chat/completions'): Buffer =>
      post(chatBody({ ...private_, ...members }), { headers: SECRETS, path });
    const answers = {
      ...COMPLETION,
      choices: [{ index: 0, message: { content: 'CANARY-ANSWER' }, finish_reason: 'stop' }],
    };
    upstream.on(
      saying((body) => http(200, sealedAnswers(body).object(answers))),
      saying(chatStream),
      saying((body) => STREAM_HEAD + chunked(sealedAnswers(body).chunk('CANARY-ANSWER'))),
      saying(http(500, 'CANARY-ANSWER in clear')),
      saying(http(500, '{"error":"CANARY-ANSWER"}', { 'Privatemode-Encrypted': 'false' })),
      (scripted) => scripted.reset(),
    );
    assert.equal((await ask(request())).status, 200);
    for (const stream of [true, true, false, false, false]) await ask(request({ stream }));
    await ask(request({}, '/v1/nowhere/CANARY-PATH'));
    await ask(request({}, '/v1/chat/completions?token=CANARY-QUERY&CANARY-QUERY'));
    await ask(request({}, '/v1/../CANARY-PATH'));
    await ask(request({ model: 'CANARY-MODEL\n' }));
    await ask(post('{"CANARY-BODY": x}', { headers: SECRETS }));
    await ask(post(chatBody(private_), { headers: [...SECRETS, 'Origin: https://CANARY-ORIGIN'] }));
    const leaving = sending(request());
    leaving.socket.destroy();
    await eventually('the end of the exchange', () => gateway.active() === 0);
    const log = gateway.logLines.join('');
    assert.ok(gateway.logLines.length > 15, `only ${gateway.logLines.length} lines`);
    assert.doesNotMatch(log, /CANARY/);
    for (const line of gateway.logLines) assert.match(line, /"requestId":"proxy_[0-9a-f-]{36}"/);
    const ids = (lines: readonly string[]) =>
      lines.map((line) => JSON.parse(line).requestId as string).sort();
    const ends = gateway.logLines.filter((line) => line.includes('"msg":"Request ended"'));
    assert.deepEqual(ids(ends), [...new Set(ids(gateway.logLines))].sort(), 'one line for each request');
  });

  it('names in each line the request id that the service and the client have seen', async (t) => {
    const { upstream, gateway, ask } = await gatewayFixture(t, { answers: completion });
    const { headers } = await ask(post(chatBody(), { headers: ['X-Request-Id: of-the-client'] }));
    const id = headers['privatemode-proxy-request-id'];
    assert.equal(upstream.requests[0]?.headers['privatemode-user-request-id'], `${id}_0`);
    await eventually('the end of the exchange', () => gateway.logLines.join('').includes('Request ended'));
    for (const line of gateway.logLines.map((each) => JSON.parse(each)))
      assert.deepEqual([line.requestId, line.clientRequestId], [id, 'of-the-client']);
  });

  it('counts the events of a stream while it runs, and the wait for a verified secret as time that the proxy adds', async (t) => {
    const secret = Promise.withResolvers<typeof EPOCH>();
    const { gateway, upstream, sending } = await gatewayFixture(t, {
      session: fakeSession({ acquire: () => secret.promise }),
    });
    const rest = Promise.withResolvers<void>();
    upstream.on(inTwoParts(rest.promise));
    const body = post(STREAMING);
    const client = sending(body);
    await eventually('all of the upload', () => gateway.counters.bufferedBytes >= STREAMING.length);
    await delay(50);
    secret.resolve(EPOCH);
    await client.until(/"hel"/);
    assert.equal(gateway.events(), 1);
    rest.resolve();
    await answerTo(client);
    const { events, addedMs } = await eventually('an observation', () => gateway.observations[0]);
    assert.deepEqual([events, gateway.events()], [3, 0]);
    assert.ok(Number(addedMs) >= 49, `${addedMs}`);
  });
});
