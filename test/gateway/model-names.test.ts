/** --model-alias: other names for models. */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { aliasIn, listWithAliases } from '../../lib/api/model-names.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { clientOf } from '../support/doors/clients.ts';
import { assertError, chatBody, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { formBody } from '../support/remote/forms.ts';
import type { Reply } from '../support/remote/scripted-upstream.ts';
import { http } from '../support/remote/sealed-answers.ts';

const ALIASES = new Map([
  ['gpt-4o', 'big'],
  ['claude-*', 'big'],
  ['b', 'small'],
]);

/** A gateway whose one client may use big alone. */
const aliasing = (t: TestContext, answers: Reply = http(503, '')) =>
  gatewayFixture(t, {
    answers,
    deps: {
      aliases: ALIASES,
      clients: { authenticate: () => clientOf({ models: ['big'] }) },
      createTranslator,
    },
  });

describe('--model-alias', { concurrency: true }, () => {
  const FORM_TYPE = 'Content-Type: multipart/form-data; boundary=B';
  const FORM = formBody('B', [
    { name: 'model', body: Buffer.from('gpt-4o') },
    { name: 'file', filename: 'a.wav', body: Buffer.from('RIFF') },
  ]);
  const requests: [request: Buffer, alias: string][] = [
    [post(chatBody({ stream: true, model: 'gpt-4o' })), 'gpt-4o'],
    [post(chatBody({ model: 'claude-haiku-9' }), { path: '/v1/messages' }), 'claude-*'],
    [post('{"model":"gpt-4o","input":"hi"}', { path: '/v1/responses' }), 'gpt-4o'],
    [post('{"input":"hi","model":"gpt-4o"}', { path: '/v1/embeddings' }), 'gpt-4o'],
    [post(FORM, { path: '/v1/audio/transcriptions', headers: [FORM_TYPE] }), 'gpt-4o'],
  ];
  it('sends JSON and forms to the model of the alias, which the log names', async (t) => {
    const { upstream, gateway, ask } = await aliasing(t);
    for (const [at, [request, alias]] of requests.entries()) {
      await ask(request);
      const sent = upstream.requests.at(-1);
      assert.equal(sent?.headers['privatemode-target-model'], 'big');
      assert.match(String(sent?.body), /"model" ?: ?"big"|name="model"\r\n\r\nbig\r\n/);
      const line = await eventually(
        'its line',
        () => gateway.logLines.filter((each) => each.includes('Request ended'))[at],
      );
      const { model, alias: named } = JSON.parse(line);
      assert.deepEqual([model, named], ['big', alias], 'what a client wrote is not what was configured');
    }
  });

  it('checks the rights of a client by the model behind the alias, not by the alias', async (t) => {
    const { upstream, ask } = await aliasing(t);
    const answer = await ask(post(chatBody({ model: 'b' })));
    assertError(answer, 403, 'client_forbidden');
    assert.match(answer.body, /may not use the model that b stands for, only big/);
    assert.equal(upstream.requests.length, 0);
  });

  it('lists whole names on the first page, still marked as unauthenticated, and asks the service for one name', async (t) => {
    const { upstream, ask } = await aliasing(t);
    upstream.on((scripted) => scripted.write(http(200, '{"object":"list","data":[{"id":"big"}]}')));
    const { headers, body } = await ask(get('/v1/models?limit=1000'));
    assert.equal(headers['privatemode-proxy-unauthenticated'], 'true');
    assert.equal(headers['content-length'], String(body.length));
    assert.match(body, /"id":"gpt-4o",[^}]*"owned_by":"privatemode-proxy: alias of big"/);
    assert.ok(!body.includes('claude-'));
    assert.ok(!(await ask(get('/v1/models?after_id=big'))).body.includes('gpt-4o'));
    await ask(get('/v1/models/gpt-4o'));
    assert.equal(upstream.requests.at(-1)?.target, '/v1/models/gpt-4o');
  });

  it('answers 502 for a list of models above 1 MiB', async (t) => {
    for (const [size, status] of [
      [1024 * 1024, 200],
      [1024 * 1024 + 1, 502],
    ] as const) {
      const { ask } = await aliasing(t, http(200, '{"object":"list","data":[]}'.padEnd(size)));
      assert.equal((await ask(get('/v1/models'))).status, status);
    }
  });
});

describe('the aliases of a table', () => {
  const table = new Map([
    ['gpt-4o', 'big'],
    ['gpt-*', 'small'],
    ['gpt-4*', 'middle'],
    ['gpt-5', 'gpt-5'],
    ['big*', 'big'],
  ]);
  const list = (text: string): unknown => {
    const listed = listWithAliases(table, Buffer.from(text));
    return listed && JSON.parse(String(listed));
  };
  const alias = { object: 'model', created: 0, id: 'gpt-4o', owned_by: 'privatemode-proxy: alias of big' };

  it('match by the whole name first, then by the longest prefix, and exempt a name that stands for itself', () => {
    const names = ['gpt-4o', 'gpt-4o-mini', 'gpt-6', 'gpt-', 'gpt', 'big', 'bigger', 'gpt-5'];
    assert.deepEqual(
      names.map((name) => aliasIn(table, name)?.model),
      ['big', 'middle', 'small', 'small', undefined, undefined, 'big', undefined],
    );
  });

  it('take the place of models with their names in a list, and have what it says of their model', () => {
    const [others, of4o] = ['"id":"x"},{"id":"gpt-5"', '{"id":"gpt-4o","object":"model"}'];
    const given = `{"object":"list","data":[${of4o},{${others}},{"id":"big","max_model_len":9},null]}`;
    assert.deepEqual(list(given), {
      object: 'list',
      data: [
        ...[{ id: 'x' }, { id: 'gpt-5' }, { id: 'big', max_model_len: 9 }, null],
        { ...alias, max_model_len: 9 },
      ],
    });
    assert.deepEqual(list('{"data":[]}'), { data: [alias] });
  });

  it('are not added to a body that is no list of models, or more than JSON.parse may see', () => {
    const deep = `{"data":[],"more":${'['.repeat(65)}${']'.repeat(65)}}`;
    const wide = `{"data":[${'{"0":0},'.repeat(20_001)}0]}`;
    for (const text of ['', 'null', '[]', '{"data":{}}', '{"data":', '"x"', deep, wide])
      assert.equal(list(text), undefined, text.slice(0, 20));
  });
});
