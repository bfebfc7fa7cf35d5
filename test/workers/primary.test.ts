import assert from 'node:assert/strict';
import cluster, { type Worker } from 'node:cluster';
import { EventEmitter } from 'node:events';
import { describe, it } from 'node:test';
import type { AttestedSession } from '../../lib/session/session.ts';
import type { ToWorker } from '../../lib/workers/messages.ts';
import { startWorkers } from '../../lib/workers/primary.ts';
import { recordingLogger } from '../support/logger.ts';

describe('what the workers tell', () => {
  it('is what a worker said last where it does not answer within a second', async (t) => {
    let answering = true;
    const worker = Object.assign(new EventEmitter(), {
      id: 1,
      isConnected: () => true,
      send(message: ToWorker, sent: () => void): void {
        sent();
        if (message.type !== 'collect' || !answering) return;
        worker.emit('message', { type: 'collected', id: message.id, collected: { metrics: ['its own'] } });
      },
    });
    t.mock.method(cluster, 'setupPrimary', () => {});
    t.mock.method(cluster, 'fork', () => worker as unknown as Worker);
    const session = {
      current: () => undefined,
      state: () => 'starting',
      lastError: () => undefined,
    } as unknown as AttestedSession;
    const starting = startWorkers({
      ...{ count: 1, session, sharedSalt: undefined, fd: undefined, patience: 1 },
      configuredKey: () => undefined,
      log: recordingLogger().log,
    });
    worker.emit('message', { type: 'listening', url: '', port: 1 });
    const pool = await starting;
    answering = false;
    assert.deepEqual(await pool.collect(), [], 'it has said nothing yet');
    answering = true;
    assert.deepEqual(await pool.collect(), [{ metrics: ['its own'] }]);
    answering = false;
    assert.deepEqual(await pool.collect(), [{ metrics: ['its own'] }]);
  });
});
