/** The memory of a whole process while requests of the Responses API are translated, sent, and waited for. */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const MIB = 1024 * 1024;
const CHILD = join(import.meta.dirname, '../support/processes/gateway-child.ts');
/** MiB. */
const BUDGET = 128;
/** Bytes of one request. */
const SIZE = 15 * MIB;

/** So many bytes of items, and their request. */
const itemsOf = (item: string, around = ''): Buffer => {
  const items = Buffer.alloc(SIZE, `,${item}`);
  const whole = Math.floor(SIZE / (item.length + 1)) * (item.length + 1);
  return Buffer.concat([
    Buffer.from(`{"model":"m","stream":true${around},"input":[{"role":"user","content":"x"}`),
    items.subarray(0, whole),
    Buffer.from(']}'),
  ]);
};
const long = (bytes: number, character = 'x'): string => character.repeat(bytes);
const call = (name: string, args: string) =>
  `{"type":"function_call","call_id":"c","name":"${name}","arguments":"${args}"}`;

interface Load {
  readonly request: () => Buffer;
  /** Requests at once. */
  readonly count: number;
}
const LOADS: Readonly<Record<string, Load>> = {
  'texts that are passed on': {
    count: 10,
    request: () => itemsOf(`{"role":"user","content":"${long(7 * MIB)}"}`),
  },
  'calls that share a message': { count: 10, request: () => itemsOf(call('f', long(700))) },
  'metadata that the response repeats': {
    count: 10,
    request() {
      const text = long(1.5 * MIB);
      const metadata = `{${Array.from({ length: 5 }, (_, i) => `"m${i}":"${text}"`).join()}}`;
      return Buffer.from(`{"model":"m","stream":true,"input":"x","metadata":${metadata}}`);
    },
  },
};

const peakOf = (pid: number): number =>
  1024 * Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
const forgetPeak = (pid: number): void => writeFileSync(`/proc/${pid}/clear_refs`, '5');

/**
 * Bytes by which the process of a gateway grew at most, while so many such requests were sent, and each was
 * refused or waited for its first event.
 */
async function growthOf(request: Buffer, count: number): Promise<number> {
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
    times: { memoryWait: 1_000 },
  };
  const child = fork(CHILD, [JSON.stringify(options)], { execArgv: [] });
  const sockets: Socket[] = [];
  try {
    const [port] = (await once(child, 'message')) as [number];
    const pid = child.pid as number;
    forgetPeak(pid);
    const before = peakOf(pid);
    let answered = 0;
    for (let i = 0; i < count; i++) {
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
    await eventually('all answers', () => answered === count);
    return peakOf(pid) - before;
  } finally {
    for (const socket of sockets) socket.destroy();
    child.disconnect();
    await once(child, 'exit');
    sink.closeAllConnections();
    await new Promise((closed) => sink.close(closed));
  }
}

/** MiB. */
const MOST = 1.3 * BUDGET + 150;

describe('memory of a gateway that translates large requests', () => {
  for (const [what, { count, request }] of Object.entries(LOADS)) {
    it(`stays near its budget: ${count} requests at once, ${what}`, { timeout: 600_000 }, async () => {
      const body = request();
      const growths: number[] = [];
      const within = (): number => growths.filter((growth) => growth < MOST).length;
      // The median of three counts; two that are within it decide.
      while (growths.length < 3 && within() < 2) growths.push((await growthOf(body, count)) / MIB);
      assert.equal(within(), 2, `grew by ${growths.map(Math.round)} MiB`);
    });
  }
});
