import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { it } from 'node:test';
import { prepareWorkspace } from '../../lib/config/input-files.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { listening } from '../support/remote/loopback.ts';
import { startRemote } from '../support/remote/remote.ts';

it('a taken port is refused by name, and the error says how to find which program has it', async (t) => {
  const { port } = await listening(t, createServer());
  const message = new RegExp(
    `^listening on 127\\.0\\.0\\.1 port ${port}: EADDRINUSE; .* lsof -nP -iTCP:${port} `,
  );
  await assert.rejects(startStack({ flags: [`--port=${port}`] }), { code: 'listen_failed', message });
});

it('an error names the directory and the reason if the workspace cannot be created or written', () => {
  for (const [workspace, problem] of [
    ['/dev/null/work', 'created: ENOTDIR'], // it is below a file
    ['/proc/work', 'created: ENOENT'], // Node's own recursive mkdir never returns here
    ['/proc', 'written: ENOENT'], // its permissions let root write
    ['/dev/null', 'written: ENOTDIR'], // it is a file
  ] as const)
    assert.throws(() => prepareWorkspace(workspace), {
      code: 'config_invalid',
      message: new RegExp(`^the directory "${workspace}" of --workspace cannot be ${problem}: `),
    });
});

it('a start whose service cannot be reached names it, what to check, and when it is tried again', async (t) => {
  const stack = await startStack({ flags: ['--api-endpoint=localhost:1'] });
  t.after(() => stack.close());
  const failed = await eventually('two errors', () => {
    const errors = stack.logLines.filter((text) => text.includes('"level":"ERROR"'));
    return errors.length > 1 && errors.map((line) => JSON.parse(line));
  });
  const [first, second] = failed;
  assert.match(first.msg, /cannot be reached; trying again within 1 second$/);
  assert.equal(first.reason, 'localhost:1 refused the connection');
  assert.match(second.msg, /^Not verified: /);
  assert.match(second.reason, /^upstream_unreachable: localhost:1 /);
  assert.match(second.remedy, /--api-endpoint/);
  assert.ok(!stack.logLines.join('').includes('Attestation'));
});

it('a proxy ends with 1 if the service runs under another manifest than the pinned one, and says what to do', {
  timeout: 600_000,
}, async (t) => {
  const remote = await startRemote();
  t.after(() => remote.close());
  const pinned = join(remote.directory, 'pinned.json');
  writeFileSync(pinned, remote.simulator.manifest);
  await remote.simulator.rotateManifest();
  const flags = [`--manifest-path=${pinned}`, '--port=0', '--shutdown-grace=1s'];
  const proxy = await startProxyProcess([...remote.flags, ...flags], remote.env);
  t.after(() => proxy.stop('SIGKILL'));
  await eventually('the end of the proxy', () => proxy.process.exitCode !== null);
  assert.equal(await proxy.stop(), 1);
  const lines = proxy.log().trimEnd().split('\n');
  const line = lines.find((each) => each.includes('The proxy cannot go on')) ?? proxy.log();
  assert.match(line, /code=manifest_mismatch .*remedy=".*then replace the file/);
  assert.match(lines.at(-1) ?? '', /^Error: .+\. .+\.$/, 'the reason is the last line');
});
