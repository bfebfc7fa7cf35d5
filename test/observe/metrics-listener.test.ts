/** The listener of --metrics-address, of the program. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { freePort } from '../support/processes/foreign-programs.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { startRemote } from '../support/remote/remote.ts';

it('--metrics-address serves the metrics of all requests, and no status page', {
  timeout: 600_000,
}, async (t) => {
  const remote = await startRemote();
  t.after(() => remote.close());
  const port = await freePort();
  const workspace = `--workspace=${temporaryDirectory('metrics-')}`;
  const flags = ['--port=0', workspace, `--metrics-address=127.0.0.1:${port}`];
  const proxy = await startProxyProcess([...remote.flags, ...flags], remote.env);
  t.after(() => proxy.stop('SIGKILL'));
  await (await fetch(`${proxy.url}/v1/models`)).text();
  const ask = (path: string): Promise<Response> => fetch(`http://127.0.0.1:${port}${path}`);
  const metrics = await (await ask('/metrics')).text();
  assert.match(metrics, /^privatemode_proxy_requests_total\{.*route="models".*\} 1$/m);
  const statuses = ['/readyz', '/', '/status', '/verification'].map(async (path) => (await ask(path)).status);
  assert.deepEqual(await Promise.all(statuses), [204, 404, 404, 404]);
});
