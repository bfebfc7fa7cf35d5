/**
 * The limits of clients in a whole gateway. What is counted is in count-requests.test.ts and
 * redis-counts.test.ts, and what a refusal looks like is in refusals.test.ts.
 */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { createCounters } from '../../lib/observe/counters.ts';
import { createNotices } from '../../lib/observe/notices.ts';
import { openAccess } from '../../lib/open-access.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { REDIS, startRedis } from '../support/processes/redis-server.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const LIMITED = '429 requests_per_minute_reached';

/** A gateway with one client. `ask` gives the status, and the code of what the proxy refuses. */
async function scene(t: TestContext, limits: object, workspace: string, flags: readonly string[] = []) {
  const token = 'token-of-ann';
  const file = join(temporaryDirectory('limits-'), 'clients.json');
  writeFileSync(
    file,
    JSON.stringify({ clients: [{ name: 'ann', tokens: [hash('sha256', token)], ...limits }] }),
  );
  const stack = await startStack({ workspace, flags: [`--clients=${file}`, ...flags] });
  t.after(() => stack.close());
  const ask = async (): Promise<string> => {
    const { status, headers } = await askChat(stack, { token });
    return `${status} ${headers.get('privatemode-proxy-error') ?? ''}`.trim();
  };
  return { stack, ask };
}

describe('a gateway with clients', { timeout: 600_000 }, () => {
  it('admits exactly three of eight requests at once with requestsPerMinute 3, and none after a restart', async (t) => {
    const workspace = temporaryDirectory('limits-');
    const { stack, ask } = await scene(t, { requestsPerMinute: 3 }, workspace);
    const answers = await Promise.all(Array.from({ length: 8 }, ask));
    assert.deepEqual(answers.sort(), [...Array(3).fill('200'), ...Array(5).fill(LIMITED)]);
    await stack.proxy.close();
    const again = await scene(t, { requestsPerMinute: 3 }, workspace);
    assert.equal(await again.ask(), LIMITED);
  });

  for (const { policy, told, counts } of [
    { policy: 'closed', told: '503 limits_unavailable', counts: 0 },
    { policy: 'open', told: '200', counts: 3 },
  ] as const) {
    it(`answers ${told} and counts ${counts} of 3 as uncounted while the store is away (--limits-store-failure=${policy})`, {
      skip: REDIS.skip,
    }, async (t) => {
      const server = await startRedis(t);
      const admin = `127.0.0.1:${await freePort()}`;
      const { stack, ask } = await scene(t, { requestsPerMinute: 1 }, temporaryDirectory('limits-'), [
        ...[`--limits-store=${server.url}`, `--limits-store-failure=${policy}`, `--admin-address=${admin}`],
      ]);
      const uncounted = async (): Promise<number> => {
        const metrics = await (await fetch(`http://${admin}/metrics`)).text();
        return Number(/^privatemode_proxy_limits_uncounted_total (\d+)$/m.exec(metrics)?.[1]);
      };
      assert.deepEqual([await ask(), await ask(), await uncounted()], ['200', LIMITED, 0]);
      await server.stop();
      assert.deepEqual(
        [await ask(), await ask(), await ask(), await uncounted()],
        [told, told, told, counts],
      );
      await startRedis(t, { port: server.port });
      const isBack = (): boolean => stack.logLines.join('').includes('Over: The store of the limits');
      await eventually('a connection', isBack);
      // The new server knows of none before.
      assert.deepEqual([await ask(), await ask(), await uncounted()], ['200', LIMITED, counts]);
    });
  }
});

it('--max-in-flight holds without --clients, too', async (t) => {
  const opened = new AsyncDisposableStack();
  t.after(() => opened.disposeAsync());
  const { log } = recordingLogger();
  const notices = createNotices(log, systemClock);
  const shared = { clock: systemClock, log, counters: createCounters(), notices, opened };
  const { config } = parseConfig(['--api-endpoint=localhost:1', '--max-in-flight=1'], {});
  const key = { value: () => 'key', origin: () => '--api-key' };
  const { gate } = await openAccess(config, shared, key, undefined, []);
  const enter = () => gate?.enter({ client: undefined, signal: t.signal });
  const [first, second] = [enter(), enter()];
  assert.ok(first !== undefined && !(first instanceof Promise) && second instanceof Promise);
  first.release(0);
  (await second).release(0);
});
