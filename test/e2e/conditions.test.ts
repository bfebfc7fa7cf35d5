import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Notice } from '../../lib/observe/notices.ts';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
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
  it('has a condition while a file that it follows is unusable, and the old content stays in force', async (t) => {
    const directory = temporaryDirectory('conditions-');
    const path = (name: string): string => join(directory, name);
    const authority = createTestAuthority('gateway');
    const next = authority.issue(['localhost']);
    const good: Record<string, string> = {
      'clients.json': CLIENTS.replace('"maxConcurrent"', '"apiKey":"@ann.key","maxConcurrent"'),
      ...{ 'ann.key': 'key-of-ann', 'api.key': 'first-key', 'tls.crt': next.cert, 'tls.key': next.key },
    };
    const write = (files: Readonly<Record<string, string>>): void => {
      for (const [name, text] of Object.entries(files)) {
        writeFileSync(path('new'), text);
        renameSync(path('new'), path(name)); // the proxy must not read a file that is half written
      }
    };
    const expired = authority.issue(['localhost'], { notAfter: new Date(Date.now() - 1_000) });
    write({ ...good, 'tls.crt': expired.cert, 'tls.key': expired.key });
    const tls = [`--tls-cert-path=${path('tls.crt')}`, `--tls-key-path=${path('tls.key')}`];
    const proxy = await scene(t, [`--clients=${path('clients.json')}`, ...tls], `@${path('api.key')}`);
    const end = async () =>
      Number(
        /^privatemode_proxy_tls_certificate_expires_seconds (\S+)$/m.exec(await proxy.get('/metrics'))?.[1],
      );
    await holds(proxy, 'tls_certificate_expired', 'critical', /localhost.* expired on/);
    assert.ok((await end()) < 0);
    write(good);
    proxy.stack.proxy.reload();
    await isOver(proxy, 'tls_certificate_expired');
    assert.ok((await end()) > 0);
    for (const [name, id, severity, words] of [
      ['ann.key', 'client_key_unusable', 'warning', /the old key stays: .*ann\.key.* is empty/],
      ['clients.json', 'clients_file_unusable', 'critical', /stays.*: --clients: the file is empty/],
      ['api.key', 'api_key_file_unusable', 'warning', /the API key file .* is empty/],
      ['tls.key', 'tls_pair_unusable', 'warning', /tls\.key/],
    ] as const) {
      write({ [name]: '' });
      proxy.stack.proxy.reload();
      await holds(proxy, id, severity, words);
      write(good);
      proxy.stack.proxy.reload();
      await isOver(proxy, id);
      const level = severity === 'critical' ? 'ERROR' : 'WARN';
      assert.deepEqual(proxy.logged().slice(-2), [`${level} ${id}`, `over ${id}`]);
    }
  });

  it("has the condition own_key_rejected, which names a client's key, until its key file has another key", async (t) => {
    const directory = temporaryDirectory('conditions-');
    const [file, key] = [join(directory, 'clients.json'), join(directory, 'ann.key')];
    const ann = { name: 'ann', tokens: [hash('sha256', 'token-of-ann')], apiKey: '@ann.key' };
    writeFileSync(file, JSON.stringify({ clients: [ann] }));
    writeFileSync(key, 'key-of-ann');
    const proxy = await scene(t, [`--clients=${file}`]);
    proxy.stack.simulator.setApiKeys([CANARY_KEY]);
    assert.equal((await askChat(proxy.stack, { token: 'token-of-ann' })).status, 400);
    await holds(proxy, 'own_key_rejected', 'critical', /401 for the key of the client ann in .*--clients$/);
    assert.equal((await fetch(`${proxy.stack.url}/readyz`)).status, 204, 'nothing authenticates that 401');
    writeFileSync(key, CANARY_KEY);
    proxy.stack.proxy.reload();
    await isOver(proxy, 'own_key_rejected');
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
    await holds(
      proxy,
      'receipts_unwritten',
      'warning',
      /^Receipts cannot be written, and wait in memory: a restart loses them: /,
    );
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
    const told = lost.map(({ level, condition, reason }) => [level, condition, reason]);
    assert.deepEqual(told, [['ERROR', 'receipts_lost', '1 lost since the start']]);
  });

  it('has service_failing from the third failure in a row to the next answer; /readyz?serving is 503', async (t) => {
    const proxy = await scene(t, []);
    const ask = async (model: string): Promise<number> => (await askChat(proxy.stack, { model })).status;
    const probes = (): Promise<number[]> =>
      Promise.all(
        [proxy.stack.url, `http://${proxy.admin}`]
          .flatMap((base) => [`${base}/readyz`, `${base}/readyz?serving`])
          .map(async (probe) => (await fetch(probe)).status),
      );
    assert.equal(await ask('sim-echo'), 200);
    for (const fault of ['reset_before_headers', 'gateway_status:503', 'status:502']) {
      assert.deepEqual(await probes(), [204, 204, 204, 204]);
      assert.ok((await ask(`sim-echo+fault=${fault}`)) >= 502);
    }
    await holds(proxy, 'service_failing', 'critical', /cannot be reached: .*502/);
    assert.deepEqual(await probes(), [204, 503, 204, 503]);
    assert.equal(await ask('sim-echo'), 200);
    await isOver(proxy, 'service_failing');
    assert.deepEqual(proxy.logged(), ['ERROR service_failing', 'over service_failing']);
  });
});
