/**
 * TLS towards the application: versions, protocols, and certificates that are replaced while the proxy runs.
 */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { systemClock } from '../../lib/clock.ts';
import type { AppResponse } from '../../lib/gateway/observed-response.ts';
import { breakConnection } from '../../lib/gateway/own-response.ts';
import { type ListenerOptions, listen } from '../../lib/listener/listen.ts';
import { expiryOf, firstToEnd, loadTls } from '../../lib/listener/tls.ts';
import { get } from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import { createTestAuthority, type ServerCertificate } from '../support/remote/tls-authority.ts';

const authority = createTestAuthority('application side');
const issue = (name: string): ServerCertificate => authority.issue([name, 'localhost']);
const FIRST = issue('first');
const TRUSTED = { servername: 'localhost', ca: authority.pem };

/** A listener of TLS on a free port, unless `options` say otherwise. */
async function listening(
  t: TestContext,
  handle: Parameters<typeof listen>[1] = (_req, res) => res.end('answered'),
  options: Partial<ListenerOptions> = {},
) {
  const usual = { at: { host: '127.0.0.1', port: 0 }, tls: FIRST, clock: systemClock };
  const listener = await listen({ ...usual, ...options }, handle);
  t.after(() => {
    listener.destroy();
    return listener.drain();
  });
  return listener;
}

/** Shakes hands; resolves with the connection, rejects where that fails. */
async function shakeHands(t: TestContext, port: number, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connectTls({ port, host: '127.0.0.1', ...TRUSTED, ...options });
  t.after(() => socket.destroy());
  await once(socket, 'secureConnect');
  return socket;
}

/** The first name of the certificate that a new connection is shown. */
async function shown(t: TestContext, port: number): Promise<unknown> {
  const socket = await shakeHands(t, port);
  const { CN } = socket.getPeerCertificate().subject;
  socket.destroy();
  return CN;
}

describe('TLS', { concurrency: true }, () => {
  it('serves HTTP/1.1 at TLS 1.2 and 1.3 and nothing else, also with a replaced certificate, which ends no connection', async (t) => {
    const listener = await listening(t);
    const before = await shakeHands(t, listener.port);
    for (const name of ['first', 'second']) {
      listener.replaceTls(issue(name));
      for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
        const options = { minVersion: version, maxVersion: version, ALPNProtocols: ['h2', 'http/1.1'] };
        const socket = await shakeHands(t, listener.port, options);
        assert.deepEqual([socket.getProtocol(), socket.alpnProtocol], [version, 'http/1.1']);
        socket.write(get('/'));
        assert.match(String(await once(socket, 'data')), /^HTTP\/1\.1 200/);
      }
      const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
      const refused = { code: /PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|NO_APPLICATION_PROTOCOL/ };
      for (const options of [old, { ALPNProtocols: ['h2'] }])
        await assert.rejects(shakeHands(t, listener.port, options), refused);
      assert.equal(await shown(t, listener.port), name);
    }
    before.write(get('/'));
    assert.match(String(await once(before, 'data')), /keep-alive/i);
  });

  it('ends a response that breaks off with a reset over HTTP/1.0, where a close would look like its end', async (t) => {
    const { port } = await listening(t, (_req, res) => {
      res.write('a part', () => breakConnection({ res: res as AppResponse }));
    });
    const client = rawClient(port, TRUSTED);
    client.send('GET / HTTP/1.0\r\n\r\n');
    assert.equal(await client.ended, 'ECONNRESET');
    assert.match(client.received(), /a part$/);
  });

  it('ends a connection that its client resets just after a request, which Node takes for an orderly end', async (t) => {
    let [begun, ended] = [0, 0];
    const { port } = await listening(t, (_req, res) => {
      begun++;
      res.once('close', () => ended++);
      setImmediate(() => res.write('a part'));
    });
    for (let i = 0; i < 20; i++) {
      const raw = connect(port, '127.0.0.1');
      const socket = await shakeHands(t, port, { socket: raw });
      socket.on('error', () => {});
      socket.write(get('/'));
      await new Promise((turn) => setImmediate(turn));
      raw.resetAndDestroy();
    }
    await eventually('the first request', () => begun > 0);
    await eventually(
      () => `the end of ${begun - ended} responses`,
      () => begun === ended,
    );
  });

  it('does not let a connection without a handshake delay a shutdown', async (t) => {
    const listener = await listening(t);
    const silent = rawClient(listener.port);
    await once(silent.socket, 'connect');
    await shown(t, listener.port); // comes after it
    await listener.drain();
    assert.match(await silent.ended, /end|ECONNRESET/);
  });

  it('is refused on a socket file, where the two sockets of a connection could not be matched', async (t) => {
    const at = { path: join(temporaryDirectory('privatemode-tls-'), 'socket') };
    const refused = { code: 'config_invalid', message: /--tls-cert-path is for a port/ };
    await assert.rejects(listening(t, undefined, { at }), refused);
  });
});

it('the wrong scheme ends its connection, and gets one line in the log that names the right one', async (t) => {
  for (const [tls, words] of [
    [FIRST, /plain HTTP to the HTTPS port: .* https:\/\//],
    [undefined, /TLS to the plain HTTP port: .* http:\/\/, .* --tls-cert-path/],
  ] as const) {
    const advice: string[] = [];
    const { port } = await listening(t, undefined, { tls, onWrongScheme: (text) => advice.push(text) });
    for (let i = 0; i < 2; i++) {
      if (tls === undefined) await assert.rejects(shakeHands(t, port));
      else {
        const plain = rawClient(port);
        plain.send(get('/'));
        await plain.ended;
        assert.equal(plain.received(), '');
      }
    }
    assert.equal(advice.length, 1);
    assert.match(advice[0] ?? '', words);
  }
});

/** The files of a new pair, and what replaces one or both. */
function pairIn(directory = temporaryDirectory('privatemode-tls-')) {
  const [certPath, keyPath] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  const write = ({ cert, key }: Partial<ServerCertificate>): void => {
    if (cert !== undefined) writeFileSync(certPath, cert);
    if (key !== undefined) writeFileSync(keyPath, key);
  };
  write(FIRST);
  return { certPath, keyPath, write };
}

describe('certificate and key files', { concurrency: true }, () => {
  const UNUSABLE = /cert\.pem and its key in .*key\.pem .* cannot be used: /;
  const bad: [name: string, parts: Partial<ServerCertificate>][] = [
    ['a key of another certificate', { key: issue('other').key }],
    ['no certificate at all', { cert: 'CANARY' }],
    ['a key in place of the certificate', { cert: FIRST.key }],
    ['an empty key', { key: '' }],
    ['an empty certificate', { cert: '' }],
  ];
  it('are refused with config_invalid and their names if they do not belong together', () => {
    for (const [name, parts] of bad) {
      const pair = pairIn();
      pair.write(parts);
      assert.throws(() => loadTls(pair), { code: 'config_invalid', message: UNUSABLE }, name);
    }
  });

  it('are refused with config_invalid and the name of a file that cannot be read', () => {
    const refused = { code: 'config_invalid', message: /the file "\/nowhere" of --tls-key-path: ENOENT/ };
    assert.throws(() => loadTls({ ...pairIn(), keyPath: '/nowhere' }), refused);
  });
});

describe('the expiry of a certificate', () => {
  it('is one notice in the last 14 days, and another one from its moment on', () => {
    const [day, end] = [86_400_000, Date.UTC(2027, 2, 15, 10)];
    const seen = (left: number) => {
      const certificate = { subject: 'CN=gateway.example', ends: new Date(end) };
      const { id, reason } = expiryOf('tls.crt', certificate, createFakeClock(end - left));
      assert.match(reason, /CN=gateway\.example in tls\.crt expire[sd] on 2027-03-15 10:00 UTC/);
      return id;
    };
    assert.equal(seen(14 * day + 1), undefined);
    for (const left of [14 * day, 1]) assert.equal(seen(left), 'tls_certificate_expiry');
    for (const left of [0, -370 * day]) assert.equal(seen(left), 'tls_certificate_expired');
  });

  it('is the earliest one in the certificate chain', () => {
    const blocks = [FIRST.cert, authority.pem].map((pem) => new X509Certificate(pem));
    const ends = Math.min(...blocks.map(({ validToDate }) => validToDate.getTime()));
    for (const pem of [`${FIRST.cert}\n${authority.pem}`, `${authority.pem}\n${FIRST.cert}`])
      assert.equal(firstToEnd(pem).ends.getTime(), ends);
    assert.match(firstToEnd(FIRST.cert).subject, /first|application side/);
  });
});
