import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { SessionFacts } from '../../lib/session/standing.ts';
import type { ToPrimary, ToWorker } from '../../lib/workers/messages.ts';
import { runWorker } from '../../lib/workers/worker.ts';
import { configOf } from '../support/doors/config.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { eventually } from '../support/processes/eventually.ts';

const FACTS: SessionFacts = {
  ...{ closed: false, key: 'configured', secret: undefined, last: 'none', confirmed: false },
  error: undefined,
};

it('a worker that drains keeps its channel until its last message is on its way', async (t) => {
  for (const event of ['exit', 'SIGINT', 'SIGTERM', 'SIGHUP', 'message', 'disconnect']) {
    const before = process.listeners(event as 'exit');
    t.after(() => {
      for (const listener of process.listeners(event as 'exit'))
        if (!before.includes(listener)) process.off(event, listener);
    });
  }
  const sent: string[] = [];
  let writeLast: (() => void) | undefined;
  const channel = {
    connected: true,
    send(message: ToPrimary, _handle: undefined, _options: object, written: () => void): boolean {
      sent.push(message.type);
      if (message.type === 'done') writeLast = written;
      return true;
    },
    disconnect: () => void sent.push('disconnect'),
  };
  Object.assign(process, channel);
  t.after(() => Object.assign(process, { connected: false, send: undefined, disconnect: undefined }));
  const tell = (message: ToWorker): boolean => process.emit('message', message, undefined);

  const ended = runWorker(configOf('--api-key=k', '--port=0'), recordingLogger().log, {});
  const news = { epoch: undefined, facts: FACTS, configuredKey: 'k' };
  const none = { sharedSalt: undefined, fd: undefined, receiptInstance: undefined };
  tell({ type: 'start', ...none, gated: false, news });
  await eventually('that it listens', () => sent.includes('listening'));
  tell({ type: 'drain' });
  await eventually('its last message', () => writeLast !== undefined);
  await new Promise((done) => setImmediate(done));
  assert.deepEqual(sent, ['listening', 'done']);
  writeLast?.();
  assert.equal(await ended, 0);
  assert.deepEqual(sent, ['listening', 'done', 'disconnect']);
});
