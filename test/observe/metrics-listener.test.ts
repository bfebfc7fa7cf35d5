/** The listener of --metrics-address, of the program. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

describe('the listener of --metrics-address', { timeout: 600_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  /** With a workspace of its own. */
  async function start(t: TestContext, ...flags: string[]): Promise<Program> {
    const workspace = `--workspace=${temporaryDirectory('metrics-')}`;
    const proxy = await startProxyProcess([...remote.flags, '--port=0', workspace, ...flags], remote.env);
    t.after(() => proxy.stop('SIGKILL'));
    return proxy;
  }
  const metricsOf = async (port: number): Promise<string> =>
    (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const ONE_REQUEST = /^privatemode_proxy_requests_total\{.*route="models".*\} 1$/m;

  it('serves metrics but no status page, beside an admin listener with one', async (t) => {
    const [metrics, admin] = [await freePort(), await freePort()];
    const listeners = [`--metrics-address=127.0.0.1:${metrics}`, `--admin-address=127.0.0.1:${admin}`];
    const proxy = await start(t, ...listeners);
    const asked = await fetch(`${proxy.url}/v1/models`);
    assert.equal(asked.status, 200);
    await asked.text();
    const statusOf = async (port: number, path: string): Promise<number> =>
      (await fetch(`http://127.0.0.1:${port}${path}`)).status;
    assert.match(await metricsOf(metrics), ONE_REQUEST);
    assert.equal(await statusOf(metrics, '/readyz'), 204);
    for (const path of ['/', '/status', '/verification']) {
      assert.equal(await statusOf(metrics, path), 404, path);
      assert.equal(await statusOf(admin, path), 200, path);
    }
  });

  it('serves the metrics of all requests without an admin listener, and none that docs/monitoring.md lacks', async (t) => {
    const port = await freePort();
    const proxy = await start(t, `--metrics-address=127.0.0.1:${port}`);
    await (await fetch(`${proxy.url}/v1/models`)).text();
    const text = await metricsOf(port);
    assert.match(text, ONE_REQUEST);
    const served = [...text.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1] as string);
    const ours = served.filter((name) => !/^(?:process|nodejs)_/.test(name));
    assert.ok(ours.length > 20, `${ours.length} metrics`);
    const page = readFileSync(join(ROOT, 'docs/monitoring.md'), 'utf8');
    const missing = ours.filter((name) => !page.includes(`\n| \`${name}\` |`));
    assert.deepEqual(missing, [], 'npx node scripts/tables.ts writes the table');
  });
});
