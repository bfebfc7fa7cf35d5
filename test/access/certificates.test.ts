/**
 * Certificates in place of tokens, over real TLS connections: who is a client, who is not, and until when.
 */

import assert from 'node:assert/strict';
import { generateKeyPairSync, hash, type KeyObject } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { certificateNames, createCertificates } from '../../lib/access/certificates.ts';
import { systemClock } from '../../lib/clock.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { contextTag } from '../../lib/crypto/der.ts';
import { startGatewayServer } from '../../lib/gateway-server.ts';
import { listen } from '../../lib/listener/listen.ts';
import { loadClientCas } from '../../lib/listener/tls.ts';
import { createOutbound } from '../../lib/network/outbound.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { createCounters } from '../../lib/observe/counters.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { openAccess } from '../../lib/open-access.ts';
import { issueCertificate, type Name, toPem } from '../../simulator/pki/certificate.ts';
import { element, sequence } from '../../simulator/pki/der.ts';
import {
  basicConstraints,
  type EncodedExtension,
  extendedKeyUsage,
  keyUsage,
  vendorExtension,
} from '../../simulator/pki/extensions.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import { answerTo } from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const DAY = 86_400_000;
const server = createTestAuthority('servers').issue(['localhost']);
const newKey = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;

interface Issuer {
  readonly name: Name;
  readonly key: KeyObject;
  readonly pem: string;
}

function authority(commonName: string, issuer?: Issuer, days = 10): Issuer {
  const key = newKey();
  const name: Name = [['CN', commonName]];
  const der = issueCertificate({
    ...{ issuer: issuer ?? { name, key }, subject: name, key },
    notBefore: new Date(Date.now() - 2 * DAY),
    notAfter: new Date(Date.now() + days * DAY),
    extensions: [basicConstraints(true), keyUsage('keyCertSign')],
  });
  return { name, key, pem: toPem(der) };
}

const TEAM = authority('the team');
const OTHERS = authority('others');
/** Of the same name as the team's, with a key of its own. */
const NAMESAKE = authority('the team');

const KINDS = { email: 1, dns: 2, uri: 6, other: 8 } as const;
type Names = readonly (readonly [kind: keyof typeof KINDS, text: string])[];
const alternativeNames = (names: Names): EncodedExtension =>
  vendorExtension(
    '2.5.29.17',
    sequence(
      ...names.map(([kind, text]) => element(contextTag(KINDS[kind], false), Buffer.from(text, 'latin1'))),
    ),
  );

interface Wish {
  readonly subject?: Name;
  /** Undefined: no alternative names at all. */
  readonly names?: Names;
  readonly purpose?: 'serverAuth' | 'clientAuth';
  readonly from?: number;
  readonly to?: number;
}

const der = (issuer: Issuer, key: KeyObject, wish: Wish): Uint8Array =>
  issueCertificate({
    ...{ issuer, key, subject: wish.subject ?? [['O', 'team']] },
    notBefore: new Date(wish.from ?? Date.now() - DAY),
    notAfter: new Date(wish.to ?? Date.now() + DAY),
    extensions: [
      basicConstraints(false),
      keyUsage('digitalSignature'),
      ...(wish.purpose === undefined ? [] : [extendedKeyUsage(wish.purpose)]),
      ...(wish.names === undefined ? [] : [alternativeNames(wish.names)]),
    ],
  });

type Identity = Required<Pick<ConnectionOptions, 'cert' | 'key'>>;

function issue(wish: Wish, issuer = TEAM, above: readonly Issuer[] = []): Identity {
  const key = newKey();
  const chain = [toPem(der(issuer, key, wish)), ...above.map(({ pem }) => pem)];
  return { cert: chain.join(''), key: key.export({ type: 'pkcs8', format: 'pem' }) as string };
}

const named = (name: string): Wish => ({ names: [['dns', name]] });
const ANN = issue(named('ann'));

const client = (name: string, members: object = {}): object => ({
  ...{ name, tokens: [hash('sha256', `token of ${name}`)] },
  ...members,
});
const TEAM_FILE = [client('ann'), client('bob')];

/** The real application side; the files as they are written again. */
async function gateway(t: Pick<TestContext, 'after'>, { clients = TEAM_FILE, cas = TEAM.pem } = {}) {
  const directory = temporaryDirectory('privatemode-mtls-');
  const path = (name: string): string => join(directory, name);
  const write = (name: string, text: string): void => writeFileSync(path(name), text);
  const writeClients = (entries: readonly object[]): void =>
    write('clients.json', JSON.stringify({ clients: entries }));
  write('cert.pem', server.cert);
  write('key.pem', server.key);
  write('ca.pem', cas);
  writeClients(clients);
  const { config } = parseConfig(
    [
      ...[`--tls-cert-path=${path('cert.pem')}`, `--tls-key-path=${path('key.pem')}`],
      ...[`--tls-client-ca=${path('ca.pem')}`, `--clients=${path('clients.json')}`],
      ...['--listen-address=127.0.0.1', '--port=0', '--api-endpoint=localhost:1', '--shutdown-grace=100ms'],
    ],
    {},
  );
  const lines: string[] = [];
  const outbound = createOutbound({}, { connectTimeout: 10_000, clock: systemClock });
  const log = createLogger({ format: 'json', level: 20, output: { write: (line) => lines.push(line) } });
  const counters = createCounters();
  const conditions = createConditions({ log, clock: systemClock });
  const opened = new AsyncDisposableStack();
  opened.defer(() => outbound.close());
  const shared = { clock: systemClock, log, counters, conditions };
  const key = { value: () => 'key of the gateway', origin: () => undefined };
  const access = await openAccess(config, { ...shared, opened }, key, undefined, []);
  const started = await startGatewayServer(config, {
    ...{ ...shared, ...access, key, salt: { shared: undefined }, session: fakeSession(), outbound },
    ...{ metrics: { counters, observe: () => {} }, fd: undefined, onPermanent: assert.fail },
  });
  opened.defer(started.close);
  t.after(() => opened.disposeAsync());
  const service = {
    ...started,
    reload: () => Promise.all([started.reload(), access.clients?.reload()]),
  };
  const connection = (identity: ConnectionOptions = {}) => {
    const opened = rawClient(service.port, {
      servername: 'localhost',
      rejectUnauthorized: false,
      ...identity,
    });
    t.after(() => opened.socket.destroy());
    return opened;
  };
  return {
    ...{ service, path, write, writeClients, connection },
    log: () => lines.join(''),
    /** Who asks, in the words of the log, or the message of the refusal. */
    async ask(identity: ConnectionOptions = {}, headers: readonly string[] = []): Promise<string> {
      const asking = connection(identity);
      asking.send(estimate(headers));
      return outcome(await answerTo(asking));
    },
  };
}

/** One for all tests of a suite that change nothing, to be asked for where the suite is described. */
function gatewayOfSuite(how: Parameters<typeof gateway>[1] = {}): () => Awaited<ReturnType<typeof gateway>> {
  const ends = new AsyncDisposableStack();
  let opened: Awaited<ReturnType<typeof gateway>>;
  before(async () => {
    opened = await gateway({ after: (end?: unknown) => ends.defer(end as () => Promise<void>) }, how);
  });
  after(() => ends.disposeAsync());
  return () => opened;
}

const BODY = '{"model":"m","messages":[{"role":"user","content":"x"}]}';
/** A request that is answered without the service. */
const estimate = (headers: readonly string[] = []): string =>
  [
    'POST /v1/messages/count_tokens HTTP/1.1',
    ...[
      'Host: localhost:8080',
      'Content-Type: application/json',
      `Content-Length: ${BODY.length}`,
      ...headers,
    ],
    `\r\n${BODY}`,
  ].join('\r\n');

function outcome({ status, body }: { readonly status: number; readonly body: string }): string {
  if (status === 200) return 'in';
  const { error } = JSON.parse(body) as { error: { code: string; message: string } };
  return `${status} ${error.code ?? ''} ${error.message.replace(/ \(request id .*\)$/, '')}`;
}

const IN = /^in$/;
const NAMELESS = /401.*names no client of this gateway/;
const FOREIGN = /401.*does not come from a CA that this gateway trusts/;

/** How the name of a test says what is expected. */
const accepted = (expected: RegExp): string =>
  expected === IN ? 'accepted' : `refused: ${expected.source.replace('401.*', '')}`;

describe('a gateway with --tls-client-ca', { concurrency: true }, () => {
  const shared = gatewayOfSuite();
  const intermediate = authority('second floor', TEAM);
  const cases: [what: string, identity: Identity, expected: RegExp][] = [
    ['with a DNS name', ANN, IN],
    ['with a common name and no alternative one', issue({ subject: [['CN', 'ann']] }), IN],
    ['from an intermediate CA, not sent with it,', issue(named('ann'), intermediate), FOREIGN],
    ['from an unknown CA', issue(named('ann'), OTHERS), FOREIGN],
    ['from an unknown CA, sent with it,', issue(named('ann'), OTHERS, [OTHERS]), FOREIGN],
    ['from an unknown CA with the name of a known one', issue(named('ann'), NAMESAKE, [NAMESAKE]), FOREIGN],
    [
      'signed in the name of the known CA with another key',
      issue(named('ann'), { ...TEAM, key: newKey() }),
      FOREIGN,
    ],
    ['that has expired', issue({ ...named('ann'), to: Date.now() - 60_000 }), /401.*has expired/],
    ['that is not valid yet', issue({ ...named('ann'), from: Date.now() + 60_000 }), /401.*not valid yet/],
    [
      'with the purpose serverAuth',
      issue({ ...named('ann'), purpose: 'serverAuth' }),
      /401.*not meant for clients/,
    ],
    ['that names no client', issue(named('zoe')), NAMELESS],
    [
      'whose DNS name is no client and whose common name is one',
      issue({ ...named('zoe'), subject: [['CN', 'ann']] }),
      NAMELESS,
    ],
    [
      'with names of other kinds only',
      issue({ names: [['other', 'x']], subject: [['CN', 'ann']] }),
      NAMELESS,
    ],
    [
      'with two common names',
      issue({
        subject: [
          ['CN', 'ann'],
          ['CN', 'zoe'],
        ],
      }),
      NAMELESS,
    ],
    ['with the name of a client in capitals', issue(named('ANN')), NAMELESS],
    [
      'of two clients',
      issue({
        names: [
          ['dns', 'ann'],
          ['email', 'bob'],
        ],
      }),
      /401.*more than one client/,
    ],
    ['with a comma in a name', issue(named('zoe, DNS:ann')), NAMELESS],
    ['with a quote in a name', issue(named('zoe", DNS:"ann')), NAMELESS],
    ['with a NUL in a name', issue(named('ann\0.evil.example')), NAMELESS],
    ['with a comma in a URI', issue({ names: [['uri', 'http://x/, DNS:ann']] }), NAMELESS],
    ['with a line break in a name', issue(named('zoe\nDNS:ann')), NAMELESS],
    ['with a slash in the common name', issue({ subject: [['CN', 'zoe/CN=ann']] }), NAMELESS],
    ['with a line break in the common name', issue({ subject: [['CN', 'zoe\nCN=ann']] }), NAMELESS],
  ];
  for (const [what, identity, expected] of cases) {
    it(`a client certificate ${what} is ${accepted(expected)}`, async () => {
      assert.match(await shared().ask(identity), expected);
    });
  }

  it('logs the client that the certificate names, and applies its rights and its expiry', async (t) => {
    const { ask, log } = await gateway(t, {
      clients: [
        client('ann', { endpoints: ['chat'] }),
        { name: 'bob' },
        { name: 'eve', expires: '2020-01-01T00:00:00Z' },
      ],
    });
    assert.match(await ask(ANN), /^403.*may not use this endpoint/);
    assert.match(log(), /"client":"ann"/);
    assert.equal(await ask(issue(named('bob'))), 'in');
    assert.match(await ask(issue(named('eve'))), /401.*the client has expired/);
  });

  it('completes the handshake and answers /healthz without a client certificate, or with one from an unknown CA', async () => {
    const { connection, ask } = shared();
    for (const identity of [{}, issue(named('ann'), OTHERS)]) {
      const asking = connection(identity);
      asking.send('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
      assert.equal((await answerTo(asking)).status, 200);
    }
    assert.match(await ask(), /401.*no token was sent/);
    assert.match(
      await ask({}, ['Authorization: Bearer x']),
      /401.*the token in Authorization.* is not known/,
    );
  });
});

describe('a gateway with certificates and tokens', { concurrency: true }, () => {
  const shared = gatewayOfSuite({
    clients: ['ann', 'bob'].map((name) => ({ name, tokens: [hash('sha256', `t-${name}`)] })),
  });
  const bearer = (name: string): string => `Authorization: Bearer t-${name}`;
  const foreign = issue(named('ann'), OTHERS);
  const expired = issue({ ...named('ann'), to: Date.now() - 60_000 });
  const both = issue({
    names: [
      ['dns', 'ann'],
      ['dns', 'bob'],
    ],
  });
  const MIXED = /401.*the token is not one of the client that the certificate names/;
  const cases: [what: string, identity: Identity, header: string, expected: RegExp][] = [
    ['of the client that the certificate names', ANN, bearer('ann'), IN],
    ['of another client than the certificate names', ANN, bearer('bob'), MIXED],
    ['of another client than the certificate names, as x-api-key,', ANN, 'x-api-key: t-bob', MIXED],
    ['of no client, with a certificate of a client,', ANN, bearer('zoe'), MIXED],
    [
      'in an Authorization of another scheme, with a certificate of a client,',
      ANN,
      'Authorization: Basic dDp0',
      MIXED,
    ],
    ['of a client, with a certificate from an unknown CA,', foreign, bearer('bob'), IN],
    ['of a client, with an expired certificate,', expired, bearer('bob'), IN],
    [
      'of no client, with a certificate from an unknown CA,',
      foreign,
      bearer('zoe'),
      /401.*trusts, and the token is not known/,
    ],
    ['of a client, with a certificate of two clients,', both, bearer('ann'), /401.*more than one client/],
  ];
  for (const [what, identity, header, expected] of cases) {
    it(`a token ${what} is ${accepted(expected)}`, async () => {
      assert.match(await shared().ask(identity, [header]), expected);
    });
  }
});

describe('a connection with a client certificate', { concurrency: true }, () => {
  it('gets 401 once its client was taken out of the clients file', async (t) => {
    const { connection, writeClients, service, log } = await gateway(t);
    const open = connection(ANN);
    open.send(estimate());
    await open.until(/200 OK/);
    writeClients([{ name: 'bob' }]);
    await service.reload();
    await eventually('the file to be read', () => /The clients file.*was read again/.test(log()));
    const before = open.received().length;
    open.send(estimate());
    await open.until(/names no client/);
    assert.match(open.received().slice(before), /^[\s\S]*HTTP\/1\.1 401/);
  });

  it('gets 401 once its certificate has expired', async (t) => {
    const { connection } = await gateway(t);
    for (const life of [2_000, 10_000]) {
      const to = Math.ceil(Date.now() / 1000) * 1000 + life;
      const open = connection(issue({ ...named('ann'), to }));
      open.send(estimate());
      const first = await open.until(/^HTTP\/1\.1 \d+ /);
      if (life === 2_000 && first.includes(' 401 ')) continue; // the machine paused for as long
      await open.until(/200 OK/);
      await eventually('the next moment', () => Date.now() > to);
      open.send(estimate());
      await open.until(/401[\s\S]*has expired/);
      return;
    }
  });

  it('ends when the CAs change', async (t) => {
    const { connection, write, service } = await gateway(t);
    const open = connection(ANN);
    open.send('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await open.until(/200 OK[\s\S]*ok\n$/);
    write('ca.pem', OTHERS.pem);
    await service.reload();
    await open.ended;
  });

  it('finishes its current request when the CAs change, and ends without taking another request', async (t) => {
    const { connection, write, service } = await gateway(t);
    const open = connection(ANN);
    const whole = estimate();
    open.send(whole.slice(0, -10)); // admitted with its head
    await once(open.socket, 'secureConnect');
    const probe = connection();
    probe.send('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n'); // comes after it
    await probe.until(/200 OK/);
    write('ca.pem', OTHERS.pem);
    await service.reload();
    open.send(whole.slice(-10) + estimate());
    await open.ended;
    assert.match(open.received(), /^HTTP\/1\.1 200 OK[\s\S]*Connection: close/i);
    assert.equal(open.received().match(/200 OK/g)?.length, 1);
  });
});

describe('a listener whose CAs are replaced', { concurrency: true }, () => {
  const scene = async (t: TestContext) => {
    const withdrawn: unknown[] = [];
    const responses: ServerResponse[] = [];
    const certificates = createCertificates();
    const listener = await listen(
      {
        ...{ clock: systemClock, listenAddress: '127.0.0.1', port: 0, tls: server, fd: undefined },
        clientCertificates: {
          cas: [TEAM.pem],
          take: certificates.take,
          withdraw(socket) {
            certificates.withdraw(socket);
            withdrawn.push(certificates.of(socket)?.problem);
          },
        },
      },
      (_req, res) => {
        res.write('begun ');
        responses.push(res);
      },
    );
    t.after(async () => {
      const drained = listener.drain();
      listener.destroy();
      await drained;
    });
    return { withdrawn, responses, listener };
  };

  it('ends a connection after the response that has begun', async (t) => {
    const { withdrawn, responses, listener } = await scene(t);
    const open = rawClient(listener.port, { rejectUnauthorized: false, ...ANN });
    t.after(() => open.socket.destroy());
    open.send('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await open.until(/begun/);
    listener.replaceTls(server, [OTHERS.pem]);
    assert.deepEqual(withdrawn, ['withdrawn']);
    responses[0]?.end('whole');
    await open.ended;
    assert.match(open.received(), /whole/);
  });

  it('cuts a handshake that began before the replacement', async (t) => {
    const { listener } = await scene(t);
    const accepted = Promise.withResolvers<void>();
    const seen = (message: unknown): void => {
      if ((message as { readonly socket: Socket }).socket.localPort === listener.port) accepted.resolve();
    };
    subscribe('net.server.socket', seen);
    t.after(() => unsubscribe('net.server.socket', seen));
    const tcp = connectTcp(listener.port, '127.0.0.1');
    await accepted.promise;
    listener.replaceTls(server, [OTHERS.pem]);
    const late = connect({ socket: tcp, rejectUnauthorized: false, ...ANN });
    t.after(() => late.destroy());
    const outcome = new Promise((resolve) => {
      late.on('error', () => resolve('cut')).once('secureConnect', () => resolve('completed'));
    });
    assert.equal(await outcome, 'cut');
  });
});

describe('the file of --tls-client-ca', { concurrency: true }, () => {
  it('still decides which client certificates are accepted after the server certificate is renewed', async (t) => {
    const { ask, write, service, log } = await gateway(t);
    write('cert.pem', `${server.cert}\n`);
    await service.reload();
    assert.match(log(), /The TLS certificate was replaced/);
    assert.equal(await ask(ANN), 'in');
    assert.match(await ask(issue(named('ann'), OTHERS)), FOREIGN);
  });

  const second = authority('second', TEAM);
  const bad: [what: string, text: string, message: RegExp][] = [
    ['no content', '', /complete certificates in PEM/],
    ['a key', ANN.key as string, /complete certificates in PEM/],
    ['a CA and a key', `${TEAM.pem}${ANN.key}`, /complete certificates in PEM/],
    ['half a certificate', TEAM.pem.slice(0, 200), /complete certificates in PEM/],
    ['a CA and half of another', `${TEAM.pem}${OTHERS.pem.slice(0, 200)}`, /complete certificates in PEM/],
    ['no DER', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n', /cannot be used: error:/],
    [
      'the certificate of a client',
      ANN.cert as string,
      /does not belong to a CA; name those that sign for clients/,
    ],
    ['a CA without its root', second.pem, /without its issuer/],
  ];
  for (const [what, text, message] of bad) {
    it(`is refused with ${what}`, () => {
      const path = join(temporaryDirectory('client-cas-'), 'ca.pem');
      writeFileSync(path, text);
      assert.throws(() => loadClientCas(path), { code: 'config_invalid', message });
    });
  }

  it('leaves the old CAs in force if it is refused on a reload, which is told once', async (t) => {
    const { ask, write, service, log } = await gateway(t);
    write('ca.pem', TEAM.pem.slice(0, 200));
    await service.reload();
    await service.reload();
    assert.equal(log().match(/The new CAs of client certificates cannot be used/g)?.length, 1);
    assert.equal(await ask(ANN), 'in');
    assert.match(await ask(issue(named('ann'), OTHERS)), FOREIGN);
  });
});

it('the TLS pair of a gateway: a bad one is told once and the old one stays; a new one names allowed hosts', async (t) => {
  const { connection, write, service, log } = await gateway(t);
  const next = createTestAuthority('servers').issue(['next']);
  const open = connection();
  /** The status for a page under the name `next`. */
  const asked = async (): Promise<string> => {
    const before = open.received().length;
    open.send('GET /healthz HTTP/1.1\r\nHost: next\r\nOrigin: https://next\r\n\r\n');
    await eventually('an answer', () => open.received().length > before);
    return open.received().slice(before + 9, before + 12);
  };
  assert.equal(await asked(), '403');
  write('key.pem', next.key);
  await service.reload();
  await service.reload();
  assert.equal(log().match(/The new TLS certificate cannot be used, the old one stays/g)?.length, 1);
  assert.equal(await asked(), '403');
  const fresh = connection();
  fresh.send('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
  assert.equal((await answerTo(fresh)).status, 200);
  write('cert.pem', next.cert);
  await service.reload();
  assert.equal(await asked(), '200');
  assert.ok(!log().includes('PRIVATE KEY'));
});

describe('the TLS session of a client', { concurrency: true }, () => {
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    it(`is not resumed with ${version}, so a client is refused once its CA is no longer in the file`, async (t) => {
      const { ask, connection, write, service } = await gateway(t);
      const sessions: Buffer[] = [];
      const options = { ...ANN, minVersion: version, maxVersion: version };
      const first = connection(options);
      first.socket.on('session', (session: Buffer) => sessions.push(session));
      first.send(estimate());
      await first.until(/200 OK/);
      const session = sessions.at(-1) ?? (first.socket as TLSSocket).getSession();
      const again = connect({
        ...{ port: service.port, host: '127.0.0.1', servername: 'localhost', rejectUnauthorized: false },
        ...{ ...options, session },
      });
      t.after(() => again.destroy());
      await once(again, 'secureConnect');
      assert.equal(again.isSessionReused(), false);
      write('ca.pem', OTHERS.pem);
      await service.reload();
      assert.match(await ask({ ...options, session }), FOREIGN);
    });
  }
});

it('bytes that are no certificate have no names', () => {
  for (const bytes of [[], [0x30, 0], [0x30, 0x80], [1, 2, 3]])
    assert.deepEqual(certificateNames(Uint8Array.from(bytes)), []);
});
