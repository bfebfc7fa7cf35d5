/** Workers that Node cannot fork, by the events of the real node:cluster. */
import assert from 'node:assert/strict';
import cluster from 'node:cluster';
import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import type { GatewayServer } from '../../lib/gateway-server.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import type { AttestedSession } from '../../lib/session/session.ts';
import { startWorkers } from '../../lib/workers/primary.ts';
import { configOf } from '../support/doors/config.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

/** A worker that listens at once, and ends when it is drained. */
const WORKER = `process.on('message', ({ type }) => {
  if (type === 'start') process.send({ type: 'listening', url: 'u', port: 1 });
  if (type === 'drain') process.exit(0);
});`;
const EAGAIN = Object.assign(new Error('spawn node EAGAIN'), { code: 'EAGAIN' });
const ENOMEM = Object.assign(new Error('spawn ENOMEM'), { code: 'ENOMEM' });

describe('a worker that cannot be forked', { timeout: 600_000 }, () => {
  /** Node reports a directory that is missing as it reports that the limit of processes is reached. */
  let directory: string;
  beforeEach(() => {
    const scratch = temporaryDirectory('fork-failures-');
    const exec = join(scratch, 'worker.mjs');
    directory = join(scratch, 'cwd');
    writeFileSync(exec, WORKER);
    mkdirSync(directory);
    cluster.setupPrimary({ exec, args: [], execArgv: [], cwd: directory });
  });

  function scene(t: TestContext, more: { readonly startingUmask?: number } = {}) {
    const { log, lines } = recordingLogger();
    const conditions = createConditions({ log, clock: systemClock });
    t.after(() => conditions.close());
    const facts = { closed: false, key: 'configured', secret: undefined, last: 'none', confirmed: false };
    const session = { current: () => undefined, facts: () => ({ ...facts, error: undefined }) };
    const start = async (): Promise<GatewayServer> => {
      const pool = await startWorkers({
        clock: systemClock,
        ...{ config: configOf('--workers=2'), authorities: [] },
        ...{ session: session as unknown as AttestedSession, salt: { shared: undefined } },
        ...{ fd: undefined, key: { value: () => undefined }, observeOwnKey: () => {} },
        ...{ log, conditions, ...more },
      });
      t.after(() => pool.close());
      // The pool is there with the first one. Without their directory, Node does not start the others.
      await eventually('two workers that listen', () => pool.listening() === 2);
      return pool;
    };
    return {
      start,
      logged: (text: string) => lines.filter(({ msg }) => String(msg).includes(text)),
      /** All that run, once there are two. */
      pids: () =>
        eventually('two workers', () => {
          const running = Object.values(cluster.workers ?? {}).map((worker) => worker?.process.pid);
          return running.length === 2 && running.every((pid) => pid !== undefined) && (running as number[]);
        }),
    };
  }

  it('is logged and forked again until that succeeds, with the umask of the proxy restored', async (t) => {
    const own = process.umask();
    const { start, logged, pids } = scene(t, { startingUmask: 0o077 });
    const pool = await start();
    const [victim] = await pids();
    rmdirSync(directory);
    process.kill(victim as number, 'SIGKILL');
    const lines = await eventually('two attempts', () => {
      const found = logged('A worker could not start');
      return found.length > 1 && found;
    });
    const { worker, code, reason, remedy } = lines[0] ?? {};
    assert.deepEqual([worker, code, reason], [3, 'internal', 'a worker process cannot be started: ENOENT']);
    assert.ok(String(remedy).length > 10);
    assert.equal(process.umask(), own);
    mkdirSync(directory);
    assert.ok(!(await pids()).includes(victim as number));
    await pool.close();
    assert.deepEqual(cluster.workers, {});
  });

  it('is tried again if the fork throws', async (t) => {
    const { start, logged, pids } = scene(t);
    await start();
    const [victim] = await pids();
    const fork = t.mock.method(cluster, 'fork', () => {
      throw ENOMEM;
    });
    process.kill(victim as number, 'SIGKILL');
    await eventually('two attempts', () => logged('A worker could not start').length > 1);
    const { code, reason } = logged('A worker could not start')[0] ?? {};
    assert.deepEqual([code, reason], ['resources_exhausted', 'a worker process cannot be started: ENOMEM']);
    fork.mock.restore();
    assert.ok(!(await pids()).includes(victim as number));
  });

  it('does not keep the proxy from stopping', async (t) => {
    const { start, logged, pids } = scene(t);
    const pool = await start();
    const [victim] = await pids();
    rmdirSync(directory);
    process.kill(victim as number, 'SIGKILL');
    // The proxy stops between the fork and the event that reports its failure.
    const fork = cluster.fork.bind(cluster);
    const closed = new Promise<void>((resolve) =>
      t.mock.method(cluster, 'fork', () => {
        queueMicrotask(() => resolve(pool.close()));
        return fork();
      }),
    );
    await closed;
    assert.equal(logged('A worker ended').length, 1);
  });

  it('leaves no timer that keeps the process alive once the proxy has stopped', async (t) => {
    const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
    const { start, logged, pids } = scene(t);
    const pool = await start();
    const [victim] = await pids();
    rmdirSync(directory);
    process.kill(victim as number, 'SIGKILL');
    await eventually('three attempts', () => logged('A worker could not start').length > 2);
    await pool.close();
    assert.equal(timers(), 0);
  });

  for (const [how, code, fails] of [
    ['Node reports an error', 'internal', () => rmdirSync(directory)],
    [
      'the fork throws',
      'resources_exhausted',
      (t: TestContext) =>
        t.mock.method(cluster, 'fork', () => {
          throw EAGAIN;
        }),
    ],
  ] as const) {
    it(`ends the start of the proxy with that reason if no worker listens yet (${how})`, async (t) => {
      const { start } = scene(t);
      fails(t);
      await assert.rejects(start(), { code, message: /^a worker process cannot be started: E/ });
    });
  }
});
