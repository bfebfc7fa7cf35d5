/** --model-alias: other names for models, through the whole program to the simulated service. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { aliasedInPath, aliasIn, entryOfAlias, listWithAliases } from '../../lib/api/model-aliases.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY, gatewayFixture } from '../support/doors/gateway-fixture.ts';
import { DOOR } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const LIBRARY = { skip: DOOR === 'library' && 'the gateway only', timeout: 600_000 };
const FLAGS = ['--responses-api', '--receipts', '--disable-prompt-cache=false'];
const ALIASES = '--model-alias=gpt-4o=sim-echo,claude-*=sim-echo,claude-opus*=sim-20x50,sim-t*=sim-echo';
const JSON_TYPE = { 'content-type': 'application/json' };

type Listed = { id: string; owned_by: string }[];

describe('--model-alias', LIBRARY, () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({ flags: [...FLAGS, ALIASES] });
  });
  after(() => stack.close());
  afterEach(() => {
    assert.deepEqual(stack.simulator.exchanges.violations(), []);
    assert.ok(!stack.logLines.join('').includes(CANARY));
  });

  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(`${stack.url}${path}`, { method: 'POST', headers: JSON_TYPE, ...init });

  const messages = [{ role: 'user', content: 'hi' }];
  const bodies: [path: string, body: Record<string, unknown>][] = [
    ['/v1/chat/completions', { messages }],
    ['/v1/chat/completions', { messages, stream: true, cache_salt: 's'.repeat(32) }],
    ['/v1/completions', { prompt: 'hi' }],
    ['/v1/messages', { messages, max_tokens: 99 }],
    ['/v1/responses', { input: 'hi' }],
    ['/v1/embeddings', { input: 'hi' }],
  ];
  for (const [path, body] of bodies) {
    for (const place of ['first', 'last'] as const) {
      it(`sends ${path} to the model of an alias if "model" is the ${place} member`, async () => {
        const model = 'gpt-4o';
        const text = JSON.stringify(place === 'first' ? { model, ...body } : { ...body, model });
        const response = await ask(path, { body: text });
        assert.equal(response.status, 200, await response.text());
        assert.equal(stack.simulator.exchanges.last()?.model, 'sim-echo');
        const id = response.headers.get('privatemode-proxy-request-id') as string;
        const line = (): string | undefined =>
          stack.logLines.find((each) => each.includes(id) && each.includes('Request ended'));
        await eventually('its line', () => line() !== undefined);
        assert.match(line() as string, /"model":"sim-echo","alias":"gpt-4o"/);
      });
    }
  }

  it('sends a name that only patterns match (claude-*) to the model of the longest of them', async () => {
    for (const [model, real] of [
      ['claude-haiku-9', 'sim-echo'],
      ['claude-opus-9', 'sim-20x50'],
      ['other', 'other'],
    ]) {
      await (await ask('/v1/messages', { body: JSON.stringify({ model, messages, max_tokens: 9 }) })).text();
      assert.equal(stack.simulator.exchanges.last()?.model, real);
    }
    // what a client wrote is not what was configured
    assert.ok(!stack.logLines.join('').includes('claude-haiku-9'));
  });

  it('sends a name that an alias covers to its model, even if the service has a model of that name', async () => {
    for (const model of ['sim-tools', 'sim-things']) {
      await (await ask('/v1/chat/completions', { body: JSON.stringify({ model, messages }) })).text();
      assert.equal(stack.simulator.exchanges.last()?.model, 'sim-echo');
    }
  });

  it('sends a form to the model of an alias', async () => {
    const form = new FormData();
    form.set('model', 'gpt-4o');
    form.set('file', new Blob(['RIFF']), 'a.wav');
    const response = await fetch(`${stack.url}/v1/audio/transcriptions`, { method: 'POST', body: form });
    await response.text();
    assert.equal(stack.simulator.exchanges.last()?.model, 'sim-echo');
  });

  it('lists aliases without an asterisk beside the real models on the first page, also for Claude Code', async () => {
    const asked: [query: string, headers: Record<string, string>][] = [
      ['', {}],
      ['?limit=1000', { 'x-api-key': 'placeholder', 'anthropic-version': '2023-06-01' }],
    ];
    for (const [query, headers] of asked) {
      const response = await fetch(`${stack.url}/v1/models${query}`, { headers });
      const text = await response.text();
      assert.equal(response.headers.get('privatemode-proxy-unauthenticated'), 'true');
      assert.equal(response.headers.get('content-length'), String(Buffer.byteLength(text)));
      const data: Listed = JSON.parse(text).data;
      assert.deepEqual(
        data.filter(({ owned_by: owner }) => owner !== 'simulator'),
        [
          {
            ...data.find(({ id }) => id === 'sim-echo'),
            id: 'gpt-4o',
            owned_by: 'privatemode-proxy: alias of sim-echo',
          },
        ],
      );
      assert.ok(data.length > 4);
    }
    const further = await (await fetch(`${stack.url}/v1/models?after_id=sim-echo`)).text();
    assert.ok(!further.includes('gpt-4o'));
    const head = await fetch(`${stack.url}/v1/models`, { method: 'HEAD' });
    assert.deepEqual([head.status, await head.text()], [200, '']);
  });

  const entryOf = async (name: string, init: RequestInit = {}): Promise<Response> =>
    fetch(`${stack.url}/v1/models/${name}`, init);

  for (const [name, id, alias] of [
    ['gpt-4o', 'gpt-4o', 'gpt-4o'],
    ['gpt%2D4o', 'gpt-4o', 'gpt-4o'],
    ['claude-haiku-9', 'claude-haiku-9', 'claude-*'],
  ] as const) {
    it(`answers GET /v1/models/${name} with the entry of the model of the alias, under the requested name`, async () => {
      const list = (await (await fetch(`${stack.url}/v1/models`)).json()) as { data: Listed };
      const response = await entryOf(name);
      const text = await response.text();
      assert.equal(response.status, 200, text);
      assert.equal(response.headers.get('privatemode-proxy-unauthenticated'), 'true');
      assert.equal(response.headers.get('content-length'), String(Buffer.byteLength(text)));
      assert.deepEqual(JSON.parse(text), {
        ...list.data.find((entry) => entry.id === 'sim-echo'),
        ...{ id, owned_by: 'privatemode-proxy: alias of sim-echo' },
      });
      const request = response.headers.get('x-request-id') as string;
      const line = await eventually('its line', () =>
        stack.logLines.find((each) => each.includes(request) && each.includes('Request ended')),
      );
      assert.ok(line.includes(`"alias":"${alias}"`) && line.includes('"path":"/v1/models/{id}"'), line);
      const head = await entryOf(name, { method: 'HEAD' });
      assert.deepEqual([head.status, await head.text()], [200, '']);
    });
  }

  it('gives the entry of an alias to the official clients of OpenAI and Anthropic', async () => {
    const openai = new OpenAI({ baseURL: `${stack.url}/v1`, apiKey: 'placeholder' });
    const anthropic = new Anthropic({ baseURL: stack.url, authToken: 'placeholder', apiKey: null });
    for (const { models } of [openai, anthropic]) {
      assert.equal((await models.retrieve('gpt-4o')).id, 'gpt-4o');
      assert.equal((await models.retrieve('claude-haiku-9')).id, 'claude-haiku-9');
    }
  });

  it('asks the service about all other names: its other models, unknown names, and the pattern of an alias', async () => {
    for (const [name, status] of [
      ['sim-echo', 200],
      ['nobody', 404],
      ['claude-*', 404],
      ['%ff', 404],
    ] as const) {
      const response = await entryOf(name);
      const text = await response.text();
      assert.equal(response.status, status, name);
      assert.ok(!text.includes('alias of'), text);
      assert.equal(stack.simulator.exchanges.last()?.target, `/v1/models/${name}`);
    }
  });

  it('writes receipts with the real model and the digest of the received bytes', async () => {
    const body = JSON.stringify({ model: 'gpt-4o', messages });
    await (await ask('/v1/chat/completions', { body })).text();
    const digest = createHash('sha256').update(body).digest('hex');
    const directory = join(stack.directory, 'workspace/receipts');
    const line = (): string | undefined =>
      readdirSync(directory)
        .filter((name) => name.endsWith('.jsonl'))
        .flatMap((name) => readFileSync(join(directory, name), 'utf8').split('\n'))
        .find((text) => text.includes(digest));
    await eventually('a receipt', () => line() !== undefined);
    assert.match(line() as string, /"model":"sim-echo"/);
  });
});

describe('a gateway with --model-alias', LIBRARY, () => {
  it('answers 502 for a list of models above 1 MiB, which passes without aliases', async (t) => {
    for (const [size, rows] of [
      [1024 * 1024, { aliased: 200, plain: 200 }],
      [1024 * 1024 + 1, { aliased: 502, plain: 200 }],
    ] as const) {
      const body = '{"object":"list","data":[]}'.padEnd(size);
      for (const [name, status] of Object.entries(rows)) {
        const aliases = name === 'aliased' ? new Map([['a', 'b']]) : undefined;
        const answers = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${size}\r\n\r\n${body}`;
        const { gateway } = await gatewayFixture(t, { deps: { aliases }, answers });
        const response = await fetch(`http://127.0.0.1:${gateway.port}/v1/models`);
        const text = await response.text();
        assert.equal(response.status, status, name);
        if (status === 502) assert.match(text, /list of models is larger than 1 MiB/);
        else assert.equal(JSON.parse(text).data.length, name === 'aliased' ? 1 : 0);
      }
    }
  });

  it('checks the rights of a client by the model behind the alias, not by the alias', async () => {
    const file = join(temporaryDirectory('aliases-'), 'clients.json');
    const token = createHash('sha256').update('pmp_ann').digest('hex');
    writeFileSync(
      file,
      JSON.stringify({ clients: [{ name: 'ann', tokens: [token], models: ['sim-echo'] }] }),
    );
    const stack = await startStack({ flags: ['--model-alias=a=sim-echo,b=sim-tools', `--clients=${file}`] });
    try {
      for (const [model, status] of [
        ['a', 200],
        ['b', 403],
      ] as const) {
        const response = await askChat(stack, { model, token: 'pmp_ann' });
        const text = await response.text();
        assert.equal(response.status, status);
        if (status === 403) assert.match(text, /may not use the model that b stands for, only sim-echo/);
      }
    } finally {
      await stack.close();
    }
  });
});

describe('the aliases of a table', () => {
  const table = new Map([
    ['gpt-4o', 'big'],
    ['gpt-*', 'small'],
    ['gpt-4*', 'middle'],
    ['big*', 'big'],
  ]);
  const listOf = (...ids: string[]): Buffer =>
    Buffer.from(JSON.stringify({ object: 'list', data: ids.map((id) => ({ id, object: 'model' })) }));

  it('match by the whole name first, then by the longest prefix', () => {
    const models = ['gpt-4o', 'gpt-4o-mini', 'gpt-5', 'gpt-', 'gpt', 'big', 'bigger'].map(
      (name) => aliasIn(table, name)?.model,
    );
    assert.deepEqual(models, ['big', 'middle', 'small', 'small', undefined, undefined, 'big']);
  });

  it('take the place of models of the service with their names, and are added to its other models', () => {
    const data = (...ids: string[]): Listed =>
      JSON.parse(String(listWithAliases(table, listOf(...ids)))).data;
    const alias = {
      ...{ object: 'model', id: 'gpt-4o', owned_by: 'privatemode-proxy: alias of big' },
    };
    const [big, other] = ['big', 'gpt-4-x'].map((id) => ({ id, object: 'model' }));
    assert.deepEqual(data('gpt-4o', 'big', 'gpt-4-x', 'gpt-4o'), [big, other, { created: 0, ...alias }]);
    assert.deepEqual(data('gpt-4-x'), [other, { created: 0, ...alias }]);
  });

  it('have an entry even if a list lacks their model, and none if it is no list', () => {
    const entry = (wanted: string): unknown =>
      JSON.parse(String(entryOfAlias(table, listOf('big', 'gpt-5'), wanted) ?? null));
    const made = (id: string, model: string): object => ({
      ...{ object: 'model', created: 0, id, owned_by: `privatemode-proxy: alias of ${model}` },
    });
    assert.deepEqual(entry('gpt-4-x'), made('gpt-4-x', 'middle'));
    assert.deepEqual(entry('gpt-5'), made('gpt-5', 'small'), 'although the service has a model of that name');
    assert.deepEqual([entry('big'), entry('other')], [null, null]);
    assert.equal(entryOfAlias(table, Buffer.from('{}'), 'gpt-5'), undefined);
    assert.deepEqual(
      ['gpt-5', 'a/gpt-5', 'gpt-%35', 'gpt-*', 'big', '%ff'].map((name) =>
        aliasedInPath(table, `/v1/models/${name}`),
      ),
      ['gpt-5', undefined, 'gpt-5', undefined, undefined, undefined],
    );
  });

  it('leave out a name that stands for itself, which exempts a model of the service from a pattern', () => {
    const exempt = new Map([
      ['gpt-*', 'big'],
      ['gpt-5', 'gpt-5'],
    ]);
    assert.equal(aliasIn(exempt, 'gpt-5'), undefined);
    assert.deepEqual(
      JSON.parse(String(listWithAliases(exempt, listOf('gpt-5')))),
      JSON.parse(String(listOf('gpt-5'))),
    );
  });

  it('are not added to a list that is nested too deeply to be serialized', () => {
    // Members whose names are numbers: V8 writes those one inside the other, and arrays in a loop.
    const deep = `${'{"1":'.repeat(100_000)}1${'}'.repeat(100_000)}`;
    const list = listWithAliases(table, Buffer.from(`{"data":[{"id":"big"}],"more":${deep}}`));
    const entry = entryOfAlias(table, Buffer.from(`{"data":[{"id":"big","more":${deep}}]}`), 'gpt-4o');
    assert.ok(list === undefined && entry === undefined); // without a diff, which would take minutes
  });

  it('are not added to a body that is no list of models', () => {
    for (const text of ['', 'null', '[]', '{"data":{}}', '{"data":', '"x"'])
      assert.equal(listWithAliases(table, Buffer.from(text)), undefined, text);
    assert.match(String(listWithAliases(table, Buffer.from('{"data":[null,1,{}]}'))), /"id":"gpt-4o"/);
  });
});
