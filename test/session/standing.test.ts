/**
 * The states of the proxy (docs/operating.md). The tests of the session reach them.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { type StateName, standingOf } from '../../lib/session/standing.ts';
import { newState, type SessionState } from '../../lib/session/state.ts';

const NOW = { now: 1_000, monotonic: 1_000 };
const TERM = {
  ...{ secretId: 'id', manifestSha256: '', verdictSha256: '', attestedAt: 0, renewAt: 1_500 },
  ...{ expiresAt: 2_000, expiresMonotonic: 2_000 },
};
const error = (code: ErrorCode) => new PrivatemodeError(code, 'why');
const rejection = (code: ErrorCode, counts: boolean): Partial<SessionState> => ({
  rejection: { part: 'evidence', error: error(code), first: 0, counts },
  error: error('upstream_unreachable'), // silence after a rejection takes nothing back
});

/** What was heard last, and the state while no secret is in force; then it is verified, or not renewable. */
const HEARD: readonly (readonly [heard: string, Partial<SessionState>, state: StateName])[] = [
  ['nothing', {}, 'starting'],
  ['silence', { error: error('upstream_unreachable') }, 'unreachable'],
  ['401 for the key', { error: error('api_key_rejected') }, 'key-refused'],
  ['a wish for a newer client', { error: error('client_too_old') }, 'client-too-old'],
  ['a rejection', rejection('attestation_failed', false), 'rejected-once'],
  ['a rejection that counts', rejection('attestation_failed', true), 'rejected'],
  ['a mismatch', rejection('manifest_mismatch', false), 'rejected-once'],
  ['a mismatch that counts', rejection('manifest_mismatch', true), 'rejected'],
  ['a manifest of a later generation', rejection('manifest_unsupported', true), 'manifest-not-understood'],
];

describe('the state of the proxy', () => {
  for (const [heard, facts, state] of HEARD) {
    it(`after ${heard} is ${state} unless a secret is in force`, () => {
      for (const hasKey of [true, false]) {
        for (const isDenied of [true, false]) {
          const known = { ...newState(false), ...facts, hasKey };
          const wanted = state === 'starting' && !hasKey ? 'awaiting-key' : state;
          for (const term of [undefined, { ...TERM, expiresAt: 999 }, { ...TERM, attestedAt: 1_001 }]) {
            const none = standingOf({ ...known, term, isDenied: isDenied && term !== undefined }, NOW);
            assert.deepEqual([none.state, none.verified], [wanted, false]);
            assert.equal(none.ready, !hasKey, 'a probe keeps no first key away');
            assert.equal(none.awaitsKey, !hasKey);
            assert.doesNotMatch(none.meaning, /does not know the secret/);
          }
          const held = standingOf({ ...known, term: TERM, isDenied }, NOW);
          const good = heard === 'nothing' ? 'verified' : 'not-renewable';
          assert.deepEqual([held.state, held.verified], isDenied ? [wanted, false] : [good, true]);
          assert.equal(/^The service says that it does not know the secret/.test(held.meaning), isDenied);
          const ended = standingOf({ ...known, term: TERM, isDenied, isEnding: true }, NOW);
          assert.deepEqual([ended.state, ended.ready, ended.verified], ['ended', false, false]);
          assert.match(ended.meaning, /takes requests until its port closes/);
        }
      }
    });
  }

  it('takes a broken rule for a fault of the manifest only where the operator gave it', () => {
    const facts = { ...rejection('manifest_invalid', false) };
    assert.equal(standingOf({ ...newState(false), ...facts }, NOW).state, 'rejected-once');
    assert.equal(standingOf({ ...newState(true), ...facts }, NOW).state, 'manifest-not-understood');
  });
});
