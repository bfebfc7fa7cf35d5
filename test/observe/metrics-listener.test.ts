/** The listener of --metrics-address, of the program. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { freePort } from '../support/processes/foreign-programs.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { ROOT } from '../support/processes/tools.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

describe('the listener of --metrics-address', { timeout: 600_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  for (const workers of [1, 2]) {
    it(`serves the metrics of all requests but no status page, beside an admin listener with one, with --workers ${workers}`, async (t) => {
      const [metrics, admin] = [await freePort(), await freePort()];
      const proxy = await startProxyProcess(
        [
          ...[...remote.flags, '--port=0', `--workers=${workers}`],
          ...[`--metrics-address=127.0.0.1:${metrics}`, `--admin-address=127.0.0.1:${admin}`],
          `--workspace=${join(remote.directory, `workspace-${workers}`)}`,
        ],
        remote.env,
      );
      t.after(() => proxy.stop('SIGKILL'));
      const asked = await fetch(`${proxy.url}/v1/models`);
      assert.equal(asked.status, 200);
      await asked.text();
      const statusOf = async (port: unknown, path: string): Promise<number> =>
        (await fetch(`http://127.0.0.1:${port}${path}`)).status;
      const counted = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
      assert.match(counted, /^privatemode_proxy_requests_total\{.*route="models".*\} 1$/m);
      assert.equal(await statusOf(metrics, '/readyz'), 204);
      for (const path of ['/', '/status', '/verification']) {
        assert.equal(await statusOf(metrics, path), 404, path);
        assert.equal(await statusOf(admin, path), 200, path);
      }
    });

    it(`serves the metrics of all requests without an admin listener, with --workers ${workers}`, async (t) => {
      const port = await freePort();
      const proxy = await startProxyProcess(
        [
          ...[...remote.flags, '--port=0', `--workers=${workers}`, `--metrics-address=127.0.0.1:${port}`],
          `--workspace=${join(remote.directory, `workspace-alone-${workers}`)}`,
        ],
        remote.env,
      );
      t.after(() => proxy.stop('SIGKILL'));
      await (await fetch(`${proxy.url}/v1/models`)).text();
      const counted = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
      assert.match(counted, /^privatemode_proxy_requests_total\{.*route="models".*\} 1$/m);
    });
  }

  it('serves no metric that the table of docs/monitoring.md lacks', async (t) => {
    const port = await freePort();
    const proxy = await startProxyProcess(
      [
        ...[...remote.flags, '--port=0', `--metrics-address=127.0.0.1:${port}`],
        `--workspace=${join(remote.directory, 'workspace-table')}`,
      ],
      remote.env,
    );
    t.after(() => proxy.stop('SIGKILL'));
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const served = [...text.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1] as string);
    const ours = served.filter((name) => !/^(?:process|nodejs)_/.test(name));
    assert.ok(ours.length > 20, `${ours.length} metrics`);
    const page = readFileSync(join(ROOT, 'docs/monitoring.md'), 'utf8');
    const missing = ours.filter((name) => !page.includes(`\n| \`${name}\` |`));
    assert.deepEqual(missing, [], 'npx node scripts/operator-tables.ts writes the table');
  });
});
