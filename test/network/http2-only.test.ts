/**
 * The protocol that connections offer, and a service that speaks nothing but HTTP/2: what whoever asks is
 * told.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createSecureServer } from 'node:http2';
import { request as httpsRequest } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { before, describe, it, type TestContext } from 'node:test';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';
import { systemClock } from '../../lib/clock.ts';
import { ERRORS, PrivatemodeError } from '../../lib/errors.ts';
import { createControlCall } from '../../lib/network/control-call.ts';
import { createOutbound, type Outbound } from '../../lib/network/outbound.ts';
import { startGateway } from '../support/doors/gateway.ts';
import { answerTo, chatBody, codeOf, get, post } from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import {
  createTestAuthority,
  type ServerCertificate,
  type TestAuthority,
} from '../support/remote/tls-authority.ts';

let authority: TestAuthority;
let certificate: ServerCertificate;

before(() => {
  authority = createTestAuthority('HTTP/2 Root');
  certificate = authority.issue(['localhost']);
});

async function listening(t: TestContext, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => void sockets.add(socket.on('error', () => {})));
  server.on('tlsClientError', () => {}).on('sessionError', () => {});
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

function outbound(t: TestContext): Outbound {
  const directory = temporaryDirectory('http2-only-');
  const path = join(directory, 'ca.pem');
  writeFileSync(path, authority.pem);
  const created = createOutbound({ SSL_CERT_FILE: path }, { connectTimeout: 5_000, clock: systemClock });
  t.after(async () => {
    await created.close();
  });
  return created;
}

/** A server that takes any protocol, and then says `bytes`: at once, or once it was sent something. */
const speaking =
  (bytes: string, asked: boolean): (() => Server) =>
  () =>
    createTlsServer(certificate, (socket) => {
      const say = (): void => void socket.write(Buffer.from(bytes, 'hex'));
      socket.on('error', () => {});
      if (asked) socket.once('data', say);
      else say();
    });

/**
 * A ServerHello of TLS 1.2 that chooses `h2`, whatever the client offered (RFC 5246 7.4.1.3, RFC 7301 3.1).
 */
const HELLO = Buffer.concat([
  Buffer.from('160303003a' + '02000036' + '0303', 'hex'), // record, handshake message, version
  Buffer.alloc(32, 7), // random
  // no session, a cipher suite, no compression, the length of the extensions
  Buffer.from('00' + 'c02f' + '00' + '000e', 'hex'),
  Buffer.from('ff01000100' + '001000050003026832', 'hex'), // renegotiation info, ALPN
]);

const EMPTY_SETTINGS = '000000040000000000';
const SETTINGS = '000012040000000000000300000064000400010000000500ffffff';

const ONLY_HTTP2: Readonly<Record<string, () => Server>> = {
  'ends the handshake with no_application_protocol': () => createSecureServer(certificate),
  'chooses h2, which nobody offered': () =>
    createTcpServer((socket) => void socket.once('data', () => socket.write(HELLO))),
  'agrees on nothing and speaks HTTP/2': speaking(EMPTY_SETTINGS, false),
  'agrees on nothing, and speaks HTTP/2 once it was asked': speaking(`${SETTINGS}${EMPTY_SETTINGS}`, true),
};

describe('a service that speaks HTTP/2 only', { concurrency: true }, () => {
  for (const [how, create] of Object.entries(ONLY_HTTP2)) {
    it(`fails calls of the control path with upstream_http2_only and its host if it ${how}`, async (t) => {
      const port = await listening(t, create());
      const call = createControlCall(outbound(t).dispatcher, systemClock);
      for (const method of ['GET', 'POST'] as const) {
        const body = method === 'POST' ? { body: 'x' } : {};
        const url = `https://localhost:${port}/secret?token=canary`;
        await assert.rejects(call({ method, url, ...body, maxBytes: 100, timeout: 5_000 }), (error) => {
          assert.ok(error instanceof PrivatemodeError, String(error));
          assert.deepEqual(
            [error.code, error.message],
            ['upstream_http2_only', `localhost:${port} offers HTTP/2 only, and this program speaks HTTP/1.1`],
          );
          assert.match(error.remedy, /an address that offers HTTP\/1\.1 \(--api-endpoint, --cdn-base-url\)/);
          return true;
        });
      }
    });

    it(`gives the application 502 without a retry, also with connections opened ahead, if it ${how}`, async (t) => {
      const port = await listening(t, create());
      const gateway = await startGateway({
        upstream: { port, ca: authority.pem },
        settings: { warmConnections: 2 },
      });
      const client = rawClient(gateway.port);
      t.after(async () => {
        client.socket.destroy();
        await gateway.close();
      });
      for (const request of [get('/v1/models'), post(chatBody())]) {
        client.send(request);
        const answer = await answerTo(client);
        assert.deepEqual([answer.status, codeOf(answer)], [502, 'upstream_http2_only'], answer.body);
        assert.match(answer.body, /localhost offers HTTP\/2 only/);
        assert.match(answer.body, /--api-endpoint/);
        assert.equal(answer.headers['x-should-retry'], 'false');
      }
      assert.doesNotMatch(gateway.logLines.join(''), /trying once more/);
    });
  }

  it('is distinguished from a service that breaks TLS or HTTP in another way', async (t) => {
    const others: Readonly<Record<string, () => Server>> = {
      'closes in the handshake': () =>
        createTcpServer((socket) => void socket.once('data', () => socket.end())),
      'refuses the handshake for another reason': () =>
        createTlsServer({
          ...certificate,
          requestCert: true,
          rejectUnauthorized: true,
          maxVersion: 'TLSv1.2',
        }),
      'says what is neither': speaking('00000504000000000131', false),
    };
    for (const [how, create] of Object.entries(others)) {
      const port = await listening(t, create());
      const gateway = await startGateway({ upstream: { port, ca: authority.pem } });
      const client = rawClient(gateway.port);
      t.after(async () => {
        client.socket.destroy();
        await gateway.close();
      });
      client.send(get('/v1/models'));
      const answer = await answerTo(client);
      assert.equal(answer.status, 502, how);
      assert.notEqual(codeOf(answer), 'upstream_http2_only', how);
    }
  });

  it('is named as the cause (upstream) of upstream_http2_only, whose status is 502', () => {
    const { status, blame } = ERRORS.upstream_http2_only;
    assert.deepEqual([status, blame], [502, 'upstream']);
  });
});

describe('every connection', () => {
  /** Speaks both, and says which protocols each client offered. */
  async function offeredTo(t: TestContext): Promise<{ port: number; offered: string[][] }> {
    const offered: string[][] = [];
    const options: TlsOptions = {
      ...certificate,
      ALPNCallback({ protocols }) {
        offered.push(protocols);
        return protocols[0];
      },
    };
    const server = createTlsServer(options, (socket) => {
      socket.on('error', () => {});
      socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
    });
    return { port: await listening(t, server), offered };
  }

  it('offers http/1.1 and nothing else', async (t) => {
    const { port, offered } = await offeredTo(t);
    const out = outbound(t);
    const url = `https://localhost:${port}/`;
    await createControlCall(
      out.dispatcher,
      systemClock,
    )({ method: 'GET', url, maxBytes: 100, timeout: 5_000 });
    assert.deepEqual(offered, [['http/1.1']], 'the control path');
    const agents = [
      out.agent(),
      out.agent({ keepAlive: true, ALPNProtocols: ['h2'] }),
      out.agent({ keepAlive: true }, { host: 'localhost', port, count: 1 }),
    ];
    for (const agent of agents) {
      const [response] = await once(httpsRequest(url, { agent }).end(), 'response');
      response.resume();
      await once(response, 'end');
    }
    assert.deepEqual(offered.slice(1), Array(offered.length - 1).fill(['http/1.1']), 'the data path');
    assert.ok(offered.length >= 4, `${offered.length} connections`);
  });
});
