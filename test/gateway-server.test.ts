import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { systemClock } from '../lib/clock.ts';
import { parseConfig } from '../lib/config/config.ts';
import { startGatewayServer } from '../lib/gateway-server.ts';
import { createOutbound } from '../lib/network/outbound.ts';
import { createCounters } from '../lib/observe/counters.ts';
import { createLogger } from '../lib/observe/log.ts';
import { createNotices } from '../lib/observe/notices.ts';
import { fakeSession } from './support/doors/gateway.ts';
import { answerTo } from './support/doors/gateway-fixture.ts';
import { rawClient } from './support/doors/raw-client.ts';
import { eventually } from './support/processes/eventually.ts';
import { temporaryDirectory } from './support/processes/temporary-directory.ts';
import { createTestAuthority } from './support/remote/tls-authority.ts';

it('the TLS pair of a gateway: a bad one is told once and the old one stays; a new one names allowed hosts', async (t) => {
  const directory = temporaryDirectory('privatemode-pair-');
  const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  const first = createTestAuthority('servers').issue(['localhost']);
  const next = createTestAuthority('servers').issue(['next']);
  writeFileSync(cert, first.cert);
  writeFileSync(key, first.key);
  const { config } = parseConfig(
    [
      ...[`--tls-cert-path=${cert}`, `--tls-key-path=${key}`, '--listen-address=127.0.0.1', '--port=0'],
      ...['--api-endpoint=localhost:1', '--shutdown-grace=100ms'],
    ],
    {},
  );
  const lines: string[] = [];
  const clock = systemClock;
  const log = createLogger({ format: 'json', level: 20, output: { write: (line) => lines.push(line) } });
  const outbound = createOutbound({}, { connectTimeout: 10_000, clock });
  const counters = createCounters();
  const service = await startGatewayServer(config, {
    ...{ clock, log, outbound, notices: createNotices(log, clock), session: fakeSession() },
    ...{ key: { value: () => undefined }, salt: { shared: undefined }, fd: undefined },
    ...{ metrics: { counters, observe: () => {} }, onPermanent: assert.fail },
  });
  const connection = () => {
    const opened = rawClient(service.port, { servername: 'localhost', rejectUnauthorized: false });
    t.after(() => opened.socket.destroy());
    return opened;
  };
  const open = connection();
  t.after(async () => {
    await service.close();
    await outbound.close();
  });
  /** The status for a page under the name `next`. */
  const asked = async (): Promise<string> => {
    const before = open.received().length;
    open.send('GET /healthz HTTP/1.1\r\nHost: next\r\nOrigin: https://next\r\n\r\n');
    await eventually('an answer', () => open.received().length > before);
    return open.received().slice(before + 9, before + 12);
  };
  assert.equal(await asked(), '403');
  writeFileSync(key, next.key);
  await service.reload();
  await service.reload();
  const told = lines.join('').match(/The new TLS certificate cannot be used, the old one stays/g);
  assert.equal(told?.length, 1);
  assert.equal(await asked(), '403');
  const fresh = connection();
  fresh.send('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
  assert.equal((await answerTo(fresh)).status, 200);
  writeFileSync(cert, next.cert);
  await service.reload();
  assert.equal(await asked(), '200');
  assert.ok(!lines.join('').includes('PRIVATE KEY'));
});
