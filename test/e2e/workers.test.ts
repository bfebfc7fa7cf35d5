/** Several processes behind one port (docs/decisions-build.md 11). */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Condition } from '../../lib/observe/conditions.ts';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import type { VerificationDocument } from '../../lib/observe/verification-document.ts';
import { checkReceipts } from '../../lib/receipts/check-receipts.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { assertEveryView } from '../support/doors/every-view.ts';
import { wrongInVerification } from '../support/doors/verification-schema.ts';
import { createActivatedService } from '../support/processes/activated-service.ts';
import { runCommand } from '../support/processes/command.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { ROOT } from '../support/processes/tools.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

describe('a proxy with --workers 2', { timeout: 600_000 }, () => {
  let remote: Remote;
  let proxy: Program;
  let admin: string;
  before(async () => {
    remote = await startRemote({ apiKey: null });
    admin = `127.0.0.1:${await freePort()}`;
    const observed = [`--admin-address=${admin}`, '--expose-verification'];
    proxy = await startProxyProcess(
      [
        ...remote.flags,
        '--workers=2',
        '--port=0',
        '--shutdown-grace=60s',
        '--max-buffered-bytes=200000000',
        ...observed,
      ],
      remote.env,
    );
  });
  after(async () => {
    await proxy.stop('SIGKILL');
    await remote.close();
  });

  let asked = 0;
  const ask = (model: string, stream = false): Promise<Response> => {
    asked += 1;
    return askChat(proxy, { model, stream, token: 'some-key' });
  };

  /** One connection each, so that every worker is asked. */
  const verifications = (): Promise<VerificationDocument[]> =>
    Promise.all(
      Array.from({ length: 6 }, async () => {
        const response = await fetch(`${proxy.url}/verification`, { headers: { connection: 'close' } });
        assert.equal(response.status, 200);
        return (await response.json()) as VerificationDocument;
      }),
    );

  it('shows from each worker a document with verified: false before the first key', async () => {
    for (const document of await verifications()) {
      assert.deepEqual(wrongInVerification(document), []);
      assert.deepEqual([document.verified, document.epoch, document.verdict], [false, null, null]);
    }
  });

  it("attests once, with the first client's key, for all workers", async () => {
    assert.equal(proxy.children().length, 2);
    const answers = await Promise.all(Array.from({ length: 8 }, () => ask('sim-echo')));
    assert.deepEqual(
      answers.map(({ status }) => status),
      Array.from({ length: 8 }, () => 200),
    );
    const secrets = new Set(answers.map(({ headers }) => headers.get('privatemode-proxy-secret-id')));
    assert.equal(secrets.size, 1);
    assert.equal(remote.simulator.counts['attest'], 1);
    assert.equal(remote.simulator.counts['secret'], 1);
  });

  it('renews a secret that the service forgot once for all workers', async () => {
    remote.simulator.secrets.dropAll();
    const answers = await Promise.all(Array.from({ length: 6 }, () => ask('sim-echo')));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    assert.equal(remote.simulator.counts['secret'], 2);
  });

  it('adds the metrics of all workers', async () => {
    const metrics = async (): Promise<string> => (await fetch(`http://${admin}/metrics`)).text();
    // A worker that takes longer than a second to tell its own is left out.
    const all = /privatemode_proxy_requests_total\{route="chat",method="POST",code="200"\} 14\n/;
    await eventually('the requests of both workers', async () => all.test(await metrics()));
    const text = await metrics();
    assert.match(text, /privatemode_proxy_manifest_info\{digest="[0-9a-f]{64}"\} 1\n/);
    assert.match(text, /^privatemode_proxy_buffered_bytes_limit 200000000$/m);
    assert.match(text, /^privatemode_proxy_buffered_bytes_ratio 0$/m);
  });

  it('shows the same verification document from each worker', async () => {
    const digests = new Set<string | undefined>();
    for (const document of await verifications()) {
      assert.deepEqual(wrongInVerification(document), []);
      const { verified, epoch, chain, manifests } = document;
      digests.add(epoch?.verdictSha256);
      assert.deepEqual([verified, manifests.length], [true, 1]);
      assert.deepEqual([...new Set(chain.map(({ outcome }) => outcome))], ['pass']);
    }
    assert.equal(digests.size, 1);
  });

  it('adds the traffic of all workers in /status and in the command status', async () => {
    const stream = await ask('sim-20x100', true);
    const status = async (): Promise<StatusReport> =>
      (await fetch(`http://${admin}/status`)).json() as Promise<StatusReport>;
    const during = await eventually('the stream in the status', async () => {
      const report = await status();
      return report.traffic.inFlight > 0 && report;
    });
    assert.deepEqual([during.traffic.inFlight, during.workers, during.standing.state], [1, 2, 'verified']);
    await stream.text();
    const { finished, seconds } = await eventually('the end of the stream in the status', async () => {
      const { traffic } = await status();
      return traffic.inFlight === 0 && traffic.finished.length >= 15 && traffic;
    });
    assert.equal(finished.length, 15);
    assert.deepEqual([finished[0]?.model, finished[0]?.outcome], ['sim-20x100', 'answered']);
    const events = seconds.reduce((sum, { chunks }) => sum + chunks, 0);
    assert.equal(events, 23, 'one for the role, 20 for tokens, one for the end and [DONE]');
    const env = { PRIVATEMODE_PROXY_ADMIN_ADDRESS: admin };
    const { code, stdout, stderr } = await runCommand(['status'], { env });
    assert.deepEqual([code, stderr], [35, '']); // verified, under the roots of a simulator
    assert.match(stdout, /2 workers[\s\S]*sim-20x100/);
  });

  /** Requests by the sums of a counter and of a histogram. */
  const counted = async (): Promise<number[]> => {
    const text = await (await fetch(`http://${admin}/metrics`)).text();
    const sum = (series: RegExp): number =>
      Array.from(text.matchAll(series), ([, value]) => Number(value)).reduce((a, b) => a + b, 0);
    return [
      sum(/^privatemode_proxy_requests_total\{route="chat",.*\} (\d+)$/gm),
      sum(/^gen_ai_client_operation_duration_seconds_count\{.*\} (\d+)$/gm),
    ];
  };
  const isAll = async (): Promise<boolean> => (await counted()).every((count) => count === asked);

  it('replaces a worker that dies, while the other one serves, and counts on from the metrics that it had', async () => {
    await eventually('answers of both workers', async () => {
      await (await ask('sim-echo')).text();
      return [1, 2].every((worker) => proxy.log().includes(` worker=${worker} `));
    });
    await eventually('metrics of all requests', isAll); // what is not asked for before dies with the worker
    const [victim] = proxy.children();
    process.kill(victim as number, 'SIGKILL');
    await eventually('the end of the worker', () => proxy.log().includes('A worker ended'));
    assert.deepEqual(await counted(), [asked, asked]);
    const answers = await Promise.all(Array.from({ length: 4 }, () => ask('sim-echo')));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    const others = (): number[] => proxy.children().filter((pid) => pid !== victim);
    await eventually('a worker in its place', () => others().length === 2);
    await eventually('metrics of all requests', isAll);
  });

  it('lets streams finish on SIGTERM, and ends with 0', async () => {
    const answer = await ask('sim-20x50', true);
    const toldAt = performance.now();
    const stopped = proxy.stop('SIGTERM');
    const text = await answer.text();
    assert.match(text, /data: \[DONE\]\n\n$/);
    assert.equal(await stopped, 0);
    assert.ok(performance.now() - toldAt < 30_000, 'no worker had to be waited for');
    const history = readFileSync(join(remote.directory, 'workspace/manifests/log.txt'), 'utf8');
    assert.equal(history.trim().split('\n').length, 1);
  });
});

describe('a proxy with --workers 2, a key, clients and receipts', { timeout: 600_000 }, () => {
  const TOKEN = 'token-of-ann';
  const CLIENTS = JSON.stringify({ clients: [{ name: 'ann', tokens: [hash('sha256', TOKEN)] }] });
  let remote: Remote;
  let proxy: Program;
  let admin: number;
  let receipts: string;
  const file = (name: string): string => join(remote.directory, name);
  /** In one step: a worker that reads between the two steps of a write finds an empty file. */
  const write = (name: string, content: string | Uint8Array): void => {
    writeFileSync(file(`${name}.new`), content);
    renameSync(file(`${name}.new`), file(name));
  };
  before(async () => {
    remote = await startRemote({ faults: { 'secret-expired-certificate': true } });
    write('clients.json', CLIENTS);
    write('key.txt', CANARY_KEY);
    write('salt.txt', 's'.repeat(32));
    write('authorities.pem', readFileSync(remote.env['SSL_CERT_FILE'] as string));
    receipts = file('workspace/receipts');
    admin = await freePort();
    const flags = [
      `--api-key=@${file('key.txt')}`,
      '--disable-prompt-cache=false',
      `--prompt-cache-salt=@${file('salt.txt')}`,
      `--clients=${file('clients.json')}`,
      '--workers=2',
      '--receipts',
      `--port=${await freePort()}`, // 0 would be another one for new workers if none listens
      `--admin-address=127.0.0.1:${admin}`,
      '--shutdown-grace=2s',
    ];
    proxy = await startProxyProcess(
      [...remote.flags.filter((flag) => !flag.startsWith('--api-key')), ...flags],
      { SSL_CERT_FILE: file('authorities.pem') },
    );
  });
  after(async () => {
    await proxy.stop('SIGKILL');
    await remote.close();
  });

  let asked = 0;
  const ask = (model = 'sim-echo', stream = false): Promise<Response> => {
    asked += 1;
    return askChat(proxy, { model, stream, token: TOKEN });
  };
  /** Status, code and x-should-retry of six requests, so that every worker is asked. */
  const answers = async (send: () => Promise<Response>): Promise<string[]> => {
    const all = Array.from({ length: 6 }, async () => {
      const response = await send();
      const { headers, status } = response;
      await response.text();
      return `${status} ${headers.get('privatemode-proxy-error')} ${headers.get('x-should-retry')}`;
    });
    return [...new Set(await Promise.all(all))];
  };
  const readyz = (): Promise<Response> => fetch(`${proxy.url}/readyz`, { headers: { connection: 'close' } });
  const conditions = async (): Promise<readonly Condition[]> =>
    ((await (await fetch(`http://127.0.0.1:${admin}/status`)).json()) as StatusReport).conditions.filter(
      ({ severity }) => severity !== 'info',
    );
  const ids = async (): Promise<string> => (await conditions()).map(({ id }) => id).join();
  const line = (text: string): Promise<string> =>
    eventually(text, () =>
      proxy
        .log()
        .split('\n')
        .slice(0, -1)
        .find((found) => found.includes(text)),
    );
  const receiptLines = (): { readonly type: string; readonly id: string; readonly code: unknown }[] =>
    readdirSync(receipts)
      .filter((name) => name.endsWith('.jsonl'))
      .flatMap((name) => readFileSync(join(receipts, name), 'utf8').split('\n').slice(0, -1))
      .map((text) => JSON.parse(text));

  it('answers 400 attestation_failed from every worker, even while attestation gets 503, until the service passes', async () => {
    const { simulator } = remote;
    const refused = ['400 attestation_failed false'];
    assert.deepEqual(await answers(ask), refused);
    await assertEveryView(proxy, admin, 'rejected');
    simulator.faults.set('attest-status', 503);
    const attested = simulator.counts['attest'] ?? 0;
    assert.deepEqual(await answers(ask), refused);
    await eventually('a failed attestation', () => (simulator.counts['attest'] ?? 0) > attested);
    assert.deepEqual(await answers(ask), refused);
    assert.deepEqual(await answers(readyz), ['503 attestation_failed null']);
    assert.equal(simulator.counts['inference'], 0);
    simulator.faults.clear();
    await eventually('a service that passes', async () => (await ask()).status === 200);
    await eventually('readiness', async () => (await answers(readyz)).join() === '204 null null');
    await assertEveryView(proxy, admin, 'verified');
  });

  it('has one condition, logged once, for a file that both workers read', async () => {
    write('clients.json', '{"clients": [');
    await eventually('the condition', async () => (await ids()) === 'clients_file_unusable');
    write('clients.json', CLIENTS);
    await eventually('its end', async () => (await ids()) === '');
    const lines = proxy.log().match(/The clients file (?:cannot|can) be used[^\n]*/g) ?? [];
    assert.equal(lines.length, 2, lines.join('\n'));
  });

  it('has the conditions workers_missing and receipts_lost, and is not ready, if all workers end and none can start', async () => {
    await eventually('answers of both workers', async () => {
      await (await ask()).text();
      return [1, 2].every((worker) => proxy.log().includes(` worker=${worker} `));
    });
    // A worker hands over a receipt after its answer: what it still holds when it is killed is not written.
    await eventually(
      'all receipts',
      () => receiptLines().filter(({ type }) => type === 'request').length === asked,
    );
    write('clients.json', '{');
    for (const pid of proxy.children()) process.kill(pid, 'SIGKILL');
    const why = /clients/;
    const failed = await line('A worker could not start');
    assert.ok(failed.includes(' code=config_invalid ') && failed.includes(' remedy='), failed);
    assert.match(failed, why);
    await line('A worker ended before it listened" code=1 ');
    const ready = await fetch(`http://127.0.0.1:${admin}/readyz`);
    assert.deepEqual([ready.status, await ready.text()], [503, 'verified: no process accepts requests\n']);
    const held = (await conditions()).toSorted((a, b) => (a.id < b.id ? -1 : 1));
    assert.deepEqual(
      held.map(({ id, severity }) => `${id} ${severity}`),
      ['receipts_lost warning', 'workers_missing critical'],
    );
    const [lost, missing] = held;
    assert.equal(
      lost?.message,
      'Receipts were lost: perhaps some, with a worker that ended before it had handed over its last ones',
    );
    assert.match(lost?.remedy ?? '', /^The log says how the worker ended; /, 'the disk need not be repaired');
    assert.match(
      missing?.message ?? '',
      /^Worker processes are missing: 0 of 2 listen: config_invalid: .*clients/,
    );
  });

  it('starts workers again as soon as they can, and they use the settings and the key from its start', async () => {
    for (const name of ['key.txt', 'salt.txt', 'authorities.pem', 'manifest.json']) write(name, '');
    write('clients.json', CLIENTS);
    await line('All worker processes listen again');
    await eventually('both workers', async () => !(await ids()).includes('workers_missing'));
    assert.equal((await fetch(`http://127.0.0.1:${admin}/readyz`)).status, 204);
    assert.deepEqual(await answers(ask), ['200 null null']);
    assert.doesNotMatch(proxy.log(), /^Error: /m);
  });

  it('has one valid chain of receipts, up to the request that its end cuts off', async () => {
    const tooLong = await ask('sim-20x1000', true);
    const stopped = proxy.stop('SIGTERM');
    await assert.rejects(tooLong.text());
    assert.equal(await stopped, 0);
    assert.match(proxy.log(), /msg="Request ended".* outcome=broken_off .*code=shutting_down/);
    const [, id] = tooLong.headers.get('privatemode-proxy-receipt')?.split('/') ?? [];
    assert.equal(receiptLines().find((receipt) => receipt.id === id)?.code, 'shutting_down');
    const { ok, instances, requests, findings } = await checkReceipts(receipts);
    assert.deepEqual([ok, instances, requests], [true, 1, asked]);
    assert.deepEqual(
      [...new Set(findings.map(({ message }) => message))],
      ['an unknown number of receipts before this line were not written'],
    );
    assert.equal(receiptLines().at(-1)?.type, 'closed');
    assert.match(proxy.log(), /Each request gets a receipt, signed with this key/);
  });
});

describe('a proxy with --workers 2 on a socket of systemd', { timeout: 600_000 }, () => {
  it('ends with 1 and says why when its last worker has ended', async (t) => {
    const remote = await startRemote();
    t.after(() => remote.close());
    const program = join(ROOT, 'bin/privatemode-proxy.ts');
    const flags = [...remote.flags, '--workers=2', '--shutdown-grace=1s'];
    const service = await createActivatedService([process.execPath, program, ...flags], remote.env);
    t.after(() => service.close());
    const ask = async (): Promise<number> =>
      (await fetch(`http://127.0.0.1:${service.port}/v1/models`, { headers: { connection: 'close' } }))
        .status;
    const answers = (...workers: number[]): Promise<true> =>
      eventually(`answers of the workers ${workers}`, async () => {
        assert.equal(await ask(), 200);
        return workers.every((worker) => service.log().includes(` worker=${worker} `));
      });
    await service.start();
    await answers(1, 2);
    const [first] = service.workers();
    process.kill(first as number, 'SIGKILL');
    await eventually('the end of a worker', () => service.log().includes('A worker ended'));
    await answers(3);
    for (const pid of service.workers()) process.kill(pid, 'SIGKILL');
    await eventually('the last line', () => /^Error: .*\n$/m.test(service.log()));
    assert.equal(await service.stop('0'), 1);
    assert.match(
      service.log(),
      /^Error: listening on the socket of the service manager: node:cluster closed it with the last worker\. .+\.$/m,
    );
  });
});
