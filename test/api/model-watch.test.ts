/** Models that aliases or requests rely on, and lists that lack them. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { idsIn, watchModels } from '../../lib/api/model-watch.ts';

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

describe('a model that somebody relies on', () => {
  it('of an alias is gone after two lists in a row without it, once, and back with the next that has it', () => {
    const { list } = scene('m1');
    assert.deepEqual(list('m2'), []);
    assert.deepEqual(list('m2'), ['alias m1 gone']);
    assert.deepEqual(list('m2'), []);
    assert.deepEqual(list('m1', 'm2'), ['alias m1 back']);
    assert.deepEqual(list('m2'), []);
    assert.deepEqual(list('m1'), []);
    assert.deepEqual(list('m2'), [], 'one list is not two in a row');
  });

  it('of requests is gone only once a list had it', () => {
    const { models, list } = scene();
    for (const model of ['m1', 'never-listed']) models.used(model);
    assert.deepEqual(list('m1'), []);
    assert.deepEqual([list('m2'), list('m2')], [[], ['request m1 gone']]);
    assert.deepEqual(list('m1'), ['request m1 back']);
  });

  it('is not judged by an empty list, nor by one that no honest service has', () => {
    const { list } = scene('m1');
    const many = Array.from({ length: 1_001 }, (_, i) => `x${i}`);
    for (const ids of [[], [], many, many]) assert.deepEqual(list(...ids), []);
  });

  it('is remembered for at most 100 models of requests', () => {
    const { models, list } = scene();
    for (let i = 0; i < 150; i++) models.used(`m${i}`);
    list(...Array.from({ length: 150 }, (_, i) => `m${i}`));
    list('other');
    assert.equal(list('other').length, 100);
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
    it(`are read where it is a whole one: ${text}`, () =>
      assert.deepEqual(idsIn(Buffer.from(text)), ids && new Set<string>(ids)));
});
