import assert from 'node:assert/strict';
import cluster, { type Worker } from 'node:cluster';
import { EventEmitter } from 'node:events';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import { createRequestGate } from '../../lib/limits/request-gate.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import type { Logger } from '../../lib/observe/log.ts';
import { watchOwnKey } from '../../lib/observe/own-key.ts';
import type { Collected } from '../../lib/observe/watch-requests.ts';
import type { AttestedSession } from '../../lib/session/session.ts';
import type { SessionFacts } from '../../lib/session/standing.ts';
import { TIMES } from '../../lib/times.ts';
import { VERSION } from '../../lib/version.ts';
import type { ToWorker } from '../../lib/workers/messages.ts';
import { startWorkers } from '../../lib/workers/primary.ts';
import { configOf } from '../support/doors/config.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

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
const settings = (workers: number) => ({ config: configOf(`--workers=${workers}`), authorities: [] });
/** What the pool reports to. */
const told = (log: Logger = recordingLogger().log) => ({
  log,
  conditions: createConditions({ log, clock: systemClock }),
  observeOwnKey: () => {},
});

it('the places of a worker that is gone are freed at once', async (t) => {
  const worker = Object.assign(new EventEmitter(), {
    id: 1,
    isConnected: () => true,
    send: (_message: ToWorker, sent: () => void) => sent(),
  });
  t.mock.method(cluster, 'setupPrimary', () => {});
  t.mock.method(cluster, 'fork', () => worker as unknown as Worker);
  const session = { current: () => undefined, facts: () => FACTS };
  const queue = createFairQueue(1, systemClock);
  const starting = startWorkers({
    clock: systemClock,
    ...{
      ...settings(1),
      session: session as unknown as AttestedSession,
      salt: { shared: undefined },
      fd: undefined,
    },
    ...{ key: { value: () => undefined }, ...told() },
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

/** The workers that the primary forks from now on, in order: no process is behind them. */
function workersThatFork(
  t: TestContext,
  sent?: (id: number, message: ToWorker) => void,
): readonly EventEmitter[] {
  const workers: EventEmitter[] = [];
  t.mock.method(cluster, 'setupPrimary', () => {});
  t.mock.method(cluster, 'fork', () => {
    const id = workers.length + 1;
    const worker = Object.assign(new EventEmitter(), {
      id,
      isConnected: () => sent !== undefined,
      send: (message: ToWorker) => sent?.(id, message),
    });
    workers.push(worker);
    return worker as unknown as Worker;
  });
  return workers;
}

describe('the primary', () => {
  it('logs once for all workers that prompts spoil the shared cache', async (t) => {
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
      clock: systemClock,
      ...{
        ...settings(2),
        session: session as unknown as AttestedSession,
        salt: { shared: 's' },
        fd: undefined,
      },
      ...{ key: { value: () => undefined }, ...told(log) },
    });
    for (const worker of workers) worker.emit('message', { type: 'listening', url: '', port: 1 });
    await starting;
    for (const worker of [...workers, ...workers]) worker.emit('message', { type: 'spoils-cache' });
    assert.equal(lines.length, 1);
    assert.match(String(lines[0]?.['msg']), /start it with CLAUDE_CODE_ATTRIBUTION_HEADER=0/);
  });

  it('has the conditions of a worker until the worker is gone', async (t) => {
    const worker = Object.assign(new EventEmitter(), { id: 1, isConnected: () => false, send: () => {} });
    t.mock.method(cluster, 'setupPrimary', () => {});
    t.mock.method(cluster, 'fork', () => worker as unknown as Worker);
    const session = { current: () => undefined, facts: () => FACTS };
    const { log } = recordingLogger();
    const conditions = createConditions({ log, clock: systemClock });
    const starting = startWorkers({
      clock: systemClock,
      ...{
        ...settings(1),
        session: session as unknown as AttestedSession,
        salt: { shared: 's' },
        fd: undefined,
      },
      ...{ key: { value: () => undefined }, log, conditions },
      observeOwnKey: () => {},
    });
    const say = (message: object): boolean => worker.emit('message', message);
    say({ type: 'listening', url: '', port: 1 });
    await starting;
    const ids = (): string[] => conditions.list().map(({ id }) => id);
    say({ type: 'condition', id: 'tls_pair_unusable', message: 'm' });
    say({ type: 'condition', id: 'client_key_unusable', message: 'm', options: { of: 'ann' } });
    say({ type: 'condition', id: 'client_key_unusable', options: { of: 'ann' } });
    assert.deepEqual(ids(), ['tls_pair_unusable']);
    worker.emit('disconnect');
    assert.deepEqual(ids(), []);
  });

  it('has the condition own_key_rejected from what one worker reports until another reports an answer, and tells all workers of both', async (t) => {
    const sent: [worker: number, message: ToWorker][] = [];
    const workers = workersThatFork(t, (id, message) => sent.push([id, message]));
    const session = { current: () => undefined, facts: () => FACTS };
    const { log } = recordingLogger();
    const conditions = createConditions({ log, clock: systemClock });
    const starting = startWorkers({
      clock: systemClock,
      ...settings(2),
      ...{ session: session as unknown as AttestedSession, salt: { shared: 's' }, fd: undefined },
      ...{ key: { value: () => undefined }, log, conditions },
      observeOwnKey: watchOwnKey({ conditions }),
    });
    for (const worker of workers) worker.emit('message', { type: 'listening', url: '', port: 1 });
    await starting;
    const [one, other] = workers as [EventEmitter, EventEmitter];
    const ids = (): string[] => conditions.list().map(({ id }) => id);
    const report = (type: 'refused' | 'answered') =>
      ({ type: 'own-key', event: { type, client: 'ann', key: 'k' } }) as const;
    one.emit('message', report('refused'));
    assert.deepEqual(ids(), ['own_key_rejected']);
    other.emit('message', report('answered'));
    assert.deepEqual(ids(), []);
    const told = [report('refused'), report('answered')].flatMap((each) => [
      [1, each],
      [2, each],
    ]);
    assert.deepEqual(sent.slice(-4), told);
  });

  it('forgets places and conditions of a killed worker a second after its exit, even if Node reports no disconnect', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const workers = workersThatFork(t);
    const session = { current: () => undefined, facts: () => FACTS };
    const { log } = recordingLogger();
    const conditions = createConditions({ log, clock: systemClock });
    const queue = createFairQueue(1, systemClock);
    const starting = startWorkers({
      clock: systemClock,
      ...{
        ...settings(2),
        session: session as unknown as AttestedSession,
        salt: { shared: 's' },
        fd: undefined,
      },
      ...{ key: { value: () => undefined }, log, conditions, observeOwnKey: () => {} },
      gate: createRequestGate({ counts: undefined, queue }),
    });
    const [killed, other] = workers as [EventEmitter, EventEmitter];
    for (const worker of workers) worker.emit('message', { type: 'listening', url: '', port: 1 });
    await starting;
    killed.emit('message', { type: 'enter', id: 1, client: undefined });
    killed.emit('message', { type: 'condition', id: 'clients_file_unusable', message: 'm' });
    other.emit('message', { type: 'condition', id: 'tls_pair_unusable', message: 'm' });
    await new Promise((done) => setImmediate(done));
    killed.emit('exit', null, 'SIGKILL');
    t.mock.timers.tick(1_000);
    assert.deepEqual(
      conditions.list().map(({ id }) => id),
      ['tls_pair_unusable'],
    );
    await new Promise((done) => setImmediate(done));
    assert.deepEqual(queue.size(), { running: 0, waiting: 0, clients: 0 });
  });

  it('reports missing workers 10 s after one stopped listening, at once if none listens, until all listen', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const workers = workersThatFork(t);
    const session = { current: () => undefined, facts: () => FACTS } as unknown as AttestedSession;
    const { log, lines } = recordingLogger();
    const conditions = createConditions({ log, clock: systemClock });
    const gaps: string[] = [];
    const starting = startWorkers({
      clock: systemClock,
      ...{ ...settings(2), session, salt: { shared: 's' }, fd: undefined, log, conditions },
      ...{ key: { value: () => undefined }, observeOwnKey: () => {} },
      receipts: { instance: 'i', add: () => {}, noteGap: () => void gaps.push('gap') },
    });
    const held = (): string[] => conditions.list().map(({ severity, message }) => `${severity} ${message}`);
    const say = (index: number, message: object): unknown => workers[index]?.emit('message', message);
    const listens = (index: number): unknown => say(index, { type: 'listening', url: '', port: 1 });
    const MISSING = 'Worker processes are missing';
    listens(0);
    const pool = await starting;
    assert.equal(pool.listening(), 1);
    t.mock.timers.tick(9_999);
    assert.deepEqual(held(), []);
    t.mock.timers.tick(1);
    assert.deepEqual(held(), [`warning ${MISSING}: 1 of 2 listen`]);
    say(1, {
      ...{ type: 'failed', version: VERSION },
      error: { code: 'config_invalid', message: 'it is wrong', remedy: 'mend it' },
    });
    assert.deepEqual(held(), [`warning ${MISSING}: 1 of 2 listen: config_invalid: it is wrong`]);
    assert.equal(conditions.list()[0]?.remedy, 'mend it');
    const { level, msg, worker, code, reason, remedy } =
      lines.find((line) => line['code'] !== undefined) ?? {};
    assert.deepEqual(
      [level, msg, worker, code, reason, remedy],
      ['ERROR', 'A worker could not start', 2, 'config_invalid', 'it is wrong', 'mend it'],
    );
    workers[1]?.emit('exit', 1, null);
    assert.deepEqual(gaps, [], 'it had no requests');
    workers[0]?.emit('disconnect');
    workers[0]?.emit('exit', 1, null);
    assert.deepEqual(gaps, ['gap']);
    assert.match(held()[0] ?? '', /^critical .*: 0 of 2 listen: /);
    assert.equal(pool.listening(), 0);
    t.mock.timers.tick(1_000);
    assert.equal(workers.length, 4);
    listens(2);
    assert.match(held()[0] ?? '', /^warning .*: 1 of 2 listen: /);
    listens(3);
    assert.deepEqual(held(), []);
    workers[3]?.emit('exit', 1, null);
    t.mock.timers.tick(1_000);
    listens(4);
    t.mock.timers.tick(20_000);
    assert.deepEqual(held(), [], 'it was replaced in time');
    pool.announceStop();
    for (const index of [2, 4]) workers[index]?.emit('exit', 0, null);
    assert.deepEqual(held(), []);
  });

  it('whose program was replaced on disk serves on while a worker listens, and ends when none does', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const workers = workersThatFork(t);
    const session = { current: () => undefined, facts: () => FACTS } as unknown as AttestedSession;
    const permanent: string[] = [];
    const starting = startWorkers({
      clock: systemClock,
      ...{ ...settings(2), session, salt: { shared: 's' }, fd: undefined, ...told() },
      key: { value: () => undefined },
      onPermanent: ({ message }) => permanent.push(message),
    });
    for (const worker of workers) worker.emit('message', { type: 'listening', url: '', port: 1 });
    await starting;
    /** Ends a worker; the one in its place is of another version. */
    const endAndReplace = (index: number): void => {
      const next = workers.length;
      workers[index]?.emit('exit', 1, null);
      t.mock.timers.tick(10_000);
      const error = { code: 'listen_failed', message: 'another version' };
      workers[next]?.emit('message', { type: 'failed', version: '9.9.9', error });
    };
    endAndReplace(0);
    assert.deepEqual(permanent, []);
    endAndReplace(1);
    assert.deepEqual(permanent, ['another version']);
    workers.at(-1)?.emit('exit', 1, null);
    t.mock.timers.tick(10_000);
    assert.equal(workers.length, 4, 'it forks no more');
  });

  it('notes a gap for a worker that ends with 0 without having sent everything, and waits for the last receipts of the others', async (t) => {
    const workers = workersThatFork(t);
    const session = { current: () => undefined, facts: () => FACTS } as unknown as AttestedSession;
    const noted: unknown[] = [];
    const starting = startWorkers({
      clock: systemClock,
      ...{ ...settings(2), session, salt: { shared: 's' }, fd: undefined, ...told() },
      key: { value: () => undefined },
      receipts: { instance: 'i', add: ({ id }) => noted.push(id), noteGap: () => void noted.push('gap') },
    });
    const [silent, busy] = workers as [EventEmitter, EventEmitter];
    for (const worker of workers) worker.emit('message', { type: 'listening', url: '', port: 1 });
    const pool = await starting;
    const closed = pool.close().then(() => noted.push('closed'));
    silent.emit('disconnect');
    silent.emit('exit', 0, null);
    busy.emit('exit', 0, null);
    await new Promise((done) => setImmediate(done));
    busy.emit('message', { type: 'receipt', receipt: { id: 'the last' } });
    busy.emit('message', { type: 'done' });
    busy.emit('disconnect');
    await closed;
    assert.deepEqual(noted, ['gap', 'the last', 'closed']);
  });

  it('reports what a worker last said if the worker does not answer within a second, and until its end', async (t) => {
    let answering = true;
    let answers = 0;
    const worker = Object.assign(new EventEmitter(), {
      id: 1,
      isConnected: () => true,
      send(message: ToWorker, sent: () => void): void {
        sent();
        if (message.type !== 'collect' || !answering) return;
        answers += 1;
        const report = { traffic: answers, ...(message.withMetrics ? { metrics: [answers] } : {}) };
        worker.emit('message', { type: 'collected', id: message.id, collected: report });
      },
    });
    t.mock.method(cluster, 'setupPrimary', () => {});
    t.mock.method(cluster, 'fork', () => worker as unknown as Worker);
    const session = {
      current: () => undefined,
      facts: () => FACTS,
    } as unknown as AttestedSession;
    const ended: Collected[] = [];
    const clock = createFakeClock();
    const starting = startWorkers({
      clock,
      ...{ ...settings(1), session, salt: { shared: undefined }, fd: undefined },
      key: { value: () => undefined },
      ...told(),
      workerEnded: (last) => ended.push(last),
    });
    worker.emit('message', { type: 'listening', url: '', port: 1 });
    const pool = await starting;
    const inVain = async () => {
      const asked = pool.collect(true);
      await clock.advance(TIMES.workerCollect);
      return asked;
    };
    answering = false;
    assert.deepEqual(await inVain(), [], 'it has said nothing yet');
    answering = true;
    assert.deepEqual(await pool.collect(false), [{ traffic: 1 }], 'metrics that nobody asked for');
    assert.deepEqual(await pool.collect(true), [{ traffic: 2, metrics: [2] }]);
    assert.deepEqual(await pool.collect(false), [{ traffic: 3, metrics: [2] }]);
    answering = false;
    assert.deepEqual(await inVain(), [{ traffic: 3, metrics: [2] }]);
    const asked = inVain();
    worker.emit('exit', null, 'SIGKILL');
    assert.deepEqual(ended, [{ traffic: 3, metrics: [2] }]);
    assert.deepEqual(await asked, [], 'it would count twice');
    pool.announceStop();
  });
});
