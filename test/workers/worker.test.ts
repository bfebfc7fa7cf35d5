import assert from 'node:assert/strict';
import { it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import type { SessionFacts } from '../../lib/session/standing.ts';
import { VERSION } from '../../lib/version.ts';
import type { Start, ToPrimary, ToWorker } from '../../lib/workers/messages.ts';
import { runWorker } from '../../lib/workers/worker.ts';
import { configOf } from '../support/doors/config.ts';
import { eventually } from '../support/processes/eventually.ts';

const FACTS: SessionFacts = {
  ...{ closed: false, key: 'configured', secret: undefined, last: 'none', confirmed: false },
  error: undefined,
};

/**
 * Has this process be a worker until the test ends. `sent`: its messages, and `{ type: 'disconnect' }`. The
 * message `done` is on its way once `writeLast` was called.
 */
function workerProcess(t: TestContext) {
  for (const event of ['exit', 'SIGINT', 'SIGTERM', 'SIGHUP', 'message', 'disconnect']) {
    const before = process.listeners(event as 'exit');
    t.after(() => {
      for (const listener of process.listeners(event as 'exit'))
        if (!before.includes(listener)) process.off(event, listener);
    });
  }
  const sent: (ToPrimary | { readonly type: 'disconnect' })[] = [];
  const last = Promise.withResolvers<() => void>();
  const channel = {
    connected: true,
    send(message: ToPrimary, _handle: undefined, _options: object, written: () => void): boolean {
      sent.push(message);
      if (message.type === 'done') last.resolve(written);
      return true;
    },
    disconnect: () => void sent.push({ type: 'disconnect' }),
  };
  Object.assign(process, channel);
  t.after(() => Object.assign(process, { connected: false, send: undefined, disconnect: undefined }));
  return {
    sent,
    types: () => sent.map(({ type }) => type),
    last: last.promise,
    tell: (message: ToWorker): boolean => process.emit('message', message, undefined),
  };
}

const SILENT = { write: () => true };
const START: Start = {
  ...{ type: 'start', version: VERSION, authorities: [], gated: false },
  ...{ sharedSalt: undefined, fd: undefined, receiptInstance: undefined },
  config: configOf('--api-key=k', '--port=0'),
  news: { epoch: undefined, facts: FACTS, configuredKey: 'k' },
};

it('a worker that drains keeps its channel until its last message is on its way', async (t) => {
  const { types, last, tell } = workerProcess(t);
  const ended = runWorker(SILENT, {}, systemClock);
  tell(START);
  await eventually('that it listens', () => types().includes('listening'));
  tell({ type: 'drain' });
  const writeLast = await last;
  await new Promise((done) => setImmediate(done));
  assert.deepEqual(types(), ['listening', 'done']);
  writeLast();
  assert.equal(await ended, 0);
  assert.deepEqual(types(), ['listening', 'done', 'disconnect']);
});

it('a worker that fails at any step of its start says why, and ends', async (t) => {
  const { sent, types, last, tell } = workerProcess(t);
  const ended = runWorker(SILENT, { https_proxy: 'no address' }, systemClock);
  tell(START);
  (await last)();
  assert.equal(await ended, 1);
  assert.deepEqual(types(), ['failed', 'done', 'disconnect']);
  assert.equal(sent[0]?.type === 'failed' && sent[0].error.code, 'config_invalid');
});

it('a worker of another version than its primary reads no more of its first message than the version, and says to restart', async (t) => {
  const { sent, last, tell } = workerProcess(t);
  const ended = runWorker(SILENT, {}, systemClock);
  tell({ type: 'start', version: '0.0.1' } as Start);
  (await last)();
  assert.equal(await ended, 1);
  assert.deepEqual(sent[0], {
    ...{ type: 'failed', version: VERSION },
    error: {
      code: 'listen_failed',
      message: `listening in a new worker: the program on disk is v${VERSION}, and the running one v0.0.1`,
      remedy: 'Restart the proxy; workers of the running version cannot be started any more.',
    },
  });
});
