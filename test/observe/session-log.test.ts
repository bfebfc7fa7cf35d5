import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createCounters } from '../../lib/observe/counters.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { reportStart, sessionLog } from '../../lib/observe/session-log.ts';
import type { SessionEvent } from '../../lib/session/epoch.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import { type FakeRemote, sessionScene } from '../support/remote/fake-remote.ts';

const STEP: SessionEvent = { type: 'step', message: 'Waiting for the evidence of the service' };
const EPOCH: SessionEvent = { type: 'epoch', message: 'Secret updated', secretId: 's', expiresAt: 0 };

function scene() {
  const clock = createFakeClock();
  const lines: Record<string, unknown>[] = [];
  const output = { write: (line: string) => lines.push(JSON.parse(line)) };
  const log = createLogger({ format: 'json', level: 30, output });
  return { clock, lines, report: reportStart(clock, log) };
}

describe('the log line that says ready', () => {
  const msg = 'Ready: the remote is verified. Base URLs for clients:';
  const withoutTime = ({ time: _, ...rest }: Record<string, unknown>): object => rest;

  it('comes once, when the remote is verified and the port is open, in either order, with an address that clients reach', () => {
    for (const isVerifiedFirst of [true, false]) {
      const { lines, report } = scene();
      const verify = (): void => [STEP, EPOCH].forEach(report.observe);
      const [all, reached] = isVerifiedFirst ? ['0.0.0.0', '127.0.0.1'] : ['[::]', '[::1]'];
      const listen = (): void => report.listening(`http://${all}:8080`, { awaitsKey: false });
      const anthropic = `http://${reached}:8080`;
      if (isVerifiedFirst) verify();
      else listen();
      assert.deepEqual(lines, []);
      if (isVerifiedFirst) listen();
      verify();
      assert.deepEqual(lines.map(withoutTime), [
        { level: 'INFO', msg, openai: `${anthropic}/v1`, anthropic },
      ]);
      report.close();
    }
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

it('the line that says what a start waits for comes after three seconds, once', async () => {
  const { clock, lines, report } = scene();
  report.observe({ type: 'step', message: 'Waiting for the manifest' });
  report.observe(STEP);
  await clock.advance(2_999);
  assert.deepEqual(lines, []);
  await clock.advance(1);
  await clock.advance(60_000);
  const said = lines.map(({ msg }) => msg);
  assert.deepEqual(said, ['Still starting: Waiting for the evidence of the service']);
  report.close();
});
