import assert from 'node:assert/strict';
import cluster, { type Worker } from 'node:cluster';
import { EventEmitter } from 'node:events';
import { describe, it } from 'node:test';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import { createRequestGate } from '../../lib/limits/request-gate.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import type { Logger } from '../../lib/observe/log.ts';
import type { AttestedSession } from '../../lib/session/session.ts';
import type { SessionFacts } from '../../lib/session/standing.ts';
import type { ToWorker } from '../../lib/workers/messages.ts';
import { startWorkers } from '../../lib/workers/primary.ts';
import { recordingLogger } from '../support/doors/logger.ts';

const FACTS: SessionFacts = {
  ...{
    closed: false,
    key: 'configured',
    secret: undefined,
    last: 'none',
    confirmed: false,
    error: undefined,
  },
};
/** What the pool reports to. */
const told = (log: Logger = recordingLogger().log) => ({
  log,
  conditions: createConditions({ log }),
  observeOwnKey: () => {},
});

it('a worker that is gone gives its places back at once', async (t) => {
  const worker = Object.assign(new EventEmitter(), {
    id: 1,
    isConnected: () => true,
    send: (_message: ToWorker, sent: () => void) => sent(),
  });
  t.mock.method(cluster, 'setupPrimary', () => {});
  t.mock.method(cluster, 'fork', () => worker as unknown as Worker);
  const session = { current: () => undefined, facts: () => FACTS };
  const queue = createFairQueue(1);
  const starting = startWorkers({
    ...{
      count: 1,
      session: session as unknown as AttestedSession,
      salt: { shared: undefined },
      fd: undefined,
    },
    ...{ patience: 1, key: { value: () => undefined }, ...told() },
    gate: createRequestGate({ counts: undefined, queue }),
  });
  worker.emit('message', { type: 'listening', url: '', port: 1 });
  await starting;
  for (const id of [1, 2]) worker.emit('message', { type: 'enter', id, client: undefined });
  await new Promise((done) => setImmediate(done));
  assert.deepEqual(queue.size(), { running: 1, waiting: 1, clients: 1 });
  worker.emit('disconnect');
  await new Promise((done) => setImmediate(done));
  assert.deepEqual(queue.size(), { running: 0, waiting: 0, clients: 0 });
});

describe('what the workers tell', () => {
  it('is logged once for all of them where prompts spoil the shared cache', async (t) => {
    const workers: EventEmitter[] = [];
    t.mock.method(cluster, 'setupPrimary', () => {});
    t.mock.method(cluster, 'fork', () => {
      const worker = Object.assign(new EventEmitter(), { isConnected: () => false, send: () => {} });
      workers.push(worker);
      return worker as unknown as Worker;
    });
    const session = { current: () => undefined, facts: () => FACTS };
    const { log, lines } = recordingLogger();
    const starting = startWorkers({
      ...{ count: 2, session: session as unknown as AttestedSession, salt: { shared: 's' }, fd: undefined },
      ...{ patience: 1, key: { value: () => undefined }, ...told(log) },
    });
    for (const worker of workers) worker.emit('message', { type: 'listening', url: '', port: 1 });
    await starting;
    for (const worker of [...workers, ...workers]) worker.emit('message', { type: 'spoils-cache' });
    assert.equal(lines.length, 1);
    assert.match(String(lines[0]?.['msg']), /start it with CLAUDE_CODE_ATTRIBUTION_HEADER=0/);
  });

  it('is passed on where it is a condition, until the worker is gone, and where it is about the own key', async (t) => {
    const worker = Object.assign(new EventEmitter(), { id: 1, isConnected: () => false, send: () => {} });
    t.mock.method(cluster, 'setupPrimary', () => {});
    t.mock.method(cluster, 'fork', () => worker as unknown as Worker);
    const session = { current: () => undefined, facts: () => FACTS };
    const { log } = recordingLogger();
    const conditions = createConditions({ log });
    const ownKey: string[] = [];
    const starting = startWorkers({
      ...{ count: 1, session: session as unknown as AttestedSession, salt: { shared: 's' }, fd: undefined },
      ...{ patience: 1, key: { value: () => undefined }, log, conditions },
      observeOwnKey: (event) => ownKey.push(event),
    });
    const say = (message: object): boolean => worker.emit('message', message);
    say({ type: 'listening', url: '', port: 1 });
    await starting;
    const ids = (): string[] => conditions.list().map(({ id }) => id);
    say({ type: 'condition', id: 'tls_pair_unusable', message: 'm' });
    say({ type: 'condition', id: 'model_gone', message: 'm', options: { of: 'm1' } });
    say({ type: 'condition', id: 'model_gone', options: { of: 'm1' } });
    assert.deepEqual(ids(), ['tls_pair_unusable']);
    worker.emit('disconnect');
    assert.deepEqual(ids(), []);
    for (const event of ['refused', 'answered']) say({ type: 'own-key', event });
    assert.deepEqual(ownKey, ['refused', 'answered']);
  });

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
      facts: () => FACTS,
    } as unknown as AttestedSession;
    const starting = startWorkers({
      ...{ count: 1, session, salt: { shared: undefined }, fd: undefined, patience: 1 },
      key: { value: () => undefined },
      ...told(),
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
