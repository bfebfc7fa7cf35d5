import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { createCounters } from '../../lib/observe/counters.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { reportStart, sessionLog, watchStanding } from '../../lib/observe/session-log.ts';
import type { SessionEvent } from '../../lib/session/epoch.ts';
import type { StateName } from '../../lib/session/standing.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import { type FakeRemote, fails, sessionScene } from '../support/remote/fake-remote.ts';
import { standing } from '../support/remote/standing.ts';

const STEP: SessionEvent = { type: 'step', message: 'Waiting for the evidence of the service' };
const EPOCH: SessionEvent = {
  type: 'epoch',
  message: 'Secret updated successfully',
  secretId: 'secret-1',
  expiresAt: 0,
};
const ATTESTED = {
  type: 'attested',
  message: 'Coordinator manifest fetched successfully',
  verdict: { manifestSha256: 'ab12', tee: 'snp' },
} as SessionEvent;

function scene() {
  const clock = createFakeClock();
  const lines: Record<string, unknown>[] = [];
  const output = { write: (line: string) => lines.push(JSON.parse(line)) };
  const log = createLogger({ format: 'json', level: 30, output });
  return { clock, lines, report: reportStart({ clock, log }) };
}

describe('the log line that says ready', () => {
  const READY = {
    level: 'INFO',
    msg: 'Ready: the remote is verified. Base URLs for clients:',
    openai: 'http://localhost:8080/v1',
    anthropic: 'http://localhost:8080',
    manifestSha256: 'ab12',
    tee: 'snp',
  };
  const withoutTime = ({ time: _, ...rest }: Record<string, unknown>): object => rest;

  it('comes once, when the remote is verified and the port is open, in either order', () => {
    for (const order of ['verified first', 'listening first']) {
      const { lines, report } = scene();
      const listen = (): void => report.listening('http://0.0.0.0:8080', { awaitsKey: false });
      if (order === 'listening first') listen();
      for (const event of [STEP, ATTESTED, EPOCH]) report.observe(event);
      if (order === 'verified first') {
        assert.deepEqual(lines, []);
        listen();
      }
      for (const event of [STEP, ATTESTED, EPOCH]) report.observe(event);
      assert.deepEqual(lines.map(withoutTime), [READY], order);
      report.close();
    }
  });
});

describe('the log of failed renewals', () => {
  const failure = (reason: string): SessionEvent => ({
    type: 'update-failed',
    message: 'it failed',
    error: new PrivatemodeError('upstream_unreachable', reason),
    permanent: false,
  });
  function told(events: readonly SessionEvent[]) {
    const { log, lines } = recordingLogger();
    const observe = sessionLog(log, createCounters(), { forPeople: true });
    for (const event of events) observe(event);
    return lines
      .filter(({ level }) => level === 'ERROR')
      .map(({ code, reason, remedy }) => [code, reason, typeof remedy]);
  }
  const CODE = 'upstream_unreachable';

  it('says "as before" to people for a repeated reason, and gives a new reason, or one after a success, in full', () => {
    const events = [failure('a'), failure('a'), failure('b'), failure('b'), EPOCH, failure('b')];
    assert.deepEqual(told(events), [
      [CODE, 'a', 'string'],
      [CODE, 'as before', 'undefined'],
      [CODE, 'b', 'string'],
      [CODE, 'as before', 'undefined'],
      [CODE, 'b', 'string'],
    ]);
  });
});

describe('the count of attestations', () => {
  const counted = async (prepare: Partial<FakeRemote>): Promise<object> => {
    const { session, events, clock } = sessionScene({ kind: 'static', prepare });
    await clock.advance(0);
    session.close();
    const counters = createCounters();
    events.forEach(sessionLog(recordingLogger().log, counters));
    return Object.fromEntries(counters.attestations);
  };

  it('has an attestation whose secret is rejected as failed, although its evidence was accepted', async () => {
    assert.deepEqual(await counted({}), { accepted: 1 });
    assert.deepEqual(await counted({ secretAccepted: false }), { failed: 1 });
    assert.deepEqual(await counted({ verdictCode: 'attestation_failed' }), { failed: 1 });
  });

  it('has an attestation whose collateral cannot be fetched as unavailable, and not as failed', async () =>
    assert.deepEqual(await counted({ verdictCode: 'collateral_unavailable' }), { unavailable: 1 }));
});

describe('the line that says what a start waits for', () => {
  it('comes after three seconds, once', async () => {
    const { clock, lines, report } = scene();
    report.observe({ type: 'step', message: 'Waiting for the manifest' });
    report.observe(STEP);
    await clock.advance(2_999);
    assert.deepEqual(lines, []);
    await clock.advance(1);
    await clock.advance(60_000);
    assert.deepEqual(
      lines.map(({ msg }) => msg),
      ['Still starting: Waiting for the evidence of the service'],
    );
    report.close();
  });
});

describe('the state of the session among the conditions', () => {
  const EXPECTED: Readonly<Record<StateName, string | undefined>> = {
    ended: undefined,
    verified: undefined,
    'not-renewable': 'renewal_fails warning',
    'manifest-not-understood': 'manifest_unusable critical',
    rejected: 'service_rejected critical',
    'rejected-once': 'service_rejected warning',
    'key-refused': 'key_refused critical',
    'client-too-old': 'client_too_old critical',
    unreachable: 'service_unreachable critical',
    'awaiting-key': undefined,
    starting: undefined,
  };

  const error = new PrivatemodeError('upstream_unreachable', 'no route', { remedy: 'Repair the route.' });

  function passing(...states: readonly StateName[]) {
    const { log, lines } = recordingLogger();
    const conditions = createConditions({ log, clock: systemClock });
    const note = watchStanding({ conditions, log });
    for (const state of states) note(standing(state, error));
    return { lines: lines.map(({ level, msg }) => `${level} ${msg}`), listed: conditions.list() };
  }

  it('is at most one condition, which has the error and its remedy and ends with the state', () => {
    const states = Object.keys(EXPECTED) as StateName[];
    for (const [index, state] of states.entries()) {
      const { listed } = passing(...states.slice(0, index + 1));
      const expected = EXPECTED[state];
      assert.deepEqual(
        listed.map(({ id, severity }) => `${id} ${severity}`),
        expected === undefined ? [] : [expected],
        state,
      );
      for (const { message, remedy } of listed) {
        assert.match(message, /: upstream_unreachable: no route$/);
        assert.equal(remedy, 'Repair the route.');
      }
    }
  });

  it('is not logged as over when a condition of another state replaces it', () =>
    assert.deepEqual(passing('key-refused', 'unreachable', 'verified').lines, [
      'ERROR The service refuses the API key, so it cannot be verified',
      'ERROR The verification of the service cannot be completed',
      'INFO The service can be verified again',
    ]));

  for (const [what, cdn, expected] of [
    ['is not logged while a renewal finds the service under a newer manifest', () => {}, []],
    [
      'is logged if a renewal does not get the newest manifest',
      fails('manifest_unavailable'),
      ['WARN The renewal of the secret fails'],
    ],
  ] as const)
    it(what, async () => {
      const { log, lines } = recordingLogger();
      const note = watchStanding({ conditions: createConditions({ log, clock: systemClock }), log });
      const { session, remote, clock } = sessionScene();
      await clock.advance(44 * 60_000);
      Object.assign(remote, { deployed: 'B', published: 'B', onManifest: cdn });
      const look = (): void => note(session.standing());
      for (const call of ['onAttest', 'onManifest', 'onSecret', 'onRecord'] as const) {
        const answer = remote[call] as () => void;
        remote[call] = () => {
          look();
          answer();
        };
      }
      await clock.advance(60_000);
      look();
      assert.deepEqual(
        lines.map(({ level, msg }) => `${level} ${msg}`),
        expected,
      );
      assert.ok(remote.calls.includes('verify A') && remote.calls.includes('manifest'));
      session.close();
    });

  it('is logged as over once a secret follows accepted evidence, however long nobody knew', () => {
    assert.deepEqual(passing('verified', 'rejected-once', 'rejected', 'starting', 'verified').lines, [
      'WARN The service is rejected',
      'ERROR The service is rejected',
      'INFO The service is no longer rejected',
    ]);
    assert.deepEqual(passing('rejected', 'starting', 'unreachable', 'verified', 'starting').lines, [
      'ERROR The service is rejected',
      'ERROR The verification of the service cannot be completed',
      'INFO The service can be verified again',
    ]);
    assert.deepEqual(passing('key-refused', 'awaiting-key', 'verified', 'verified').lines.slice(2), [
      'INFO The service accepts the API key',
    ]);
  });
});
