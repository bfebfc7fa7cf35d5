import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdirSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import type { Times } from '../../lib/times.ts';
import { answerTo, chatBody, post } from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { serveNobody } from '../support/remote/loopback.ts';
import { deploymentFlags, type Remote, startRemote } from '../support/remote/remote.ts';

/** A grace period so long that no load on the machine is taken for it. */
const GRACE = '60s';

/** ms for what does not wait for that. */
const WITHOUT_IT = 30_000;

describe('shutdown of the program', { concurrency: true, timeout: 600_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  it('ends after SIGTERM although the service answers no TLS handshake and nobody reads its log, and exits with 0', async (t) => {
    const { port, open } = await serveNobody(t);
    const fill = "process.once('SIGTERM', () => process.stderr.write('x'.repeat(2 ** 20)))";
    const proxy = await startProxyProcess(
      [
        ...deploymentFlags(port, remote.directory, 'workspace-mute'),
        ...['--api-key=x', '--port=0', `--shutdown-grace=${GRACE}`],
      ],
      { ...remote.env, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(fill)}` },
      { times: { connectTimeout: 60_000 } },
    );
    t.after(() => proxy.process.kill('SIGKILL'));
    await eventually('a connection', () => open.size > 0);
    proxy.process.stderr?.pause();
    proxy.process.kill('SIGTERM');
    await eventually('its end', () => proxy.process.exitCode !== null, WITHOUT_IT);
    assert.equal(proxy.process.exitCode, 0);
  });

  it('ends a stream with shutting_down if SIGTERM follows SIGINT, with its receipt and its line in the log', async () => {
    const workspace = join(remote.directory, 'workspace-stream');
    const flags = ['--port=0', `--workspace=${workspace}`, `--shutdown-grace=${GRACE}`, '--receipts'];
    const proxy = await startProxyProcess([...remote.flags, ...flags], remote.env);
    const client = rawClient(Number(new URL(proxy.url).port));
    client.send(post(chatBody({ model: 'sim-999x100', stream: true })));
    await client.until(/t1/, 15_000);
    const begun = performance.now();
    const stopped = proxy.stop('SIGINT');
    await eventually('the beginning of the shutdown', () => proxy.log().includes('Waiting for responses'));
    proxy.process.kill('SIGTERM');
    assert.equal(await stopped, 0, proxy.log());
    assert.ok(performance.now() - begun < WITHOUT_IT);
    const answer = await answerTo(client);
    assert.equal(answer.complete, false);
    assert.match(answer.body, /"code":"shutting_down"\}\}\n\n$/);
    assert.match(proxy.log(), /msg="Request ended".* outcome=broken_off .* code=shutting_down/);
    const receipts = join(workspace, 'receipts');
    const [file] = readdirSync(receipts).filter((name) => name.endsWith('.jsonl'));
    const lines = readFileSync(join(receipts, file as string), 'utf8')
      .trimEnd()
      .split('\n');
    const told = lines.map((line) => JSON.parse(line) as { type: string; code?: string });
    assert.deepEqual(
      told.map(({ type, code }) => [type, code]),
      [
        ['opened', undefined],
        ['epoch', undefined],
        ['request', 'shutting_down'],
        ['closed', undefined],
      ],
    );
  });

  /**
   * The program, while its only thread for files reads a pipe that gets no data. As with a disk that does not
   * answer, no receipt can be written, and process.exit() waits for the thread.
   */
  async function withHangingDisk(
    t: TestContext,
    name: string,
    flags: readonly string[],
    times: Partial<Times>,
  ): Promise<Program> {
    const workspace = join(remote.directory, `workspace-${name}`);
    const log = join(workspace, 'manifests/log.txt');
    mkdirSync(dirname(log), { recursive: true });
    execFileSync('mkfifo', [log]);
    const own = [`--workspace=${workspace}`, '--shutdown-grace=1s', ...flags];
    const env = { ...remote.env, UV_THREADPOOL_SIZE: '1' };
    const proxy = await startProxyProcess([...remote.flags, '--port=0', ...own], env, { times });
    t.after(() => proxy.stop('SIGKILL'));
    const pipe = await eventually('a reader of the pipe', () => {
      try {
        return openSync(log, constants.O_WRONLY | constants.O_NONBLOCK);
      } catch {
        return undefined;
      }
    });
    t.after(() => closeSync(pipe));
    return proxy;
  }
  const ended = ({ process }: Program): boolean => process.exitCode !== null || process.signalCode !== null;

  for (const [what, signs, times, signal] of [
    [
      'at once after a third SIGTERM, by that signal,',
      ['No response', 'A second signal', 'Another'],
      {},
      'SIGTERM',
    ],
    ['soon after a second SIGTERM', ['No response is under way', ''], { lastWork: 500 }, 'SIGTERM'],
    ['by itself a while after --shutdown-grace', [''], { stopMargin: 1_000 }, 'SIGKILL'],
  ] as const) {
    it(`ends ${what} if a disk does not answer`, async (t) => {
      const proxy = await withHangingDisk(t, what.replaceAll(' ', '-'), ['--receipts'], times);
      for (const sign of signs) {
        proxy.process.kill('SIGTERM');
        await eventually(sign, () => proxy.log().includes(sign));
      }
      await eventually('the end of the process', () => ended(proxy));
      assert.equal(proxy.process.signalCode, signal, proxy.log());
    });
  }
});
