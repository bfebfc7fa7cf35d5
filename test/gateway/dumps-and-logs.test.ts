/**
 * What is written down of a request: dumps where they are asked for; logs without contents, with one line at
 * level info that says how it ended.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { pathForLog } from '../../lib/gateway/end-of-request.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { EPOCH, fakeSession, type TestGateway } from '../support/doors/gateway.ts';
import {
  answerTo,
  chatBody,
  type Fixture,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
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
  plainError,
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
        const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort();
        const files = names.filter((name) => name.endsWith('.txt')); // one, or none, until both are written
        const [req = '', resp = ''] = files.map((name) => readFileSync(join(folder, name), 'utf8'));
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

type Line = Readonly<Record<string, unknown>>;

const CHAT = { method: 'POST', path: '/v1/chat/completions' };

const parsed = ({ logLines }: TestGateway): Line[] => logLines.map((line) => JSON.parse(line) as Line);
const atInfo = (gateway: TestGateway): Line[] => parsed(gateway).filter(({ level }) => level === 'INFO');

/**
 * The lines at level info once there are that many; without the times, of which it is asserted that they are
 * such.
 */
async function linesAtInfo(gateway: TestGateway, count = 1): Promise<Line[]> {
  await eventually('the line in the log', () => atInfo(gateway).length >= count && gateway.active() === 0);
  assert.ok(
    atInfo(gateway).every(({ msg }) => /^(Request ended|Waiting for)/.test(String(msg))),
    'another line at info',
  );
  const ended = atInfo(gateway).filter(({ msg }) => msg === 'Request ended');
  for (const failed of parsed(gateway).filter(({ msg }) => msg === 'Request failed')) {
    const end = ended.find(({ requestId }) => requestId === failed['requestId']);
    assert.equal(failed['status'], end?.['status'], 'both lines have the status that the client got');
  }
  return ended.map(({ time, level, requestId, durationMs, ...line }) => {
    assert.match(String(requestId), /^proxy_[0-9a-f-]{36}$/);
    assert.ok(Number.isInteger(durationMs) && (durationMs as number) >= 0, `durationMs ${durationMs}`);
    const { receivedMs, sentMs, firstTokenMs, ...rest } = line;
    for (const ms of [receivedMs, sentMs])
      assert.ok(ms === undefined || (ms as number) <= (durationMs as number));
    if (firstTokenMs === undefined) return rest;
    assert.ok((firstTokenMs as number) >= 0 && (firstTokenMs as number) <= (durationMs as number));
    return { ...rest, firstTokenMs: true };
  });
}

type Scene = readonly [
  name: string,
  line: Line,
  play: (fixture: Fixture) => Promise<unknown>,
  options?: Parameters<typeof gatewayFixture>[1],
];

const refused = (status: number, code: string, reason: string, more: Line = {}): Line => ({
  ...{ ...CHAT, outcome: 'refused', status, code, reason },
  ...more,
});

const WHOLE = { ...CHAT, outcome: 'answered', status: 200, model: 'm' };
const STREAMED = { ...WHOLE, firstTokenMs: true, tokensIn: 3, tokensOut: 1 };
const WITH_HOSTED_TOOLS = JSON.stringify({
  ...{ model: 'm', input: 'x' },
  tools: [{ type: 'web_search' }, { type: 'CANARY' }, { type: 'function', name: 'read' }],
});
const FOREIGN = 'a web page of another origin asked; --cors-allowed-origins does not list it';

const SCENES: readonly Scene[] = [
  ['a whole response', WHOLE, ({ ask }) => ask(post()), { answers: completion }],
  ['a stream', STREAMED, ({ ask }) => ask(post(STREAMING)), { answers: chatStream }],
  [
    'a Responses request, with the kinds of tools that it left out, unknown ones as "other"',
    { ...WHOLE, path: '/v1/responses', toolsLeftOut: 'web_search, other' },
    ({ ask }) => ask(post(WITH_HOSTED_TOOLS, { path: '/v1/responses' })),
    { answers: completion, deps: { createTranslator } },
  ],
  [
    'a body that is no JSON',
    refused(400, 'invalid_json', 'the body is not valid JSON: unexpected end at offset 1'),
    ({ ask }) => ask(post('{')),
  ],
  [
    'a web page of another origin, which is quoted only if a browser could have written it',
    refused(403, 'origin_forbidden', FOREIGN, { origin: 'unknown' }),
    ({ ask }) => ask(post('{}', { headers: ['Origin: https://evil.example/a-secret'] })),
  ],
  [
    'a body that is too large, even if the client leaves while it reads the refusal',
    refused(413, 'body_too_large', 'the body is larger than 1048576 bytes (--max-body-bytes)'),
    async ({ sending }) => {
      const asking = sending(post('{', { headers: ['Content-Length: 99999999'] }));
      await asking.until(/\r\n\r\n/);
      asking.socket.destroy();
    },
  ],
];

describe('the line of a request', { concurrency: true, timeout: 600_000 }, () => {
  for (const [name, line, play, options] of SCENES) {
    it(`tells of ${name}`, async (t) => {
      const fixture = await gatewayFixture(t, options);
      await play(fixture);
      assert.deepEqual(await linesAtInfo(fixture.gateway), [{ msg: 'Request ended', ...line }]);
    });
  }

  it('has the tokens that came from the prompt cache, as have the observation and the receipt', async (t) => {
    const receipts: RequestReceipt[] = [];
    const add = (receipt: RequestReceipt) => receipts.push(receipt);
    const fixture = await gatewayFixture(t, { deps: { receipts: { instance: 'abcdefghijkl', add } } });
    const usage = { prompt_tokens: 9, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 7 } };
    fixture.upstream.answers((body) => http(200, sealedAnswers(body).object({ ...COMPLETION, usage })));
    await fixture.ask(post());
    const counted = { tokensIn: 9, tokensCached: 7, tokensOut: 1 };
    const [line] = await linesAtInfo(fixture.gateway);
    assert.deepEqual(line, { msg: 'Request ended', ...WHOLE, ...counted });
    const { tokensIn, tokensCached, tokensOut } = fixture.gateway.observations[0] ?? {};
    assert.deepEqual({ tokensIn, tokensCached, tokensOut }, counted);
    assert.deepEqual(receipts[0]?.tokens, { in: 9, cached: 7, out: 1 });
  });

  it('is at level debug if a probe asked about the proxy itself', async (t) => {
    const { gateway, ask } = await gatewayFixture(t);
    for (const path of ['/healthz', '/readyz', '/']) await ask(get(path));
    await eventually('the lines in the log', () => gateway.logLines.length === 3);
    assert.deepEqual(
      parsed(gateway).map(({ level, path, outcome }) => [level, path, outcome]),
      ['/healthz', '/readyz', '/'].map((path) => ['DEBUG', path, 'answered']),
    );
  });
});

const paths: [target: string, path: string][] = [
  ['/v1/chat/completions?key=a-secret', '/v1/chat/completions'],
  ['/v1/v1//models/gpt', '/v1/models/{id}'],
  ['/unstructured/general/v0/general', '/unstructured/*'],
  ['/v1/responses/resp_1', '/v1/*'],
  ['/readyz', '/readyz'],
  ['/v1/a-secret', '/v1/*'],
  ['/sk-a-secret', 'unknown'],
  ['/0123456789abcdef', 'unknown'],
  ['/averylongwordthatcouldbeasecret', 'unknown'],
  ['/%61/x', 'unknown'],
  ['/../v1', 'unknown'],
  ['*', 'unknown'],
  ['http://a-secret/v1/models', 'unknown'],
  ['', 'unknown'],
];
it('the path in the line of a refused request quotes nothing that a client made up', () => {
  for (const [target, path] of paths) assert.equal(pathForLog(target), path, target);
});

it('docs/operating.md documents the field names in the lines of a request', async (t) => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/operating.md'), 'utf8');
  const [, fields = ''] = /^### Fields\n([\s\S]*?)^#/m.exec(page) ?? [];
  const cells = [...fields.matchAll(/^\| ([^|]+) \|/gm)].map(([, cell]) => cell as string);
  const documented = new Set(cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name)));
  assert.ok(documented.size > 15, `${documented.size} names`);
  const { upstream, gateway, ask } = await gatewayFixture(t);
  upstream.on(saying(plainError(500, 'no secret for ID')), (scripted) => scripted.end(), saying(chatStream));
  await ask(post());
  await ask(post(STREAMING, { headers: ['X-Request-Id: mine'] }));
  await ask(post('{'));
  await ask(post('{}', { headers: ['Origin: https://evil.example'], path: '/v1/chat/completions?a=b' }));
  await linesAtInfo(gateway, 4);
  const names = new Set(parsed(gateway).flatMap((line) => Object.keys(line)));
  assert.deepEqual(
    [...names].filter((name) => !documented.has(name)),
    [],
  );
});
