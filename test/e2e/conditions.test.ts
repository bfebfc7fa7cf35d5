/** Conditions from their causes to the log and /status. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Notice } from '../../lib/observe/notices.ts';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { startStack } from '../support/doors/stack.ts';
import { errno } from '../support/processes/broken-file-system.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const TOKEN = 'ab'.repeat(32);
const CLIENTS = JSON.stringify({ clients: [{ name: 'ann', tokens: [TOKEN], maxConcurrent: 5 }] });

/** The proxy in this process with an admin listener, and what that says. */
async function scene(t: TestContext, flags: readonly string[], apiKey?: string) {
  const port = await freePort();
  const admin = `127.0.0.1:${port}`;
  const stack = await startStack({
    flags: [`--admin-address=${admin}`, ...flags],
    ...(apiKey === undefined ? {} : { apiKey }),
  });
  t.after(() => stack.close());
  const get = async (path: string): Promise<string> => (await fetch(`http://${admin}${path}`)).text();
  const listed = async (): Promise<readonly Notice[]> =>
    (JSON.parse(await get('/status')) as StatusReport).conditions;
  return {
    ...{ stack, admin, get, listed },
    /** The lines of the log about conditions, as `level condition`, `over` where it is over. */
    logged: (): string[] =>
      stack.logLines
        .map((line) => JSON.parse(line) as Record<string, string>)
        .filter(({ condition }) => condition !== undefined)
        .map(({ condition, level, reason }) => `${reason === undefined ? 'over' : level} ${condition}`),
  };
}

type Scene = Awaited<ReturnType<typeof scene>>;

/** /status lists the condition. What the other views make of it is in test/observe/views.test.ts. */
async function holds({ listed }: Scene, id: string, severity: string, words: RegExp): Promise<void> {
  const found = await eventually(`the condition ${id}`, async () =>
    (await listed()).find((condition) => condition.id === id && condition.severity === severity),
  );
  assert.match(`${found.title}: ${found.reason}`, words);
  assert.ok(found.since <= Date.now() && found.since > Date.now() - 60_000);
}

const isOver = ({ listed }: Scene, id: string): Promise<true> =>
  eventually(`the end of ${id}`, async () => (await listed()).every((condition) => condition.id !== id));

describe('a running proxy', { timeout: 600_000 }, () => {
  it('has the condition clients_file_unusable or client_key_unusable while the file or a key in it is unusable', async (t) => {
    const directory = temporaryDirectory('conditions-');
    const [file, key] = [join(directory, 'clients.json'), join(directory, 'ann.key')];
    writeFileSync(file, CLIENTS.replace('"maxConcurrent"', '"apiKey":"@ann.key","maxConcurrent"'));
    writeFileSync(key, 'key-of-ann');
    const proxy = await scene(t, [`--clients=${file}`]);
    assert.deepEqual(await proxy.listed(), []);
    writeFileSync(key, '');
    await holds(
      proxy,
      'client_key_unusable',
      'warning',
      /the old key stays: the API key file .*ann\.key.* is empty/,
    );
    writeFileSync(key, 'key-of-ann');
    await isOver(proxy, 'client_key_unusable');
    renameSync(file, `${file}.away`);
    await holds(
      proxy,
      'clients_file_unusable',
      'critical',
      /what was known stays.*: failed to read .*ENOENT/,
    );
    renameSync(`${file}.away`, file);
    await isOver(proxy, 'clients_file_unusable');
    assert.deepEqual(proxy.logged(), [
      'WARN client_key_unusable',
      'over client_key_unusable',
      'ERROR clients_file_unusable',
      'over clients_file_unusable',
    ]);
  });

  it('has the condition api_key_file_unusable while its API key file is empty', async (t) => {
    const path = join(temporaryDirectory('conditions-'), 'key');
    writeFileSync(path, 'first-key');
    const proxy = await scene(t, [], `@${path}`);
    writeFileSync(path, '');
    proxy.stack.proxy.reload();
    await holds(proxy, 'api_key_file_unusable', 'warning', /the API key file .* is empty/);
    writeFileSync(path, 'first-key');
    proxy.stack.proxy.reload();
    await isOver(proxy, 'api_key_file_unusable');
    assert.deepEqual(proxy.logged(), ['WARN api_key_file_unusable', 'over api_key_file_unusable']);
  });

  it('has the condition own_key_rejected until its API key file gets another key', async (t) => {
    const path = join(temporaryDirectory('conditions-'), 'key');
    writeFileSync(path, 'first-key');
    const proxy = await scene(t, [], `@${path}`);
    const ask = async (): Promise<number> => (await fetch(`${proxy.stack.url}/v1/models`)).status;
    assert.equal(await ask(), 200);
    proxy.stack.simulator.setApiKeys(['second-key']);
    assert.equal(await ask(), 401);
    await eventually('the condition', async () => (await proxy.listed())[0]?.id === 'own_key_rejected');
    writeFileSync(path, 'second-key');
    proxy.stack.proxy.reload();
    await isOver(proxy, 'own_key_rejected');
  });

  it('has the condition own_key_rejected until the key file of the client has another key', async (t) => {
    const directory = temporaryDirectory('conditions-');
    const [file, key] = [join(directory, 'clients.json'), join(directory, 'ann.key')];
    const entry = { name: 'ann', tokens: [hash('sha256', 'token-of-ann')], apiKey: '@ann.key' };
    writeFileSync(file, JSON.stringify({ clients: [entry] }));
    writeFileSync(key, 'key-of-ann');
    const proxy = await scene(t, [`--clients=${file}`]);
    const headers = { authorization: 'Bearer token-of-ann' };
    const ask = async (): Promise<number> =>
      (await fetch(`${proxy.stack.url}/v1/models`, { headers })).status;
    assert.equal(await ask(), 200);
    proxy.stack.simulator.setApiKeys(['another-key']);
    assert.equal(await ask(), 400);
    const condition = await eventually('the condition', async () =>
      (await proxy.listed()).find(({ id }) => id === 'own_key_rejected'),
    );
    assert.match(condition.reason, /401 for the key of the client ann in the file of --clients$/);
    writeFileSync(key, 'another-key');
    proxy.stack.proxy.reload();
    await isOver(proxy, 'own_key_rejected');
  });

  it('has the condition tls_pair_unusable while its TLS pair is unusable; a metric tells how long the certificate lasts', async (t) => {
    const directory = temporaryDirectory('conditions-');
    const path = (name: string): string => join(directory, name);
    const { cert, key } = createTestAuthority('gateway').issue(['localhost']);
    const write = (name: string, text: string): void => writeFileSync(path(name), text);
    write('tls.crt', cert);
    write('tls.key', key);
    const proxy = await scene(t, [`--tls-cert-path=${path('tls.crt')}`, `--tls-key-path=${path('tls.key')}`]);
    const left = /^privatemode_proxy_tls_certificate_expires_seconds (\S+)$/m.exec(
      await proxy.get('/metrics'),
    )?.[1];
    assert.ok(Number(left) > 0, `${left}`);
    write('tls.key', '');
    proxy.stack.proxy.reload();
    const ids = async (): Promise<string[]> => (await proxy.listed()).map(({ id }) => id);
    await eventually('the condition', async () => (await ids()).length > 0);
    assert.deepEqual(await ids(), ['tls_pair_unusable']);
    write('tls.key', key);
    proxy.stack.proxy.reload();
    await isOver(proxy, 'tls_pair_unusable');
    assert.deepEqual(proxy.logged(), ['WARN tls_pair_unusable', 'over tls_pair_unusable']);
  });

  it('has tls_certificate_expired until an expired certificate is replaced; the log names subject and end of the new one', async (t) => {
    const directory = temporaryDirectory('conditions-');
    const path = (name: string): string => join(directory, name);
    const authority = createTestAuthority('gateway');
    const old = authority.issue(['localhost'], { notAfter: new Date(Date.now() - 1_000) });
    writeFileSync(path('tls.crt'), old.cert);
    writeFileSync(path('tls.key'), old.key);
    const proxy = await scene(t, [`--tls-cert-path=${path('tls.crt')}`, `--tls-key-path=${path('tls.key')}`]);
    const [condition] = await proxy.listed();
    assert.deepEqual([condition?.id, condition?.severity], ['tls_certificate_expired', 'critical']);
    assert.match(await proxy.get('/metrics'), /^privatemode_proxy_tls_certificate_expires_seconds -\d/m);
    const next = authority.issue(['localhost']);
    writeFileSync(path('tls.crt'), next.cert);
    writeFileSync(path('tls.key'), next.key);
    proxy.stack.proxy.reload();
    await isOver(proxy, 'tls_certificate_expired');
    const replaced =
      proxy.stack.logLines.find((line) => line.includes('The TLS certificate was replaced')) ?? '';
    assert.match(replaced, /"subject":"[^"]*localhost[^"]*".*"expires":"\d{4}-/);
  });

  it('has the condition receipts_unwritten while the disk takes no receipts, and receipts_lost once some were lost', async (t) => {
    const proxy = await scene(t, ['--receipts']);
    const records = join(proxy.stack.directory, 'workspace/receipts/records');
    const ask = () => askChat(proxy.stack).then((response) => response.text());
    const spoil = (): void => {
      renameSync(records, `${records}.away`);
      writeFileSync(records, 'a file in its place');
    };
    spoil();
    await ask();
    await holds(proxy, 'receipts_unwritten', 'warning', /^Receipts cannot be written, and wait in memory: /);
    rmSync(records);
    renameSync(`${records}.away`, records);
    await isOver(proxy, 'receipts_unwritten');
    assert.deepEqual(proxy.logged(), ['WARN receipts_unwritten', 'over receipts_unwritten']);
    // The file of the day is open: only a write to it can fail.
    const probe = await open(records.replace('records', 'public.pem'));
    t.mock.method(Object.getPrototypeOf(probe), 'write', () => Promise.reject(errno('ENOSPC')));
    await probe.close();
    await ask();
    await proxy.stack.proxy.close();
    const lost = proxy.stack.logLines
      .map((line) => JSON.parse(line))
      .filter(({ reason }) => /lost/.test(reason));
    assert.deepEqual(
      lost.map(({ level, condition, reason }) => [level, condition, reason]),
      [['ERROR', 'receipts_lost', '1 lost since the start']],
    );
  });

  it('has limits_store_away before any request asks the missing store', async (t) => {
    const clients = join(temporaryDirectory('conditions-'), 'clients.json');
    writeFileSync(clients, CLIENTS);
    const port = await freePort();
    const proxy = await scene(t, [
      `--clients=${clients}`,
      `--limits-store=redis://:swordfish@127.0.0.1:${port}`,
    ]);
    await holds(
      proxy,
      'limits_store_away',
      'critical',
      new RegExp(`: 127\\.0\\.0\\.1:${port}: the connection failed \\(ECONNREFUSED\\)$`),
    );
    const store = await startStore(port);
    t.after(() => store.close());
    await isOver(proxy, 'limits_store_away');
    assert.deepEqual(proxy.logged(), ['ERROR limits_store_away', 'over limits_store_away']);
    const log = proxy.stack.logLines.join('');
    assert.ok(!log.includes('swordfish'));
  });

  it('has service_failing from the third failure in a row to the next answer; /readyz?serving is 503', async (t) => {
    const proxy = await scene(t, []);
    const ask = async (model: string): Promise<number> => {
      const response = await askChat(proxy.stack, { model });
      await response.text();
      return response.status;
    };
    const { url } = proxy.stack;
    const probes = (): Promise<number[]> =>
      Promise.all(
        [url, `http://${proxy.admin}`]
          .flatMap((base) => [`${base}/readyz`, `${base}/readyz?serving`])
          .map(async (probe) => (await fetch(probe)).status),
      );
    assert.equal(await ask('sim-echo'), 200);
    const failed = [`reset_before_headers`, 'gateway_status:503', 'status:502'];
    for (const fault of failed) {
      assert.deepEqual(await probes(), [204, 204, 204, 204]);
      assert.ok((await ask(`sim-echo+fault=${fault}`)) >= 502);
    }
    await holds(proxy, 'service_failing', 'critical', /cannot be reached: .*502/);
    assert.deepEqual(await probes(), [204, 503, 204, 503]);
    assert.equal(await ask('sim-echo'), 200);
    await isOver(proxy, 'service_failing');
    assert.deepEqual(await probes(), [204, 204, 204, 204]);
    assert.deepEqual(proxy.logged(), ['ERROR service_failing', 'over service_failing']);
  });

  it('warns at its start if other machines can reach its admin listener, which the log names', async (t) => {
    const port = await freePort();
    const stack = await startStack({ flags: [`--admin-address=0.0.0.0:${port}`] });
    t.after(() => stack.close());
    const log = stack.logLines.join('');
    assert.match(
      log,
      /"level":"WARN".*"msg":"Other machines reach --admin-address 0\.0\.0\.0, which asks for no key"/,
    );
    assert.match(log, new RegExp(`"admin":"http://0\\.0\\.0\\.0:${port}"`));
  });
});

/** A server that runs the script of the limits, as a Redis would that has no counts. */
async function startStore(port: number): Promise<{ close(): void }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      for (const command of bytes.toString().match(/EVAL|AUTH/gi) ?? [])
        socket.write(/EVAL/i.test(command) ? '*2\r\n:0\r\n:0\r\n' : '+OK\r\n');
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  assert.equal((server.address() as AddressInfo).port, port);
  return {
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
