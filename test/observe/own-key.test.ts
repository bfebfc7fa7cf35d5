/** The condition of the proxy's own key, by what the service answers. */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { createConditions } from '../../lib/observe/conditions.ts';
import { type OwnKeyEvent, thinOwnKeyEvents, watchOwnKey } from '../../lib/observe/own-key.ts';
import { recordingLogger } from '../support/doors/logger.ts';

function scene(now?: () => number) {
  const clock = { at: 0 };
  const { log, lines } = recordingLogger();
  const conditions = createConditions({ log });
  const origin = (): string => '--api-key @key.txt';
  const tell = watchOwnKey({ conditions, origin, now: now ?? (() => clock.at) });
  const observe = (type: 'refused' | 'answered', client?: string, key = 'k'): void =>
    tell({ type, client, key });
  const severity = (): string | undefined => conditions.list()[0]?.severity;
  const refusedAt = (...times: number[]): void => {
    for (const at of times) {
      clock.at = at;
      observe('refused');
    }
  };
  return { conditions, lines, tell, observe, severity, refusedAt };
}

describe('an API key of the proxy that the service rejects', () => {
  it('gives a warning that names the source of the key and ends with the next answer', () => {
    const { conditions, lines, observe, refusedAt } = scene();
    observe('answered');
    assert.deepEqual(conditions.list(), []);
    refusedAt(1_000);
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

  it('gives a critical condition at the third rejection within a minute', () => {
    const { lines, severity, refusedAt } = scene();
    refusedAt(0, 30_000);
    assert.equal(severity(), 'warning');
    refusedAt(60_000);
    assert.equal(severity(), 'critical');
    refusedAt(60_001, 60_002);
    assert.deepEqual(
      lines.map(({ level }) => level),
      ['WARN', 'ERROR'],
    );
  });

  it('gives only a warning if three rejections take more than a minute or an answer comes between them', () => {
    const slow = scene();
    slow.refusedAt(0, 30_000, 60_001);
    assert.equal(slow.severity(), 'warning');
    const answered = scene();
    answered.refusedAt(0, 1);
    answered.observe('answered');
    answered.refusedAt(2);
    assert.equal(answered.severity(), 'warning');
  });

  it('is named by its client and becomes critical although the service answers under other keys', () => {
    const { conditions, lines, observe, severity } = scene();
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
    assert.equal(severity(), 'critical');
    observe('answered', 'ann');
    assert.deepEqual(conditions.list(), []);
    assert.deepEqual(
      lines.map(({ level }) => level),
      ['WARN', 'ERROR', 'INFO'],
    );
  });

  it('counts its own rejections only, and its condition does not end those of other keys', () => {
    const { conditions, observe, severity } = scene();
    for (const client of ['ann', 'bob', undefined]) observe('refused', client);
    assert.equal(severity(), 'warning');
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
      const { conditions, lines, observe, tell, severity } = scene();
      for (let i = 0; i < 3; i++) observe('refused', client, 'old');
      assert.equal(severity(), 'critical');
      tell(replaced);
      assert.deepEqual(conditions.list(), []);
      const over = 'No API key of this proxy is known to be rejected any more'; // nobody has asked yet
      assert.equal(lines.at(-1)?.['msg'], over);
      observe('refused', client, 'old');
      assert.deepEqual(conditions.list(), []);
      observe('refused', client, 'new');
      assert.equal(severity(), 'warning');
      observe('answered', client, 'old');
      tell(replaced);
      assert.equal(severity(), 'warning');
      observe('answered', client, 'new');
      assert.deepEqual(conditions.list(), []);
    });
  }

  it('is reported by a worker as accepted at once, not a second after the old one', (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const sent: unknown[] = [];
    const tell = thinOwnKeyEvents(
      (event) => sent.push(event),
      () => 0,
    );
    for (const key of ['old', 'new', 'new']) tell({ type: 'answered', client: undefined, key });
    assert.deepEqual(
      sent,
      ['old', 'new'].map((key) => ({ type: 'answered', client: undefined, key, ageMs: 0 })),
    );
  });
});

describe('a worker', () => {
  /** Two workers that report to one primary, by a clock that `pass` moves. */
  function workersScene(t: TestContext) {
    let at = 0;
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { conditions, observe: _, ...primary } = scene(() => at);
    const sent: string[] = [];
    const worker = () =>
      thinOwnKeyEvents(
        (event) => {
          sent.push(`${at} ${event.type}${'client' in event ? ` ${event.client ?? ''}` : ''}`.trimEnd());
          primary.tell(event);
        },
        () => at,
      );
    return {
      sent,
      workers: [worker(), worker()] as const,
      held: () => conditions.list().map(({ id }) => id),
      pass(ms: number): void {
        for (const end = at + ms; at < end; ) {
          at += 1;
          t.mock.timers.tick(1);
        }
      },
    };
  }
  const answered: OwnKeyEvent = { type: 'answered', client: undefined, key: 'k' };
  const refused: OwnKeyEvent = { type: 'refused', client: undefined, key: 'k' };

  it("reports each rejection of the proxy's key, and an answer only once a second or after a rejection", (t) => {
    const { sent, workers, pass } = workersScene(t);
    for (const event of [answered, answered, refused, refused, answered, answered]) {
      workers[0](event);
      pass(1);
    }
    pass(5_000);
    workers[0](answered);
    pass(5_000);
    assert.deepEqual(sent, [
      ...['0 answered', '2 refused', '3 refused', '4 answered'],
      '1004 answered', // the one that was held back
      '5006 answered',
    ]);
  });

  it('reports an answer that it held back, so that a rejection which another worker reported ends', (t) => {
    const { workers, held, pass } = workersScene(t);
    workers[0](answered);
    pass(100);
    workers[1](refused);
    pass(100);
    workers[0](answered);
    assert.deepEqual(held(), ['own_key_rejected']);
    pass(1_000);
    assert.deepEqual(held(), []);
  });

  it('ends no rejection by an answer that came before it and was held back', (t) => {
    const { workers, held, pass } = workersScene(t);
    workers[0](answered);
    pass(100);
    workers[0](answered);
    pass(100);
    workers[1](refused);
    pass(5_000);
    assert.deepEqual(held(), ['own_key_rejected']);
  });

  it("reports an answer after a rejection of the same key, not of another client's", (t) => {
    const { sent, workers } = workersScene(t);
    const ann = { client: 'ann', key: 'k' };
    const bob: OwnKeyEvent = { type: 'answered', client: 'bob', key: 'k' };
    const events: OwnKeyEvent[] = [
      ...[bob, { type: 'refused' as const, ...ann }, bob, { type: 'refused' as const, ...ann }],
      ...[
        { type: 'answered' as const, ...ann },
        { type: 'clients' as const, keys: new Map([['ann', 'k']]) },
        bob,
      ],
    ];
    for (const event of events) workers[0](event);
    assert.deepEqual(sent, [
      ...['0 answered bob', '0 refused ann', '0 refused ann', '0 answered ann', '0 clients'],
      '0 answered bob', // its former events are forgotten with its key
    ]);
  });
});
