/**
 * Valkey, which deploy/compose/team.yaml starts, in place of Redis: the tests of the shared limits pass with
 * its server too.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';

process.env['TEST_STORE'] = 'valkey-server';
const { ask, REDIS, startRedis } = await import('../support/processes/redis-server.ts');
await import('./redis-counts.test.ts');

describe('the server that the tests of shared limits run here', {
  skip: REDIS.skip,
  timeout: 600_000,
}, () => {
  it('is a Valkey', async (t) => {
    const { url } = await startRedis(t);
    assert.match(String(await ask(url, 'INFO', 'server')), /^server_name:valkey\r$/m);
  });

  it('keeps what it counted over a restart, with the flags of team.yaml', async (t) => {
    const team = parse(readFileSync(join(ROOT, 'deploy/compose/team.yaml'), 'utf8'), { logLevel: 'error' });
    const [program, ...flags] = team.services.valkey.command as string[];
    assert.equal(program, 'valkey-server');
    assert.ok(flags.includes('/data'));
    const directory = temporaryDirectory('valkey-data-');
    const more = flags.map((flag) => (flag === '/data' ? directory : flag));
    const first = await startRedis(t, { more });
    await ask(first.url, 'SET', 'counted', '7');
    await first.stop();
    const second = await startRedis(t, { more });
    assert.equal(String(await ask(second.url, 'GET', 'counted')), '7');
  });
});
