import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { listen } from '../../lib/server/listen.ts';
import { until } from '../support/doors/gateway-fixture.ts';

const REQUEST = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';

async function serve(t: TestContext) {
  const options = { listenAddress: '127.0.0.1', port: 0, tls: undefined, fd: undefined };
  const listener = await listen(options, (_, res) => res.end('answered'));
  t.after(() => listener.destroy());
  const accepted = new Set<unknown>();
  const seen = (message: unknown): void => {
    accepted.add((message as { readonly socket: Socket }).socket);
  };
  subscribe('net.server.socket', seen);
  t.after(() => unsubscribe('net.server.socket', seen));
  const client = async (): Promise<{ socket: Socket; text: () => string; closed: Promise<unknown> }> => {
    const socket = connect(listener.port, '127.0.0.1');
    t.after(() => socket.destroy());
    let text = '';
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk;
    });
    socket.on('error', () => {});
    const closed = once(socket, 'close');
    const before = accepted.size;
    await until(() => accepted.size > before, 'the connection was not accepted');
    return { socket, text: () => text, closed };
  };
  return { listener, client };
}

describe('draining', { timeout: 10_000 }, () => {
  it('answers the first request of a client that had connected before, and ends the connection', async (t) => {
    const { listener, client } = await serve(t);
    const { socket, text, closed } = await client();
    const drained = listener.drain();
    await new Promise((turn) => setImmediate(turn));
    socket.write(REQUEST);
    await closed;
    assert.match(text(), /200 OK[\s\S]*connection: close[\s\S]*answered$/i);
    await drained;
  });

  it('waits a second for that request, not longer', async (t) => {
    const { listener, client } = await serve(t);
    const { closed } = await client();
    const start = performance.now();
    await listener.drain();
    await closed;
    const waited = performance.now() - start;
    assert.ok(waited > 900 && waited < 3_000, `${waited} ms`);
  });

  it('ends at once a connection that is idle after an answer', async (t) => {
    const { listener, client } = await serve(t);
    const { socket, text, closed } = await client();
    socket.write(REQUEST);
    await until(() => text().includes('answered'), 'no answer');
    const start = performance.now();
    await listener.drain();
    await closed;
    assert.ok(performance.now() - start < 900);
  });
});
