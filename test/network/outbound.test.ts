import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { plainHost } from '../../lib/network/addresses.ts';
import { createOutbound, type Outbound } from '../../lib/network/outbound.ts';
import { describeRefusal } from '../../lib/network/transport-errors.ts';
import { loadTrustStore } from '../../lib/network/trust-store.ts';
import { eventually } from '../support/processes/eventually.ts';
import { settle } from '../support/remote/fake-clock.ts';
import { listening, serveConnectProxy, serveHttps, serveNobody } from '../support/remote/loopback.ts';
import { caFile, createTestAuthority } from '../support/remote/tls-authority.ts';

const ours = createTestAuthority('Test Root');
const inspector = createTestAuthority('Corp TLS Inspection');
const genuine = ours.issue(['localhost', '127.0.0.1', 'api.example']);
const inspected = inspector.issue(['localhost', 'api.example']);

function outbound(t: TestContext, env: Record<string, string | undefined>, timeout = 10_000): Outbound {
  const created = createOutbound(env, { connectTimeout: timeout, clock: systemClock });
  t.after(() => created.close());
  return created;
}

/** Both paths to the same answer: the body, or the error. */
const PATHS = {
  async 'control path'(out: Outbound, url: string): Promise<string> {
    const answer = await out.call({ method: 'GET', url, maxBytes: 1000, timeout: 5000 });
    return Buffer.from(answer.body).toString();
  },
  async 'data path'(out: Outbound, url: string): Promise<string> {
    const { hostname, port } = new URL(url);
    const agent = out.agent({}, { host: plainHost(hostname), port: Number(port), count: 0 });
    try {
      const [response] = await once(httpsRequest(url, { agent }).end(), 'response');
      return await text(response);
    } catch (error) {
      throw describeRefusal(error, 'the server') ?? error;
    }
  },
};

const failsWith =
  (code: string, ...words: (string | RegExp)[]) =>
  (error: unknown) => {
    assert.ok(error instanceof PrivatemodeError, String(error));
    assert.equal(error.code, code, error.message);
    for (const word of words) assert.match(error.message, word instanceof RegExp ? word : new RegExp(word));
    return true;
  };

for (const [path, get] of Object.entries(PATHS)) {
  describe(`outbound ${path}`, () => {
    it('names a certificate that is refused, by host and issuer: of an unknown authority, for another host, expired', async (t) => {
      const other = ours.issue(['elsewhere.example']);
      const expired = ours.issue(['localhost'], { notAfter: new Date(Date.now() - 1000) });
      const onlyOurs = { SSL_CERT_FILE: caFile(ours.pem) };
      for (const [env, certificate, words, issuer] of [
        [onlyOurs, inspected, 'certificate signed by unknown authority', 'Corp TLS Inspection'],
        [{}, genuine, 'certificate signed by unknown authority', 'Test Root'],
        [onlyOurs, other, 'for another host', 'Test Root'],
        [onlyOurs, expired, 'expired', 'Test Root'],
      ] as const) {
        const { port } = await serveHttps(t, certificate, (_, res) => res.end('hello'));
        await assert.rejects(
          get(outbound(t, env), `https://localhost:${port}/`),
          failsWith('upstream_tls_untrusted', words, 'localhost presented', `issued by "${issuer}"`),
        );
      }
    });

    it('goes through the proxy of https_proxy by CONNECT, with credentials and an unresolved host name', async (t) => {
      const { port } = await serveHttps(t, genuine, (_, res) => res.end('tunnelled'));
      const proxy = await serveConnectProxy(t, { route: () => ({ port }) });
      const out = outbound(t, {
        SSL_CERT_FILE: caFile(ours.pem),
        https_proxy: `http://user:p%40ss@127.0.0.1:${proxy.port}`,
      });
      assert.equal(await get(out, 'https://api.example:8443/'), 'tunnelled');
      assert.deepEqual(proxy.seen, [
        { target: 'api.example:8443', authorization: `Basic ${Buffer.from('user:p@ss').toString('base64')}` },
      ]);
    });

    it('speaks TLS to an https proxy, with the same trust store', async (t) => {
      // Each has a certificate for its own name only.
      const [forApi, forProxy] = [ours.issue(['api.example']), ours.issue(['localhost'])];
      const { port } = await serveHttps(t, forApi, (_, res) => res.end('tunnelled'));
      const proxy = await serveConnectProxy(t, { certificate: forProxy, route: () => ({ port }) });
      const through = (proxyPort: number): Outbound =>
        outbound(t, {
          SSL_CERT_FILE: caFile(ours.pem),
          HTTPS_PROXY: `https://localhost:${proxyPort}`,
        });
      assert.equal(await get(through(proxy.port), 'https://api.example/'), 'tunnelled');
      const misnamed = await serveConnectProxy(t, { certificate: forApi, route: () => ({ port }) });
      await assert.rejects(
        get(through(misnamed.port), 'https://api.example/'),
        failsWith('upstream_tls_untrusted', 'for another host', 'the HTTP proxy localhost'),
      );
    });

    it('makes no direct connection if the proxy refuses, hangs or cannot be reached', async (t) => {
      const { port, connections } = await serveHttps(t, genuine, (_, res) => res.end('direct'));
      const refusing = await serveConnectProxy(t, { route: () => ({ status: 407 }) });
      const hanging = await serveConnectProxy(t, { route: () => undefined });
      for (const [proxyPort, code, words, timeout] of [
        [refusing.port, 'upstream_unreachable', 'status 407', 10_000],
        [hanging.port, 'upstream_connect_timeout', 'opened no connection', 100],
        [1, 'upstream_unreachable', 'cannot be reached .ECONNREFUSED', 10_000],
      ] as const) {
        const proxy = `http://user:hunter2@127.0.0.1:${proxyPort}`;
        const out = outbound(t, { SSL_CERT_FILE: caFile(ours.pem), https_proxy: proxy }, timeout);
        await assert.rejects(
          get(out, `https://localhost:${port}/`),
          failsWith(code, words, /^(?!.*hunter2)/, `127.0.0.1:${proxyPort}`),
        );
      }
      assert.equal(connections.total, 0);
    });
  });
}

describe('connections to a service', () => {
  it('offer http/1.1 and nothing else, on both paths', async (t) => {
    const offered: string[][] = [];
    const options = {
      ...genuine,
      ALPNCallback: ({ protocols }: { protocols: string[] }) => void offered.push(protocols),
    };
    const server = createTlsServer(options).on('tlsClientError', () => {});
    const { port } = await listening(t, server);
    const out = outbound(t, { SSL_CERT_FILE: caFile(ours.pem) });
    const failed = { code: 'upstream_http2_only', message: /^localhost:\d+ offers HTTP\/2 only/ };
    await assert.rejects(PATHS['control path'](out, `https://localhost:${port}/`), failed);
    await assert.rejects(PATHS['data path'](out, `https://localhost:${port}/`));
    assert.deepEqual(offered, [['http/1.1'], ['http/1.1']]);
  });

  it('are kept alive on the data path, and new ones resume no TLS session, directly and through a proxy', async (t) => {
    const { port, connections } = await serveHttps(t, genuine, (req, res) => {
      if (req.url === '/close') res.setHeader('Connection', 'close');
      res.end('ok');
    });
    const proxy = await serveConnectProxy(t);
    for (const env of [{}, { https_proxy: `http://127.0.0.1:${proxy.port}` }]) {
      const out = outbound(t, { ...env, SSL_CERT_FILE: caFile(ours.pem) });
      const agent = out.agent({ keepAlive: true }, { host: 'localhost', port, count: 0 });
      const before = connections.total;
      for (const path of ['/', '/', '/close', '/']) {
        const asked = httpsRequest(`https://localhost:${port}${path}`, { agent }).end();
        const [response] = await once(asked, 'response');
        await once(response.resume(), 'close');
        await settle(); // the agent keeps the connection
      }
      assert.equal(connections.total - before, 2);
      for (let i = 0; i < 2; i++) await PATHS['control path'](out, `https://localhost:${port}/close`);
      assert.equal(connections.total - before, 4);
    }
    assert.equal(connections.resumed, 0);
  });
});

it('connections that are being opened end when all are closed: control path, in a TLS handshake or at the HTTP proxy', async (t) => {
  const { port, open } = await serveNobody(t);
  const connect = await serveConnectProxy(t, { route: () => ({ port }) });
  for (const proxyPort of [undefined, port, connect.port]) {
    const env = proxyPort === undefined ? {} : { https_proxy: `http://127.0.0.1:${proxyPort}` };
    const out = createOutbound(env, { connectTimeout: 60_000, clock: systemClock });
    const failing = assert.rejects(PATHS['control path'](out, `https://localhost:${port}/`));
    await eventually('the connection', () => open.size === 1);
    await out.close();
    await eventually('its end', () => open.size === 0);
    await failing;
  }
});

describe('trust store', () => {
  it('is exactly the file that SSL_CERT_FILE names', () => {
    const store = loadTrustStore({ SSL_CERT_FILE: caFile(ours.pem, inspector.pem) });
    assert.deepEqual(store, [ours.pem.trim(), inspector.pem.trim()]);
  });

  it('is the system store and the bundled one if SSL_CERT_FILE is unset or empty', () => {
    for (const env of [{}, { SSL_CERT_FILE: '' }]) assert.ok(loadTrustStore(env).length > 50);
  });

  it('refuses a file that is missing, empty or not a certificate', () => {
    const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
    for (const path of ['/nonexistent/ca.pem', caFile(''), caFile(broken)]) {
      assert.throws(() => loadTrustStore({ SSL_CERT_FILE: path }), {
        name: 'PrivatemodeError',
        code: 'config_invalid',
        message: /SSL_CERT_FILE/,
      });
    }
  });
});
