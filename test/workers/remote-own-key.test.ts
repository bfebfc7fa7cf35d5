/** What a worker reports of the operator's keys. */

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { OwnKeyEvent } from '../../lib/observe/own-key.ts';
import { createOwnKeyReports } from '../../lib/workers/remote-own-key.ts';

function worker() {
  const sent: OwnKeyEvent[] = [];
  const reports = createOwnKeyReports((event) => sent.push(event));
  const types = (): string[] => sent.splice(0).map(({ type }) => type);
  return { sent, types, ...reports };
}

const event = (type: 'refused' | 'answered', client?: string, key = 'digest') => ({ type, client, key });

describe('a worker', () => {
  it('reports of many equal responses to one key the first alone, and each change', () => {
    const { observe, types } = worker();
    for (const type of ['answered', 'answered', 'refused', 'refused', 'answered'] as const)
      for (const client of [undefined, 'ann']) observe(event(type, client));
    assert.deepEqual(
      types(),
      ['answered', 'refused', 'answered'].flatMap((type) => [type, type]),
    );
  });

  it('reports the first response to another key, and the first after its clients file was read', () => {
    const { observe, types } = worker();
    for (const key of ['old', 'old', 'new', 'new']) observe(event('refused', 'ann', key));
    assert.deepEqual(types(), ['refused', 'refused']);
    observe({ type: 'clients', keys: new Map([['ann', 'new']]) });
    for (let i = 0; i < 2; i++) observe(event('refused', 'ann', 'new'));
    assert.deepEqual(types(), ['clients', 'refused']);
  });

  it('reports what differs from the last report of another worker, which says the same of no other key', () => {
    const [one, other] = [worker(), worker()];
    one.observe(event('refused'));
    one.sent.forEach(other.reported);
    other.observe(event('refused'));
    other.observe(event('refused', 'ann'));
    other.observe(event('answered'));
    other.sent.forEach(one.reported);
    assert.deepEqual(other.types(), ['refused', 'answered']);
    one.types();
    one.observe(event('answered'));
    one.observe(event('refused'));
    assert.deepEqual(one.types(), ['refused']);
  });

  it('reports a refused key again if --api-key was another one meanwhile', () => {
    const { observe, forget, types } = worker();
    observe(event('refused'));
    forget();
    for (let i = 0; i < 2; i++) observe(event('refused'));
    assert.deepEqual(types(), ['refused', 'refused']);
  });
});
