/**
 * A gateway with clients, byte for byte: who is let in, what they are told, and where their tokens must not
 * be.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { type Clients, type ClientsOptions, openClients } from '../../lib/access/clients.ts';
import { systemClock } from '../../lib/clock.ts';
import type { GatewayDeps } from '../../lib/gateway/deps.ts';
import type { Logger } from '../../lib/observe/log.ts';
import { createNotices } from '../../lib/observe/notices.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import { CANARY_KEY, KEY_MARK } from '../support/doors/canaries.ts';
import { fakeSession, type TestGatewayOptions } from '../support/doors/gateway.ts';
import {
  answerTo,
  chatBody,
  codeOf,
  type Fixture,
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

const MODELS = '{"object":"list","data":[]}';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
const prefixOf = (salt: string): string => sha256(salt).slice(0, 16);

interface Team extends Fixture {
  readonly directory: string;
  readonly file: string;
  readonly changes: (number | string)[];
  readonly clients: Clients;
  readonly receipts: RequestReceipt[];
}

/** A gateway for two: Ann with the configured key, Bob with one of his own. */
async function team(
  t: TestContext,
  {
    ann = {},
    bob = {},
    options = {},
    deps = {},
    gateway = {},
  }: {
    readonly ann?: object;
    readonly bob?: object;
    readonly options?: Partial<ClientsOptions>;
    readonly deps?: Partial<GatewayDeps>;
    readonly gateway?: Partial<TestGatewayOptions>;
  } = {},
): Promise<Team> {
  const directory = temporaryDirectory('privatemode-clients-');
  const file = join(directory, 'clients.json');
  writeFileSync(join(directory, 'bob.key'), `${KEY_OF_BOB}\n`);
  writeFileSync(file, fileOf({ ann, bob }));
  const changes: (number | string)[] = [];
  const note = ({ reason = 'good' }: { readonly reason?: string }): unknown => changes.push(reason);
  const log = { info: note, warn: note, error: note } as unknown as Logger;
  const clients = await openClients({
    ...{ path: file, needsKeys: false, sharedSalt: undefined, clock: systemClock, ...options },
    changed: (count) => changes.push(count),
    notices: createNotices({ clock: systemClock, log }),
  });
  const receipts: RequestReceipt[] = [];
  const fixture = await gatewayFixture(t, {
    ...gateway,
    deps: {
      clients,
      receipts: { instance: 'abcdefghijkl', add: (receipt) => receipts.push(receipt) },
      ...deps,
    },
  });
  fixture.upstream.on(async (scripted) => {
    const body = await scripted.body();
    if (scripted.request.method === 'GET')
      await scripted.write(http(200, MODELS, { 'Content-Type': 'application/json' }));
    else await scripted.write(body.includes('"stream":true') ? chatStream(body) : completion(body));
  });
  t.after(() => {
    clients.close();
  });
  return { ...fixture, directory, file, changes, clients, receipts };
}

const fileOf = ({ ann = {}, bob = {} }: { ann?: object; bob?: object }): string =>
  JSON.stringify({
    clients: [
      { name: 'ann', tokens: [sha256(ANN)], ...ann },
      { name: 'bob', tokens: [sha256(BOB)], apiKey: '@bob.key', ...bob },
    ],
  });

const bearer = (token: string): string => `Authorization: Bearer ${token}`;

describe('a request without a known token', () => {
  const strangers: [what: string, headers: string[]][] = [
    ['no token', []],
    ['a wrong token', [bearer(WRONG)]],
    ['a wrong x-api-key', [`x-api-key: ${WRONG}`]],
    ['a wrong bearer beside a right x-api-key', [bearer(WRONG), `x-api-key: ${ANN}`]],
  ];
  for (const [what, headers] of strangers) {
    for (const stream of [false, true]) {
      it(`gets 401 in either dialect with ${what}${stream ? ', streamed' : ''}, and nothing is sent to the service`, async (t) => {
        const { ask, upstream, gateway, receipts } = await team(t);
        const openai = await ask(post(chatBody({ stream }), { headers }));
        assert.deepEqual([openai.status, codeOf(openai)], [401, 'client_unknown']);
        assert.equal(JSON.parse(openai.body).error.type, 'authentication_error');
        assert.equal(openai.headers['www-authenticate'], 'Bearer');
        const anthropic = await ask(post(chatBody({ stream }), { headers, path: '/v1/messages' }));
        assert.deepEqual([anthropic.status, JSON.parse(anthropic.body).type], [401, 'error']);
        assert.equal(JSON.parse(anthropic.body).error.type, 'authentication_error');
        assert.equal(upstream.connections.total, 0);
        assert.deepEqual((gateway.session as ReturnType<typeof fakeSession>).offered ?? [], []);
        assert.deepEqual(receipts, [], 'strangers must not fill the receipts');
      });
    }
  }

  it('gets 401 from a browser under a foreign Host; a known token gets 200 there, but 403 on /healthz', async (t) => {
    const { client } = await team(t);
    const agent = 'User-Agent: Mozilla/5.0 (X11; Linux x86_64)';
    for (const [path, token, status] of [
      ['/v1/models', ANN, 200],
      ['/v1', ANN, 200],
      ['/v1/models', WRONG, 401],
      ['/v1', WRONG, 401],
      ['/healthz', ANN, 403],
    ] as const) {
      const asking = client();
      asking.send(get(path, [agent, bearer(token)]).replace('Host: localhost:8080', 'Host: evil.example'));
      assert.equal((await answerTo(asking)).status, status, `${path} ${status}`);
    }
  });

  it('gets 401 for Expect: 100-continue; a request with a known token gets 100', async (t) => {
    const { client } = await team(t);
    for (const [token, begins] of [
      [WRONG, 'HTTP/1.1 401 Unauthorized'],
      [ANN, 'HTTP/1.1 100 Continue'],
    ] as const) {
      const asking = client();
      asking.send(post('', { headers: [bearer(token), 'Content-Length: 1000', 'Expect: 100-continue'] }));
      await asking.until(/\r\n\r\n/);
      assert.equal(asking.received().split('\r\n')[0], begins);
    }
  });

  it('gets its 401 as an event if the client accepts only text/event-stream', async (t) => {
    const { ask } = await team(t);
    const { status, body } = await ask(
      post(chatBody({ stream: true }), { headers: ['Accept: text/event-stream'] }),
    );
    assert.equal(status, 401);
    assert.match(body, /^event: error\ndata: \{"error":.*client_unknown/);
  });

  it('gets 401 before any byte of its body has arrived', async (t) => {
    const { client } = await team(t);
    const asking = client();
    asking.send(post('', { headers: ['Content-Length: 1000', bearer(WRONG)] }));
    const answer = await answerTo(asking);
    assert.deepEqual([answer.status, codeOf(answer)], [401, 'client_unknown']);
    await asking.ended;
  });

  const guarded: [request: string | Buffer, what: string][] = [
    [get('/v1/models'), 'the list of models'],
    [get('/v1/models/m'), 'a model'],
    [get('/models'), 'the list without /v1'],
    [get('/v1'), 'what is served under /v1'],
    [post('{}', { path: '/v1/messages/count_tokens' }), 'the token estimate'],
    [post('{}', { path: '/v1/embeddings' }), 'embeddings'],
    [post('{}', { path: '/unstructured/x' }), 'unstructured'],
  ];
  for (const [request, what] of guarded) {
    it(`is refused ${what}`, async (t) => {
      const { ask, upstream } = await team(t);
      assert.equal((await ask(request)).status, 401);
      assert.equal(upstream.connections.total, 0);
    });
  }

  it('takes less than three times the CPU to refuse when a hundred tokens are known instead of one', {
    timeout: 600_000,
  }, async (t) => {
    const batch = 100;
    const request = get('/v1/models', [bearer(WRONG)])
      .toString()
      .repeat(batch);
    async function knowing(count: number) {
      const tokens = Array.from({ length: count }, (_, i) => sha256(`${ANN}-${i}`));
      const asking = (await team(t, { ann: { tokens } })).client();
      const costs: number[] = []; // of the client, too
      let answered = 0;
      return {
        costs,
        async measure(): Promise<void> {
          const before = process.cpuUsage();
          asking.send(request);
          answered += batch;
          await eventually('the answers', () => asking.received().split('HTTP/1.1 4').length > answered);
          const { user, system } = process.cpuUsage(before);
          costs.push((user + system) / 1000 / batch);
        },
      };
    }
    const [one, many] = [await knowing(1), await knowing(100)];
    for (let i = 0; i < 10; i++) {
      await one.measure();
      await many.measure();
    }
    assert.ok(Math.min(...many.costs) < 3 * Math.min(...one.costs), `${many.costs} with one ${one.costs}`);
  });

  it('is refused /verification, which the gateway serves to clients', async (t) => {
    const { ask } = await team(t, { deps: { verification: () => Promise.resolve('{"served":true}') } });
    const refused = await ask(get('/verification'));
    assert.deepEqual([refused.status, refused.headers['privatemode-proxy-error']], [401, 'client_unknown']);
    const shown = await ask(get('/verification', [bearer(ANN)]));
    assert.deepEqual([shown.status, shown.body], [200, '{"served":true}']);
  });

  it('is refused HEAD /v1/models', async (t) => {
    const { client } = await team(t);
    const asking = client();
    asking.send(get('/v1/models', ['Connection: close']).replace('GET', 'HEAD'));
    assert.match(await asking.until(/\r\n\r\n$/), /^HTTP\/1\.1 401 /);
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

describe('a request', () => {
  for (const [what, headers, status, code] of [
    ['two bearers, one of them right', [bearer(ANN), bearer(WRONG)], 400, 'ambiguous_header'],
    ['two bearers of two clients', [bearer(ANN), bearer(BOB)], 400, 'ambiguous_header'],
    ['the right bearer twice', [bearer(ANN), bearer(ANN)], 400, 'ambiguous_header'],
    [
      'Authorization and AUTHORIZATION, with the tokens of two clients',
      [bearer(ANN), `AUTHORIZATION: Bearer ${BOB}`],
      400,
      'ambiguous_header',
    ],
    ['two x-api-keys', [`x-api-key: ${ANN}`, `X-Api-Key: ${BOB}`], 400, 'ambiguous_header'],
    ['two tokens with a comma', [`Authorization: Bearer ${ANN}, Bearer ${BOB}`], 401, 'client_unknown'],
    ['two tokens with a bare comma', [`x-api-key: ${ANN},${BOB}`], 401, 'client_unknown'],
    ['two blanks before its token', [`Authorization: Bearer  ${ANN}`], 401, 'client_unknown'],
    ['a tab before its token', [`Authorization: Bearer\t${ANN}`], 401, 'client_unknown'],
    ['a token without a scheme', [`Authorization: ${ANN}`], 401, 'client_unknown'],
    ['a token with another scheme', [`Authorization: Basic ${ANN}`], 401, 'client_unknown'],
    [
      'an empty Authorization beside a right x-api-key',
      ['Authorization:', `x-api-key: ${ANN}`],
      401,
      'client_unknown',
    ],
    ['a token in capitals', [bearer(ANN.toUpperCase())], 401, 'client_unknown'],
    ['a digest for a token', [bearer(sha256(ANN))], 401, 'client_unknown'],
    ['a scheme in capitals, and white space around', [`Authorization:   BEARER ${ANN}   `], 200, undefined],
  ] as const) {
    it(`gets ${status} with ${what}`, async (t) => {
      const { ask, upstream, gateway } = await team(t);
      const paths = ['/v1/chat/completions', ...(status === 200 ? [] : ['/v1/messages'])];
      for (const path of paths) {
        const answer = await ask(post(chatBody(), { headers: [...headers], path }));
        assert.deepEqual([answer.status, answer.headers['privatemode-proxy-error']], [status, code]);
        assert.ok(!JSON.stringify(answer).includes(KEY_MARK), 'a token was repeated');
      }
      assert.equal(upstream.requests.length, status === 200 ? 1 : 0);
      for (const { headers } of upstream.requests)
        assert.equal(headers['authorization'], `Bearer ${CANARY_KEY}`);
      assert.ok(!gateway.logLines.join('').includes('token-of-'), 'a token was logged');
    });
  }
});

describe('a request with a known token', () => {
  const senders: [what: string, header: string, client: string, key: string][] = [
    ['as a bearer', bearer(ANN), 'ann', CANARY_KEY],
    ['as x-api-key', `x-api-key: ${ANN}`, 'ann', CANARY_KEY],
    ['of a client with a key of its own', bearer(BOB), 'bob', KEY_OF_BOB],
    ['of a client with a key of its own, as x-api-key', `x-api-key: ${BOB}`, 'bob', KEY_OF_BOB],
  ];
  for (const [what, header, client, key] of senders) {
    for (const apiKeyFallback of ['always', 'never', 'if-placeholder'] as const) {
      it(`is sent with an API key of the service in place of its token, which is neither sent nor written down (${what}, --api-key-fallback=${apiKeyFallback})`, async (t) => {
        const { ask, upstream, gateway, receipts } = await team(t, {
          gateway: { settings: { dumpRequests: true, apiKeyFallback } },
        });
        for (const stream of [false, true]) {
          const answer = await ask(post(chatBody({ stream }), { headers: [header] }));
          assert.equal(answer.status, 200);
        }
        assert.equal((await ask(get('/v1/models', [header]))).status, 200);
        for (const { headers } of upstream.requests) {
          assert.equal(headers['authorization'], `Bearer ${key}`);
          assert.equal(headers['x-api-key'], undefined);
        }
        assert.equal(upstream.requests.length, 3);
        await eventually('the receipts', () => receipts.length === 3 && gateway.active() === 0);
        assert.deepEqual(new Set(receipts.map((receipt) => receipt.client)), new Set([client]));
        const members = Object.keys(receipts[0] ?? {});
        assert.equal(members[members.indexOf('endpoint') + 1], 'client');
        const folder = join(gateway.directory, 'requests');
        const dumps = (): string[] =>
          readdirSync(folder, { recursive: true, encoding: 'utf8' })
            .filter((name) => name.endsWith('.txt'))
            .map((name) => readFileSync(join(folder, name), 'utf8'));
        const isThere = (): boolean => dumps().filter((text) => text !== '').length === 6;
        await eventually('all dumps', isThere);
        const written = [
          ...dumps(),
          ...gateway.logLines,
          JSON.stringify(receipts),
          JSON.stringify(gateway.observations),
          upstream.received().toString('latin1'),
        ].join('\n');
        for (const token of [ANN, BOB]) {
          for (const form of [token, sha256(token), Buffer.from(token).toString('base64')])
            assert.ok(!written.includes(form), 'a token was written down');
        }
        const ended = gateway.logLines
          .map((line) => JSON.parse(line))
          .filter(({ msg }) => msg === 'Request ended');
        assert.deepEqual(
          ended.map((line) => line.client),
          [client, client, client],
        );
      });
    }
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

  it('gets the token estimate and the list of endpoints', async (t) => {
    const { ask } = await team(t);
    const headers = [bearer(ANN)];
    assert.equal((await ask(get('/v1', headers))).status, 200);
    const body = JSON.stringify({ model: 'm', messages: [] });
    assert.equal((await ask(post(body, { path: '/v1/messages/count_tokens', headers }))).status, 200);
  });

  it('gets 403 before its body is read if the client may not use the endpoint', async (t) => {
    const { ask, upstream, receipts } = await team(t, { ann: { endpoints: ['models'] } });
    const headers = [bearer(ANN)];
    const openai = await ask(post(chatBody(), { headers }));
    assert.deepEqual([openai.status, codeOf(openai)], [403, 'client_forbidden']);
    const anthropic = await ask(post(chatBody(), { headers, path: '/v1/messages' }));
    assert.deepEqual([anthropic.status, JSON.parse(anthropic.body).error.type], [403, 'permission_error']);
    const estimate = await ask(post('{}', { headers, path: '/v1/messages/count_tokens' }));
    assert.equal(estimate.status, 403);
    assert.equal(upstream.connections.total, 0);
    assert.equal((await ask(get('/v1/models', headers))).status, 200);
    await eventually('the receipt', () => receipts.length === 1);
    assert.deepEqual([receipts[0]?.client, receipts[0]?.endpoint], ['ann', 'models']);
  });

  it('gets 401 in either dialect if the client has expired, and nothing is sent', async (t) => {
    const { ask, upstream } = await team(t, { ann: { expires: '2020-01-01T00:00:00Z' } });
    for (const path of ['/v1/chat/completions', '/v1/messages']) {
      const answer = await ask(post(chatBody(), { headers: [bearer(ANN)], path }));
      assert.deepEqual([answer.status, codeOf(answer)], [401, 'client_unknown']);
    }
    assert.equal(upstream.connections.total, 0);
  });

  it('gets 403 if the client may not use the model, and nothing is sent', async (t) => {
    const { ask, upstream, gateway } = await team(t, { ann: { models: ['gpt-*'] } });
    const headers = [bearer(ANN)];
    for (const path of ['/v1/chat/completions', '/v1/messages']) {
      const answer = await ask(post(chatBody(), { headers, path }));
      assert.deepEqual([answer.status, answer.headers['privatemode-proxy-error']], [403, 'client_forbidden']);
    }
    assert.equal(upstream.requests.length, 0);
    assert.equal((await ask(post(chatBody({ model: 'gpt-1' }), { headers }))).status, 200);
    assert.equal((await ask(post(chatBody(), { headers: [bearer(BOB)] }))).status, 200);
    assert.equal(gateway.counters.bufferedBytes, 0);
  });
});

describe('an error that a client of the gateway cannot resolve', () => {
  const REDIRECT = http(302, '', { Location: 'https://elsewhere.example/' });

  it('asks the client to tell the operator, and names no flag', async (t) => {
    const { ask, upstream } = await team(t);
    upstream.on(async (scripted) => {
      await scripted.body();
      await scripted.write(REDIRECT);
    });
    const { status, body } = await ask(post(chatBody(), { headers: [bearer(ANN)] }));
    assert.equal(status, 502);
    assert.match(body, /upstream_redirect/);
    assert.match(body, /Tell the operator of this gateway; nothing on your side changes this\./);
    assert.doesNotMatch(body, /--[a-z]/);
  });

  const refused: [code: string, request: Parameters<typeof post>[1], remedy: RegExp][] = [
    [
      'not_supported',
      { path: '/v1/responses' },
      /Set the client to \/v1\/chat\/completions, or ask the operator of this gateway to serve this API\./,
    ],
    [
      'origin_forbidden',
      { headers: ['Origin: https://chat.example'] },
      /Ask the operator of this gateway to allow the page, or the host name that it uses\./,
    ],
  ];
  for (const [code, request, remedy] of refused) {
    it(`says of ${code} what to ask the operator for`, async (t) => {
      const { ask } = await team(t);
      const { headers = [], ...rest } = request ?? {};
      const answer = await ask(post(chatBody(), { headers: [bearer(ANN), ...headers], ...rest }));
      assert.equal(codeOf(answer), code);
      assert.match(answer.body, remedy);
    });
  }

  it('names the flag if there is no clients file', async (t) => {
    const { ask, upstream } = await team(t, { deps: { clients: undefined } });
    upstream.on(async (scripted) => {
      await scripted.body();
      await scripted.write(REDIRECT);
    });
    assert.match((await ask(post(chatBody()))).body, /Check --api-endpoint; redirects are never followed\./);
  });
});

describe('the salt of a client', () => {
  const SHARED = 'a literal salt of 32 bytes or more, for all';
  const OWN = 'a salt of the request, which always wins, too';

  /** The salt that the service finds in a chat, and the shard key. */
  async function saltOf(
    team: Team,
    token: string,
    members: object = {},
  ): Promise<readonly [string, string | undefined]> {
    team.upstream.clear();
    const messages = [{ role: 'user', content: 'x'.repeat(200) }];
    const answer = await team.ask(post(chatBody({ messages, ...members }), { headers: [bearer(token)] }));
    assert.equal(answer.status, 200);
    const [request] = team.upstream.requests;
    const salt = JSON.parse(openedRequest(request?.body as Buffer).get('cache_salt') as string);
    const shardKey = request?.headers['privatemode-shard-key'];
    if (shardKey !== undefined)
      assert.equal(shardKey.slice(0, 16), prefixOf(salt), 'the shard key of another salt');
    return [salt, shardKey];
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

  it('is derived from the shared salt and the name of the client, the same after every start', async (t) => {
    for (let start = 0; start < 2; start++) {
      const gateway = await team(t, shared());
      const [ann, shardKey] = await saltOf(gateway, ANN);
      assert.equal(ann, OF_ANN);
      assert.ok(shardKey?.startsWith(`${prefixOf(OF_ANN)}-`));
      assert.equal((await saltOf(gateway, ANN))[0], OF_ANN);
      assert.equal((await saltOf(gateway, BOB))[0], OF_BOB);
    }
  });

  it('depends also on the cache_salt of the request, wherever that stands in the body', async (t) => {
    const gateway = await team(t, shared());
    const [salt, shardKey] = await saltOf(gateway, ANN, { cache_salt: OWN });
    assert.equal(salt, MIXED_ANN);
    assert.ok(shardKey?.startsWith(`${prefixOf(MIXED_ANN)}-`));
    gateway.upstream.clear();
    const body = `{"cache_salt":${JSON.stringify(OWN)},"model":"m","messages":[{"role":"user","content":"${'x'.repeat(200)}"}]}`;
    assert.equal((await gateway.ask(post(body, { headers: [bearer(ANN)] }))).status, 200);
    const [request] = gateway.upstream.requests;
    assert.equal(openedRequest(request?.body as Buffer).get('cache_salt'), JSON.stringify(MIXED_ANN));
    assert.equal(request?.headers['privatemode-shard-key'], shardKey);
    assert.notEqual((await saltOf(gateway, BOB, { cache_salt: OWN }))[0], MIXED_ANN);
    // Nobody arrives at the cache of another by sending that one's salt.
    assert.notEqual((await saltOf(gateway, BOB, { cache_salt: OF_ANN }))[0], OF_ANN);
  });

  it('is with cacheSalt "own" the salt of the request, and derived if the request has none', async (t) => {
    const gateway = await team(t, shared('own'));
    assert.equal((await saltOf(gateway, ANN, { cache_salt: OWN }))[0], OWN);
    assert.equal((await saltOf(gateway, ANN))[0], OF_ANN);
  });

  it('is with cacheSalt "shared" the shared salt, unless the request has a salt', async (t) => {
    const gateway = await team(t, shared('shared'));
    assert.equal((await saltOf(gateway, ANN))[0], SHARED);
    assert.equal((await saltOf(gateway, BOB))[0], SHARED);
    assert.equal((await saltOf(gateway, BOB, { cache_salt: OWN }))[0], OWN);
  });

  it('is random for each request without a shared cache, and derived if the request has a cache_salt', async (t) => {
    const gateway = await team(t);
    const [[first, shardKey], [second]] = [await saltOf(gateway, ANN), await saltOf(gateway, ANN)];
    assert.notEqual(first, second);
    assert.equal(shardKey, undefined);
    assert.equal((await saltOf(gateway, ANN, { cache_salt: OWN }))[0], MIXED_ANN_ALONE);
    assert.notEqual((await saltOf(gateway, BOB, { cache_salt: OWN }))[0], MIXED_ANN_ALONE);
  });

  it('is not derived from a cache_salt that is too short: the request gets 400 salt_too_short', async (t) => {
    const { ask } = await team(t, shared());
    const answer = await ask(post(chatBody({ cache_salt: 'short' }), { headers: [bearer(ANN)] }));
    assert.deepEqual([answer.status, codeOf(answer)], [400, 'salt_too_short']);
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

  it('takes effect once it is written completely, and no part of it before', async (t) => {
    const gateway = await team(t);
    const next = JSON.stringify({ clients: [{ name: 'ann', tokens: [sha256(ANN)] }] });
    writeFileSync(gateway.file, '');
    const reloaded = gateway.clients.reload();
    await new Promise((resolve) => setTimeout(resolve, 60));
    assert.equal(await statusOf(gateway, BOB), 200);
    writeFileSync(gateway.file, next);
    await reloaded;
    assert.equal(gateway.clients.sha256(), sha256(next));
    assert.equal(await statusOf(gateway, BOB), 401);
    assert.deepEqual(gateway.changes, [1]);
  });

  it('is read again at once on a reload', async (t) => {
    const gateway = await team(t);
    writeFileSync(gateway.file, JSON.stringify({ clients: [] }));
    await gateway.clients.reload();
    assert.equal(await statusOf(gateway, ANN), 401);
  });

  it('is reported as good again when the old content is back after an error', async (t) => {
    const gateway = await team(t);
    const good = readFileSync(gateway.file);
    await gateway.clients.reload();
    assert.deepEqual(gateway.changes, []);
    writeFileSync(gateway.file, '{');
    await gateway.clients.reload();
    writeFileSync(gateway.file, good);
    await gateway.clients.reload();
    await gateway.clients.reload();
    assert.deepEqual(gateway.changes, [
      '--clients: not JSON at character 1, in line 1 (JSON has no comments, and no comma behind the last item)',
      'good',
    ]);
  });

  it('keeps its last good content in force when it is bad or gone, and an error is reported once', async (t) => {
    const gateway = await team(t);
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
    writeFileSync(gateway.file, JSON.stringify({ clients: [] }));
    await gateway.clients.reload();
    assert.equal(await statusOf(gateway, ANN), 401);
  });

  for (const [what, replace, reason] of [
    ['a directory', (path: string) => mkdirSync(path), 'EISDIR'],
    ['a link to nothing', (path: string) => symlinkSync(`${path}.gone`, path), 'ENOENT'],
    ['a link to itself', (path: string) => symlinkSync(path, path), 'ELOOP'],
    ['a device without an end', (path: string) => symlinkSync('/dev/zero', path), 'it is not a regular file'],
    ['a pipe', (path: string) => void spawnSync('mkfifo', [path]), 'it is not a regular file'],
    [
      'a file of a gigabyte',
      (path: string) => {
        writeFileSync(path, fileOf({}));
        truncateSync(path, 2 ** 30);
      },
      'it has more than 1048576 bytes',
    ],
  ] as const) {
    it(`keeps its last good content in force when ${what} replaces it, and trying to read that blocks nothing else`, {
      timeout: 600_000,
    }, async (t) => {
      const gateway = await team(t);
      // A pipe that is waited for would keep a thread each time, and there are four of them.
      rmSync(gateway.file);
      replace(gateway.file);
      const before = process.memoryUsage.rss();
      const reads = Promise.all(Array.from({ length: 5 }, () => gateway.clients.reload()));
      await readFile(join(gateway.directory, 'bob.key'));
      await reads;
      assert.ok(process.memoryUsage.rss() - before < 2 ** 29, 'it was read');
      assert.equal(await statusOf(gateway, ANN), 200);
      assert.equal(gateway.changes.length, 1);
      assert.ok(String(gateway.changes[0]).includes(reason), String(gateway.changes[0]));
      rmSync(gateway.file, { recursive: true });
      writeFileSync(`${gateway.file}.new`, JSON.stringify({ clients: [] }));
      symlinkSync(`${gateway.file}.new`, gateway.file);
      await gateway.clients.reload();
      assert.equal(await statusOf(gateway, ANN), 401);
    });
  }

  it('has its key files read again too; if one is bad, only the key from that file stays the old one', async (t) => {
    const gateway = await team(t);
    const keyNow = async (): Promise<string | undefined> => {
      gateway.upstream.clear();
      await statusOf(gateway, BOB);
      return gateway.upstream.requests[0]?.headers['authorization'];
    };
    const keyFile = join(gateway.directory, 'bob.key');
    writeFileSync(keyFile, 'another-key');
    await gateway.clients.reload();
    assert.equal(await keyNow(), 'Bearer another-key');
    writeFileSync(keyFile, '');
    writeFileSync(gateway.file, fileOf({ ann: { tokens: [sha256(WRONG)] } }));
    await gateway.clients.reload();
    await gateway.clients.reload();
    assert.equal(await keyNow(), 'Bearer another-key');
    assert.deepEqual([await statusOf(gateway, ANN), await statusOf(gateway, WRONG)], [401, 200]);
    const failures = gateway.changes.filter((change) => typeof change === 'string');
    assert.equal(failures.length, 1);
    assert.match(String(failures[0]), /API key file .*bob\.key.* is empty/);
  });

  it('has a bad key file reported as good once that file is good or no client names it any more', async (t) => {
    const gateway = await team(t);
    const keyFile = join(gateway.directory, 'bob.key');
    const told = (): string[] =>
      gateway.changes
        .filter((change) => typeof change === 'string')
        .map((text) => text.replace(/.* is /, ''));
    for (const text of ['', 'good-key', '']) {
      writeFileSync(keyFile, text);
      await gateway.clients.reload();
    }
    assert.deepEqual(told(), ['empty: it must hold the key', 'good', 'empty: it must hold the key']);
    writeFileSync(gateway.file, JSON.stringify({ clients: [] }));
    await gateway.clients.reload();
    assert.deepEqual(told().at(-1), 'good');
  });

  it('is refused if it names a key file that cannot be read', async (t) => {
    const gateway = await team(t);
    writeFileSync(gateway.file, fileOf({ ann: { apiKey: '@ann.key' } }));
    await gateway.clients.reload();
    assert.match(String(gateway.changes[0]), /failed to read API key file .*ann\.key/);
    assert.equal(await statusOf(gateway, ANN), 200);
  });
});
