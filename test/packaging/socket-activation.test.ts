import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type ActivatedService, createActivatedService } from '../support/processes/activated-service.ts';
import { ROOT } from '../support/processes/tools.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';
import { streamsUnderLoad, tally } from './support/streams-under-load.ts';

describe('a service that takes its socket from a parent that outlives it', { timeout: 600_000 }, () => {
  let remote: Remote;
  let service: ActivatedService;
  before(async () => {
    remote = await startRemote();
    const program = [process.execPath, join(ROOT, 'bin/privatemode-proxy.ts'), ...remote.flags];
    const neverOpened = '--port=1';
    service = await createActivatedService([...program, '--shutdown-grace=20s', neverOpened], remote.env);
  });
  after(async () => {
    await service.close();
    await remote.close();
  });

  it('answers requests that arrived before it was started', async () => {
    const early = streamsUnderLoad({ port: service.port, count: 3, everyMs: 10, model: 'sim-2x10' });
    await delay(200);
    await service.start();
    assert.deepEqual(tally(await early), { complete: 3 });
    assert.match(service.log(), new RegExp(`endpoint=http://127\\.0\\.0\\.1:${service.port}`));
  });

  it('completes all of 200 streams while it is restarted three times', async () => {
    const load = streamsUnderLoad({ port: service.port, count: 200, everyMs: 40, model: 'sim-20x50' });
    for (let i = 0; i < 3; i++) {
      await delay(500);
      assert.equal(await service.restart(), 0);
    }
    assert.deepEqual(tally(await load), { complete: 200 });
    assert.equal(await service.stop(), 0);
  });
});
