import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { outboundProxy, proxyFromEnvironment } from '../../lib/network/outbound-proxy.ts';
import { listening } from '../support/remote/loopback.ts';

const PROXY = 'http://proxy.example:3128';
const OTHER = 'https://other.example';

describe('the HTTP proxy of the environment', () => {
  const rows: [env: Record<string, string>, proxy: string | undefined][] = [
    [{}, undefined],
    [{ http_proxy: PROXY, HTTP_PROXY: PROXY }, undefined],
    [{ HTTPS_PROXY: PROXY }, `${PROXY}/`],
    [{ https_proxy: PROXY, HTTPS_PROXY: OTHER }, `${PROXY}/`],
    [{ https_proxy: '', HTTPS_PROXY: OTHER }, `${OTHER}/`],
    [{ https_proxy: 'proxy.example:3128' }, `${PROXY}/`],
    [{ https_proxy: PROXY, no_proxy: 'other, example' }, undefined],
    [{ https_proxy: PROXY, NO_PROXY: 'API.example:443' }, undefined],
    [{ https_proxy: PROXY, no_proxy: '*', NO_PROXY: 'other' }, undefined],
  ];
  it('is that of https_proxy or HTTPS_PROXY, unless no_proxy covers the host', () => {
    for (const [env, proxy] of rows) {
      const rule = proxyFromEnvironment(env);
      const found = rule?.exempts('api.example', 443) ? undefined : rule?.proxy.href;
      assert.equal(found, proxy, JSON.stringify(env));
    }
  });

  it('is refused without being quoted if it is no address of an HTTP proxy', () => {
    for (const value of [
      'socks5://user:hunter2@proxy.example:1080',
      'http://user:hunter2@',
      'http://[',
      'http://100%hunter2@proxy.example:3128',
      'unix:/run/hunter2.sock',
      'hunter2.example',
    ])
      assert.throws(
        () => proxyFromEnvironment({ https_proxy: value }),
        (error: unknown) =>
          error instanceof PrivatemodeError &&
          error.code === 'config_invalid' &&
          !error.message.includes('hunter2'),
        value,
      );
  });
});

const rows: [noProxy: string, host: string, port: number, direct: boolean][] = [
  ['api.example', 'API.Example.', 443, true],
  ['api.example', 'a.api.example', 443, true],
  ['api.example', 'myapi.example', 443, false],
  ['.example', 'api.example', 443, true],
  ['*.api.example', 'api.example', 443, false],
  ['*.api.example', 'x.api.example', 443, true],
  ['*:443', 'api.example', 8443, false],
  ['10.0.0.0/8', '11.1.2.3', 443, false],
  ['10.0.0.0/8', 'ten.example', 443, false],
  ['2.3', '10.1.2.3', 443, false],
  ['::1', '::1', 443, true],
  ['[::1]:8443', '[::1]', 8443, true],
  ['fd00::/8', 'fd12::1', 443, true],
  ['', 'localhost', 443, false],
  ['10.0.0.0/99', '10.0.0.1', 443, false],
];
it('no_proxy exempts what an entry covers', () => {
  for (const [noProxy, host, port, direct] of rows) {
    const rule = proxyFromEnvironment({ https_proxy: PROXY, no_proxy: noProxy });
    assert.equal(rule?.exempts(host, port), direct, `${noProxy} ${host}:${port}`);
  }
});

describe('a connection through the HTTP proxy', { timeout: 60_000 }, () => {
  /** A proxy that answers each CONNECT with these bytes. */
  async function behind(t: TestContext, answer: string, clock: Clock = systemClock) {
    const heads: string[] = [];
    const server = createServer((socket) =>
      socket.once('data', (head) => {
        heads.push(head.toString('latin1'));
        socket.write(answer);
      }),
    );
    const { port } = await listening(t, server);
    const closed = new AbortController();
    const through = outboundProxy(
      { https_proxy: `http://127.0.0.1:${port}` },
      { secureContext: createSecureContext(), connectTimeout: 5_000, clock, closed: closed.signal },
    );
    t.after(() => closed.abort());
    const tunnelTo = (host: string, port: number) => through(host, port, (socket) => socket as TLSSocket);
    return { heads, tunnelTo };
  }

  it('is asked for by CONNECT, with the name or the address in brackets and the port', async (t) => {
    const { heads, tunnelTo } = await behind(t, 'HTTP/1.1 200 Connection established\r\n\r\n');
    for (const host of ['api.example', '::1']) (await tunnelTo(host, 443)).destroy();
    assert.match(heads[0] ?? '', /^CONNECT api\.example:443 HTTP\/1\.1\r\nhost: api\.example:443\r\n/i);
    assert.match(heads[1] ?? '', /^CONNECT \[::1\]:443 /);
  });

  it('is not opened if the proxy answers with another status than 200', async (t) => {
    for (const status of [201, 302, 407]) {
      const { tunnelTo } = await behind(t, `HTTP/1.1 ${status} Odd\r\nContent-Length: 0\r\n\r\n`);
      const message = new RegExp(`refused a connection to api\\.example:443 with status ${status}`);
      await assert.rejects(tunnelTo('api.example', 443), { code: 'upstream_unreachable', message });
    }
  });
});
