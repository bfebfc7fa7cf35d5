/** A raw connection by CONNECT: what the proxy answers, byte for byte. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { createSecureContext } from 'node:tls';
import { systemClock } from '../../lib/clock.ts';
import { openTunnel } from '../../lib/network/tunnel.ts';

const TIME_LIMIT = { timeout: 600_000 };
const secureContext = createSecureContext();

/** A proxy that answers each request head with these bytes, and keeps what it was asked. */
async function proxyThat(t: TestContext, answer: string): Promise<{ proxy: URL; heads: string[] }> {
  const heads: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('data', (head) => {
      heads.push(head.toString('latin1'));
      socket.write(answer);
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { proxy: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), heads };
}

const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;

describe('a tunnel through an HTTP proxy', TIME_LIMIT, () => {
  it('passes on bytes of the server that came in one packet with the response of the proxy', async (t) => {
    const { proxy, heads } = await proxyThat(t, 'HTTP/1.1 200 Connection established\r\n\r\nhello');
    const before = timers();
    const socket = await openTunnel({
      proxy,
      host: 'api.example',
      port: 443,
      secureContext,
      clock: systemClock,
      timeout: 60_000,
    });
    t.after(() => socket.destroy());
    assert.equal(timers(), before, 'the time limit is over once the tunnel is open');
    const [first] = (await once(socket, 'data')) as [Buffer];
    assert.equal(first.toString(), 'hello');
    assert.match(heads[0] ?? '', /^CONNECT api\.example:443 HTTP\/1\.1\r\nhost: api\.example:443\r\n/i);
  });

  it('names an IPv6 address in brackets', async (t) => {
    const { proxy, heads } = await proxyThat(t, 'HTTP/1.1 200 OK\r\n\r\n');
    const socket = await openTunnel({
      proxy,
      host: '::1',
      port: 8443,
      secureContext,
      clock: systemClock,
      timeout: 60_000,
    });
    socket.destroy();
    assert.match(heads[0] ?? '', /^CONNECT \[::1\]:8443 /);
  });

  for (const status of [201, 204, 206, 302, 403, 407, 502]) {
    it(`is not opened if the proxy answers with status ${status}`, async (t) => {
      const { proxy } = await proxyThat(t, `HTTP/1.1 ${status} Odd\r\nContent-Length: 0\r\n\r\n`);
      const before = timers();
      const opening = openTunnel({
        proxy,
        host: 'api.example',
        port: 443,
        secureContext,
        clock: systemClock,
        timeout: 60_000,
      });
      await assert.rejects(opening, {
        code: 'upstream_unreachable',
        message: new RegExp(`refused a connection to api\\.example:443 with status ${status}`),
      });
      assert.equal(timers(), before);
    });
  }

  it('fails after its time limit if it never opens, and leaves no timer if the proxy cannot be reached', async (t) => {
    const { proxy } = await proxyThat(t, '');
    const opening = openTunnel({
      proxy,
      host: 'api.example',
      port: 443,
      secureContext,
      clock: systemClock,
      timeout: 30,
    });
    await assert.rejects(opening, { code: 'upstream_connect_timeout' });
    const before = timers();
    const gone = new URL('http://127.0.0.1:1');
    const refused = openTunnel({
      proxy: gone,
      host: 'api.example',
      port: 443,
      secureContext,
      clock: systemClock,
      timeout: 60_000,
    });
    await assert.rejects(refused, { code: 'upstream_unreachable' });
    assert.equal(timers(), before);
  });
});
