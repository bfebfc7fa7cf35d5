/** The same with the real program: exit codes, and what a second signal does. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { answerTo, post, until } from '../support/doors/gateway-fixture.ts';
import { type RawClient, rawClient } from '../support/doors/raw-client.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

describe('the program, told to stop', { concurrency: true, timeout: 60_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  /** The program, and a stream of it that takes its time. */
  async function streaming(grace: string, model: string): Promise<{ proxy: Program; client: RawClient }> {
    const own = [`--workspace=${join(remote.directory, `workspace-${model}`)}`, `--shutdown-grace=${grace}`];
    const proxy = await startProxyProcess([...remote.flags, '--port=0', ...own], remote.env);
    const client = rawClient(Number(new URL(proxy.url).port));
    const messages = [{ role: 'user', content: 'x' }];
    client.send(post(JSON.stringify({ model, stream: true, messages })));
    await client.until(/t1/, 15_000);
    return { proxy, client };
  }

  it('SIGTERM: the stream is finished, the exit code 0', async () => {
    const { proxy, client } = await streaming('10s', 'sim-20x50');
    const begun = performance.now();
    const code = await proxy.stop('SIGTERM');
    assert.equal(code, 0, proxy.log());
    assert.ok(performance.now() - begun < 5_000, 'the grace period was waited for');
    const answer = await answerTo(client);
    assert.ok(answer.complete && answer.body.endsWith('data: [DONE]\n\n'));
    assert.match(
      proxy.log(),
      /msg="Shutting down server"\n.* msg="Waiting for responses to end; a second signal ends them now" unfinished=1 graceSeconds=10\n/,
    );
  });

  it('SIGINT: a stream that outlasts the grace is told so, the exit code 0', async () => {
    const { proxy, client } = await streaming('1s', 'sim-1000x50');
    assert.equal(await proxy.stop('SIGINT'), 0, proxy.log());
    const answer = await answerTo(client);
    assert.equal(answer.complete, false);
    assert.match(answer.body, /"code":"shutting_down"\}\}\n\n$/);
  });

  it('SIGTERM twice: ends at once, with the exit code of the signal', async () => {
    const { proxy, client } = await streaming('30s', 'sim-999x50');
    const begun = performance.now();
    const stopped = proxy.stop('SIGTERM');
    await until(() => proxy.log().includes('Shutting down server'), 'it did not shut down');
    proxy.process.kill('SIGTERM');
    assert.equal(await stopped, 143, proxy.log());
    assert.ok(performance.now() - begun < 2_000);
    assert.equal((await answerTo(client)).complete, false);
  });
});
