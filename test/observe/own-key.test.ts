/** The condition of the proxy's own key, by what the service answers. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { watchOwnKeys } from '../../lib/observe/own-key.ts';
import { recordingLogger } from '../support/doors/logger.ts';

function scene() {
  const { log, lines } = recordingLogger();
  const conditions = createConditions({ log, clock: systemClock });
  const origin = (): string => '--api-key @key.txt';
  /** The keys now; undefined: that of --api-key. */
  const keys = new Map<string | undefined, string>([undefined, 'ann', 'bob'].map((client) => [client, 'k']));
  const ownKeys = watchOwnKeys({ conditions, keyOf: (client) => keys.get(client), origin });
  const observe = (type: 'refused' | 'answered', client?: string, key = 'k'): void =>
    ownKeys[type](client, key);
  return { conditions, lines, keys, ownKeys, observe };
}

describe('an API key of the proxy that the service rejects', () => {
  it('gives one warning, which names the source of the key and ends with the next answer', () => {
    const { conditions, lines, observe } = scene();
    observe('answered');
    assert.deepEqual(conditions.list(), []);
    for (let i = 0; i < 5; i++) observe('refused');
    assert.deepEqual(
      conditions.list().map(({ id, severity, message }) => [id, severity, message]),
      [
        [
          'own_key_rejected',
          'warning',
          'The service rejects an API key of this proxy: 401 for the key of --api-key @key.txt',
        ],
      ],
    );
    observe('answered');
    assert.deepEqual(conditions.list(), []);
    assert.deepEqual(
      lines.map(({ level }) => level),
      ['WARN', 'INFO'],
    );
  });

  it('is named by its client and stays although the service answers under other keys', () => {
    const { conditions, lines, observe } = scene();
    for (let i = 0; i < 3; i++) {
      observe('refused', 'ann');
      observe('answered');
      observe('answered', 'bob');
    }
    assert.deepEqual(
      conditions.list().map(({ message }) => message),
      [
        'The service rejects an API key of this proxy: 401 for the key of the client ann in the file of --clients',
      ],
    );
    observe('answered', 'ann');
    assert.deepEqual(conditions.list(), []);
    assert.deepEqual(
      lines.map(({ level }) => level),
      ['WARN', 'INFO'],
    );
  });

  it('has a condition that does not end with those of other keys', () => {
    const { conditions, observe } = scene();
    for (const client of ['ann', 'bob', undefined]) observe('refused', client);
    observe('answered');
    observe('answered', 'ann');
    assert.match(conditions.list()[0]?.message ?? '', /: 401 for the key of the client bob [^;]*$/);
  });

  it('is forgotten with its condition when no client has it any more', () => {
    const { conditions, keys, observe, ownKeys } = scene();
    for (const client of ['ann', 'bob', undefined]) observe('refused', client);
    keys.delete('ann');
    ownKeys.replaced();
    observe('refused', 'ann'); // of a request that began before
    assert.match(conditions.list()[0]?.message ?? '', /: 401 for the key of the client bob [^;]*; [^;]*$/);
    keys.delete('bob');
    ownKeys.replaced();
    observe('answered');
    assert.deepEqual(conditions.list(), []);
  });
});

describe('an API key that replaces a rejected one', () => {
  for (const [what, client] of [
    ['of --api-key', undefined],
    ['of a client', 'ann'],
  ] as const) {
    it(`${what} ends the condition, and is judged by requests that were sent with it only`, () => {
      const { conditions, keys, lines, observe, ownKeys } = scene();
      const count = (): number => conditions.list().length;
      keys.set(client, 'old');
      observe('refused', client, 'old');
      assert.equal(count(), 1);
      keys.set(client, 'new');
      ownKeys.replaced();
      assert.deepEqual(conditions.list(), []);
      const over = 'No API key of this proxy is known to be rejected any more'; // nobody has asked yet
      assert.equal(lines.at(-1)?.['msg'], over);
      observe('refused', client, 'old');
      assert.deepEqual(conditions.list(), []);
      observe('refused', client, 'new');
      assert.equal(count(), 1);
      observe('answered', client, 'old');
      ownKeys.replaced();
      assert.equal(count(), 1);
      observe('answered', client, 'new');
      assert.deepEqual(conditions.list(), []);
    });
  }
});
