/** The program with --clients, in processes of its own, in front of a simulated deployment. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { openClients } from '../../lib/access/clients.ts';
import { systemClock } from '../../lib/clock.ts';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { KEY_MARK } from '../support/doors/canaries.ts';
import { runCommand } from '../support/processes/command.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

const ANN = `${KEY_MARK}token-of-ann`;
const BOB = `${KEY_MARK}token-of-bob`;
const SALT = 'a literal salt of 32 bytes or more, for all';
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
const client = (name: string, token: string, more: object = {}) => ({
  name,
  tokens: [sha256(token)],
  ...more,
});

describe('--clients without a key of the proxy', { timeout: 600_000 }, () => {
  let here: Remote & { readonly file: string };
  let proxy: Program;
  let admin: string;
  before(async () => {
    const remote = await startRemote({ apiKey: null });
    here = { ...remote, file: join(remote.directory, 'clients.json') };
    for (const name of ['ann', 'bob']) writeFileSync(join(here.directory, `${name}.key`), `key-of-${name}`);
    writeFileSync(here.file, JSON.stringify({ clients: both() }));
    admin = `127.0.0.1:${await freePort()}`;
    const more = [
      ...[`--clients=${here.file}`, '--port=0', `--admin-address=${admin}`, '--log-level=debug'],
      ...['--receipts', '--disable-prompt-cache=false', `--prompt-cache-salt=${SALT}`],
    ];
    proxy = await startProxyProcess([...here.flags, ...more], here.env);
  });
  after(async () => {
    await proxy.stop('SIGKILL');
    await here.close();
  });

  const both = () => [client('ann', ANN, { apiKey: '@ann.key' }), client('bob', BOB, { apiKey: '@bob.key' })];
  const ask = (token: string, stream = false): Promise<Response> => askChat(proxy, { token, stream });
  const statusOf = async (token: string): Promise<number> => {
    const answer = await ask(token);
    await answer.arrayBuffer();
    return answer.status;
  };

  it('forwards the requests of each client with the API key and the salt of that client', async () => {
    const salts: string[] = [];
    for (const [token, key] of [
      [ANN, 'key-of-ann'],
      [BOB, 'key-of-bob'],
    ] as const) {
      assert.match(await (await ask(token, true)).text(), /data: \[DONE\]\n\n$/);
      const { headers } = here.simulator.recorder.requests().at(-1) as { headers: Record<string, string> };
      assert.equal(headers['authorization'], `Bearer ${key}`);
      const opened = JSON.parse(here.simulator.exchanges.last()?.opened ?? '') as { cache_salt: string };
      assert.match(opened.cache_salt, /^[0-9a-f]{64}$/);
      salts.push(opened.cache_salt);
    }
    assert.notEqual(salts[0], salts[1]);
    assert.equal(await statusOf('nobody'), 401);
    assert.deepEqual(here.simulator.exchanges.violations(), []);
  });

  it('reads the file again by itself and on SIGHUP; if that is bad, it keeps its clients and logs why', async () => {
    writeFileSync(here.file, JSON.stringify({ clients: both().slice(0, 1) }));
    await eventually('the file to be read', () => /The clients file.*was read again/.test(proxy.log()));
    assert.deepEqual([await statusOf(BOB), await statusOf(ANN)], [401, 200]);
    writeFileSync(here.file, `{"clients":[{"name":"${ANN}"}]}`);
    proxy.process.kill('SIGHUP');
    await eventually('the words', () => proxy.log().includes('The clients file cannot be used'));
    assert.equal(await statusOf(ANN), 200);
    assert.match(proxy.log(), /clients\[0\]\.tokens: expected a list of at least one/);
    writeFileSync(here.file, JSON.stringify({ clients: both() }));
    proxy.process.kill('SIGHUP');
    await eventually('that it knows Bob', async () => (await statusOf(BOB)) === 200);
  });

  it('refuses a client once `clients revoke` with --admin-address has returned', async () => {
    const revoked = ['clients', 'revoke', 'bob', '--clients', here.file, `--admin-address=${admin}`];
    const { code, stderr } = await runCommand(revoked);
    assert.deepEqual([code, stderr], [0, '']);
    assert.deepEqual([await statusOf(BOB), await statusOf(ANN)], [401, 200]);
    const { clientsFile } = (await (await fetch(`http://${admin}/status`)).json()) as StatusReport;
    assert.equal(clientsFile, sha256(readFileSync(here.file, 'utf8')));
  });

  it('counts each client in /metrics and names it in /status, and shows no digest of a token in either', async () => {
    const shown = async (path: string): Promise<string> => (await fetch(`http://${admin}/${path}`)).text();
    const [metrics, status] = [await shown('metrics'), await shown('status')];
    for (const name of ['privatemode_proxy_requests_total', 'privatemode_proxy_tokens_total'])
      assert.match(metrics, new RegExp(`^${name}\\{.*client="ann".*\\} \\d`, 'm'));
    assert.match(metrics, /^privatemode_proxy_errors_total\{client="",code="client_unknown"\} \d/m);
    const { traffic } = JSON.parse(status) as StatusReport;
    const names = new Set(traffic.finished.map(({ client: name }) => name ?? 'a stranger'));
    assert.deepEqual(names, new Set(['ann', 'bob', 'a stranger']));
    for (const token of [ANN, BOB]) assert.ok(!`${metrics}${status}`.includes(sha256(token)));
  });

  it('names the client in receipts, and no token anywhere', async () => {
    assert.equal(await proxy.stop('SIGTERM'), 0);
    const folder = join(here.directory, 'workspace/receipts');
    const names = readdirSync(folder).filter((name) => name.endsWith('.jsonl'));
    const text = names.map((name) => readFileSync(join(folder, name), 'utf8')).join('');
    assert.match(text, /"client":"ann"[\s\S]*"client":"bob"/);
    for (const written of [text, proxy.log(), JSON.stringify(here.simulator.recorder.requests())]) {
      for (const token of [ANN, BOB])
        assert.ok(!written.includes(token) && !written.includes(sha256(token)), 'a token was written down');
    }
  });
});

it('a file of clients that is bad at the start keeps the program from starting, with an error that says why', async () => {
  const path = join(temporaryDirectory('clients-'), 'clients.json');
  for (const [text, message] of [
    [undefined, /failed to read the file .* of --clients: ENOENT/],
    [JSON.stringify({ clients: [client('ann', ANN, { apiKey: '@no' })] }), /API key file/],
  ] as const) {
    if (text !== undefined) writeFileSync(path, text);
    const notices = { set() {}, clear() {} };
    const how = { needsKeys: false, sharedSalt: undefined, clock: systemClock, notices, changed() {} };
    await assert.rejects(openClients({ path, ...how }), { code: 'config_invalid', message });
  }
  writeFileSync(path, JSON.stringify({ clients: [client('ann', ANN)] }));
  const flags = ['--api-endpoint=127.0.0.1:9', '--port=0', `--clients=${path}`];
  const started = startProxyProcess([...flags, `--workspace=${dirname(path)}`], {});
  await assert.rejects(
    started.then((proxy) => proxy.stop('SIGKILL')),
    /clients\[0\]\.apiKey/,
  );
});
