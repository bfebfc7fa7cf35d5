/** The workspace that cannot be written to. */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { assertReturned, resources } from '../../support/doors/invariants.ts';
import { eventually } from '../../support/processes/eventually.ts';
import { processScene } from '../process-scene.ts';
import { type Scenario, scene } from '../scenario.ts';

/** A place where not even root may create anything. */
const UNWRITABLE = '/sys/privatemode-test';

export const DISK_SCENARIOS: readonly Scenario[] = [
  {
    name: 'read-only workspace at start',
    outcome:
      'the start fails with exit code 1 and names the workspace: the proxy enforces no manifest that it cannot log',
    async run(t) {
      const before = resources();
      await assert.rejects(scene(t, { workspace: UNWRITABLE }), {
        code: 'config_invalid',
        message: /^the directory .* of --workspace cannot be (?:created|written): E/,
      });
      await assertReturned(before);
    },
  },
  {
    name: 'workspace gone later',
    outcome: 'no effect: a renewal under a manifest that is already in the log needs no write',
    async run(t) {
      const s = await scene(t);
      assert.ok((await s.ask()).terminal);
      const workspace = join(s.stack.directory, 'workspace');
      rmSync(workspace, { recursive: true });
      writeFileSync(workspace, 'a file where the directory was');
      s.stack.simulator.secrets.dropAll();
      const response = await s.ask();
      assert.ok(response.terminal, response.body);
      assert.equal(s.stack.proxy.counters.upstreamRetries.get('no_secret'), 1);
      await s.finish({ upstream: 3 });
    },
  },
  {
    name: 'disk full at start',
    outcome:
      'the proxy enforces no manifest that it cannot log: nothing is sent, `/readyz` is 503 and says so',
    async run(t) {
      const s = await processScene(t, { limits: 'ulimit -f 1' });
      await eventually(
        () => `the failure in ${s.log()}`,
        () => s.log().includes('manifest_log_failed'),
      );
      assert.equal((await fetch(`${s.url}/readyz`)).status, 503);
      assert.match(s.log(), /EFBIG|ENOSPC/);
      await s.finish({ upstream: 0 });
    },
  },
  {
    name: 'disk full later, while requests are dumped',
    outcome: 'the answer is whole; the dump is missing, and the log says so once for each file',
    async run(t) {
      const s = await processScene(t, { flags: ['--dump-requests'], limits: 'ulimit -f 200' });
      await s.ready();
      const response = await s.ask({ padding: 1 << 20 });
      assert.ok(response.terminal, response.body);
      await eventually(
        () => `the warning in ${s.log()}`,
        () => s.log().includes('A request dump could not be written'),
      );
      // dumps hold the prompt, as they should
      rmSync(join(s.directory, 'workspace/requests'), { recursive: true });
      await s.finish({ upstream: 1 });
    },
  },
];
