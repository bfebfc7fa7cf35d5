/**
 * What is written down of a request: dumps where they are asked for, readable by one user; logs without
 * contents.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { EPOCH, fakeSession } from '../support/doors/gateway.ts';
import {
  answerTo,
  chatBody,
  type Fixture,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import type { Scripted } from '../support/remote/scripted-upstream.ts';
import {
  COMPLETION,
  chatStream,
  chunked,
  completion,
  DONE,
  http,
  LAST_CHUNK,
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

/**
 * The dumps that a gateway has written: text by the end of the file's name. Waits until the files end with
 * these bodies, since nothing tells when the last bytes are on the disk.
 */
async function dumps(
  { gateway }: Fixture,
  ...bodies: readonly string[]
): Promise<{ req: string; resp: string; paths: string[] }> {
  const folder = join(gateway.directory, 'requests');
  const list = (): string[] =>
    (readdirSync(folder, { recursive: true, encoding: 'utf8' }) as string[])
      .filter((name) => name.endsWith('.txt'))
      .map((name) => join(folder, name))
      .toSorted();
  const read = (end: string): string => readFileSync(list().find((path) => path.endsWith(end)) ?? '', 'utf8');
  const isWhole = (body = '', i = 0): boolean => read(i === 0 ? '_req.txt' : '_resp.txt').endsWith(body);
  await eventually(
    () => `all dumps to end as they should, of ${list().join(', ')}`,
    () => list().length === bodies.length && gateway.active() === 0 && bodies.every(isWhole),
  );
  return { req: read('_req.txt'), resp: bodies.length > 1 ? read('_resp.txt') : '', paths: list() };
}

describe('request dumps', { concurrency: true }, () => {
  it('hold what the application sent and saw, in plain text, without its credentials', async (t) => {
    const fixture = await gatewayFixture(t, { settings: { dumpRequests: true } });
    const { upstream, ask } = fixture;
    upstream.answers((request) => completion(request, { 'Set-Cookie': 'CANARY-KEY-5' }));
    const answer = await ask(
      post(chatBody(), { headers: SECRETS, path: '/v1/chat/completions?x=1&key=CANARY-KEY-6' }),
    );
    const { req, resp, paths } = await dumps(fixture, chatBody(), answer.body);
    assert.match(
      req,
      /^POST \/v1\/chat\/completions\?x=1&key=\[redacted\] HTTP\/1\.1\r\nHost: localhost:8080\r\n/,
    );
    assert.ok(req.endsWith(`\r\n\r\n${chatBody()}`), req);
    assert.match(req, /Authorization: Bearer \[redacted\]\r\n/);
    assert.match(resp, /^HTTP\/1\.1 200 OK\r\n/);
    assert.match(resp, /\r\ncontent-type: application\/json\r\n/);
    assert.ok(resp.endsWith(`\r\n\r\n${answer.body}`), resp);
    assert.doesNotMatch(req + resp, /CANARY-KEY/);
    for (const path of paths) assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal(statSync(join(paths[0] as string, '..')).mode & 0o777, 0o700);
  });

  const ENDINGS: readonly (readonly [
    what: string,
    body: string,
    script: (scripted: Scripted) => unknown,
    shown: RegExp,
  ])[] = [
    [
      'the error event of a stream that broke off',
      STREAMING,
      async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
        scripted.end();
      },
      /"hel"[\s\S]*"code":"stream_unfinished"[\s\S]*\n\n$/,
    ],
    [
      'a stream as it was shown, event by event',
      STREAMING,
      async (scripted) => scripted.write(chatStream(await scripted.body())),
      /"hel"[\s\S]*"lo"[\s\S]*\[DONE\]\n\n$/,
    ],
    [
      'the error response to a refused body',
      '{"a":}',
      () => {},
      /^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*"code":"invalid_json"/,
    ],
  ];
  for (const [what, body, script, shown] of ENDINGS) {
    it(`hold ${what}`, async (t) => {
      const fixture = await gatewayFixture(t, { settings: { dumpRequests: true } });
      fixture.upstream.on(script);
      const answer = await fixture.ask(post(body));
      const { req, resp } = await dumps(fixture, body, answer.body);
      assert.ok(req.endsWith(`\r\n\r\n${body}`), req);
      assert.ok(resp.endsWith(`\r\n\r\n${answer.body}`), resp);
      assert.match(resp, shown);
    });
  }

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
    const request = (members: object = {}, path?: string): Buffer =>
      post(chatBody({ ...private_, ...members }), {
        headers: SECRETS,
        ...(path === undefined ? {} : { path }),
      });
    const answers = {
      ...COMPLETION,
      choices: [{ index: 0, message: { content: 'CANARY-ANSWER' }, finish_reason: 'stop' }],
    };
    upstream.on(
      async (scripted) => scripted.write(http(200, sealedAnswers(await scripted.body()).object(answers))),
      async (scripted) => scripted.write(chatStream(await scripted.body())),
      async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        await scripted.write(STREAM_HEAD + chunked(sealed.chunk('CANARY-ANSWER')));
      },
      async (scripted) => {
        await scripted.body();
        await scripted.write(http(500, 'CANARY-ANSWER in clear'));
      },
      async (scripted) => {
        await scripted.body();
        await scripted.write(http(500, '{"error":"CANARY-ANSWER"}', { 'Privatemode-Encrypted': 'false' }));
      },
      (scripted) => scripted.reset(),
    );
    assert.equal((await ask(request())).status, 200);
    await ask(request({ stream: true }));
    await ask(request({ stream: true }));
    await ask(request());
    await ask(request());
    await ask(request());
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
    const { upstream, gateway, sending } = await gatewayFixture(t, { answers: completion });
    const asking = sending(post(chatBody(), { headers: ['X-Request-Id: of-the-client'] }));
    const { headers } = await answerTo(asking);
    const id = headers['privatemode-proxy-request-id'];
    assert.equal(upstream.requests[0]?.headers['privatemode-user-request-id'], `${id}_0`);
    await eventually('the end of the exchange', () => gateway.logLines.join('').includes('Request ended'));
    const lines = gateway.logLines.map((line) => JSON.parse(line) as Record<string, unknown>);
    for (const line of lines)
      assert.deepEqual([line['requestId'], line['clientRequestId']], [id, 'of-the-client']);
  });

  it('counts each request once in the metrics, with its status and error code', async (t) => {
    const { gateway, ask } = await gatewayFixture(t, { answers: completion });
    await ask(post());
    await ask(post('{'));
    await ask(post('{}', { path: '/openai/v1/chat/completions?api-key=a-secret' }));
    await ask(get('/healthz')); // is not counted
    await eventually('the observations', () => gateway.observations.length === 3);
    const [good, bad, unknown] = gateway.observations;
    assert.deepEqual([good?.endpoint, good?.status, good?.code, good?.model], ['chat', 200, null, 'm']);
    assert.deepEqual([bad?.endpoint, bad?.status, bad?.code], ['chat', 400, 'invalid_json']);
    assert.deepEqual([unknown?.endpoint, unknown?.path, unknown?.outcome], ['none', '/openai/*', 'refused']);
    assert.equal(gateway.counters.inFlight, 0);
  });

  it('counts the wait for a verified secret as time that the proxy adds, after the last byte of the upload', async (t) => {
    const secret = Promise.withResolvers<typeof EPOCH>();
    const { gateway, sending } = await gatewayFixture(t, {
      answers: completion,
      session: fakeSession({ acquire: () => secret.promise }),
    });
    const client = sending(post());
    await eventually('the request', () => gateway.active() === 1);
    await delay(50); // in which the upload ends
    secret.resolve(EPOCH);
    await answerTo(client);
    const { addedMs } = await eventually('an observation', () => gateway.observations[0]);
    assert.ok(Number(addedMs) > 20, `${addedMs}`); // of the 50, most are after the upload
  });

  it('counts the events of a stream one by one while it runs, although they came in one piece', async (t) => {
    const { gateway, upstream, sending } = await gatewayFixture(t);
    const rest = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      const first = ['a', 'b', 'c'].map((text) => sealed.chunk(text)).join('');
      await scripted.write(STREAM_HEAD + chunked(first));
      await rest.promise;
      await scripted.write(chunked(sealed.chunk('d', 'stop') + DONE) + LAST_CHUNK);
    });
    const client = sending(post(STREAMING));
    await client.until(/"c"/);
    assert.equal(gateway.events(), 3);
    rest.resolve();
    await answerTo(client);
    const { events } = await eventually('an observation', () => gateway.observations[0]);
    assert.deepEqual([events, gateway.events()], [5, 0]);
  });
});
