/**
 * TLS towards the application: versions, protocols, and certificates that are replaced while the proxy runs.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { mkdirSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { systemClock } from '../../lib/clock.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { breakConnection } from '../../lib/gateway/own-response.ts';
import { type GatewayServer, startGatewayServer } from '../../lib/gateway-server.ts';
import { listen } from '../../lib/listener/listen.ts';
import { loadTls } from '../../lib/listener/tls.ts';
import { createOutbound } from '../../lib/network/outbound.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { createCounters } from '../../lib/observe/counters.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { watchFiles } from '../../lib/watch-files.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import { get } from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { clockOf } from '../support/remote/fake-clock.ts';
import { createTestAuthority, type ServerCertificate } from '../support/remote/tls-authority.ts';

const authority = createTestAuthority('application side');
const issue = (name: string): ServerCertificate => authority.issue([name, 'localhost']);

interface Pair {
  readonly certPath: string;
  readonly keyPath: string;
  write(pair: Partial<ServerCertificate>): void;
}

function pairIn(): Pair {
  const directory = temporaryDirectory('privatemode-tls-');
  const [certPath, keyPath] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  return {
    certPath,
    keyPath,
    write({ cert, key }) {
      if (cert !== undefined) writeFileSync(certPath, cert);
      if (key !== undefined) writeFileSync(keyPath, key);
    },
  };
}

interface TlsService extends GatewayServer {
  readonly log: () => string;
}

/** The real application side, over TLS with the files of `pair`, or without TLS. */
async function serve(t: TestContext, pair: Pair | undefined): Promise<TlsService> {
  const lines: string[] = [];
  const { config } = parseConfig(
    [
      ...(pair === undefined ? [] : [`--tls-cert-path=${pair.certPath}`, `--tls-key-path=${pair.keyPath}`]),
      ...['--listen-address=127.0.0.1', '--port=0', '--api-endpoint=localhost:1', '--shutdown-grace=100ms'],
    ],
    {},
  );
  const outbound = createOutbound({}, { connectTimeout: 10_000, clock: systemClock });
  const log = createLogger({ format: 'json', level: 20, output: { write: (line) => lines.push(line) } });
  const service = await startGatewayServer(config, {
    clock: systemClock,
    session: fakeSession(),
    outbound,
    metrics: { counters: createCounters(), observe: () => {} },
    ...{ log, conditions: createConditions({ log, clock: systemClock }) },
    key: { value: () => undefined },
    ...{ salt: { shared: undefined }, fd: undefined, onPermanent: assert.fail },
  });
  t.after(async () => {
    await service.close();
    await outbound.close();
  });
  return { ...service, log: () => lines.join('') };
}

/** Shakes hands; resolves with the connection, rejects where that fails. */
async function shakeHands(t: TestContext, port: number, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connectTls({
    port,
    host: '127.0.0.1',
    servername: 'localhost',
    ca: authority.pem,
    ...options,
  });
  t.after(() => socket.destroy());
  await once(socket, 'secureConnect');
  return socket;
}

/** The first name of the certificate that a new connection is shown. */
async function shown(t: TestContext, port: number): Promise<string> {
  const socket = await shakeHands(t, port);
  const { CN } = socket.getPeerCertificate().subject;
  socket.destroy();
  return String(CN);
}

describe('TLS', { concurrency: true }, () => {
  it('ends a response that breaks off with a reset over HTTP/1.0, where a close would look like its end', async (t) => {
    const tls = issue('first');
    const listener = await listen(
      { listenAddress: '127.0.0.1', port: 0, tls, fd: undefined, clock: systemClock },
      (_req, res) => {
        res.write('a part', () => breakConnection({ res }));
      },
    );
    t.after(() => {
      listener.destroy();
      return listener.drain();
    });
    const socket = await shakeHands(t, listener.port);
    const failure = once(socket, 'error');
    let received = '';
    socket.on('data', (bytes) => {
      received += bytes;
    });
    socket.on('end', () => assert.fail('an orderly end'));
    socket.write('GET / HTTP/1.0\r\n\r\n');
    assert.equal(((await failure)[0] as NodeJS.ErrnoException).code, 'ECONNRESET');
    assert.match(received, /a part$/);
  });

  it('ends a connection that its client resets just after a request, which Node takes for an orderly end', async (t) => {
    let unfinished = 0;
    const listener = await listen(
      {
        listenAddress: '127.0.0.1',
        port: 0,
        tls: issue('first'),
        fd: undefined,
        clock: clockOf({ stuckWrite: 300 }),
      },
      (_req, res) => {
        unfinished++;
        res.once('close', () => unfinished--);
        setImmediate(() => res.write('a part'));
      },
    );
    t.after(() => {
      listener.destroy();
      return listener.drain();
    });
    for (let i = 0; i < 20; i++) {
      const raw = connect(listener.port, '127.0.0.1');
      const socket = await shakeHands(t, listener.port, { socket: raw });
      socket.on('error', () => {});
      socket.write(get('/'));
      await new Promise((turn) => setImmediate(turn));
      raw.resetAndDestroy();
    }
    await eventually('the first request', () => unfinished > 0);
    await eventually(
      () => `the end of ${unfinished} responses`,
      () => unfinished === 0,
    );
  });

  it('takes no client certificates on a socket file, where it could not tell the connections apart', async () => {
    const clientCertificates = { cas: [authority.pem], take: () => true, withdraw: () => {} };
    const socketFile = { path: join(temporaryDirectory('privatemode-tls-'), 'socket'), mode: 0o600 };
    const options = {
      listenAddress: '',
      port: 0,
      socketFile,
      fd: undefined,
      tls: issue('first'),
      clock: systemClock,
    };
    await assert.rejects(
      listen({ ...options, clientCertificates }, () => {}).then((opened) => opened.drain()),
      { code: 'config_invalid', message: /--tls-client-ca needs a TCP port/ },
    );
  });

  it('serves requests at TLS 1.2 and 1.3', async (t) => {
    const pair = pairIn();
    pair.write(issue('first'));
    const { port, url } = await serve(t, pair);
    assert.equal(url, `https://127.0.0.1:${port}`);
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const options = {
        servername: 'localhost',
        ca: authority.pem,
        minVersion: version,
        maxVersion: version,
      };
      const client = rawClient(port, options);
      t.after(() => client.socket.destroy());
      client.send(get('/healthz'));
      assert.match(await client.until(/\r\n\r\nok\n$/), /^HTTP\/1\.1 200/);
      assert.equal((client.socket as TLSSocket).getProtocol(), version);
    }
  });

  it('refuses TLS below 1.2', async (t) => {
    const pair = pairIn();
    pair.write(issue('first'));
    const { port } = await serve(t, pair);
    const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
    await assert.rejects(shakeHands(t, port, old), { code: /PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL/ });
    assert.equal(await shown(t, port), 'first');
  });

  it('speaks HTTP/1.1 and nothing else', async (t) => {
    const pair = pairIn();
    pair.write(issue('first'));
    const { port } = await serve(t, pair);
    const both = await shakeHands(t, port, { ALPNProtocols: ['h2', 'http/1.1'] });
    assert.equal(both.alpnProtocol, 'http/1.1');
    await assert.rejects(shakeHands(t, port, { ALPNProtocols: ['h2'] }), { code: /NO_APPLICATION_PROTOCOL/ });
  });

  it('does not let a connection without a handshake delay a shutdown', async (t) => {
    const pair = pairIn();
    pair.write(issue('first'));
    const service = await serve(t, pair);
    const accepted = Promise.withResolvers<void>();
    const seen = (message: unknown): void => {
      if ((message as { readonly socket: Socket }).socket.localPort === service.port) accepted.resolve();
    };
    subscribe('net.server.socket', seen);
    t.after(() => unsubscribe('net.server.socket', seen));
    const silent = connect(service.port, '127.0.0.1');
    silent.on('error', () => {});
    await accepted.promise;
    const begun = performance.now();
    await service.close();
    assert.ok(performance.now() - begun < 10_000);
  });
});

describe('certificate and key files', { concurrency: true }, () => {
  it('serve new connections once they are replaced, while old connections stay open', async (t) => {
    const pair = pairIn();
    pair.write(issue('first'));
    const service = await serve(t, pair);
    const before = await shakeHands(t, service.port);
    pair.write(issue('second'));
    service.reload();
    assert.equal(await shown(t, service.port), 'second');
    assert.match(service.log(), /The TLS certificate was replaced/);
    before.write(get('/healthz'));
    const [answer] = (await once(before, 'data')) as [Buffer];
    assert.match(answer.toString(), /^HTTP\/1\.1 200/);
  });

  it('are replaced without enabling TLS below 1.2', async (t) => {
    const pair = pairIn();
    pair.write(issue('first'));
    const service = await serve(t, pair);
    pair.write(issue('second'));
    service.reload();
    const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
    await assert.rejects(shakeHands(t, service.port, old));
  });

  it('are read again also if only the certificate is new, for the same key', async (t) => {
    const pair = pairIn();
    const first = issue('first');
    pair.write(first);
    const service = await serve(t, pair);
    pair.write({ cert: `${first.cert}\n` }); // other bytes, the same key
    await service.reload();
    assert.match(service.log(), /The TLS certificate was replaced/);
  });

  it('name allowed hosts: once they are replaced, a page under a new name gets 200 in place of 403', async (t) => {
    const pair = pairIn();
    pair.write(issue('first'));
    const service = await serve(t, pair);
    const ask = async (): Promise<string> => {
      const client = rawClient(service.port, { servername: 'localhost', ca: authority.pem });
      t.after(() => client.socket.destroy());
      client.send('GET /healthz HTTP/1.1\r\nHost: second\r\nOrigin: https://second\r\n\r\n');
      return (await client.until(/\r\n\r\n/)).slice(9, 12);
    };
    assert.equal(await ask(), '403');
    pair.write(issue('second'));
    service.reload();
    assert.equal(await ask(), '200');
  });

  const bad: [name: string, spoil: (pair: Pair) => void, said: RegExp][] = [
    [
      'a key of another certificate',
      (pair) => pair.write({ key: issue('other').key }),
      /cannot be used together: the key belongs to another certificate; name the two that were made together/,
    ],
    [
      'a certificate for another key',
      (pair) => pair.write({ cert: issue('other').cert }),
      /cannot be used together: the key belongs to another certificate/,
    ],
    [
      'no certificate at all',
      (pair) => pair.write({ cert: 'CANARY' }),
      /: the first holds no certificate in PEM; openssl x509 -inform der -in FILE -out NEW converts one from DER/,
    ],
    [
      'a key in place of the certificate',
      (pair) => pair.write({ cert: issue('other').key }),
      /: the first holds a key, so swap them/,
    ],
    ...['CERTIFICATE REQUEST', 'NEW CERTIFICATE REQUEST'].map((label): (typeof bad)[number] => [
      `a ${label.toLowerCase()} in place of the certificate`,
      (pair) => pair.write({ cert: `-----BEGIN ${label}-----\nAA==\n-----END ${label}-----\n` }),
      /: the first holds a certificate request: name the certificate that your CA made of it(?:"|$)/,
    ]),
    [
      'an empty key',
      (pair) => pair.write({ key: '' }),
      /: the second holds no key in PEM, or one with a passphrase; openssl pkey -in KEY -out NEW writes one without/,
    ],
    [
      'an empty certificate',
      (pair) => pair.write({ cert: '' }),
      /: the first holds no certificate in PEM; openssl x509 -inform der -in FILE -out NEW converts one from DER/,
    ],
    [
      'a file that is gone',
      ({ keyPath }) => unlinkSync(keyPath),
      /failed to read the file .* of --tls-key-path: ENOENT/,
    ],
    [
      'a folder',
      ({ certPath }) => {
        unlinkSync(certPath);
        mkdirSync(certPath);
      },
      /failed to read the file .* of --tls-cert-path: EISDIR/,
    ],
    [
      'a pipe',
      ({ certPath }) => {
        unlinkSync(certPath);
        execFileSync('mkfifo', [certPath]);
      },
      /failed to read the file .* of --tls-cert-path: it is not a regular file; name one/,
    ],
  ];
  for (const [name, spoil, said] of bad) {
    it(`are refused at a reload: the old pair stays, and the log says why once: ${name}`, async (t) => {
      const pair = pairIn();
      pair.write(issue('first'));
      const service = await serve(t, pair);
      spoil(pair);
      service.reload();
      service.reload();
      assert.equal(await shown(t, service.port), 'first');
      const complaints = service.log().match(/The new TLS certificate cannot be used, the old one stays/g);
      assert.equal(complaints?.length, 1);
      assert.match(service.log(), said);
      assert.ok(!service.log().includes('CANARY') && !service.log().includes('PRIVATE KEY'));
      rmSync(pair.certPath, { recursive: true });
      pair.write(issue('third'));
      service.reload();
      assert.equal(await shown(t, service.port), 'third');
    });

    it(`are refused at the start with config_invalid: ${name}`, (_t) => {
      const pair = pairIn();
      pair.write(issue('first'));
      spoil(pair);
      assert.throws(
        () => loadTls(pair),
        (error) =>
          error instanceof PrivatemodeError && error.code === 'config_invalid' && said.test(error.message),
      );
    });
  }

  const ways: [name: string, replace: (path: string, text: string) => void][] = [
    ['written over', (path, text) => writeFileSync(path, text)],
    [
      'renamed into place',
      (path, text) => {
        writeFileSync(`${path}.new`, text);
        renameSync(`${path}.new`, path);
      },
    ],
    [
      'behind a symbolic link that is replaced',
      (path, text) => {
        writeFileSync(`${path}.target`, text);
        unlinkSync(path);
        symlinkSync(`${path}.target`, path);
      },
    ],
  ];
  for (const [name, replace] of ways) {
    it(`are noticed without a signal when they are ${name}`, async (t) => {
      const pair = pairIn();
      pair.write(issue('first'));
      const changed: string[] = [];
      const watch = watchFiles({
        known: loadTls(pair),
        read: () => loadTls(pair),
        changed: ({ cert }) => changed.push(cert),
        failed: () => {},
        interval: 20,
        clock: systemClock,
      });
      t.after(() => watch.close());
      const second = issue('second');
      replace(pair.certPath, second.cert);
      await delay(60); // the key still is the old one
      assert.deepEqual(changed, []);
      replace(pair.keyPath, second.key);
      await eventually('the change to be seen', () => changed.length > 0);
      assert.deepEqual(changed, [second.cert]);
    });
  }
});

describe('the wrong scheme', () => {
  it('plain HTTP to the TLS port ends its connection, and gets one line in the log', async (t) => {
    const pair = pairIn();
    pair.write(issue('one'));
    const service = await serve(t, pair);
    for (let i = 0; i < 2; i++) {
      const plain = rawClient(service.port);
      t.after(() => plain.socket.destroy());
      plain.send(get('/healthz'));
      await plain.ended;
      assert.equal(plain.received(), '');
    }
    const words = 'A client speaks plain HTTP to the HTTPS port: its base URL has to begin with https://';
    assert.equal(service.log().split(words).length, 2, service.log());
  });

  it('TLS to the plain port gets one line in the log', async (t) => {
    const service = await serve(t, undefined);
    for (let i = 0; i < 2; i++) {
      const socket = connectTls({ port: service.port, host: '127.0.0.1', rejectUnauthorized: false });
      await once(socket, 'error');
    }
    const words =
      'A client speaks TLS to the plain HTTP port: its base URL has to begin with http://, or give --tls-cert-path and --tls-key-path';
    assert.equal(service.log().split(words).length, 2, service.log());
  });
});
