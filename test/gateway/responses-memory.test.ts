/**
 * The memory of a whole process while requests of the Responses API are translated, sent, and waited for.
 * What is reserved for them is counted in response-memory.test.ts, upload-memory.test.ts and
 * test/fuzz/responses-requests.test.ts.
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const MIB = 1024 * 1024;
const CHILD = join(import.meta.dirname, '../support/processes/gateway-child.ts');
/** MiB. */
const BUDGET = 32;
/** Requests at once. */
const COUNT = 16;

/** A request of 7.5 MiB, all of which its response repeats. */
function repeated(): Buffer {
  const text = 'x'.repeat(1.5 * MIB);
  const metadata = Object.fromEntries(Array.from({ length: 5 }, (_, i) => [`m${i}`, text]));
  return Buffer.from(JSON.stringify({ model: 'm', stream: true, input: 'x', metadata }));
}

const peakOf = (pid: number): number =>
  1024 * Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
const forgetPeak = (pid: number): void => writeFileSync(`/proc/${pid}/clear_refs`, '5');

/**
 * Bytes by which the process of a gateway grew at most, while so many such requests were sent, and each was
 * refused or waited for its first event.
 */
async function growthOf(request: Buffer): Promise<number> {
  const authority = createTestAuthority('sink');
  const waiting: ServerResponse[] = [];
  const sink = createServer(authority.issue(['localhost']), (req, res) => {
    req.resume().on('end', () => {
      res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      waiting.push(res);
    });
  });
  await once(sink.listen(0, '127.0.0.1'), 'listening');
  const options = {
    upstream: { port: (sink.address() as AddressInfo).port, ca: authority.pem },
    settings: {
      maxBodyBytes: 128 * MIB,
      maxBufferedBytes: BUDGET * MIB,
      firstByteTimeout: 60_000,
      streamIdleTimeout: 60_000,
    },
  };
  const child = fork(CHILD, [JSON.stringify(options)], { execArgv: [] });
  const sockets: Socket[] = [];
  try {
    const [port] = (await once(child, 'message')) as [number];
    const pid = child.pid as number;
    forgetPeak(pid);
    const before = peakOf(pid);
    let answered = 0;
    for (let i = 0; i < COUNT; i++) {
      const socket = connect(port, '127.0.0.1');
      sockets.push(socket);
      socket.once('data', () => {
        answered += 1;
      });
      socket.on('error', () => {});
      const head = `POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${request.length}\r\n\r\n`;
      socket.write(head);
      socket.write(request);
    }
    await eventually('all answers', () => answered === COUNT);
    return peakOf(pid) - before;
  } finally {
    for (const socket of sockets) socket.destroy();
    child.disconnect();
    await once(child, 'exit');
    sink.closeAllConnections();
    await new Promise((closed) => sink.close(closed));
  }
}

/** MiB: without a budget they take 240. */
const MOST = BUDGET + 80;

it('the memory of a gateway stays near its budget while it translates many large requests at once', {
  timeout: 600_000,
}, async () => {
  const body = repeated();
  const growths: number[] = [];
  // Other load on the machine may delay what frees memory, so one of three counts.
  while (growths.length < 3 && !growths.some((growth) => growth < MOST))
    growths.push((await growthOf(body)) / MIB);
  assert.ok(Math.min(...growths) < MOST, `grew by ${growths.map(Math.round)} MiB`);
});
