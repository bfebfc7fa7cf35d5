import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createNotices } from '../../lib/observe/notices.ts';
import { watchService } from '../../lib/observe/service-watch.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

function scene() {
  const { log, lines } = recordingLogger();
  const clock = createFakeClock(1_000);
  const notices = createNotices(log, clock);
  const service = watchService(notices, clock);
  const held = () => notices.list().map(({ id, severity, reason }) => `${severity} ${id}: ${reason}`);
  return { clock, service, held, lines };
}

const NOTICE = ['critical service_failing: refused'];

describe('a service that requests do not reach', () => {
  it('gives a notice by the third failure in a row within a minute, until its next answer', async () => {
    const { clock, service, held, lines } = scene();
    service.failed('refused');
    service.failed('refused');
    service.answered();
    for (const wait of [30_000, 30_001, 29_999]) {
      service.failed('refused');
      assert.deepEqual([held(), service.notServing()], [[], undefined]);
      await clock.advance(wait);
    }
    service.failed('refused');
    assert.deepEqual([held(), service.notServing()], [NOTICE, 'refused']);
    service.failed('no answer in time');
    assert.deepEqual(held(), NOTICE, 'one line says it, whatever fails next');
    service.answered();
    assert.deepEqual([held(), service.notServing(), lines.length], [[], undefined, 2]);
    service.failed('refused');
    assert.deepEqual(held(), []);
  });

  it('gets requests again half a minute after the last failure, and none once the next one fails', async () => {
    const { clock, service, held } = scene();
    for (let i = 0; i < 3; i++) service.failed('refused');
    await clock.advance(29_999);
    assert.equal(service.notServing(), 'refused');
    await clock.advance(1);
    assert.deepEqual([held(), service.notServing()], [NOTICE, undefined]);
    service.failed('refused');
    assert.equal(service.notServing(), 'refused');
  });
});
