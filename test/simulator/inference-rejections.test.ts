import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, afterEach, before, describe, it } from 'node:test';
import type { Simulator } from '../../simulator/simulator.ts';
import {
  Attempt,
  clientOf,
  DIALECTS,
  goodHeaders,
  membersOf,
  newSecret,
  SALT,
} from '../support/remote/literal-client.ts';
import { type Answer, call, startTestSimulator } from '../support/remote/simulator.ts';

/** The refusal's message; asserts its shape and mark. */
function refusal(answer: Answer, status: number): string {
  assert.equal(answer.status, status, answer.body.toString());
  assert.equal(answer.headers['privatemode-encrypted'], 'false');
  const { error } = answer.json() as { error: { message: string; type: string } };
  assert.deepEqual(Object.keys(error), ['message', 'type']);
  return error.message;
}

let simulator: Simulator;
let client: ReturnType<typeof clientOf>;
before(async () => {
  simulator = await startTestSimulator({ apiKey: 'key' });
  client = clientOf(simulator);
});
after(() => simulator.close());

const chat = (more: object = {}) => ({ ...membersOf('chat', 'sim-1x0', 'secret words'), ...more });
const askChat = async (members: object, head = {}) => (await client.ask('chat', { ...members }, head)).answer;
const attempt = () => new Attempt(client.secret);

describe('the simulated service', () => {
  it('refuses a secret that it does not know, whether or not it checks a policy', async () => {
    const secret = newSecret();
    const sealed = new Attempt(secret).sealObject(chat(), DIALECTS.chat.request);
    const checked = await client.send('chat', sealed, goodHeaders(simulator.port, secret, 'm'));
    const words = 'getting secret for OCSP verification: no secret for ID';
    assert.equal(refusal(checked, 500), `${words} "${secret.id}"`);
    const raw = { headers: goodHeaders(simulator.port, secret), body: new Attempt(secret).seal('body') };
    assert.match(refusal(await call(simulator, 'POST', '/unstructured/x', raw), 500), /no secret for ID/);
  });

  it('refuses a cache salt below 32 bytes in each API that has one', async () => {
    for (const dialect of ['chat', 'completions', 'messages'] as const) {
      for (const cache_salt of [undefined, null, '', 'x'.repeat(31), 'é'.repeat(15), 123]) {
        const { cache_salt: _, ...members } = membersOf(dialect, 'sim-1x0', 'x');
        const salted = cache_salt === undefined ? members : { ...members, cache_salt };
        assert.match(refusal((await client.ask(dialect, salted)).answer, 500), /cache_salt/);
      }
    }
    assert.equal((await askChat(chat({ cache_salt: 'é'.repeat(16) }))).status, 200);
  });

  it('refuses media that it does not allow, and quotes their URL in clear', async () => {
    const content = [{ type: 'image_url', image_url: { url: 'http://e.example/i?<&>' } }];
    const answer = await askChat(chat({ messages: [{ role: 'user', content }] }));
    assert.match(refusal(answer, 500), /http:\/\/e\.example\/i\?<&>/);
    assert.match(answer.body.toString(), /\\u003c\\u0026\\u003e/);
  });

  /** A body made by hand: seals in the order in which `seal` is called. */
  const bodies: [string, (attempt: Attempt) => string, RegExp][] = [
    ['an array in place of an object', (a) => `[${a.seal('1')}]`, /not an object/],
    ['invalid UTF-8', (a) => `{"model":"m","x\xff":${a.seal('1')}}`, /UTF-8/],
    ['a member in clear', (a) => `{"a":${a.seal('1')},"b":["secret words"]}`, /"b" is not encrypted/],
    ['a text in clear', (a) => `{"model":"m","a":${a.seal('1')},"prompt":"secret words"}`, /message/],
    ['another order', (a) => `{"model":"m","b":${a.seal('1')},"a":${a.seal('2')}}`, /authentication/],
    ['a replayed message', (a) => ((m) => `{"model":"m","a":${m},"b":${m}}`)(a.seal('1')), /authentication/],
    ['a message that is no JSON', (a) => `{"model":"m","a":${a.seal('secret words')}}`, /not JSON after/],
    ['no model', (a) => `{"a":${a.seal('1')}}`, /no model/],
  ];
  for (const [what, body, message] of bodies) {
    it(`refuses a body with ${what}`, async () => {
      const text = refusal(await client.send('chat', Buffer.from(body(attempt()), 'latin1')), 500);
      assert.match(text, message);
      assert.doesNotMatch(text, /secret words/);
    });
  }

  it('refuses a form with a field in clear or twice, with broken framing, or of another content type', async () => {
    const field = (name: string, value: string) =>
      `--BOUNDARY\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
    const sealed = () => attempt().seal('x');
    const good = field('model', 'm');
    const form = 'multipart/form-data; boundary=BOUNDARY';
    for (const [body, type, message] of [
      [`${good}${field('prompt', 'secret words')}--BOUNDARY--\r\n`, form, /message/],
      [`${good}${field('a', sealed())}${field('a', sealed())}--BOUNDARY--\r\n`, form, /twice/],
      [`${good}${field('a', sealed())}`, form, /reading form/],
      ['--BOUNDARY\r\n\r\n\r\nx\r\n--BOUNDARY--\r\n', form, /reading form/],
      ['--BOUNDARY--\r\n', 'application/json', /reading form/],
      ['--BOUNDARY--\r\n', 'multipart/form-data', /reading form/],
    ] as const) {
      const headers = { ...goodHeaders(simulator.port, client.secret, 'm'), 'content-type': type };
      const answer = await call(simulator, 'POST', '/v1/audio/transcriptions', { headers, body });
      assert.match(refusal(answer, 500), message);
      assert.doesNotMatch(answer.body.toString(), /secret words/);
    }
  });

  it('refuses a request without a header that the protocol demands, a chunked body, or another key', async () => {
    const needed = Object.keys(goodHeaders(1, client.secret, 'm')).filter((name) =>
      /^privatemode/.test(name),
    );
    assert.equal(needed.length, 9);
    for (const name of needed) {
      const message = refusal(await client.send('chat', '{}', { [name]: undefined }), 400);
      assert.equal(message, `missing header ${name}`);
    }
    refusal(await askChat(chat(), { 'transfer-encoding': 'chunked' }), 411);
    refusal(await askChat(chat(), { authorization: 'Bearer other' }), 401);
    refusal(await client.send('chat', '{}', { authorization: undefined }), 401);
  });

  it('refuses other methods and other paths', async () => {
    const asked = { headers: goodHeaders(simulator.port, client.secret, 'm'), body: '{}' };
    refusal(await call(simulator, 'PUT', '/v1/chat/completions', asked), 405);
    for (const path of [
      '/v1/responses',
      '/v1/models/',
      '/v1/chat/completions/',
      '/unstructured',
      '/V1/models',
    ])
      assert.equal((await call(simulator, 'POST', path, asked)).status, 404, path);
    assert.match(simulator.exchanges.violations().join(), /outside the API/);
  });
});

describe('the exchange log of the simulated service', () => {
  afterEach(() => simulator.exchanges.clear());
  before(() => simulator.exchanges.clear());

  const members = membersOf('chat', 'sim-1x0', 'x');
  const noted = () => simulator.exchanges.violations().join('\n');
  /** A body of two messages, the first of them the salt. */
  const salted = (a: Attempt, iv?: Buffer, change = (message: string) => message) =>
    `{"model":"m","cache_salt":${a.seal(JSON.stringify(SALT), iv)},"messages":${change(a.seal('[]', iv))}}`;

  it('has what the model saw of a good request, and no violation', async () => {
    const shard = createHash('sha256').update(SALT).digest('hex').slice(0, 16);
    const head = { 'anthropic-beta': 'a', 'openai-beta': 'o', accept: '*/*', 'privatemode-shard-key': shard };
    await client.ask('chat', members, head);
    const { model, secretId, opened, status, closedEarlyAt } = simulator.exchanges.last()!;
    assert.deepEqual([model, secretId, status], ['sim-1x0', client.secret.id, 200]);
    assert.deepEqual([JSON.parse(opened), closedEarlyAt], [members, undefined]);
    assert.equal(simulator.recorder.containing(SALT).length, 0);
    const name = Buffer.from('sim-echo-größe').toString('latin1');
    await client.ask('chat', { ...members, model: 'sim-echo-größe' }, { 'privatemode-target-model': name });
    assert.equal(noted(), '');
  });

  const heads: [string, Record<string, string | string[]>, RegExp][] = [
    ['cookies', { cookie: 'a=b' }, /header cookie must not/],
    ['unknown protocol headers', { 'privatemode-foo': '1' }, /header privatemode-foo must not/],
    ['another host', { host: 'localhost:8080' }, /host is not the API host/],
    ['a key that is no bearer token', { authorization: 'Basic key' }, /no bearer token/],
    ['repeated headers', { 'anthropic-beta': ['a', 'b'] }, /anthropic-beta was sent twice/],
    ['chunked bodies', { 'transfer-encoding': 'chunked' }, /transfer-encoding must not/],
    ['a version before 1.40', { 'privatemode-version': 'v1.39.9' }, /version is malformed/],
    ["Node's names for systems", { 'privatemode-os': 'win32' }, /os is malformed/],
    [
      'a request id without its attempt',
      { 'privatemode-user-request-id': 'proxy_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b' },
      /id is malformed/,
    ],
    ['a shard key of another salt', { 'privatemode-shard-key': '0123456789abcdef' }, /to the cache salt/],
    ['another secret id in the head', { 'privatemode-secret-id': 'other' }, /secret id of the head/],
    ['another model in the head', { 'privatemode-target-model': 'other' }, /target model of the head/],
  ];
  for (const [what, head, note] of heads) {
    it(`notes ${what}`, async () => {
      simulator.secrets.put('other', client.secret.bytes);
      await client.ask('chat', members, head);
      assert.match(noted(), note);
    });
  }

  it('notes what does not belong to an endpoint', async () => {
    const head = { 'privatemode-shard-key': '0123456789abcdef' };
    await client.ask('embeddings', membersOf('embeddings', 'm', 'x'), head);
    assert.match(noted(), /shard-key does not belong to embeddings/);
    const headers = goodHeaders(simulator.port, client.secret, 'm');
    await call(simulator, 'GET', '/v1/models', { headers });
    assert.match(noted(), /secret-id does not.*policy does not.*mac does not.*target-model does not/s);
  });

  it('notes a nonce of an earlier request, more than one nonce in a request, and an iv used twice', async () => {
    const nonce = Buffer.alloc(12, 7);
    await client.send('chat', salted(new Attempt(client.secret, nonce)));
    assert.equal(noted(), '');
    await client.send('chat', salted(new Attempt(client.secret, nonce)));
    assert.match(noted(), /a nonce of an earlier request/);
    await client.send('chat', salted(attempt(), Buffer.alloc(12, 9)));
    assert.match(noted(), /an iv used twice/);
    const a = attempt();
    const body = salted(a, undefined, (message) => message.replace(a.nonce.toString('hex'), '0'.repeat(24)));
    assert.equal((await client.send('chat', body)).status, 200);
    assert.match(noted(), /more than one nonce in the request/);
  });

  it('notes a file in a form with its real filename', async () => {
    const file = attempt().seal('RIFF');
    const disposition = 'Content-Disposition: form-data; name=';
    const model = `--BOUNDARY\r\n${disposition}"model"\r\n\r\nm\r\n`;
    const body = `${model}--BOUNDARY\r\n${disposition}"file"; filename="my voice.wav"\r\n\r\n${file}\r\n--BOUNDARY--\r\n`;
    const type = { 'content-type': 'multipart/form-data; boundary=BOUNDARY' };
    const headers = { ...goodHeaders(simulator.port, client.secret, 'm'), ...type };
    await call(simulator, 'POST', '/v1/audio/transcriptions', { headers, body });
    assert.match(noted(), /form file file tells its name or type/);
  });
});
