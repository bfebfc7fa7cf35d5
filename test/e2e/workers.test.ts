/** Several processes behind one port (docs/decisions-build.md 11). */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import type { VerificationDocument } from '../../lib/observe/verification-document.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
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
    const stream = await ask('sim-20x250', true);
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
    assert.deepEqual([finished[0]?.model, finished[0]?.outcome], ['sim-20x250', 'answered']);
    const events = seconds.reduce((sum, { chunks }) => sum + chunks, 0);
    assert.equal(events, 23, 'one for the role, 20 for tokens, one for the end and [DONE]');
    const env = { PRIVATEMODE_PROXY_ADMIN_ADDRESS: admin };
    const { code, stdout, stderr } = await runCommand(['status'], { env });
    assert.deepEqual([code, stderr], [35, '']); // verified, under the roots of a simulator
    assert.match(stdout, /2 workers[\s\S]*sim-20x250/);
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

  it('replaces a worker that dies, while the other one keeps serving', async () => {
    await eventually('answers of both workers', async () => {
      await (await ask('sim-echo')).text();
      return [1, 2].every((worker) => proxy.log().includes(` worker=${worker} `));
    });
    await eventually('metrics of all requests', isAll); // what is not asked for before dies with the worker
    const [victim] = proxy.children();
    process.kill(victim as number, 'SIGKILL');
    await eventually('the end of the worker', () => proxy.log().includes('A worker ended'));
    const answers = await Promise.all(Array.from({ length: 4 }, () => ask('sim-echo')));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    const others = (): number[] => proxy.children().filter((pid) => pid !== victim);
    await eventually('a worker in its place', () => others().length === 2);
  });

  it('counts on from the metrics that a worker had when it died', async () => {
    await eventually('an answer of the worker that replaced another', async () => {
      await (await ask('sim-echo')).text();
      return / worker=3/.test(proxy.log());
    });
    await eventually('metrics of all requests', isAll);
    const [victim] = proxy.children();
    process.kill(victim as number, 'SIGKILL');
    await eventually('the end of the worker', () => !proxy.children().includes(victim as number));
    assert.deepEqual(await counted(), [asked, asked]);
    await (await ask('sim-echo')).text();
    await eventually('one more', isAll);
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

describe('a proxy with --workers 2 and a configured key', { timeout: 600_000 }, () => {
  it('becomes ready even if the session is verified before the workers listen', async () => {
    const remote = await startRemote();
    const proxy = await startProxyProcess([...remote.flags, '--workers=2', '--port=0'], remote.env);
    try {
      await eventually('a proxy that is ready', async () => {
        const { status } = await fetch(`${proxy.url}/readyz`, { headers: { connection: 'close' } });
        return status === 204;
      });
    } finally {
      await proxy.stop('SIGKILL');
      await remote.close();
    }
  });
});

describe('a proxy with --workers 2 and a service that is rejected', { timeout: 600_000 }, () => {
  it('answers 400 attestation_failed from every worker, even while attestation gets 503, until the service passes', async (t) => {
    const remote = await startRemote({ faults: { 'secret-expired-certificate': true } });
    const { simulator, flags, env } = remote;
    const proxy = await startProxyProcess([...flags, '--workers=2', '--port=0'], env);
    t.after(async () => {
      await proxy.stop('SIGKILL');
      await remote.close();
    });
    /** Statuses and codes of six requests, each on a connection of its own, so that every worker is asked. */
    const answers = async (path: string, body?: object): Promise<string[]> => {
      const asked = Array.from({ length: 6 }, async () => {
        const init = { method: 'POST', body: JSON.stringify(body) };
        const headers = { 'content-type': 'application/json', connection: 'close' };
        const response = await fetch(proxy.url + path, { ...(body && init), headers });
        const text = await response.text();
        const retry = response.headers.get('x-should-retry');
        const clock = text.includes('Check the clock of this machine first');
        return `${response.status} ${response.headers.get('privatemode-proxy-error')} ${retry} ${clock}`;
      });
      return [...new Set(await Promise.all(asked))];
    };
    const chat = { model: 'sim-echo', messages: [{ role: 'user', content: 'hello' }] };

    assert.deepEqual(await answers('/v1/chat/completions', chat), ['400 attestation_failed false true']);
    simulator.faults.set('attest-status', 503);
    await delay(1_000);
    assert.deepEqual(await answers('/v1/chat/completions', chat), ['400 attestation_failed false true']);
    assert.deepEqual(await answers('/readyz'), ['503 attestation_failed null false']);
    assert.equal(simulator.counts['inference'], 0);
    simulator.faults.clear();
    const refused = async (): Promise<boolean> =>
      (await answers('/v1/chat/completions', chat))[0]?.startsWith('400') ?? false;
    await eventually('a service that passes', async () => !(await refused()));
    assert.deepEqual(await answers('/readyz'), ['204 null null false']);
  });
});

describe('a proxy with --workers 2 whose workers end and cannot start again', { timeout: 600_000 }, () => {
  it('logs why, has the condition workers_missing and is not ready, until they can', async (t) => {
    const remote = await startRemote();
    t.after(() => remote.close());
    const clients = join(remote.directory, 'clients.json');
    const usable = JSON.stringify({ clients: [{ name: 'ann', tokens: ['ab'.repeat(32)] }] });
    writeFileSync(clients, usable);
    const admin = `127.0.0.1:${await freePort()}`;
    const flags = [
      '--workers=2',
      '--port=0',
      `--clients=${clients}`,
      `--admin-address=${admin}`,
      '--receipts',
    ];
    const proxy = await startProxyProcess([...remote.flags, ...flags], remote.env);
    t.after(() => proxy.stop('SIGKILL'));
    const readyz = async (): Promise<string> => {
      const response = await fetch(`http://${admin}/readyz`);
      return `${response.status} ${await response.text()}`;
    };
    const conditions = async () =>
      ((await (await fetch(`http://${admin}/status`)).json()) as StatusReport).conditions
        .filter(({ severity }) => severity !== 'info')
        .map(({ id, severity, message }) => `${id} ${severity} ${message}`);
    await eventually('readiness', async () => (await readyz()) === '204 ');
    writeFileSync(clients, '{');
    for (const pid of proxy.children()) process.kill(pid, 'SIGKILL');
    const line = (text: string): Promise<string> =>
      eventually(text, () =>
        proxy
          .log()
          .split('\n')
          .slice(0, -1)
          .find((found) => found.includes(text)),
      );
    const why = /clients/;
    const failed = await line('A worker could not start');
    assert.ok(failed.includes(' code=config_invalid ') && failed.includes(' remedy='), failed);
    assert.match(failed, why);
    await line('A worker ended before it listened" code=1 ');
    assert.equal(await readyz(), '503 verified: no process accepts requests\n');
    const held = (await conditions()).filter((condition) => !condition.startsWith('receipts_lost'));
    assert.equal(held.length, 1, held.join('\n'));
    assert.match(
      held[0] ?? '',
      /^workers_missing critical Worker processes are missing: 0 of 2 listen: config_invalid: /,
    );
    assert.match(held[0] ?? '', why);
    writeFileSync(clients, usable);
    await eventually('readiness', async () => (await readyz()) === '204 ');
    await eventually('both workers', async () => !(await conditions()).join().includes('workers_missing'));
    await line('All worker processes listen again');
    assert.equal(await proxy.stop('SIGTERM'), 0);
  });
});

describe('a proxy with --workers 2 whose files cannot be used any more', { timeout: 600_000 }, () => {
  it('replaces workers that end, and they use the settings and the key from its start', async (t) => {
    const remote = await startRemote();
    t.after(() => remote.close());
    const file = (name: string, content: string | Uint8Array): string => {
      const path = join(remote.directory, name);
      writeFileSync(path, content);
      return path;
    };
    const key = file('key.txt', CANARY_KEY);
    const salt = file('salt.txt', 's'.repeat(32));
    const authorities = file('authorities.pem', readFileSync(remote.env['SSL_CERT_FILE'] as string));
    const flags = remote.flags.filter((flag) => !flag.startsWith('--api-key'));
    const proxy = await startProxyProcess(
      [
        ...flags,
        `--api-key=@${key}`,
        '--disable-prompt-cache=false',
        `--prompt-cache-salt=@${salt}`,
        '--workers=2',
        `--port=${await freePort()}`, // 0 would be another one for the new workers
      ],
      { ...remote.env, SSL_CERT_FILE: authorities },
    );
    t.after(() => proxy.stop('SIGKILL'));
    for (const path of [key, salt, authorities, join(remote.directory, 'manifest.json')])
      writeFileSync(path, '');
    const first = proxy.children();
    for (const pid of first) process.kill(pid, 'SIGKILL');
    await eventually('an answer of a new worker', async () => {
      // A connection that the primary hands to a worker which is dying gets no answer.
      const answer = await askChat(proxy, { signal: AbortSignal.timeout(2_000) }).catch(() => undefined);
      await answer?.text();
      assert.doesNotMatch(proxy.log(), /^Error: |could not start/m);
      return answer?.status === 200 && / worker=[34] /.test(proxy.log());
    });
    assert.equal(await proxy.stop('SIGTERM'), 0);
  });
});

describe('a proxy with --workers 2 on a socket of systemd', { timeout: 600_000 }, () => {
  it('ends with 1 when its last worker has ended, and serves again when systemd restarts it', async (t) => {
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
    await service.start();
    assert.equal(await ask(), 200);
    assert.equal(await service.stop(), 0);
  });
});
