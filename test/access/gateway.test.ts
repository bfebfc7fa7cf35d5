/**
 * A gateway with clients, byte for byte: who is let in, what they are told, and where their tokens must not
 * be.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { type ClientsOptions, openClients } from '../../lib/access/clients.ts';
import { systemClock } from '../../lib/clock.ts';
import type { GatewayDeps } from '../../lib/gateway/deps.ts';
import type { Logger } from '../../lib/observe/log.ts';
import { createNotices } from '../../lib/observe/notices.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import { CANARY_KEY, KEY_MARK } from '../support/doors/canaries.ts';
import { fakeSession, type TestGatewayOptions } from '../support/doors/gateway.ts';
import {
  assertError,
  chatBody,
  codeOf,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import { chatStream, completion, http, openedRequest } from '../support/remote/sealed-answers.ts';

const ANN = `${KEY_MARK}token-of-ann`;
const BOB = `${KEY_MARK}token-of-bob`;
const WRONG = `${KEY_MARK}token-of-nobody`;
const KEY_OF_BOB = 'the-service-key-of-bob';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** A gateway for two: Ann with the configured key, Bob with one of his own. */
async function team(
  t: TestContext,
  given: {
    readonly ann?: object;
    readonly bob?: object;
    readonly options?: Partial<ClientsOptions>;
    readonly deps?: Partial<GatewayDeps>;
    readonly gateway?: Partial<TestGatewayOptions>;
  } = {},
) {
  const directory = temporaryDirectory('privatemode-clients-');
  const file = join(directory, 'clients.json');
  writeFileSync(join(directory, 'bob.key'), `${KEY_OF_BOB}\n`);
  writeFileSync(file, fileOf(given));
  const changes: (number | string)[] = [];
  const note = ({ reason = 'good' }: { readonly reason?: string }): unknown => changes.push(reason);
  const log = { info: note, warn: note, error: note } as unknown as Logger;
  const clients = await openClients({
    ...{ path: file, needsKeys: false, sharedSalt: undefined, clock: systemClock, ...given.options },
    changed: (count) => changes.push(count),
    notices: createNotices(log, systemClock),
  });
  t.after(() => clients.close());
  const receipts: RequestReceipt[] = [];
  const written = { instance: 'abcdefghijkl', add: (receipt: RequestReceipt) => receipts.push(receipt) };
  const deps = { clients, receipts: written, ...given.deps };
  const fixture = await gatewayFixture(t, { ...given.gateway, deps });
  fixture.upstream.answers((body) => {
    if (body.length === 0) return http(200, '{"object":"list","data":[]}');
    return body.includes('"stream":true') ? chatStream(body) : completion(body);
  });
  return { ...fixture, directory, file, changes, clients, receipts };
}
type Team = Awaited<ReturnType<typeof team>>;

const fileOf = ({ ann = {}, bob = {} }: { ann?: object; bob?: object }): string =>
  JSON.stringify({
    clients: [
      { name: 'ann', tokens: [sha256(ANN)], ...ann },
      { name: 'bob', tokens: [sha256(BOB)], apiKey: '@bob.key', ...bob },
    ],
  });

const bearer = (token: string): string => `Authorization: Bearer ${token}`;

describe('a request without a known token', () => {
  it('gets 401 in either dialect, streamed or not, as an event where only that is accepted, and nothing is sent to the service', async (t) => {
    const { ask, upstream, gateway, receipts } = await team(t);
    for (const [headers, path, stream] of [
      [[], '/v1/chat/completions', false],
      [[bearer(WRONG)], '/v1/messages', false],
      [[`x-api-key: ${WRONG}`], '/v1/chat/completions', true],
      [[bearer(WRONG), `x-api-key: ${ANN}`], '/v1/messages', true],
    ] as const) {
      const answer = await ask(post(chatBody({ stream }), { headers, path }));
      assertError(answer, 401, 'client_unknown');
      assert.equal(answer.headers['www-authenticate'], 'Bearer');
      assert.equal(JSON.parse(answer.body).error.type, 'authentication_error');
    }
    const { status, body } = await ask(post(chatBody(), { headers: ['Accept: text/event-stream'] }));
    assert.equal(status, 401);
    assert.match(body, /^event: error\ndata: \{"error":.*client_unknown/);
    assert.equal(upstream.connections.total, 0);
    assert.deepEqual((gateway.session as ReturnType<typeof fakeSession>).offered, []);
    assert.deepEqual(receipts, [], 'strangers must not fill the receipts');
  });

  it('gets 401 from a browser under a foreign Host; a known token gets 200 there, but 403 on /healthz', async (t) => {
    const { ask } = await team(t);
    const agent = 'User-Agent: Mozilla/5.0 (X11; Linux x86_64)';
    for (const [path, token, status] of [
      ['/v1/models', ANN, 200],
      ['/v1', ANN, 200],
      ['/v1/models', WRONG, 401],
      ['/v1', WRONG, 401],
      ['/healthz', ANN, 403],
    ] as const) {
      const asked = get(path, [agent, bearer(token)]).replace('Host: localhost:8080', 'Host: evil.example');
      assert.equal((await ask(asked)).status, status, `${path} ${status}`);
    }
  });

  it('gets 401 before any byte of its body has arrived, and no 100', async (t) => {
    const { sending } = await team(t);
    for (const expect of [[], ['Expect: 100-continue']]) {
      const asking = sending(post('', { headers: ['Content-Length: 1000', bearer(WRONG), ...expect] }));
      await asking.ended;
      assert.match(asking.received(), /^HTTP\/1\.1 401 Unauthorized\r\n[\s\S]*client_unknown/);
    }
  });

  it('is refused every path of the API, and /v1 itself', async (t) => {
    const { ask, upstream } = await team(t);
    const paths = ['/v1/models', '/v1/models/m', '/models', '/v1'];
    const bodies = ['/v1/messages/count_tokens', '/v1/embeddings', '/unstructured/x'];
    for (const request of [...paths.map((path) => get(path)), ...bodies.map((path) => post('{}', { path }))])
      assert.equal((await ask(request)).status, 401, String(request));
    assert.equal(upstream.connections.total, 0);
  });

  it('still gets the health paths and the answer to a CORS preflight', async (t) => {
    const { ask } = await team(t, {
      gateway: { cors: { allowedOrigins: ['https://a.example'], ownNames: [] } },
    });
    for (const path of ['/', '/health', '/healthz', '/api/hello'])
      assert.equal((await ask(get(path))).status, 200, path);
    assert.equal((await ask(get('/readyz'))).status, 204);
    const headers = ['Origin: https://a.example', 'Access-Control-Request-Method: POST'];
    const preflight = get('/v1/chat/completions', headers).replace('GET', 'OPTIONS');
    assert.equal((await ask(preflight)).status, 204);
    const page = await ask(post(chatBody(), { headers: ['Origin: https://a.example'] }));
    assert.deepEqual([page.status, page.headers['access-control-allow-origin']], [401, 'https://a.example']);
  });
});

it('a request with two tokens, or one that is written in another way, is refused, and no token is repeated', async (t) => {
  const twice = [400, 'ambiguous_header'] as const;
  const unknown = [401, 'client_unknown'] as const;
  const { ask, upstream, gateway } = await team(t);
  for (const [headers, [status, code]] of [
    [[bearer(ANN), bearer(WRONG)], twice],
    [[bearer(ANN), `AUTHORIZATION: Bearer ${BOB}`], twice],
    [[`x-api-key: ${ANN}`, `X-Api-Key: ${BOB}`], twice],
    [[`Authorization: Bearer ${ANN}, Bearer ${BOB}`], unknown],
    [[`x-api-key: ${ANN},${BOB}`], unknown],
    [[`Authorization: Bearer\t${ANN}`], unknown],
    [['Authorization:', `x-api-key: ${ANN}`], unknown],
  ] as const) {
    const answer = await ask(post(chatBody(), { headers }));
    assertError(answer, status, code);
    assert.ok(!JSON.stringify(answer).includes(KEY_MARK), 'a token was repeated');
  }
  assert.equal(upstream.connections.total, 0);
  assert.ok(!gateway.logLines.join('').includes('token-of-'), 'a token was logged');
});

describe('a request with a known token', () => {
  for (const [header, client, key, apiKeyFallback] of [
    [bearer(ANN), 'ann', CANARY_KEY, 'never'],
    [`x-api-key: ${BOB}`, 'bob', KEY_OF_BOB, 'if-placeholder'],
  ] as const) {
    it(`is sent with an API key of the service in place of its token, which is neither sent nor written down (${client})`, async (t) => {
      const { ask, upstream, gateway, receipts } = await team(t, {
        gateway: { settings: { dumpRequests: true, apiKeyFallback } },
      });
      const chats = [false, true].map((stream) => post(chatBody({ stream }), { headers: [header] }));
      for (const request of [...chats, get('/v1/models', [header])])
        assert.equal((await ask(request)).status, 200);
      assert.deepEqual(
        upstream.requests.map(({ headers }) => [headers['authorization'], headers['x-api-key']]),
        Array(3).fill([`Bearer ${key}`, undefined]),
      );
      await eventually('the receipts', () => receipts.length === 3 && gateway.active() === 0);
      assert.deepEqual(new Set(receipts.map((receipt) => receipt.client)), new Set([client]));
      const folder = join(gateway.directory, 'requests');
      const dumps = (): string[] =>
        readdirSync(folder, { recursive: true, encoding: 'utf8' })
          .filter((name) => name.endsWith('.txt'))
          .map((name) => readFileSync(join(folder, name), 'utf8'));
      await eventually('all dumps', () => dumps().filter((text) => text !== '').length === 6);
      const { logLines, observations } = gateway;
      const wire = upstream.received().toString('latin1');
      const written = [...dumps(), ...logLines, wire, JSON.stringify([receipts, observations])].join('\n');
      for (const token of [ANN, BOB]) {
        for (const form of [token, sha256(token), Buffer.from(token).toString('base64')])
          assert.ok(!written.includes(form), 'a token was written down');
      }
      const ended = logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'Request ended');
      assert.deepEqual(
        ended.map((line) => line.client),
        [client, client, client],
      );
    });
  }

  it('makes the gateway attest with the API key of the client, never with its token, if no --api-key is given', async (t) => {
    const session = fakeSession();
    const { ask, upstream } = await team(t, {
      ann: { apiKey: '@bob.key' },
      options: { needsKeys: true },
      deps: { key: { value: () => undefined } },
      gateway: { session },
    });
    assert.equal((await ask(post(chatBody(), { headers: [bearer(ANN)] }))).status, 200);
    assert.deepEqual(new Set(session.offered), new Set([KEY_OF_BOB]));
    assert.equal(upstream.requests[0]?.headers['authorization'], `Bearer ${KEY_OF_BOB}`);
  });

  it('gets 403 before its body is read if the client may not use the endpoint', async (t) => {
    const { ask, upstream, receipts } = await team(t, { ann: { endpoints: ['models'] } });
    const headers = [bearer(ANN)];
    const openai = await ask(post(chatBody(), { headers }));
    assertError(openai, 403, 'client_forbidden');
    const anthropic = await ask(post(chatBody(), { headers, path: '/v1/messages' }));
    assert.deepEqual([anthropic.status, JSON.parse(anthropic.body).error.type], [403, 'permission_error']);
    const estimate = await ask(post('{}', { headers, path: '/v1/messages/count_tokens' }));
    assert.equal(estimate.status, 403);
    assert.equal(upstream.connections.total, 0);
    for (const path of ['/v1/models', '/v1']) assert.equal((await ask(get(path, headers))).status, 200);
    await eventually('the receipt', () => receipts.length === 1);
    assert.deepEqual([receipts[0]?.client, receipts[0]?.endpoint], ['ann', 'models']);
  });

  it('gets 401 if the client has expired, and 403 if it may not use the model, and nothing is sent', async (t) => {
    for (const [ann, status, code] of [
      [{ expires: '2020-01-01T00:00:00Z' }, 401, 'client_unknown'],
      [{ models: ['gpt-*'] }, 403, 'client_forbidden'],
    ] as const) {
      const { ask, upstream, gateway } = await team(t, { ann });
      for (const path of ['/v1/chat/completions', '/v1/messages']) {
        const answer = await ask(post(chatBody(), { headers: [bearer(ANN)], path }));
        assert.deepEqual([answer.status, answer.headers['privatemode-proxy-error']], [status, code]);
      }
      assert.equal(upstream.requests.length, 0);
      const allowed = await ask(post(chatBody({ model: 'gpt-1' }), { headers: [bearer(ANN)] }));
      assert.equal(allowed.status, status === 403 ? 200 : 401);
      assert.equal((await ask(post(chatBody(), { headers: [bearer(BOB)] }))).status, 200);
      assert.equal(gateway.counters.bufferedBytes, 0);
    }
  });
});

it('an error that a client of the gateway cannot resolve says what to ask the operator for, and else names the flag', async (t) => {
  const redirected = http(302, '', { Location: 'https://elsewhere.example/' });
  for (const [deps, remedy] of [
    [{}, /Tell the operator of this gateway; nothing on your side changes this\./],
    [{ clients: undefined }, /Check --api-endpoint; redirects are never followed\./],
  ] as const) {
    const { ask, upstream } = await team(t, { deps });
    upstream.answers(redirected);
    const answer = await ask(post(chatBody(), { headers: [bearer(ANN)] }));
    assert.equal(codeOf(answer), 'upstream_redirect');
    assert.match(answer.body, remedy);
  }
});

describe('the salt of a client', () => {
  const SHARED = 'a literal salt of 32 bytes or more, for all';
  const OWN = 'a salt of the request, which always wins, too';

  /** The salt that the service finds in a chat, whose hash the shard key begins with, if there is one. */
  async function saltOf({ upstream, ask }: Team, token: string, own?: string) {
    upstream.clear();
    const text = JSON.parse(chatBody({ messages: [{ role: 'user', content: 'x'.repeat(200) }] }));
    const body = JSON.stringify({ ...text, cache_salt: own });
    assert.equal((await ask(post(body, { headers: [bearer(token)] }))).status, 200);
    const [request] = upstream.requests;
    const found = JSON.parse(openedRequest(request?.body as Buffer).get('cache_salt') as string) as string;
    const shardKey = request?.headers['privatemode-shard-key']?.split('-')[0];
    return { salt: found, isShared: shardKey === sha256(found).slice(0, 16), shardKey };
  }

  const shared = (cacheSalt?: string) => ({
    ...(cacheSalt === undefined ? {} : { ann: { cacheSalt }, bob: { cacheSalt } }),
    options: { sharedSalt: SHARED },
    deps: { salt: { shared: SHARED } },
  });
  // HKDF-SHA256 (RFC 5869), computed with another program.
  const OF_ANN = '72f0448123d43964ab345fc06c9c4fe903422ea5ecf64167f05a5d1a20acbd52';
  const OF_BOB = '646356b177606ab13ba124cb84b7d4a67d7df9e4221f1ecc569a0d3e8c7997ec';
  const MIXED_ANN = '3c28041dedf1d827622ac2f71b2a17b84b20e04ede249a860a14be429673a1c7';
  const MIXED_ANN_ALONE = 'ed4642ac183f36230685abb95687ae7a47a1266a9c49912007cf18a1626d20a2';

  for (const [cacheSalt, ofAnn, ofBob, withOwn] of [
    ['client', OF_ANN, OF_BOB, MIXED_ANN],
    ['own', OF_ANN, OF_BOB, OWN],
    ['shared', SHARED, SHARED, OWN],
  ] as const) {
    it(`follows from shared salt, name and cache_salt of the request as docs/configuration.md says, after every start (cacheSalt ${cacheSalt})`, async (t) => {
      const gateway = await team(t, shared(cacheSalt));
      for (const [token, own, expected] of [
        [ANN, undefined, ofAnn],
        [ANN, undefined, ofAnn],
        [BOB, undefined, ofBob],
        [ANN, OWN, withOwn],
      ] as const) {
        const { salt, isShared } = await saltOf(gateway, token, own);
        assert.deepEqual([salt, isShared], [expected, true]);
      }
    });
  }

  it('is random for each request without a shared cache, and derived if the request has a cache_salt', async (t) => {
    const gateway = await team(t);
    const [first, second] = [await saltOf(gateway, ANN), await saltOf(gateway, ANN)];
    assert.notEqual(first.salt, second.salt);
    assert.equal(first.shardKey, undefined);
    assert.equal((await saltOf(gateway, ANN, OWN)).salt, MIXED_ANN_ALONE);
    assert.notEqual((await saltOf(gateway, BOB, OWN)).salt, MIXED_ANN_ALONE);
  });
});

describe('the file of clients, while the gateway runs', () => {
  const statusOf = async ({ ask }: Team, token: string): Promise<number> =>
    (await ask(get('/v1/models', [bearer(token)]))).status;

  it('is read again, so that a client taken out of it is refused within a second', async (t) => {
    const clock = createFakeClock();
    const gateway = await team(t, { options: { clock } });
    assert.equal(await statusOf(gateway, BOB), 200);
    writeFileSync(gateway.file, JSON.stringify({ clients: [{ name: 'ann', tokens: [sha256(ANN)] }] }));
    await clock.advance(500); // the other half of the second is for reading the file
    await eventually('the file to be read again', () => gateway.changes.length > 0);
    assert.equal(await statusOf(gateway, BOB), 401);
    assert.equal(await statusOf(gateway, ANN), 200);
    assert.deepEqual(gateway.changes, [1]);
  });

  it('keeps its last good content in force when it is bad or gone, and an error is reported once', async (t) => {
    const gateway = await team(t);
    const good = readFileSync(gateway.file);
    writeFileSync(gateway.file, `{"clients":[{"name":"eve","tokens":["${sha256(WRONG)}"]},{"name":"eve"}]}`);
    await gateway.clients.reload();
    await gateway.clients.reload();
    assert.equal(await statusOf(gateway, ANN), 200);
    assert.equal(await statusOf(gateway, WRONG), 401);
    assert.deepEqual(gateway.changes, [
      '--clients: clients[1].tokens: expected a list of at least one digest; to lock a client out, remove its whole entry',
    ]);
    rmSync(gateway.file);
    await gateway.clients.reload();
    assert.equal(await statusOf(gateway, ANN), 200);
    assert.match(String(gateway.changes[1]), /^failed to read the file .* of --clients: ENOENT/);
    writeFileSync(gateway.file, good);
    for (let i = 0; i < 2; i++) await gateway.clients.reload();
    assert.deepEqual(gateway.changes.slice(2), ['good'], 'the old content is back');
  });

  it('keeps its last good content in force when something else replaces it, and trying to read that blocks nothing else', async (t) => {
    for (const [replace, reason] of [
      [(path: string) => mkdirSync(path), 'EISDIR'],
      [(path: string) => symlinkSync(path, path), 'ELOOP'],
      [(path: string) => symlinkSync('/dev/zero', path), 'it is not a regular file'],
      [(path: string) => void spawnSync('mkfifo', [path]), 'it is not a regular file'],
      [(path: string) => writeFileSync(path, ' '.repeat(2 ** 21)), 'more than 1048576 bytes'],
    ] as const) {
      const gateway = await team(t);
      // A pipe that is waited for would keep a thread each time, and there are four of them.
      rmSync(gateway.file);
      replace(gateway.file);
      const reads = Promise.all(Array.from({ length: 5 }, () => gateway.clients.reload()));
      await readFile(join(gateway.directory, 'bob.key'));
      await reads;
      assert.equal(await statusOf(gateway, ANN), 200);
      assert.equal(gateway.changes.length, 1);
      assert.ok(String(gateway.changes[0]).includes(reason), String(gateway.changes[0]));
    }
  });

  it('has its key files read again too; if one is bad, only the key from that file stays the old one', async (t) => {
    const gateway = await team(t);
    const keyFile = join(gateway.directory, 'bob.key');
    const keyNow = async (): Promise<string | undefined> => {
      gateway.upstream.clear();
      await statusOf(gateway, BOB);
      return gateway.upstream.requests[0]?.headers['authorization'];
    };
    writeFileSync(keyFile, 'another-key');
    await gateway.clients.reload();
    assert.equal(await keyNow(), 'Bearer another-key');
    writeFileSync(keyFile, '');
    writeFileSync(gateway.file, fileOf({ ann: { tokens: [sha256(WRONG)] } }));
    for (let i = 0; i < 2; i++) await gateway.clients.reload();
    assert.equal(await keyNow(), 'Bearer another-key');
    assert.deepEqual([await statusOf(gateway, ANN), await statusOf(gateway, WRONG)], [401, 200]);
    const told = (): string[] => gateway.changes.filter((change) => typeof change === 'string');
    assert.equal(told().length, 1);
    assert.match(String(told()[0]), /API key file .*bob\.key.* is empty/);
    writeFileSync(keyFile, 'good-key');
    await gateway.clients.reload();
    assert.equal(told()[1], 'good');
    writeFileSync(keyFile, '');
    await gateway.clients.reload();
    writeFileSync(gateway.file, JSON.stringify({ clients: [] }));
    await gateway.clients.reload();
    assert.equal(told()[3], 'good', 'no client names it any more');
  });
});
