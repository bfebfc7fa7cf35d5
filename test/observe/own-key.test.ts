/** The condition of the proxy's own key, by what the service answers. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { watchOwnKey } from '../../lib/observe/own-key.ts';
import { recordingLogger } from '../support/doors/logger.ts';

function scene() {
  const { log, lines } = recordingLogger();
  const conditions = createConditions({ log, clock: systemClock });
  const origin = (): string => '--api-key @key.txt';
  const tell = watchOwnKey({ conditions, origin });
  const observe = (type: 'refused' | 'answered', client?: string, key = 'k'): void =>
    tell({ type, client, key });
  return { conditions, lines, tell, observe };
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
    const { conditions, observe, tell } = scene();
    for (const client of ['ann', 'bob', undefined]) observe('refused', client);
    tell({ type: 'clients', keys: new Map([['bob', 'k']]) });
    observe('refused', 'ann'); // of a request that began before
    assert.match(conditions.list()[0]?.message ?? '', /: 401 for the key of the client bob [^;]*; [^;]*$/);
    tell({ type: 'clients', keys: new Map() });
    observe('answered');
    assert.deepEqual(conditions.list(), []);
  });
});

describe('an API key that replaces a rejected one', () => {
  const KEYS = [
    ['of --api-key', undefined, { type: 'configured', key: 'new' }],
    ['of a client', 'ann', { type: 'clients', keys: new Map([['ann', 'new']]) }],
  ] as const;

  for (const [what, client, replaced] of KEYS) {
    it(`${what} ends the condition, and is judged by requests that were sent with it only`, () => {
      const { conditions, lines, observe, tell } = scene();
      const count = (): number => conditions.list().length;
      observe('refused', client, 'old');
      assert.equal(count(), 1);
      tell(replaced);
      assert.deepEqual(conditions.list(), []);
      const over = 'No API key of this proxy is known to be rejected any more'; // nobody has asked yet
      assert.equal(lines.at(-1)?.['msg'], over);
      observe('refused', client, 'old');
      assert.deepEqual(conditions.list(), []);
      observe('refused', client, 'new');
      assert.equal(count(), 1);
      observe('answered', client, 'old');
      tell(replaced);
      assert.equal(count(), 1);
      observe('answered', client, 'new');
      assert.deepEqual(conditions.list(), []);
    });
  }
});
