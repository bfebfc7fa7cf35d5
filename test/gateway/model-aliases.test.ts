/** --model-alias: other names for models, through the whole program to the simulated service. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { createModelAliases } from '../../lib/api/model-aliases.ts';
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

const QUIET = { onReal() {}, onUnknown() {} };

type Listed = { id: string; owned_by: string }[];

describe('--model-alias', LIBRARY, () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({ flags: [...FLAGS, ALIASES] });
    await eventually('the list of the start', () =>
      stack.logLines.some((line) => line.includes('"alias":"sim-t*"')),
    );
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

  it('does not replace a model of the service that an alias matches, and warns once', async () => {
    for (const [model, real] of [
      ['sim-tools', 'sim-tools'],
      ['sim-things', 'sim-echo'],
    ]) {
      await (await ask('/v1/chat/completions', { body: JSON.stringify({ model, messages }) })).text();
      assert.equal(stack.simulator.exchanges.last()?.model, real);
    }
    const warnings = stack.logLines.filter((line) => line.includes('has a model of the name of an alias'));
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] as string, /"level":"WARN".*"alias":"sim-t\*"/);
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

  it('asks the service about all other names: its own models, unknown names, and the pattern of an alias', async () => {
    for (const [name, status] of [
      ['sim-tools', 200],
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
        const aliases = name === 'aliased' ? createModelAliases(new Map([['a', 'b']]), QUIET) : undefined;
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
    const { find } = createModelAliases(table, QUIET);
    const models = ['gpt-4o', 'gpt-4o-mini', 'gpt-5', 'gpt-', 'gpt', 'big', 'bigger'].map(
      (name) => find(name)?.model,
    );
    assert.deepEqual(models, ['big', 'middle', 'small', 'small', undefined, undefined, 'big']);
  });

  it('do not replace models that the service has, and report that once', () => {
    const told: string[] = [];
    const { find, inList } = createModelAliases(table, { ...QUIET, onReal: (name) => void told.push(name) });
    const list = JSON.parse(String(inList(listOf('big', 'gpt-4o', 'gpt-4-x', 'gpt-4-y'))));
    inList(listOf('gpt-4o', 'gpt-4-x'));
    assert.deepEqual(told, ['gpt-4o', 'gpt-4*']);
    assert.deepEqual(
      [find('gpt-4o'), find('gpt-4-x'), find('gpt-4-z')?.model],
      [undefined, undefined, 'middle'],
    );
    assert.deepEqual(list.data.length, 4);
  });

  it('have an entry even if a list lacks their model, and none if it is no list', () => {
    const { entryIn, inPath } = createModelAliases(table, QUIET);
    const entry = (wanted: string): unknown => JSON.parse(String(entryIn(listOf('big'), wanted) ?? null));
    assert.deepEqual(entry('gpt-5'), {
      ...{ object: 'model', created: 0, id: 'gpt-5', owned_by: 'privatemode-proxy: alias of small' },
    });
    assert.deepEqual(entry('big'), { id: 'big', object: 'model' });
    assert.equal(entry('other'), null);
    assert.equal(entryIn(Buffer.from('{}'), 'gpt-5'), undefined);
    assert.deepEqual(
      ['gpt-5', 'a/gpt-5', 'gpt-%35', 'gpt-*', 'big', '%ff'].map((name) => inPath(`/v1/models/${name}`)),
      ['gpt-5', undefined, 'gpt-5', undefined, undefined, undefined],
    );
  });

  it('do not replace a model of the service that is in a list fetched for one alias', () => {
    const told: string[] = [];
    const { entryIn, find } = createModelAliases(table, { ...QUIET, onReal: (name) => void told.push(name) });
    assert.deepEqual(JSON.parse(String(entryIn(listOf('gpt-4o'), 'gpt-4o'))), {
      ...{ id: 'gpt-4o', object: 'model' },
    });
    assert.deepEqual([find('gpt-4o'), told], [undefined, ['gpt-4o']]);
  });

  it('apply again once a whole list lacks the model; a page and an empty list take no model away', () => {
    const { find, inList, listed } = createModelAliases(table, QUIET);
    const applied = (): boolean => find('gpt-4o') !== undefined;
    listed(listOf('gpt-4o', 'big'));
    assert.equal(applied(), false);
    inList(listOf('big'), true);
    inList(Buffer.from('{"data":[{"id":"big"}],"has_more":true}'));
    listed(listOf());
    assert.equal(applied(), false);
    inList(listOf('big'));
    assert.equal(applied(), true);
    inList(Buffer.from('{"data":[{"id":"gpt-4o"}],"has_more":true}'));
    assert.equal(applied(), false);
    listed(listOf('big'));
    assert.equal(applied(), true);
  });

  it('use the list of the service once, and ask for it again if it could not be fetched', async () => {
    const unknown: unknown[] = [];
    const { ask, find } = createModelAliases(table, { ...QUIET, onUnknown: (why) => void unknown.push(why) });
    const reason = new Error('no network');
    await ask(() => Promise.reject(reason));
    assert.deepEqual(unknown, [reason]);
    await ask(async () => listOf('gpt-4o'));
    await ask(async () => listOf('gpt-5'));
    assert.deepEqual([find('gpt-4o'), find('gpt-5')?.model], [undefined, 'small']);
  });

  it('are not added to a list that is nested too deeply to be serialized', () => {
    const aliases = createModelAliases(table, QUIET);
    // Members whose names are numbers: V8 writes those one inside the other, and arrays in a loop.
    const deep = `${'{"1":'.repeat(100_000)}1${'}'.repeat(100_000)}`;
    const list = aliases.inList(Buffer.from(`{"data":[{"id":"big"}],"more":${deep}}`));
    const entry = aliases.entryIn(Buffer.from(`{"data":[{"id":"gpt-4o","more":${deep}}]}`), 'gpt-4o');
    assert.ok(list === undefined && entry === undefined); // without a diff, which would take minutes
  });

  it('are not added to a body that is no list of models', () => {
    const { inList } = createModelAliases(table, QUIET);
    for (const text of ['', 'null', '[]', '{"data":{}}', '{"data":', '"x"'])
      assert.equal(inList(Buffer.from(text)), undefined, text);
    assert.match(String(inList(Buffer.from('{"data":[null,1,{}]}'))), /"id":"gpt-4o"/);
  });
});
