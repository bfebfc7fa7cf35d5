/** The condition of the proxy's own key, by what the service answers. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createConditions } from '../../lib/observe/conditions.ts';
import { type OwnKeyEvent, thinOwnKeyEvents, watchOwnKey } from '../../lib/observe/own-key.ts';
import { recordingLogger } from '../support/doors/logger.ts';

function scene() {
  const clock = { at: 0 };
  const { log, lines } = recordingLogger();
  const conditions = createConditions({ log });
  const origin = (): string => '--api-key @key.txt';
  const observe = watchOwnKey({ conditions, origin, now: () => clock.at });
  const severity = (): string | undefined => conditions.list()[0]?.severity;
  const refusedAt = (...times: number[]): void => {
    for (const at of times) {
      clock.at = at;
      observe('refused');
    }
  };
  return { conditions, lines, observe, severity, refusedAt };
}

describe('the own key', () => {
  it('that the service rejects is a warning which names its source, and over with the next answer', () => {
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
          "The service rejects this proxy's API key: 401 for the key of --api-key @key.txt",
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

  it('is critical at the third rejection within a minute', () => {
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

  it('is a warning where three rejections take longer, or an answer comes between them', () => {
    const slow = scene();
    slow.refusedAt(0, 30_000, 60_001);
    assert.equal(slow.severity(), 'warning');
    const answered = scene();
    answered.refusedAt(0, 1);
    answered.observe('answered');
    answered.refusedAt(2);
    assert.equal(answered.severity(), 'warning');
  });
});

describe('the own key in a worker', () => {
  it('is reported at each rejection, and at answers once a second or after a rejection', () => {
    const clock = { at: 0 };
    const sent: string[] = [];
    const observe = thinOwnKeyEvents(
      (event) => sent.push(`${clock.at} ${event}`),
      () => clock.at,
    );
    for (const [at, event] of [
      [0, 'answered'],
      [1, 'answered'],
      [2, 'refused'],
      [3, 'refused'],
      [4, 'answered'],
      [5, 'answered'],
      [1_004, 'answered'],
    ] as const satisfies readonly (readonly [number, OwnKeyEvent])[]) {
      clock.at = at;
      observe(event);
    }
    assert.deepEqual(sent, ['0 answered', '2 refused', '3 refused', '4 answered', '1004 answered']);
  });
});
