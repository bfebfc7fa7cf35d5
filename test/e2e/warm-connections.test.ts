import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';
import { it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '../support/processes/eventually.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { listening } from '../support/remote/loopback.ts';
import { startRemote } from '../support/remote/remote.ts';

it('connections opened ahead are two at most, beside one of the control path, and closed after the end', async (t) => {
  const remote = await startRemote();
  t.after(() => remote.close());
  const between = createServer((near) => {
    const far = connect(remote.simulator.port, '127.0.0.1').on('error', () => {});
    near.once('close', () => far.destroy());
    far.once('close', () => near.destroy());
    near.pipe(far).pipe(near);
  });
  const { port, open } = await listening(t, between);
  const flags = [`--api-endpoint=localhost:${port}`, '--port=0'];
  const proxy = await startProxyProcess([...remote.flags, ...flags], remote.env);
  t.after(() => proxy.stop('SIGKILL'));
  await eventually('two, and one', () => open.size >= 3);
  await delay(250); // in which there would be more
  assert.equal(open.size, 3);
  assert.equal(await proxy.stop('SIGTERM'), 0);
  await eventually('the end of every connection', () => open.size === 0);
  assert.equal(remote.simulator.counts['inference'], 0);
});
