/** What a worker reports of the operator's keys, and what the primary understands of it. */

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { type OwnKeyEvent, watchOwnKey } from '../../lib/observe/own-key.ts';
import { createOwnKeyReports, reportedOwnKey } from '../../lib/workers/remote-own-key.ts';
import { recordingLogger } from '../support/doors/logger.ts';

function worker() {
  const sent: OwnKeyEvent[] = [];
  const { observe, refused } = createOwnKeyReports((event) => sent.push(event));
  const types = (): string[] => sent.splice(0).map(({ type }) => type);
  return { sent, observe, refused, types };
}

const event = (type: 'refused' | 'answered', client?: string, key = 'key-of-it') => ({ type, client, key });

describe('a worker', () => {
  it('reports of many answers under one key the first alone, and the first after any refusal', () => {
    const { observe, refused, types } = worker();
    for (let i = 0; i < 3; i++) observe(event('answered'));
    observe(event('answered', 'ann'));
    assert.deepEqual(types(), ['answered', 'answered']);
    refused('ann');
    for (let i = 0; i < 3; i++) for (const client of [undefined, 'ann']) observe(event('answered', client));
    assert.deepEqual(types(), ['answered']);
  });

  it('reports each refusal, and the first answer under another key', () => {
    const { observe, types } = worker();
    for (const type of ['answered', 'refused', 'refused'] as const) observe(event(type));
    for (let i = 0; i < 2; i++) observe(event('answered', undefined, 'another'));
    assert.deepEqual(types(), ['answered', 'refused', 'refused', 'answered']);
  });

  it('reports no key', () => {
    const { observe, sent } = worker();
    for (const type of ['answered', 'refused'] as const) observe(event(type, 'ann'));
    observe({ type: 'clients', keys: new Map([['ann', 'key-of-it']]) });
    const text = JSON.stringify(sent.map((each) => ('keys' in each ? [...each.keys] : each)));
    assert.equal(sent.length, 3);
    assert.doesNotMatch(text, /key-of-it/);
  });
});

describe('the primary', () => {
  function primary() {
    const conditions = createConditions({ log: recordingLogger().log, clock: systemClock });
    const tell = watchOwnKey({ conditions, clock: systemClock });
    const { observe } = createOwnKeyReports((told) => tell(reportedOwnKey(told, 'new')));
    return { conditions, tell, observe };
  }

  it('judges the key of --api-key by what workers report of that key alone', () => {
    const { conditions, tell, observe } = primary();
    tell({ type: 'configured', key: 'new' });
    observe(event('refused', undefined, 'old'));
    assert.deepEqual(conditions.list(), []);
    observe(event('refused', undefined, 'new'));
    observe(event('answered', undefined, 'old'));
    assert.equal(conditions.list().length, 1);
    observe(event('answered', undefined, 'new'));
    assert.deepEqual(conditions.list(), []);
  });

  it('judges the key of a client by what workers report of that key alone', () => {
    const { conditions, observe } = primary();
    observe({ type: 'clients', keys: new Map([['ann', 'new']]) });
    observe(event('refused', 'ann', 'old'));
    assert.deepEqual(conditions.list(), []);
    observe(event('refused', 'ann', 'new'));
    assert.equal(conditions.list().length, 1);
    observe({ type: 'clients', keys: new Map([['ann', 'newer']]) });
    assert.deepEqual(conditions.list(), []);
  });
});
