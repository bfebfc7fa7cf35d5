import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createNotices } from '../../lib/observe/notices.ts';
import { watchOwnKeys } from '../../lib/observe/own-key.ts';
import { recordingLogger } from '../support/doors/logger.ts';

function scene() {
  const { log, lines } = recordingLogger();
  const notices = createNotices(log, systemClock);
  const origin = (): string => '--api-key @key.txt';
  /** The keys now; undefined: that of --api-key. */
  const keys = new Map<string | undefined, string>([undefined, 'ann', 'bob'].map((client) => [client, 'k']));
  const ownKeys = watchOwnKeys(notices, (client) => keys.get(client), origin);
  const observe = (type: 'refused' | 'answered', client?: string, key = 'k'): void =>
    ownKeys[type](client, key);
  return { notices, lines, keys, ownKeys, observe };
}

describe('an API key of the proxy that the service rejects', () => {
  it('gives one notice, which names the source of the key, and ends with the next answer to that key', () => {
    const { notices, lines, observe } = scene();
    observe('answered');
    assert.deepEqual(notices.list(), []);
    for (let i = 0; i < 5; i++) {
      observe('refused');
      observe('answered', 'bob');
    }
    const listed = notices.list().map(({ id, severity, reason }) => [id, severity, reason]);
    assert.deepEqual(listed, [['own_key_rejected', 'critical', '401 for the key of --api-key @key.txt']]);
    observe('answered');
    assert.deepEqual(notices.list(), []);
    const levels = lines.map(({ level }) => level);
    assert.deepEqual(levels, ['ERROR', 'INFO']);
  });

  it('is forgotten with its condition when no client has it any more', () => {
    const { notices, keys, observe, ownKeys } = scene();
    for (const client of ['ann', 'bob', undefined]) observe('refused', client);
    keys.delete('ann');
    ownKeys.replaced();
    observe('refused', 'ann'); // of a request that began before
    assert.match(notices.list()[0]?.reason ?? '', /^401 for the key of the client bob [^;]*; [^;]*$/);
    keys.delete('bob');
    ownKeys.replaced();
    observe('answered');
    assert.deepEqual(notices.list(), []);
  });
});

describe('an API key that replaces a rejected one', () => {
  for (const client of [undefined, 'ann']) {
    it(`of ${client ?? '--api-key'} ends the condition, and is judged by requests that were sent with it only`, () => {
      const { notices, keys, lines, observe, ownKeys } = scene();
      const count = (): number => notices.list().length;
      observe('refused', client, 'k');
      assert.equal(count(), 1);
      keys.set(client, 'new');
      ownKeys.replaced();
      assert.deepEqual(notices.list(), []);
      assert.equal(lines.at(-1)?.['msg'], 'Over: The service rejects an API key of this proxy');
      observe('refused', client, 'k');
      assert.deepEqual(notices.list(), []);
      observe('refused', client, 'new');
      assert.equal(count(), 1);
      observe('answered', client, 'k');
      ownKeys.replaced();
      assert.equal(count(), 1);
      observe('answered', client, 'new');
      assert.deepEqual(notices.list(), []);
    });
  }
});
