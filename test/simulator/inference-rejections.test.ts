/** What the server refuses, how it says so, and what it notes against a client without refusing it. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, afterEach, before, describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { type InferenceServer, membersOf, SALT, startInference } from '../support/remote/inference-server.ts';
import {
  type Answer,
  Attempt,
  call,
  goodHeaders,
  libraryHeaders,
  newSecret,
  PLAIN,
} from '../support/remote/literal-client.ts';

/** The refusal's message; asserts its shape and mark. */
function refusal(answer: Answer, status: number): string {
  assert.equal(answer.status, status, answer.body.toString());
  assert.equal(answer.headers['privatemode-encrypted'], 'false');
  assert.equal(answer.headers['content-type'], 'application/json');
  const { error } = JSON.parse(answer.body.toString()) as { error: { message: string; type: string } };
  assert.deepEqual(Object.keys(error), ['message', 'type']);
  assert.equal(error.type, '');
  return error.message;
}

describe('the simulated service', () => {
  let server: InferenceServer;
  before(async () => {
    server = await startInference();
  });
  after(() => server.close());

  const chat = (more: Record<string, unknown> = {}) => ({
    ...membersOf('chat', 'sim-1x0', 'secret words', false),
    ...more,
  });
  const ask = async (members: Record<string, unknown>, head: Record<string, string> = {}): Promise<Answer> =>
    (await server.ask('chat', members, head)).answer;

  it('refuses a secret that it does not know or has dropped, whether or not it checks a policy', async () => {
    const dropped = newSecret();
    server.secrets.put(dropped.id, dropped.bytes);
    server.secrets.drop(dropped.id);
    const words = 'getting secret for OCSP verification: no secret for ID';
    for (const secret of [newSecret(), dropped]) {
      const { port } = server;
      const headers = goodHeaders(port, secret, 'sim-1x0');
      const body = new Attempt(secret).sealObject(chat(), PLAIN.chat);
      const checked = await call({ port, path: '/v1/chat/completions', headers, body });
      assert.equal(refusal(checked, 500), `${words} "${secret.id}"`);
      const raw = { headers: goodHeaders(port, secret, undefined), body: new Attempt(secret).seal('body') };
      assert.match(refusal(await call({ port, path: '/unstructured/x', ...raw }), 500), /no secret for ID/);
    }
  });

  it('breaks the stream at the message for which it no longer has the secret', async () => {
    const asked = server.ask('chat', { ...chat(), model: 'sim-60x100', stream: true });
    const { exchanges } = server;
    await eventually('the stream', () =>
      exchanges.all().some(({ model, written }) => model === 'sim-60x100' && written > 3),
    );
    server.secrets.dropAll();
    const { attempt, answer } = await asked;
    server.secrets.put(server.secret.id, server.secret.bytes);
    assert.deepEqual([answer.status, answer.broken], [200, 'ECONNRESET read']);
    assert.ok(attempt.openEvents(answer.body.toString(), PLAIN.answer).length > 0, 'what came before');
    assert.match((await server.finished()).failure, /encrypting response: getting secret: no secret for ID/);
  });

  it('refuses a whole answer for which it no longer has the secret', async () => {
    const asked = server.ask('chat', { ...chat(), model: 'sim-1x1500' });
    await eventually('the model', () => server.exchanges.last()?.model === 'sim-1x1500');
    server.secrets.dropAll();
    const { answer } = await asked;
    server.secrets.put(server.secret.id, server.secret.bytes);
    assert.match(refusal(answer, 500), /^encrypting response: getting secret: no secret for ID/);
  });

  it('refuses a wrong policy MAC, and names the expected one as the real server does', async () => {
    const wrong = '0'.repeat(64);
    const message = refusal(await ask(chat(), { 'privatemode-nvidia-ocsp-policy-mac': wrong }), 500);
    const right = goodHeaders(server.port, server.secret, 'm')['privatemode-nvidia-ocsp-policy-mac'];
    assert.ok(message.endsWith(`expected ${right}`), message);
  });

  it('refuses an altered policy', async () => {
    const policy = 'rules=allow-good; revocation-time-not-before=1700000000';
    refusal(await ask(chat(), { 'privatemode-nvidia-ocsp-policy': policy }), 500);
  });

  const salts: [string, unknown][] = [
    ['missing', undefined],
    ['null', null],
    ['empty', ''],
    ['of 31 bytes', 'x'.repeat(31)],
    ['of 15 two-byte characters', 'é'.repeat(15)],
    ['a short number', 123],
  ];
  for (const [what, cache_salt] of salts) {
    it(`refuses a cache salt that is ${what}`, async () => {
      for (const dialect of ['chat', 'completions', 'messages'] as const) {
        const { cache_salt: _, ...members } = membersOf(dialect, 'sim-1x0', 'x', false);
        const salted = cache_salt === undefined ? members : { ...members, cache_salt };
        assert.match(refusal((await server.ask(dialect, salted)).answer, 500), /cache_salt/);
      }
    });
  }

  it('takes a cache salt of 32 bytes, whatever its characters', async () => {
    assert.equal((await ask(chat({ cache_salt: 'é'.repeat(16) }))).status, 200);
  });

  const numbers: [salt: string, text: string | undefined][] = [
    ['1234567890'.repeat(4), '1234567890'.repeat(4)],
    ['1e40', `1${'0'.repeat(40)}`],
    ['-1.25E-31', `-0.${'0'.repeat(30)}125`],
    ['1234.5e30', `12345${'0'.repeat(29)}`],
    [`1.${'0'.repeat(32)}`, undefined],
    ['1e400', undefined],
    ['0e40', undefined],
  ];
  for (const [number, text] of numbers) {
    it(`${text === undefined ? 'refuses' : 'takes'} the number ${number} as a cache salt, by its plain decimal`, async () => {
      const attempt = new Attempt(server.secret);
      const [salt, messages] = [attempt.seal(number), attempt.seal('[]')];
      const body = `{"model":"m","cache_salt":${salt},"messages":${messages}}`;
      const key = createHash('sha256')
        .update(text ?? '')
        .digest('hex')
        .slice(0, 16);
      const { status } = await server.send('chat', body, { 'privatemode-shard-key': key });
      assert.equal(status, text === undefined ? 500 : 200);
      if (text !== undefined) assert.doesNotMatch(server.exchanges.violations().join(), /cache salt/);
    });
  }

  const part = (value: unknown) => ({
    messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }, value] }],
  });
  const media: [string, Record<string, unknown>, boolean][] = [
    ['an http image', part({ type: 'image_url', image_url: { url: 'http://e.example/i' } }), true],
    ['a file image', part({ type: 'image_url', image_url: 'file:///etc/passwd' }), true],
    ['an image without a scheme', part({ type: 'image_url', image_url: { url: 'e.example/i' } }), true],
    ['an audio URL', part({ type: 'audio_url', audio_url: { url: 'https://e.example/a' } }), true],
    ['a video URL', part({ type: 'video_url', video_url: { url: 'data:video/mp4;base64,' } }), true],
    ['an http source', part({ type: 'image', source: { type: 'url', url: 'http://e.example/i' } }), true],
    [
      'an http source in a tool result',
      part({ type: 'tool_result', content: [{ type: 'image', source: { url: 'http://e.example/i' } }] }),
      true,
    ],
    ['an http document', part({ type: 'document', source: { type: 'url', url: 'http://e.example' } }), true],
    ['a URL in a base64 source', part({ type: 'image', source: { type: 'base64', url: 'e' } }), true],
    ['an image with a port that is no number', part({ image_url: { url: 'https://e.example:x/' } }), true],
    ['an image with a bad escape', part({ image_url: 'https://e.example/100%' }), true],
    ['base64 with a line break', part({ image_url: { url: 'data:image/png;base64,AA\nAA' } }), true],
    ['an https image', part({ type: 'image_url', image_url: { url: 'https://e.example/i' } }), false],
    ['a bad escape in data', part({ image_url: { url: 'data:,%zz' } }), false],
    ['a data image', part({ type: 'image_url', image_url: { url: 'data:image/png;base64,' } }), false],
    ['inline audio', part({ type: 'input_audio', input_audio: { data: '', format: 'wav' } }), false],
    ['a base64 source', part({ type: 'image', source: { type: 'base64', data: '' } }), false],
  ];
  for (const [what, more, refused] of media) {
    it(`${refused ? 'refuses' : 'takes'} ${what}`, async () => {
      const answer = await ask(chat(more));
      if (refused) assert.match(refusal(answer, 500), /URL|_url/);
      else assert.equal(answer.status, 200, answer.body.toString());
    });
  }

  it('quotes in clear the URL that it refuses, as the real server does', async () => {
    const answer = await ask(chat(part({ type: 'image_url', image_url: { url: 'http://e.example/a?<&>' } })));
    assert.match(refusal(answer, 500), /http:\/\/e\.example\/a\?<&>/);
    assert.match(answer.body.toString(), /\\u003c\\u0026\\u003e/);
  });

  it('checks the first of two duplicate members in a content part', async () => {
    const urls = ['"url":"https://e.example/good"', '"url":"http://e.example/bad"'];
    for (const [order, status] of [
      [urls, 200],
      [urls.toReversed(), 500],
    ] as const) {
      const messages = `[{"role":"user","content":[{"type":"image_url","image_url":{${order.join()}}}]}]`;
      const attempt = new Attempt(server.secret);
      const body = `{"cache_salt":${attempt.seal(`"${'x'.repeat(32)}"`)},"messages":${attempt.seal(messages)},"model":"sim-1x0"}`;
      const answer = await server.send('chat', Buffer.from(body));
      assert.equal(answer.status, status, answer.body.toString());
      if (status === 500) assert.match(refusal(answer, 500), /http:\/\/e\.example\/bad/);
    }
  });

  /** A body made by hand: seals in the order in which `seal` is called. */
  const bodies: [string, (attempt: Attempt) => string, RegExp][] = [
    ['no JSON', () => '{"model":', /decoding JSON/],
    ['an array in place of an object', (a) => `[${a.seal('1')}]`, /not an object/],
    ['invalid UTF-8', (a) => `{"model":"m","x\xff":${a.seal('1')}}`, /UTF-8/],
    [
      'a member in clear',
      (a) => `{"model":"m","a":${a.seal('1')},"messages":["secret words"]}`,
      /"messages" is not encrypted/,
    ],
    ['a text in clear', (a) => `{"model":"m","a":${a.seal('1')},"prompt":"secret words"}`, /message/],
    ['a member twice', (a) => `{"model":"m","a":${a.seal('1')},"a":${a.seal('2')}}`, /twice/],
    [
      'a member twice, once spelled with an escape',
      (a) => `{"model":"m","a":${a.seal('1')},"\\u0061":1}`,
      /twice/,
    ],
    ['a plain member twice', (a) => `{"model":"m","a":${a.seal('1')},"model":"n"}`, /twice/],
    [
      'messages in another order',
      (a) => `{"model":"m","b":${a.seal('1')},"a":${a.seal('2')}}`,
      /authentication/,
    ],
    ['a replayed message', (a) => ((m) => `{"model":"m","a":${m},"b":${m}}`)(a.seal('1')), /authentication/],
    ['a message that is no JSON', (a) => `{"model":"m","a":${a.seal('secret words')}}`, /not JSON after/],
    ['no model', (a) => `{"a":${a.seal('1')}}`, /no model/],
    ['a number as model', (a) => `{"model":7,"a":${a.seal('1')}}`, /no model/],
    ...['', 'a|b', 'a\\b', '{x', '[x', ':', ':1', ':x', '!', '!x', '!true', '@this', '@this:1'].map(
      (name): [string, (attempt: Attempt) => string, RegExp] => [
        `the member name ${JSON.stringify(name)}`,
        (a) => `{"model":"m",${JSON.stringify(name)}:${a.seal('1')}}`,
        /cannot be addressed/,
      ],
    ),
  ];
  for (const [what, body, message] of bodies) {
    it(`refuses a body with ${what}`, async () => {
      const attempt = new Attempt(server.secret);
      const answer = await server.send('chat', Buffer.from(body(attempt), 'latin1'));
      const text = refusal(answer, 500);
      assert.match(text, message);
      assert.doesNotMatch(text, /secret words/);
    });
  }

  it('takes unusual member names such as "#" and "a.b"', async () => {
    const odd = Object.fromEntries(['#', '@x', 'a.b', 'a*', '-1', 'a:b', '😀', '￿'].map((name) => [name, 1]));
    assert.equal((await ask(chat(odd))).status, 200);
  });

  const send = (content: string, contentType = 'multipart/form-data; boundary=B') =>
    call({
      port: server.port,
      path: '/v1/audio/transcriptions',
      headers: { ...goodHeaders(server.port, server.secret, 'm'), 'content-type': contentType },
      body: content,
    });
  const field = (name: string, value: string) =>
    `--B\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;

  it('refuses a form with a field in clear, a repeated field or a malformed boundary', async () => {
    const sealed = () => new Attempt(server.secret).seal('x');
    const good = field('model', 'm');
    for (const [content, message] of [
      [`${good}${field('prompt', 'secret words')}--B--\r\n`, /message/],
      [`${good}${field('a', sealed())}${field('a', sealed())}--B--\r\n`, /twice/],
      [`${good}${field('a', sealed())}`, /boundary/],
      [`x${good}--B--\r\n`, /boundary/],
      [`--B\r\n\r\n\r\nx\r\n--B--\r\n`, /without a name/],
    ] as const) {
      const text = refusal(await send(content), 500);
      assert.match(text, message);
      assert.doesNotMatch(text, /secret words/);
    }
  });

  it('refuses a form of another content type, or without a boundary', async () => {
    for (const type of ['application/json', 'multipart/form-data', 'multipart/related; boundary=B']) {
      assert.match(refusal(await send('--B--\r\n', type), 500), /multipart|boundary/);
    }
  });

  it('refuses a chunked body, since it has no Content-Length', async () => {
    refusal(await ask(chat(), { 'transfer-encoding': 'chunked' }), 411);
  });

  for (const name of [
    'privatemode-version',
    'privatemode-client',
    'privatemode-user-request-id',
    'privatemode-os',
    'privatemode-architecture',
    'privatemode-secret-id',
    'privatemode-target-model',
    'privatemode-nvidia-ocsp-policy',
    'privatemode-nvidia-ocsp-policy-mac',
  ]) {
    it(`refuses a request without ${name}`, async () => {
      const answer = await server.send('chat', '{}', { [name]: undefined });
      assert.equal(refusal(answer, 400), `missing header ${name}`);
    });
  }

  it('refuses a key that it does not accept, and a request without one', async () => {
    refusal(await ask(chat(), { authorization: 'Bearer other' }), 401);
    refusal(await server.send('chat', '{}', { authorization: undefined }), 401);
  });

  it('refuses a large upload only after it has drained it, so that the refusal is not lost', async () => {
    const body = Buffer.alloc(4 * 1024 * 1024);
    const answer = await server.send('chat', body, { 'privatemode-version': undefined });
    refusal(answer, 400);
    assert.equal(answer.broken, undefined);
    assert.equal(server.recorder.requests().at(-1)?.bodyBytes, body.length);
  });

  it('refuses other methods and other paths', async () => {
    const { port, secret } = server;
    const headers = goodHeaders(port, secret, 'm');
    refusal(await call({ port, method: 'PUT', path: '/v1/chat/completions', headers, body: '{}' }), 405);
    for (const path of [
      '/v1/responses',
      '/v1/models/',
      '/v1/chat/completions/',
      '/unstructured',
      '/V1/models',
    ]) {
      const answer = await call({ port, path, headers, body: '{}' });
      assert.equal(answer.status, 404, path);
      assert.equal(answer.body.toString(), '404 page not found\n');
      assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    }
  });
});

describe('the exchange log of the simulated service', () => {
  let server: InferenceServer;
  before(async () => {
    server = await startInference();
  });
  after(() => server.close());
  afterEach(() => server.exchanges.clear());

  const members = membersOf('chat', 'sim-1x0', 'x', false);

  it('notes no violation in requests with the headers of the proxy or of the client library', async () => {
    await server.ask('chat', members, {
      'anthropic-beta': 'a',
      'openai-beta': 'o',
      'anthropic-version': '2023-06-01',
      accept: '*/*',
    });
    const headers = libraryHeaders(server.port, server.secret, 'sim-1x0');
    const body = new Attempt(server.secret).sealObject(members, PLAIN.chat);
    const answer = await call({ port: server.port, path: '/v1/chat/completions', headers, body });
    assert.equal(answer.status, 200, answer.body.toString());
    assert.equal(server.exchanges.all().length, 2);
    assert.deepEqual(server.exchanges.violations(), []);
  });

  const heads: [string, Record<string, string | string[]>, RegExp][] = [
    ['cookies', { cookie: 'a=b' }, /header cookie must not/],
    ['an API key of another vendor', { 'x-api-key': 'k' }, /header x-api-key must not/],
    ['the user agent', { 'user-agent': 'x' }, /header user-agent must not/],
    ['client addresses', { 'x-forwarded-for': '10.0.0.1' }, /header x-forwarded-for must not/],
    ['origins', { origin: 'https://e.example' }, /header origin must not/],
    ['SDK internals', { 'x-stainless-os': 'Linux' }, /header x-stainless-os must not/],
    ['undocumented names of OpenAI', { 'openai-organization': 'o' }, /header openai-organization must not/],
    ['undocumented names of Anthropic', { 'anthropic-user-id': 'u' }, /header anthropic-user-id must not/],
    ['unknown protocol headers', { 'privatemode-foo': '1' }, /header privatemode-foo must not/],
    ['compression', { 'accept-encoding': 'gzip' }, /accept-encoding is not identity/],
    ['another host', { host: 'localhost:8080' }, /host is not the API host/],
    ['a key that is no bearer token', { authorization: 'Basic key' }, /no bearer token/],
    ['repeated headers', { 'anthropic-beta': ['a', 'b'] }, /anthropic-beta was sent twice/],
    ['chunked bodies', { 'transfer-encoding': 'chunked' }, /transfer-encoding must not/],
    ['a version without its v', { 'privatemode-version': '1.40.0' }, /version is malformed/],
    ['a version before 1.40', { 'privatemode-version': 'v1.39.9' }, /version is malformed/],
    [
      "Node's names for systems",
      { 'privatemode-os': 'win32', 'privatemode-architecture': 'x64' },
      /os is malformed.*\n.*architecture is/,
    ],
    [
      'a request id without its attempt',
      { 'privatemode-user-request-id': 'proxy_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b' },
      /id is malformed/,
    ],
    [
      'a request id of another version',
      { 'privatemode-user-request-id': 'proxy_0190a1b2-c3d4-4e5f-8a9b-0c1d2e3f4a5b_0' },
      /id is malformed/,
    ],
    ['a malformed shard key', { 'privatemode-shard-key': 'XYZ' }, /shard-key is malformed/],
    [
      'a shard key of another salt',
      { 'privatemode-shard-key': '0123456789abcdef' },
      /does not belong to the cache salt/,
    ],
    ['another secret id in the head', { 'privatemode-secret-id': 'other' }, /secret id of the head/],
    ['another model in the head', { 'privatemode-target-model': 'other' }, /target model of the head/],
  ];
  for (const [what, head, note] of heads) {
    it(`notes ${what}`, async () => {
      server.secrets.put('other', server.secret.bytes);
      await server.ask('chat', members, head);
      assert.match(server.exchanges.violations().join('\n'), note);
    });
  }

  it('notes no violation if the model name in the header is that of the body in UTF-8', async () => {
    const name = Buffer.from('sim-echo-größe').toString('latin1');
    await server.ask('chat', { ...members, model: 'sim-echo-größe' }, { 'privatemode-target-model': name });
    assert.deepEqual(server.exchanges.violations(), []);
  });

  it('notes a shard key on an endpoint that has none, but not one in chat that fits the cache salt', async () => {
    const key = createHash('sha256').update(SALT).digest('hex').slice(0, 16);
    await server.ask('chat', members, { 'privatemode-shard-key': key });
    assert.deepEqual(server.exchanges.violations(), []);
    await server.ask('embeddings', membersOf('embeddings', 'm', 'x', false), {
      'privatemode-shard-key': key,
    });
    assert.match(server.exchanges.violations().join(), /shard-key does not belong to embeddings/);
  });

  it('notes a nonce of an earlier request, and an iv that is used twice', async () => {
    const { port, secret } = server;
    const nonce = Buffer.alloc(12, 7);
    const send = (body: string) =>
      call({ port, path: '/v1/chat/completions', headers: goodHeaders(port, secret, 'm'), body });
    const salted = (attempt: Attempt) => {
      const salt = attempt.seal(JSON.stringify(SALT));
      return `{"model":"m","cache_salt":${salt},"messages":${attempt.seal('[]')}}`;
    };
    await send(salted(new Attempt(secret, nonce)));
    assert.deepEqual(server.exchanges.violations(), []);
    await send(salted(new Attempt(secret, nonce)));
    assert.match(server.exchanges.violations().join(), /a nonce of an earlier request/);

    const attempt = new Attempt(secret);
    const iv = Buffer.alloc(12, 9);
    const salt = attempt.seal(JSON.stringify(SALT), iv);
    await send(`{"model":"m","cache_salt":${salt},"messages":${attempt.seal('[]', iv)}}`);
    assert.match(server.exchanges.violations().join(), /an iv used twice/);
  });

  it('notes more than one nonce in a request', async () => {
    const attempt = new Attempt(server.secret);
    const salt = attempt.seal(JSON.stringify(SALT));
    const messages = attempt.seal('[]').replace(attempt.nonce.toString('hex'), '0'.repeat(24));
    const answer = await server.send('chat', `{"model":"m","cache_salt":${salt},"messages":${messages}}`);
    assert.equal(answer.status, 200);
    assert.match(server.exchanges.violations().join(), /more than one nonce in the request/);
  });

  it('notes a file in a form with its real filename', async () => {
    const { port, secret } = server;
    const attempt = new Attempt(secret);
    const form = attempt.sealForm({ model: 'm' }, Buffer.from('RIFF')).toString('latin1');
    const headers = {
      ...goodHeaders(port, secret, 'm'),
      'content-type': 'multipart/form-data; boundary=BOUNDARY',
    };
    const body = form.replace('filename="file"', 'filename="my voice.wav"');
    await call({ port, path: '/v1/audio/transcriptions', headers, body });
    assert.match(server.exchanges.violations().join(), /form file file tells its name or type/);
  });

  it('notes headers of encryption on the models endpoint', async () => {
    const { port, secret } = server;
    await call({ port, method: 'GET', path: '/v1/models', headers: goodHeaders(port, secret, 'm') });
    assert.match(
      server.exchanges.violations().join(),
      /id is malformed.*secret-id does not belong.*policy does not belong.*mac does not belong.*target-model does not/s,
    );
  });

  it('notes paths outside the API', async () => {
    const { port, secret } = server;
    await call({ port, path: '/v1/responses', headers: goodHeaders(port, secret, 'm'), body: '{}' });
    assert.match(server.exchanges.violations().join(), /outside the API/);
  });

  it('has the model, secret id, decrypted body and status of each exchange', async () => {
    await server.ask('chat', members);
    const exchange = await server.finished();
    assert.equal(exchange.model, 'sim-1x0');
    assert.equal(exchange.secretId, server.secret.id);
    assert.deepEqual(JSON.parse(exchange.opened), members);
    assert.equal(exchange.status, 200);
    assert.equal(exchange.closedEarlyAt, undefined);
    assert.equal(server.recorder.containing('cache_salt').length > 0, true);
    assert.equal(server.recorder.containing(SALT).length, 0);
  });
});
