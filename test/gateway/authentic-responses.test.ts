/** What an active gateway can make of an answer without the key: nothing that is taken for a success. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chatBody, gatewayFixture, post } from '../support/gateway-fixture.ts';
import { PLAIN_MEMBERS } from '../support/plain-members.ts';
import type { RawAnswer } from '../support/raw-client.ts';
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
  TEXT_COMPLETION,
} from '../support/sealed-answers.ts';

const refuses = ({ status, headers, body }: RawAnswer, code: string): void => {
  assert.equal(status, 502, body);
  assert.match(body, new RegExp(`"code":"${code}"`));
  assert.deepEqual(
    Object.keys(headers).filter((name) => name.startsWith('privatemode-proxy-')),
    ['privatemode-proxy-error'],
    'a receipt for what was refused',
  );
};

const FORM = [
  ...['model', 'file'].map((name) => `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\nm\r\n`),
  '--b--\r\n',
].join('');
const form = (path: string): Buffer =>
  Buffer.from(
    post(FORM, { path }).toString('latin1').replace('application/json', 'multipart/form-data; boundary=b'),
    'latin1',
  );

const EMBEDDINGS = { data: [], object: 'list', model: 'm' };
const MESSAGE = { content: [], model: 'm', role: 'assistant', stop_reason: 'end_turn', type: 'message' };

describe('an answer is of the kind that was asked for', { concurrency: true }, () => {
  it('a whole answer to a request for a stream is refused', async (t) => {
    const { ask } = await gatewayFixture(t, { answers: completion });
    refuses(await ask(post(chatBody({ stream: true }))), 'response_malformed');
  });

  it('a stream in answer to a request for a whole is refused', async (t) => {
    const { ask } = await gatewayFixture(t, { answers: chatStream });
    refuses(await ask(post()), 'response_malformed');
    refuses(await ask(post(chatBody({ stream: false }))), 'response_malformed');
  });

  it('endpoints without streams answer whole, whatever `stream` says', async (t) => {
    const { ask } = await gatewayFixture(t, {
      answers: (request) => http(200, sealedAnswers(request).object(EMBEDDINGS)),
    });
    const asked = post(chatBody({ stream: true, input: 'x' }), { path: '/v1/embeddings' });
    assert.equal((await ask(asked)).status, 200);
  });

  it('an error of the service comes whole, even where a stream was asked for', async (t) => {
    const { ask } = await gatewayFixture(t, {
      answers: (request) => http(400, sealedAnswers(request).object({ error: { message: 'no' } })),
    });
    const { status, body } = await ask(post(chatBody({ stream: true })));
    assert.equal(status, 400);
    assert.match(body, /"no"/);
  });
});

/** The name of the member with the content: the first, but for completions. */
const contentOf = ({ choices }: Readonly<Record<string, unknown>>, first: string): string =>
  choices === undefined ? first : 'choices';

describe('an answer has a status that clients read as what it is', { concurrency: true }, () => {
  const plain = { 'Content-Type': 'application/json', 'Privatemode-Encrypted': 'false' };

  // Python's requests raises for 400 to 599 alone.
  for (const status of [600, 999]) {
    it(`a forged answer in clear with status ${status} is not shown`, async (t) => {
      const { ask } = await gatewayFixture(t, { answers: http(status, JSON.stringify(COMPLETION), plain) });
      refuses(await ask(post()), 'response_malformed');
    });
  }

  // Clients end there without an error: they read no body of such a status.
  for (const status of [204, 205]) {
    it(`a stream with status ${status} is an error, not an empty success`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(async (scripted) => {
        const answer = chatStream(await scripted.body());
        return scripted.write(answer.replace('200 OK', `${status} X`));
      });
      refuses(await ask(post(chatBody({ stream: true }))), 'response_malformed');
    });
  }
});

describe('a success holds authenticated content', { concurrency: true }, () => {
  const endpoints: readonly [
    path: string,
    plain: ReadonlySet<string>,
    content: Readonly<Record<string, unknown>>,
  ][] = [
    ['/v1/chat/completions', PLAIN_MEMBERS.R, COMPLETION],
    ['/v1/completions', PLAIN_MEMBERS.R, TEXT_COMPLETION],
    ['/v1/messages', PLAIN_MEMBERS.MR, MESSAGE],
    ['/v1/embeddings', PLAIN_MEMBERS.R, EMBEDDINGS],
    ['/v1/audio/transcriptions', PLAIN_MEMBERS.TR, { text: 'x' }],
  ];
  for (const [path, plain, content] of endpoints) {
    const isForm = path.includes('audio');
    const request = isForm ? form(path) : post(chatBody(), { path });
    const plainOnly = JSON.stringify(Object.fromEntries([...plain].map((name) => [name, {}])));

    it(`${path}: the real one is shown`, async (t) => {
      const { ask } = await gatewayFixture(t, {
        answers: (request) => http(200, sealedAnswers(request, plain).object(content)),
      });
      const { status, body } = await ask(request);
      assert.deepEqual([status, JSON.parse(body)], [200, content]);
    });

    for (const body of ['', '{}', '[]', plainOnly]) {
      it(`${path}: refused is ${body === '' ? 'nothing' : body}`, async (t) => {
        const { ask } = await gatewayFixture(t, { answers: http(200, body) });
        refuses(await ask(request), body === '[]' ? 'response_malformed' : 'response_not_authentic');
      });
    }

    it(`${path}: refused is content under another name`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const member = contentOf(content, Object.keys(content)[0] as string);
      upstream.on(async (scripted) => {
        const sealed = sealedAnswers(await scripted.body(), plain).object(content);
        await scripted.write(http(200, sealed.replace(`"${member}"`, `"${member.slice(0, -1)}z"`)));
      });
      refuses(await ask(request), 'response_not_authentic');
    });
  }
});

describe('a document is a list of elements', { concurrency: true }, () => {
  const sealedElement = (body: Buffer, value: unknown): string =>
    JSON.stringify(JSON.parse(sealedAnswers(body, new Set()).object({ 0: value }))['0']);
  for (const [name, wireOf, passes] of [
    ['elements', (body: Buffer) => `[${sealedElement(body, { text: 'x' })}]`, true],
    ['lists of elements', (body: Buffer) => `[${sealedElement(body, [{ text: 'x' }])}]`, true],
    ['nothing', () => '[]', true],
    ['an object', (body: Buffer) => `{"detail":${sealedElement(body, 'x')}}`, false],
    ['a text', (body: Buffer) => `[${sealedElement(body, 'x')}]`, false],
    ['an empty object', () => '{}', false],
    ['no bytes', () => '', false],
  ] as const) {
    it(`${name}: ${passes ? 'shown' : 'refused'}`, async (t) => {
      const { ask } = await gatewayFixture(t, { answers: (request) => http(200, wireOf(request)) });
      const answer = await ask(post(chatBody(), { path: '/unstructured/general' }));
      if (passes) assert.equal(answer.status, 200, answer.body);
      else refuses(answer, 'response_not_authentic');
    });
  }
});

describe('every choice that was asked for finishes', { concurrency: true }, () => {
  for (const [n, complete] of [
    [1, true],
    [2, false],
  ] as const) {
    it(`one of ${n}`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        const events = [sealed.chunk('a'), sealed.chunk('b', 'stop'), DONE].map(chunked).join('');
        await scripted.write(STREAM_HEAD + events + LAST_CHUNK);
      });
      const answer = await ask(post(chatBody({ stream: true, n })));
      assert.equal(answer.complete, complete);
      assert.equal(answer.body.includes('[DONE]'), complete);
      if (!complete) assert.match(answer.body, /"code":"stream_unfinished"/);
    });
  }
});
