/** The rehearsal at the start: real exchanges, of which nothing can be found afterwards. */
import assert from 'node:assert/strict';
import dns from 'node:dns';
import { readdirSync, readFileSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { rehearse } from '../../lib/gateway/rehearsal.ts';
import { createCounters } from '../../lib/observe/counters.ts';
import { startStack } from '../support/stack.ts';

describe('the rehearsal of a start', { timeout: 60_000 }, () => {
  it('leaves no trace in the log, the counters, the receipts and the service', async () => {
    const stack = await startStack({ flags: ['--receipts'] });
    try {
      await stack.proxy.session.acquire({ timeoutMs: 30_000 });
      const { attestations, receipts, ...counted } = stack.proxy.counters;
      const { attestations: _, receipts: __, ...none } = createCounters();
      assert.deepEqual(counted, none);
      assert.ok(!stack.logLines.some((line) => /requestId|rehears|Request/.test(line)), `${stack.logLines}`);
      assert.equal(stack.simulator.recorder.containing('rehearsal').length, 0);
      const directory = join(stack.directory, 'workspace/receipts');
      const lines = readdirSync(directory)
        .filter((name) => name.endsWith('.jsonl'))
        .flatMap((name) => readFileSync(join(directory, name), 'utf8').trimEnd().split('\n'));
      assert.ok(!lines.some((line) => JSON.parse(line).type === 'request'), `${lines}`);
    } finally {
      await stack.close();
    }
  });

  it('holds two whole exchanges without a connection, a look-up of a name or a written line', async (t) => {
    const connecting = [t.mock.method(Socket.prototype, 'connect'), t.mock.method(dns, 'lookup')];
    const writing = [t.mock.method(process.stdout, 'write'), t.mock.method(process.stderr, 'write')];
    const complete = await rehearse();
    const connections = connecting.map(({ mock }) => mock.callCount());
    const written = writing.flatMap(({ mock }) => mock.calls.map((call) => String(call.arguments[0]))); // the runner's too
    t.mock.restoreAll();
    assert.equal(complete, 2);
    assert.deepEqual(connections, [0, 0]);
    assert.ok(!written.some((text) => text.includes('Request ended')), `${written}`);
  });

  it('leaves no timer and no connection open that would keep the process', async () => {
    const before = process.getActiveResourcesInfo().sort();
    await rehearse();
    assert.deepEqual(process.getActiveResourcesInfo().sort(), before);
  });
});
