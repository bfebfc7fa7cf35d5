/** The table of checks, and how checks are run. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  allAccepted,
  type Check,
  type CheckDescription,
  type CheckRow,
  Checks,
  decisive,
  finding,
  firstFailure,
  notApplicable,
  oneOf,
} from '../../lib/attestation/check.ts';
import { CHECK_SECTIONS } from '../../lib/attestation/verify-evidence.ts';
import { PrivatemodeError } from '../../lib/errors.ts';

const ALL: readonly CheckDescription[] = CHECK_SECTIONS.flatMap(({ rows }) => rows);

describe('the table of checks', () => {
  it('has each id once, in dotted lower case', () => {
    const ids = ALL.map(({ id }) => id);
    assert.equal(new Set(ids).size, ids.length);
    for (const id of ids) assert.match(id, /^[a-z]+(\.[a-z0-9_]+)+$/);
  });
});

describe('running checks', () => {
  const row = (id: string, judge: CheckRow<number>['judge'], conditional?: true): CheckRow<number> => ({
    ...{ id, title: id, source: 'attestation.md 1', expected: 'more', judge },
    ...(conditional === undefined ? {} : { conditional }),
  });
  const above = (limit: number): CheckRow<number> =>
    row(`above.${limit}`, (value) => finding(value > limit, String(value)));
  const runChecks = async (rows: readonly CheckRow<number>[], value: number): Promise<readonly Check[]> => {
    const checks = new Checks(rows);
    await checks.run(rows, value);
    return checks.of(rows);
  };
  const outcomes = (checks: readonly Check[]): string[] => checks.map(({ outcome }) => outcome);

  it('runs all rows of a stage after a failure, and reports the first failure', async () => {
    const checks = await runChecks([above(1), above(2), above(3), above(0)], 2);
    assert.deepEqual(outcomes(checks), ['pass', 'fail', 'fail', 'pass']);
    assert.deepEqual(firstFailure(checks), {
      ...{ id: 'above.2', outcome: 'fail', expected: 'more', found: '2' },
      ...{ source: 'attestation.md 1', code: 'attestation_failed' },
    });
  });

  it('turns a PrivatemodeError of a check into a failure with its code, and throws any other error', async () => {
    const typed = row('typed', () => {
      throw new PrivatemodeError('manifest_unsupported', 'words');
    });
    assert.deepEqual(
      (await runChecks([typed], 0)).map(({ outcome, code, found }) => [outcome, code, found]),
      [['fail', 'manifest_unsupported', 'words']],
    );
    const defect = row('defect', () => {
      throw new TypeError('a defect of ours');
    });
    await assert.rejects(runChecks([defect], 0), TypeError);
  });

  it('says what was not made, and keeps the checks of the entry that holds, else of the closest one', async () => {
    const rows = [above(1), above(2), above(3), above(4)];
    const tried = async (...values: number[]) => {
      const checks = new Checks([...rows, above(9)]);
      const found = await checks.tryEach(values, (each, value) => each.run(rows, value));
      return [found, checks.of([...rows, above(9)]).map(({ outcome, found: text }) => `${outcome} ${text}`)];
    };
    const rest = 'not-evaluated an earlier check failed';
    assert.deepEqual(await tried(2, 5, 6), [5, [...Array<string>(4).fill('pass 5'), rest]]);
    assert.deepEqual(await tried(2, 3), [undefined, ['pass 3', 'pass 3', 'fail 3', 'fail 3', rest]]);
    assert.deepEqual(await tried(3, 2), [undefined, ['pass 3', 'pass 3', 'fail 3', 'fail 3', rest]]);
    assert.deepEqual(await tried(), [undefined, Array<string>(5).fill(rest)]);
  });

  it('keeps the checks of an entry that lacks only collateral, though more of them hold for another entry', async () => {
    const unavailable = new PrivatemodeError('collateral_unavailable', 'no network');
    const fetched = (id: string) =>
      row(id, (value) => {
        if (value === 1) throw unavailable;
        return finding(true, 'fetched');
      });
    const rows = [fetched('a'), fetched('b'), fetched('c'), row('d', (value) => finding(value === 1, ''))];
    for (const entries of [[1], [1, 2], [2, 1]]) {
      const checks = new Checks(rows);
      await checks.tryEach(entries, (each, value) => each.run(rows, value));
      const kept = checks.of(rows);
      assert.deepEqual(outcomes(kept), ['fail', 'fail', 'fail', 'pass']);
      assert.equal(decisive(kept)?.code, 'collateral_unavailable');
    }
  });

  it('gives the value that was read, or lets the row that answers for it fail', async () => {
    const checks = new Checks([above(1)]);
    assert.equal(await checks.read('above.1', () => 'value'), 'value');
    assert.deepEqual(outcomes(checks.of([above(1)])), ['not-evaluated']);
    const unread = await checks.read('above.1', () => {
      throw new PrivatemodeError('evidence_malformed', 'words');
    });
    const [check] = checks.of([above(1)]);
    assert.deepEqual(
      [unread, check?.outcome, check?.code, check?.found],
      [undefined, 'fail', 'evidence_malformed', 'words'],
    );
    await assert.rejects(
      checks.read('above.1', () => {
        throw new TypeError('a defect of ours');
      }),
      TypeError,
    );
    await assert.rejects(
      checks.read('above.2', () => Promise.reject(new PrivatemodeError('internal', ''))),
      /no check above\.2/,
    );
  });

  it('accepts only a list that has a pass for each row of the table and no other entry', async () => {
    const rows = [above(1), above(2)];
    assert.equal(allAccepted(rows, await runChecks(rows, 3)), true);
    assert.equal(allAccepted(rows, await runChecks(rows, 2)), false);
    assert.equal(allAccepted(rows, await runChecks(rows.slice(1), 3)), false);
    assert.equal(allAccepted(rows, []), false);
    assert.equal(allAccepted([], []), false);
    assert.equal(allAccepted(rows, await runChecks([...rows, above(9)], 3)), false);
  });

  it('accepts "not-applicable" only from a conditional check, and "not-evaluated" from no check', async () => {
    const optional = row('optional', () => notApplicable('not asked for'), true);
    const required = row('required', () => notApplicable('not asked for'));
    assert.equal(allAccepted([optional], await runChecks([optional], 0)), true);
    assert.equal(allAccepted([required], await runChecks([required], 0)), false);
    assert.equal(allAccepted([optional], new Checks([optional]).of([optional])), false);
  });
});

describe('oneOf', () => {
  const [a, b] = [Uint8Array.of(1, 2), Uint8Array.of(3)];

  it('passes for each of the allowed byte strings, and for no other', () => {
    const allowed = [a, b];
    for (const found of allowed) assert.equal(oneOf(Uint8Array.from(found), allowed).outcome, 'pass');
    for (const found of [Uint8Array.of(1), Uint8Array.of(1, 2, 3), new Uint8Array(), undefined]) {
      assert.equal(oneOf(found, allowed).outcome, 'fail');
      assert.equal(oneOf(found, []).outcome, 'fail');
    }
  });
});
