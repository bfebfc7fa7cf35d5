/** The workspace that cannot be written to. */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from '../../support/invariants.ts';
import { processScene } from '../process-scene.ts';
import { type Scenario, scene } from '../scenario.ts';

/** A place where not even root may create anything. */
const UNWRITABLE = '/sys/privatemode-test';

export const DISK_SCENARIOS: readonly Scenario[] = [
  {
    name: 'read-only workspace at start',
    outcome:
      'what cannot be logged is not enforced: `/readyz` is 503 and says so, requests wait for it, then 503 `not_ready`; nothing leaves',
    async run(t) {
      const s = await scene(t, { workspace: UNWRITABLE, epochTimeout: 3_000 });
      const told = await s.ask();
      assert.equal(told.status, 503);
      assert.equal(told.error?.code, 'not_ready');
      assert.match(String(told.error?.message), /cannot be logged/);
      assert.ok(s.stack.logLines.some((line) => line.includes('manifest_log_failed')));
      await s.finish({ upstream: 0, shown: [told.body] });
    },
  },
  {
    name: 'workspace gone later',
    outcome: 'nothing: a renewal under a manifest that is in the log already needs no write',
    async run(t) {
      const s = await scene(t);
      assert.ok((await s.ask()).terminal);
      const workspace = join(s.stack.directory, 'workspace');
      rmSync(workspace, { recursive: true });
      writeFileSync(workspace, 'a file where the directory was');
      s.stack.simulator.secrets.dropAll();
      const told = await s.ask();
      assert.ok(told.terminal, told.body);
      assert.equal(s.stack.proxy.counters.upstreamRetries.get('no_secret'), 1);
      await s.finish({ upstream: 3 });
    },
  },
  {
    name: 'disk full at start',
    outcome: 'as with a read-only workspace: nothing is enforced, nothing leaves, `/readyz` is 503',
    async run(t) {
      const s = await processScene(t, { limits: 'ulimit -f 1' });
      await eventually(
        'the failure in the log',
        () => (s.log().includes('manifest_log_failed') ? [] : [s.log()]),
        15_000,
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
      const told = await s.ask({ padding: 1 << 20 });
      assert.ok(told.terminal, told.body);
      await eventually('the warning', () =>
        s.log().includes('A request dump could not be written') ? [] : [s.log()],
      );
      rmSync(join(s.directory, 'workspace/requests'), { recursive: true }); // dumps hold the prompt, as they should
      await s.finish({ upstream: 1 });
    },
  },
];
