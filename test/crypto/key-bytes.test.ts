/**
 * Key material as bytes lives no longer than it takes to make a KeyObject of it, or to hand it to a worker.
 * The exchange is in test/faults/hygiene.test.ts, the worker's half in test/workers/remote-session.test.ts.
 */
import assert from 'node:assert/strict';
import cluster from 'node:cluster';
import { createSecretKey } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { canBeOpened, SUITE } from '../../lib/session/secret-exchange.ts';
import type { AttestedSession } from '../../lib/session/session.ts';
import { judge } from '../../lib/verdict/judge.ts';
import type { ToWorker } from '../../lib/workers/messages.ts';
import { startWorkers } from '../../lib/workers/primary.ts';
import { configOf } from '../support/doors/config.ts';
import { EPOCH } from '../support/doors/gateway.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { syntheticInput } from '../support/evidence/attestation-vectors.ts';

const SECRET = Buffer.alloc(32, 0x5a);
const wiped = (bytes: Uint8Array): boolean => bytes.length === 32 && bytes.every((byte) => byte === 0);

describe('key bytes', () => {
  it('are zeroed after verify has judged a secret exchange', async (t) => {
    let handedOut: Uint8Array | undefined;
    t.mock.method(SUITE, 'ReceiveExport', async () => {
      handedOut = Uint8Array.from(SECRET);
      return handedOut;
    });
    const empty = new Uint8Array();
    const messages = { publicKey: empty, encapsulatedKey: empty, signature: empty, meshCert: empty };
    const { now: at, ...evidence } = syntheticInput('synthetic_v158');
    await judge({ ...evidence, at, secret: messages, canBeOpened });
    assert.ok(handedOut !== undefined && wiped(handedOut));
  });

  it('are zeroed once they are sent to a worker, and at once if the worker is gone', async (t) => {
    const sent: { message: ToWorker; done: () => void }[] = [];
    let connected = true;
    const worker = Object.assign(new EventEmitter(), {
      id: 1,
      process: { kill: () => true },
      isConnected: () => connected,
      send: (message: ToWorker, done: () => void) => void sent.push({ message, done }),
    });
    t.mock.method(cluster, 'setupPrimary', () => {});
    t.mock.method(cluster, 'fork', () => worker);
    const epoch = { ...EPOCH, key: createSecretKey(SECRET) };
    const exported: Buffer[] = [];
    const exporting = epoch.key.export.bind(epoch.key);
    epoch.key.export = (() => {
      exported.push(exporting());
      return exported.at(-1);
    }) as typeof epoch.key.export;
    const session = {
      current: () => epoch,
      acquire: async () => epoch,
      facts: () => ({ key: 'configured', last: 'ok', secret: undefined }),
    } as unknown as AttestedSession;

    const { log } = recordingLogger();
    const starting = startWorkers({
      clock: systemClock,
      ...{ config: configOf('--workers=1'), authorities: [] },
      session,
      key: { value: () => undefined },
      salt: { shared: undefined },
      fd: undefined,
      ...{ log, conditions: createConditions({ log, clock: systemClock }), observeOwnKey: () => {} },
    });
    worker.emit('message', { type: 'listening', url: '', port: 1 });
    const pool = await starting;
    pool.sessionChanged();
    worker.emit('message', { type: 'acquire', id: 1, offeredKey: undefined, timeoutMs: 1 });
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(
      sent.map(({ message }) => message.type),
      ['start', 'news', 'answer'],
    );
    for (const [k, { done }] of sent.entries()) {
      assert.deepEqual(exported[k], SECRET, 'needed until it has been sent');
      done();
      assert.ok(wiped(exported[k]!));
    }
    connected = false;
    pool.sessionChanged();
    assert.equal(sent.length, 3);
    assert.equal(exported.length, 4);
    assert.ok(wiped(exported[3]!), 'of a worker that is gone');
  });
});
