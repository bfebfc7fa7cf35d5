/** Models that aliases or requests rely on, and lists that lack them. */

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { idsIn, watchModels } from '../../lib/api/model-watch.ts';
import { createModelLists, type ModelListsDeps } from '../../lib/gateway/model-lists.ts';
import type { RequestObservation } from '../../lib/observe/metrics.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

function scene(...aliased: string[]) {
  const told: string[] = [];
  const models = watchModels({
    aliased: new Set(aliased),
    gone: (use, model) => told.push(`${use} ${model} gone`),
    back: (use, model) => told.push(`${use} ${model} back`),
  });
  const list = (...ids: string[]): string[] => {
    models.listed(new Set(ids));
    return told.splice(0);
  };
  return { models, list };
}

describe('the watch on models', () => {
  it('reports the model of an alias as gone when two lists in a row lack it, and as back when a list has it', () => {
    const { list } = scene('m1');
    assert.deepEqual(list('m2'), []);
    assert.deepEqual(list('m2'), ['alias m1 gone']);
    assert.deepEqual(list('m2'), []);
    assert.deepEqual(list('m1', 'm2'), ['alias m1 back']);
    assert.deepEqual(list('m2'), []);
    assert.deepEqual(list('m1'), []);
    assert.deepEqual(list('m2'), [], 'one list is not two in a row');
  });

  it('reports the model of a request as gone only if an earlier list had it', () => {
    const { models, list } = scene();
    for (const model of ['m1', 'never-listed']) models.used(model);
    assert.deepEqual(list('m1'), []);
    assert.deepEqual([list('m2'), list('m2')], [[], ['request m1 gone']]);
    assert.deepEqual(list('m1'), ['request m1 back']);
  });

  it('ignores an empty list of models, and a list of more than 1,000', () => {
    const { list } = scene('m1');
    const many = Array.from({ length: 1_001 }, (_, i) => `x${i}`);
    for (const ids of [[], [], many, many]) assert.deepEqual(list(...ids), []);
  });

  it('remembers at most 100 models of requests', () => {
    const { models, list } = scene();
    for (let i = 0; i < 150; i++) models.used(`m${i}`);
    list(...Array.from({ length: 150 }, (_, i) => `m${i}`));
    list('other');
    assert.equal(list('other').length, 100);
  });
});

describe('a gateway without --model-alias', () => {
  const HOUR = 3_600_000;

  it('asks hourly for the list of models if it has an API key; sets model_gone while two lists in a row lack a used model', async (t) => {
    let key: string | undefined;
    let listed = ['m1', 'm2'];
    const asked: unknown[] = [];
    const told: string[] = [];
    const dispatcher = {
      request: async ({ origin, path, headers }: Record<string, Record<string, string>>) => {
        asked.push(`${origin}${path} ${headers?.['authorization']}`);
        const body = Buffer.from(JSON.stringify({ data: listed.map((id) => ({ id })) }));
        return { statusCode: 200, headers: {}, body: [body] };
      },
    } as unknown as ModelListsDeps['outbound']['dispatcher'];
    const clock = createFakeClock();
    const lists = createModelLists(
      { modelAlias: new Map(), apiEndpoint: { host: 'api.example', port: 443 }, connectTimeout: 1_000 },
      {
        outbound: { dispatcher },
        clock,
        log: recordingLogger().log,
        conditions: {
          set: (id, words) => told.push(`${id}: ${words}`),
          clear: (id) => told.push(`no ${id}`),
        },
        key: () => key,
      },
    );
    t.after(lists.close);
    const hour = async (...ids: string[]): Promise<string[]> => {
      listed = ids;
      await clock.advance(HOUR);
      return told.splice(0);
    };
    const answered = { outcome: 'answered', stats: { model: 'm1' } } as unknown as RequestObservation;
    const metrics = { observe() {} } as unknown as Parameters<typeof lists.watching>[0];
    lists.watching(metrics).observe(answered);
    lists.sessionChanged();
    await hour('m1', 'm2');
    assert.deepEqual(asked, [], 'without a key that the service may have');
    key = 'own-key';
    lists.sessionChanged();
    assert.deepEqual(asked, [], 'only by the hour');
    assert.deepEqual(await hour('m1', 'm2'), []);
    assert.deepEqual(asked, ['https://api.example/v1/models Bearer own-key']);
    assert.deepEqual(await hour('m2'), []);
    assert.deepEqual(await hour('m2'), ['model_gone: the model "m1" is missing']);
    assert.deepEqual(await hour('m1', 'm2'), ['no model_gone']);
    lists.close();
    await hour('m1', 'm2');
    assert.equal(asked.length, 4, 'none after its close');
  });
});

describe('a gateway with --model-alias', () => {
  it('learns from the list of each hour which aliases stand for the name of a model of the service', async (t) => {
    let listed = ['m1', 'gpt'];
    const dispatcher = {
      request: async () => {
        const body = Buffer.from(JSON.stringify({ data: listed.map((id) => ({ id })) }));
        return { statusCode: 200, headers: {}, body: [body] };
      },
    } as unknown as ModelListsDeps['outbound']['dispatcher'];
    const apiEndpoint = { host: 'api.example', port: 443 };
    const clock = createFakeClock();
    const { aliases, close } = createModelLists(
      { modelAlias: new Map([['gpt', 'm1']]), apiEndpoint, connectTimeout: 1_000 },
      {
        outbound: { dispatcher },
        clock,
        log: recordingLogger().log,
        conditions: { set() {}, clear() {} },
        key: () => 'own-key',
      },
    );
    t.after(close);
    const hour = async (...ids: string[]): Promise<string | undefined> => {
      listed = ids;
      await clock.advance(3_600_000);
      return aliases?.find('gpt')?.model;
    };
    assert.equal(await hour('m1', 'gpt'), undefined);
    assert.equal(await hour('m1'), 'm1');
  });
});

describe('the ids in a list of models', () => {
  for (const [text, ids] of [
    ['{"data":[{"id":"a"},{"id":"b"},{"id":5},null]}', ['a', 'b']],
    ['{"data":[{"id":"a"}],"has_more":false}', ['a']],
    ['{"data":[{"id":"a"}],"has_more":true}', undefined],
    ['{"data":{}}', undefined],
    ['null', undefined],
    ['<html>', undefined],
  ] as const)
    it(`${ids === undefined ? 'are ignored if the list is incomplete or malformed' : 'are read from a complete list'}: ${text}`, () =>
      assert.deepEqual(idsIn(Buffer.from(text)), ids && new Set<string>(ids)));
});
