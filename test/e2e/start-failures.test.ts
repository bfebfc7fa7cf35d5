/** A proxy that cannot start whole does not start at all: nothing serves, and the exit code says so. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { prepareWorkspace } from '../../lib/config/files.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';

describe('a start that fails', { timeout: 600_000 }, () => {
  let occupied: Server;
  let taken: number;
  before(async () => {
    occupied = createServer().listen(0, '127.0.0.1');
    await once(occupied, 'listening');
    taken = (occupied.address() as AddressInfo).port;
  });
  after(() => {
    occupied.close();
  });

  it('is refused by name if the port is taken, and says how to find which program has it', async () => {
    await assert.rejects(startStack({ flags: [`--port=${taken}`] }), {
      code: 'listen_failed',
      message: `listening on 127.0.0.1 port ${taken}: EADDRINUSE; another program has the port, and this shows which: lsof -nP -iTCP:${taken} -sTCP:LISTEN`,
    });
  });

  for (const [what, workspace, problem] of [
    [
      'is below a file',
      '/dev/null/work',
      'created: ENOTDIR: a file or a link stands where a directory is needed',
    ],
    // Node's own recursive mkdir never returns here.
    ['mkdir cannot create', '/proc/work', 'created: ENOENT: no such file or directory'],
    // Its permissions let root write.
    ['exists and cannot be written', '/proc', 'written: ENOENT: no such file or directory'],
    ['is a file', '/dev/null', 'written: ENOTDIR: a file or a link stands where a directory is needed'],
  ] as const)
    it(`names the reason if the workspace ${what}`, () =>
      assert.throws(() => prepareWorkspace(workspace), {
        code: 'config_invalid',
        message: new RegExp(
          `^the directory "${workspace}" of --workspace cannot be ${problem}; check the path`,
        ),
      }));
});

describe('a start whose service cannot be reached', { timeout: 600_000 }, () => {
  it('names that service, what to check, and when it is tried again', async (t) => {
    const stack = await startStack({ flags: ['--api-endpoint=localhost:1'] });
    t.after(() => stack.close());
    const failed = await eventually('two errors', () => {
      const errors = stack.logLines.filter((text) => text.includes('"level":"ERROR"'));
      return errors.length > 1 && errors.map((line) => JSON.parse(line));
    });
    assert.deepEqual(
      failed.slice(0, 2).map(({ msg, reason, remedy }) => [msg, reason, remedy]),
      [
        [
          'The service cannot be reached; trying again within 1 second',
          'localhost:1 refused the connection',
          undefined,
        ],
        [
          'Not verified: the verification was not completed',
          'upstream_unreachable: localhost:1 refused the connection',
          'Check the network, --api-endpoint and the proxy settings.',
        ],
      ],
    );
    assert.ok(!stack.logLines.join('').includes('Attestation'));
  });
});

describe('a proxy that only its operator can repair', { timeout: 600_000 }, () => {
  it('ends with 1 if the service runs under another manifest than the pinned one, and says what to do', async (t) => {
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
});
