/** The registry of conditions: what it lists and logs, whoever reports what. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CONDITIONS, createConditions } from '../../lib/observe/conditions.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

function scene() {
  const { log, lines } = recordingLogger();
  const clock = createFakeClock(1_000);
  const conditions = createConditions({ log, clock });
  const logged = (): unknown[][] =>
    lines.splice(0).map(({ level, msg, reason = null }) => [level, msg, reason]);
  return { conditions, clock, lines, logged };
}

const BEGINS = 'The store of the limits cannot be used for now';
const ENDS = 'The store of the limits can be used again';

describe('a condition', () => {
  it('is listed and logged with its remedy when it begins, and logged once more when it is over', () => {
    const { conditions, clock, lines } = scene();
    conditions.set('limits_store_away', 'no route');
    clock.jump(4_000);
    const remedy =
      'If it lasts, check the store of the limits (--limits-store): does it run, and does this machine reach it? The proxy reconnects by itself.';
    assert.deepEqual(conditions.list(), [
      {
        ...{ id: 'limits_store_away', severity: 'critical', since: 1_000 },
        ...{ message: `${BEGINS}: no route`, remedy },
      },
    ]);
    conditions.clear('limits_store_away');
    assert.deepEqual(conditions.list(), []);
    const [begun, ended] = lines.map(({ time: _, ...line }) => line);
    assert.deepEqual(begun, {
      ...{ level: 'ERROR', msg: BEGINS },
      ...{ condition: 'limits_store_away', reason: 'no route', remedy },
    });
    assert.deepEqual(ended, { level: 'INFO', msg: ENDS, condition: 'limits_store_away' });
  });

  it('is logged once for the same reason, again for another reason, and keeps its age', () => {
    const { conditions, clock, logged } = scene();
    for (const reason of ['a', 'a', 'b', 'b']) {
      conditions.set('limits_store_away', reason);
      clock.jump(1_000);
    }
    assert.deepEqual(logged(), [
      ['ERROR', BEGINS, 'a'],
      ['ERROR', BEGINS, 'b'],
    ]);
    const [{ since, message } = { since: 0, message: '' }, ...others] = conditions.list();
    assert.deepEqual([since, message, others], [1_000, `${BEGINS}: b`, []]);
  });

  it('is not logged when it is cleared without having been set', () => {
    const { conditions, logged } = scene();
    conditions.clear('limits_store_away');
    assert.deepEqual(logged(), []);
  });

  it('is over only when each of its causes has been cleared', () => {
    const { conditions, logged } = scene();
    conditions.set('client_key_unusable', 'a is empty', { of: 'a' });
    conditions.set('client_key_unusable', 'b is empty', { of: 'b' });
    const begins = 'A key in the clients file cannot be used; the old key stays';
    assert.equal(conditions.list()[0]?.message, `${begins}: a is empty; b is empty`);
    conditions.clear('client_key_unusable', { of: 'a' });
    assert.equal(conditions.list()[0]?.message, `${begins}: b is empty`);
    conditions.clear('client_key_unusable', { of: 'b' });
    assert.deepEqual(
      logged().map(([level]) => level),
      ['ERROR', 'ERROR', 'INFO'],
    );
  });

  it('names three of its causes, and counts the others', () => {
    const { conditions } = scene();
    for (const client of ['1', '2', '3', '4', '5'])
      conditions.set('client_key_unusable', client, { of: client });
    assert.match(String(conditions.list()[0]?.message), /: 1; 2; 3; and 2 more$/);
  });

  it('has the severity and remedy of its worst cause, which it names first, and the age of the oldest', () => {
    const { conditions, clock } = scene();
    const seen = () => {
      const [{ severity, since, message, remedy } = assert.fail('there is none'), ...others] =
        conditions.list();
      assert.deepEqual(others, []);
      return [severity, since, message.split(': ')[1], remedy];
    };
    const set = (of: string, severity: 'warning' | 'critical'): void => {
      conditions.set('tls_certificate_expiry', of, { of, severity, remedy: `Renew ${of}.` });
      clock.jump(1_000);
    };
    set('a', 'warning');
    set('b', 'critical');
    set('c', 'warning');
    assert.deepEqual(seen(), ['critical', 1_000, 'b; a; c', 'Renew b.']);
    conditions.clear('tls_certificate_expiry', { of: 'b' });
    assert.deepEqual(seen(), ['warning', 1_000, 'a; c', 'Renew a.']);
    conditions.clear('tls_certificate_expiry', { of: 'a' });
    assert.deepEqual(seen(), ['warning', 3_000, 'c', 'Renew c.']);
  });

  it('is logged again when it becomes more severe, and is listed before less severe conditions', () => {
    const { conditions, clock, logged } = scene();
    conditions.set('proxy_open', 'open', { severity: 'info' });
    clock.jump(1);
    conditions.set('tls_certificate_expiry', 'expires');
    conditions.set('tls_certificate_expiry', 'expires', { severity: 'critical' });
    clock.jump(1);
    conditions.set('receipts_unwritten', 'full', { remedy: 'Give it to uid 5 with chown.' });
    assert.deepEqual(
      logged().map(([level]) => level),
      ['INFO', 'WARN', 'ERROR', 'ERROR'],
    );
    assert.deepEqual(
      conditions.list().map(({ id, severity }) => `${id} ${severity}`),
      ['tls_certificate_expiry critical', 'receipts_unwritten warning', 'proxy_open info'],
    );
    assert.equal(conditions.list()[1]?.remedy, 'Give it to uid 5 with chown.');
  });

  it('is over by itself some time after the last of the events that it reports', async () => {
    const { conditions, clock, logged } = scene();
    conditions.set('receipts_unwritten', '1 lost', { lasts: 40, fields: { lost: 1 } });
    conditions.set('receipts_unwritten', '1 lost', { lasts: 40, fields: { lost: 1 } });
    assert.equal(conditions.list().length, 1);
    await clock.advance(40);
    assert.deepEqual(conditions.list(), []);
    assert.deepEqual(
      logged().map(([, msg]) => msg),
      ['Receipts cannot be written', 'Receipts cannot be written', 'Receipts are written again'],
    );
  });
});

describe('the table of conditions', () => {
  it('has for each condition words for its beginning, its end, its meaning and its remedy', () => {
    assert.equal(Object.keys(CONDITIONS).length, 19);
    for (const [id, { begins, ends, meaning, remedy }] of Object.entries(CONDITIONS)) {
      assert.match(id, /^[a-z]+(?:_[a-z]+)+$/);
      for (const line of [begins, ends]) assert.match(line, /^[A-Z].*[^.]$/, id);
      assert.notEqual(begins, ends);
      for (const text of [meaning, remedy]) assert.match(text, /^[A-Z].*\.$/, id);
    }
  });
});
