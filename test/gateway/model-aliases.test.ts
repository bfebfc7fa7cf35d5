/** --model-alias: other names for models, through the whole program to the simulated service. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { aliasIn, listWithAliases } from '../../lib/api/model-aliases.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY, gatewayFixture, get } from '../support/doors/gateway-fixture.ts';
import { DOOR } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { http } from '../support/remote/sealed-answers.ts';

const LIBRARY = { skip: DOOR === 'library' && 'the gateway only', timeout: 600_000 };
const ALIASES = '--model-alias=gpt-4o=sim-echo,claude-*=sim-echo,sim-20x50=sim-echo,b=sim-tools';

describe('--model-alias', LIBRARY, () => {
  let stack: Stack;
  before(async () => {
    const clients = join(temporaryDirectory('aliases-'), 'clients.json');
    const tokens = [createHash('sha256').update('pmp_ann').digest('hex')];
    writeFileSync(clients, JSON.stringify({ clients: [{ name: 'ann', tokens, models: ['sim-echo'] }] }));
    stack = await startStack({ flags: ['--responses-api', ALIASES, `--clients=${clients}`] });
  });
  after(() => stack.close());

  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(`${stack.url}${path}`, { ...init, headers: { authorization: 'Bearer pmp_ann' } });

  const messages = [{ role: 'user', content: CANARY }];
  const bodies: [path: string, body: Record<string, unknown>][] = [
    ['/v1/chat/completions', { messages, stream: true, cache_salt: 's'.repeat(32), model: 'gpt-4o' }],
    ['/v1/messages', { messages, max_tokens: 99, model: 'claude-haiku-9' }],
    ['/v1/responses', { model: 'gpt-4o', input: 'hi' }],
    ['/v1/embeddings', { input: 'hi', model: 'sim-20x50' }],
  ];
  it('sends JSON and forms to the model of the alias, which the log names', async () => {
    for (const [path, body] of bodies) {
      const response = await ask(path, { method: 'POST', body: JSON.stringify(body) });
      assert.equal(response.status, 200, await response.text());
      assert.equal(stack.simulator.exchanges.last()?.model, 'sim-echo');
      const id = response.headers.get('privatemode-proxy-request-id') as string;
      const line = await eventually('its line', () =>
        stack.logLines.find((each) => each.includes(id) && each.includes('Request ended')),
      );
      assert.match(line, /"model":"sim-echo","alias":"(?:gpt-4o|claude-\*|sim-20x50)"/);
      assert.ok(!line.includes('haiku'), 'what a client wrote is not what was configured');
    }
    assert.ok(!stack.logLines.join('').includes(CANARY));
    const form = new FormData();
    form.set('model', 'gpt-4o');
    form.set('file', new Blob(['RIFF']), 'a.wav');
    await (await ask('/v1/audio/transcriptions', { method: 'POST', body: form })).text();
    assert.equal(stack.simulator.exchanges.last()?.model, 'sim-echo');
  });

  it('checks the rights of a client by the model behind the alias, not by the alias', async () => {
    const response = await askChat(stack, { model: 'b', token: 'pmp_ann' });
    assert.equal(response.status, 403);
    assert.match(await response.text(), /may not use the model that b stands for, only sim-echo/);
  });

  it('lists whole names on the first page, still marked as unauthenticated, and asks the service for one name', async () => {
    const response = await ask('/v1/models?limit=1000');
    const text = await response.text();
    assert.equal(response.headers.get('privatemode-proxy-unauthenticated'), 'true');
    assert.equal(response.headers.get('content-length'), String(Buffer.byteLength(text)));
    assert.match(text, /"id":"gpt-4o",[^}]*"owned_by":"privatemode-proxy: alias of sim-echo"/);
    assert.ok(!text.includes('claude-'));
    assert.ok(!(await (await ask('/v1/models?after_id=sim-echo')).text()).includes('gpt-4o'));
    assert.equal((await ask('/v1/models/gpt-4o')).status, 404);
    assert.equal(stack.simulator.exchanges.last()?.target, '/v1/models/gpt-4o');
  });

  it('answers 502 for a list of models above 1 MiB', async (t) => {
    for (const [size, status] of [
      [1024 * 1024, 200],
      [1024 * 1024 + 1, 502],
    ] as const) {
      const answers = http(200, '{"object":"list","data":[]}'.padEnd(size));
      const { ask } = await gatewayFixture(t, { deps: { aliases: new Map([['a', 'b']]) }, answers });
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
