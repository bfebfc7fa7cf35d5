/** The program with --clients, in processes of its own, in front of a simulated deployment. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { openClients } from '../../lib/access/clients.ts';
import { systemClock } from '../../lib/clock.ts';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { KEY_MARK } from '../support/doors/canaries.ts';
import { runCommand } from '../support/processes/command.ts';
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
      ...[`--clients=${here.file}`, '--port=0', `--admin-address=${admin}`],
      ...['--disable-prompt-cache=false', `--prompt-cache-salt=${SALT}`],
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

  it('refuses a client once `clients revoke` with --admin-address has returned', async () => {
    const revoked = ['clients', 'revoke', 'bob', '--clients', here.file, `--admin-address=${admin}`];
    const { code, stderr } = await runCommand(revoked);
    assert.deepEqual([code, stderr], [0, '']);
    assert.deepEqual([await statusOf(BOB), await statusOf(ANN)], [401, 200]);
    const { clientsFile } = (await (await fetch(`http://${admin}/status`)).json()) as StatusReport;
    assert.equal(clientsFile, sha256(readFileSync(here.file, 'utf8')));
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
