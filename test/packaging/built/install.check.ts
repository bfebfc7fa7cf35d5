import assert from 'node:assert/strict';
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { startProgram, withoutSettings } from '../../support/processes/program.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { ROOT, run } from '../../support/processes/tools.ts';
import { type Remote, startRemote } from '../../support/remote/remote.ts';
import { HOST } from '../support/built.ts';
import { splitInstallBlock } from '../support/install-blocks.ts';
import { streamsUnderLoad, tally } from '../support/streams-under-load.ts';

/** A checkout as somebody has it who has just cloned: what git knows, and a key. */
function freshCheckout(): string {
  const place = temporaryDirectory('checkout-');
  const { status, stdout, stderr } = run('git', ['ls-files', '-z']);
  assert.equal(status, 0, stderr);
  for (const path of stdout.split('\0').filter(Boolean)) {
    mkdirSync(dirname(join(place, path)), { recursive: true });
    cpSync(join(ROOT, path), join(place, path));
  }
  // Node for the executables is fetched once for all checks.
  symlinkSync(join(ROOT, '.tools'), join(place, '.tools'));
  writeFileSync(join(place, 'key.txt'), 'test-key\n');
  return place;
}

/** Without the variables by which npm tells its scripts where they run. */
const withoutNpm = (env: NodeJS.ProcessEnv): NodeJS.ProcessEnv =>
  Object.fromEntries(
    Object.entries(env).filter(([name]) => !/^npm_(package|lifecycle|config_local)/.test(name)),
  );

describe('docs/install.md', { timeout: 900_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  for (const name of ['source', 'npm', ...(HOST === 'amd64' ? ['binary'] : [])]) {
    it(`starts the proxy by its block "${name}", which needs no more than a checkout`, async () => {
      const place = freshCheckout();
      const { prepare, start } = splitInstallBlock(name);
      const global = {
        npm_config_prefix: join(place, 'global'),
        PATH: `${place}/global/bin:${process.env['PATH']}`,
      };
      const env = withoutNpm({ ...withoutSettings(process.env), ...global });
      const prepared = run('bash', ['-euc', prepare], { cwd: place, env, timeoutMs: 600_000 });
      assert.equal(prepared.status, 0, prepared.stdout + prepared.stderr);
      // The simulated remote instead of the real one, and a port that is free.
      const flags = remote.flags.filter((flag) => !/^--(api-key|listen-address)=/.test(flag)).join(' ');
      const command = `cd ${place} && exec ${start} ${flags} --port=0`;
      const proxy = await startProgram(
        ['bash', '-euc', command],
        { ...remote.env, PATH: global.PATH },
        { signalsToGroup: true },
      );
      try {
        assert.equal(new URL(proxy.url).hostname, '127.0.0.1');
        const port = Number(new URL(proxy.url).port);
        const fates = await streamsUnderLoad({ port, count: 3, everyMs: 5, model: 'sim-5x10' });
        assert.deepEqual(tally(fates), { complete: 3 }, proxy.log());
      } finally {
        await proxy.stop('SIGINT');
      }
      assert.match(proxy.log(), /Shutting down server/);
    });
  }
});
