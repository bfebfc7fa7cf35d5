/** Connections that the program opens ahead of its requests, and their end. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '../support/processes/eventually.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';

/** Stands before the service and counts the connections to it. */
async function counting(port: number) {
  const open = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    open.add(near);
    near
      .on('error', () => {})
      .once('close', () => {
        open.delete(near);
        far.destroy();
      });
    far.on('error', () => {}).once('close', () => near.destroy());
    near.pipe(far).pipe(near);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, open, port: (server.address() as AddressInfo).port };
}

describe('connections opened ahead', { timeout: 600_000 }, () => {
  it('are two at most, beside one of the control path, and closed after the end', async (t) => {
    const remote = await startRemote();
    t.after(() => remote.close());
    const { server, open, port } = await counting(remote.simulator.port);
    t.after(() => server.close());
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
});
