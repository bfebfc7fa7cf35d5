import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { it } from 'node:test';
import { askChat } from '../support/doors/ask-chat.ts';
import { chatBody, post } from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';

const isOpen = async (port: number): Promise<boolean> => {
  const socket = connect(port, '127.0.0.1');
  const opened = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return opened;
};

it('two instances on one port both serve; one that is told to stop closes its port at once, and its streams end as they should', {
  timeout: 600_000,
}, async (t) => {
  const remote = await startRemote();
  t.after(() => remote.close());
  const port = Number(await freePort());
  const url = `http://127.0.0.1:${port}`;
  const start = async (name: string) => {
    const workspace = `--workspace=${join(remote.directory, `workspace-${name}`)}`;
    const flags = ['--reuse-port', `--port=${port}`, '--shutdown-delay=60s', '--log-level=debug'];
    const proxy = await startProxyProcess([...remote.flags, ...flags, workspace], remote.env);
    t.after(() => proxy.stop('SIGKILL'));
    await eventually('the open port', () => proxy.log().includes('The port is open'));
    return proxy;
  };
  const [one, other] = await Promise.all([start('one'), start('other')]);
  await eventually('answers of both', async () => {
    assert.equal((await askChat({ url })).status, 200);
    return [one, other].every((proxy) => proxy.log().includes('Request ended'));
  });
  await other.stop('SIGKILL');

  const stream = rawClient(port);
  t.after(() => stream.socket.destroy());
  stream.send(post(chatBody({ model: 'sim-100x20', stream: true })));
  await stream.until(/data: /);
  const stopped = one.stop('SIGTERM');
  await eventually('the closed port', async () => !(await isOpen(port)));
  assert.doesNotMatch(stream.received(), /\[DONE\]/);
  one.process.kill('SIGTERM'); // ends the delay, and not the grace of the stream
  await stream.until(/data: \[DONE\]/);
  assert.equal(await stopped, 0, one.log());
});
