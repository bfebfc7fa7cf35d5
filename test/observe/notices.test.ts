import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createNotices, NOTICES, type NoticeId } from '../../lib/observe/notices.ts';
import type { StateName } from '../../lib/session/standing.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import { standing } from '../support/remote/standing.ts';

const AWAY = 'limits_store_away';
const KEY = 'client_key_unusable';
const { title: TITLE, remedy: REMEDY } = NOTICES[AWAY];

function scene() {
  const { log, lines } = recordingLogger();
  const clock = createFakeClock(1_000);
  const notices = createNotices(log, clock);
  const logged = (): unknown[][] =>
    lines.splice(0).map(({ level, msg, reason = null }) => [level, msg, reason]);
  return { notices, clock, lines, logged };
}

describe('a notice', () => {
  it('is listed and logged with its remedy when it begins, and logged once more when it is over', () => {
    const { notices, clock, lines } = scene();
    notices.set(AWAY, 'no route');
    clock.jump(4_000);
    const notice = { id: AWAY, severity: 'critical', title: TITLE, remedy: REMEDY };
    assert.deepEqual(notices.list(), [{ ...notice, since: 1_000, reason: 'no route' }]);
    notices.clear(AWAY);
    notices.clear(AWAY);
    assert.deepEqual(notices.list(), []);
    const logged = lines.map(({ time: _, ...line }) => line);
    assert.deepEqual(logged, [
      { level: 'ERROR', msg: TITLE, condition: AWAY, reason: 'no route', remedy: REMEDY },
      { level: 'INFO', msg: `Over: ${TITLE}`, condition: AWAY },
    ]);
  });

  it('is logged once for the same reason, again for another reason, and keeps its age', () => {
    const { notices, clock, logged } = scene();
    for (const reason of ['a', 'a', 'b', 'b']) {
      notices.set(AWAY, reason);
      clock.jump(1_000);
    }
    assert.deepEqual(logged(), [
      ['ERROR', TITLE, 'a'],
      ['ERROR', TITLE, 'b'],
    ]);
    const listed = notices.list().map(({ since, reason }) => [since, reason]);
    assert.deepEqual(listed, [[1_000, 'b']]);
  });

  it('is over only when each of its causes is, all of which it names', () => {
    const { notices, logged } = scene();
    const clients = ['1', '2', '3'];
    for (const client of clients) notices.set(KEY, `${client} is empty`, client);
    const reason = (): string | undefined => notices.list()[0]?.reason;
    assert.equal(reason(), '1 is empty; 2 is empty; 3 is empty');
    for (const client of ['1', '2']) notices.clear(KEY, client);
    assert.equal(reason(), '3 is empty');
    notices.clear(KEY, '3');
    const levels = logged().map(([level]) => level);
    assert.deepEqual(levels, [...clients.map(() => 'WARN'), 'INFO']);
  });

  it('is listed before less severe ones, and before younger ones of its severity', () => {
    const { notices, clock } = scene();
    for (const id of ['receipts_unwritten', 'tls_pair_unusable', 'receipts_lost', AWAY] as const) {
      notices.set(id, 'r');
      clock.jump(1);
    }
    const ids = notices.list().map(({ id }) => id);
    assert.deepEqual(ids, ['receipts_lost', AWAY, 'receipts_unwritten', 'tls_pair_unusable']);
  });
});

describe('the state of the session among the notices', () => {
  const error = new PrivatemodeError('upstream_unreachable', 'no route', { remedy: 'Repair the route.' });

  function passing(...states: readonly StateName[]) {
    const { log, lines } = recordingLogger();
    let now: StateName = 'starting';
    const notices = createNotices(log, createFakeClock(), () => standing(now, error));
    for (now of states) notices.look();
    return lines.map(({ level, msg }) => `${level} ${msg}`);
  }

  const titled = (level: string, id: NoticeId): string => `${level} ${NOTICES[id].title}`;
  const over = (id: NoticeId): string => `INFO Over: ${NOTICES[id].title}`;

  for (const [what, states, expected] of [
    [
      'is not logged as over when a notice of another state replaces it, but once a state is verified',
      ['key-refused', 'unreachable', 'verified', 'verified'],
      [titled('ERROR', 'key_refused'), titled('ERROR', 'service_unreachable'), over('service_unreachable')],
    ],
    [
      'is logged as over once a secret follows accepted evidence, however long nobody knew',
      ['verified', 'rejected-once', 'rejected', 'starting', 'verified', 'starting'],
      [
        titled('ERROR', 'service_rejected_once'),
        titled('ERROR', 'service_rejected'),
        over('service_rejected'),
      ],
    ],
  ] as const)
    it(what, () => assert.deepEqual(passing(...states), expected));

  it('is listed in its own state only, with its age', () => {
    let now: StateName = 'rejected';
    const clock = createFakeClock(1_000);
    const notices = createNotices(recordingLogger().log, clock, () => standing(now, error));
    const listed = () => notices.list().map(({ id, since }) => `${id} ${since}`);
    assert.deepEqual(listed(), ['service_rejected 1000']);
    clock.jump(500);
    for (now of ['starting', 'ended', 'verified'] as const) assert.deepEqual(listed(), [], now);
    now = 'rejected';
    assert.deepEqual(listed(), ['service_rejected 1500']);
    clock.jump(500);
    assert.deepEqual(listed(), ['service_rejected 1500']);
  });
});
