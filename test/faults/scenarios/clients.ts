/** Clients that leave, in each window. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { checkReceipts } from '../../../lib/receipts/check-receipts.ts';
import { eventually } from '../../support/processes/eventually.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { type ApiStyle, send } from '../ask.ts';
import { question, type Scenario, type Scene, scene } from '../scenario.ts';

interface Window {
  readonly name: string;
  readonly phase: 'before_headers' | 'before_first_token' | 'mid_stream';
  readonly model: string;
  /** How much of the body is sent. */
  readonly part?: number;
  /** Resolves when the client is in that window. */
  readonly reached: (s: Scene, socket: Socket) => Promise<unknown>;
  readonly upstream: 0 | 1;
}

const inService = (s: Scene): Promise<unknown> =>
  eventually('the request in the service', () => s.stack.simulator.exchanges.inFlight() === 1);

async function received(socket: Socket, text: string): Promise<void> {
  let all = '';
  socket.on('data', (chunk: Buffer) => {
    all += chunk;
  });
  await eventually(
    () => `${text} at the client: ${all}`,
    () => all.includes(text),
  );
}

const WINDOWS: readonly Window[] = [
  {
    name: 'while it sends its request',
    phase: 'before_headers',
    model: 'sim-echo',
    part: 0.5,
    reached: (s) => eventually('the request', () => s.stack.proxy.counters.inFlight === 1),
    upstream: 0,
  },
  {
    name: 'before the answer begins',
    phase: 'before_headers',
    model: 'sim-echo+fault=stall_before',
    reached: inService,
    upstream: 1,
  },
  {
    name: 'before the first token',
    phase: 'before_first_token',
    model: 'sim-echo+fault=stall_mid:0',
    reached: (_, socket) => received(socket, '\r\n\r\n'),
    upstream: 1,
  },
  {
    name: 'in mid-stream',
    phase: 'mid_stream',
    model: 'sim-1000x20',
    reached: (_, socket) => received(socket, 't3'),
    upstream: 1,
  },
];

const LEAVING = {
  'client abort': (socket: Socket) => socket.resetAndDestroy(),
  'client half-close': (socket: Socket) => socket.end(),
} as const;

/** ms in which the service must be told; a pause of the machine may be longer, so there are several tries. */
const PROMPT = 1_000;
const TRIES = 5;

const leaving = (how: keyof typeof LEAVING, window: Window, style: ApiStyle): Scenario => ({
  name: `${how} ${window.name} (${style})`,
  outcome:
    window.upstream === 0
      ? 'no request reaches the service; counted, no error in the log'
      : 'the request at the service is closed within a second; counted, no error in the log',
  async run(t) {
    const lateness: number[] = [];
    do lateness.push(await leave(t, how, window, style));
    while (lateness.at(-1)! >= PROMPT && lateness.length < TRIES);
    assert.ok(lateness.at(-1)! < PROMPT, `closed after ${lateness.join(', ')} ms`);
  },
});

/** How many ms after the client left the request at the service was closed; 0 if none was there. */
async function leave(
  t: TestContext,
  how: keyof typeof LEAVING,
  window: Window,
  style: ApiStyle,
): Promise<number> {
  const s = await scene(t);
  let late = 0;
  const socket = send(
    s.stack.proxy.port,
    { ...question(s.canaries), style, model: window.model },
    window.part,
  );
  t.after(() => socket.destroy());
  await window.reached(s, socket);
  const goneAt = Date.now();
  LEAVING[how](socket);
  await eventually('the end of the request', () => s.stack.proxy.counters.inFlight === 0);
  if (window.upstream === 1) {
    await eventually('the end at the service', () => s.stack.simulator.exchanges.inFlight() === 0);
    const { closedEarlyAt } = s.stack.simulator.exchanges.last() ?? {};
    assert.ok(closedEarlyAt !== undefined, 'the answer was completed');
    late = closedEarlyAt - goneAt;
  }
  const { clientAborts, decryptFailures, truncatedStreams } = s.stack.proxy.counters;
  assert.deepEqual([...clientAborts], [[window.phase, 1]]);
  assert.deepEqual([decryptFailures.size, truncatedStreams], [0, 0]);
  assert.deepEqual(
    s.stack.logLines.filter((line) => /"level":"(WARN|ERROR)"/.test(line)),
    [],
  );
  socket.destroy();
  await s.finish({ upstream: window.upstream });
  return late;
}

/** What is refused before it is admitted, without a receipt, and, the last, after that: by code. */
const REFUSED: Readonly<Record<string, readonly [head: string, many: number]>> = {
  unknown_path: ['GET /v1/nothing HTTP/1.1\r\nhost: localhost\r\n\r\n', 15_000],
  method_not_allowed: ['PUT /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n', 500],
  invalid_host: ['GET /v1/models HTTP/1.1\r\n\r\n', 500],
  invalid_json: [
    'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n{',
    12_000,
  ],
};

/** Requests that a connection may send ahead of their responses, and it lives. */
const BATCH = 100;

/**
 * Refusals on one connection for each code, one batch after the other; requests of another client in between.
 */
const flooding: Scenario = {
  name: '28,000 refused requests, while receipts are written beside other files',
  outcome:
    'each request of another client has its receipt; those refused before admission have none; the chain holds',
  async run(t) {
    const workspace = temporaryDirectory();
    const directory = join(workspace, 'receipts');
    mkdirSync(directory, { mode: 0o700 });
    writeFileSync(join(directory, 'notes.txt'), 'none of the receipts\n');
    const fifo = '2026-12-01.bbbbbbbbbbbb.jsonl';
    execFileSync('mkfifo', [join(directory, fifo)]);
    const s = await scene(t, { flags: ['--receipts'], workspace });
    const named: unknown[] = [];
    for (const [head, many] of Object.values(REFUSED)) {
      const socket = connect(s.stack.proxy.port, '127.0.0.1');
      let text = '';
      let [sent, answered] = [0, 0];
      const send = (): void => {
        const batch = Math.min(BATCH, many - sent);
        sent += batch;
        socket.write(head.repeat(batch));
      };
      socket.setEncoding('latin1').on('data', (part: string) => {
        const parts = (text + part).split('HTTP/1.1 4');
        answered += parts.length - 1;
        text = parts.at(-1)?.slice(-10) ?? '';
        if (answered === sent && sent < many) send();
      });
      send();
      while (answered < many) {
        named.push((await s.ask()).headers['privatemode-proxy-receipt']);
        await delay(50); // the flood has the proxy for itself: each turn begins one of its requests
      }
      socket.destroy();
    }
    assert.equal(s.stack.proxy.counters.receipts.lost, 0);
    await s.finish({ upstream: named.length });
    const written = readdirSync(directory)
      .filter((name) => name.endsWith('.jsonl') && name !== fifo)
      .flatMap((name) => readFileSync(join(directory, name), 'utf8').trimEnd().split('\n'))
      .map((line) => JSON.parse(line))
      .filter(({ type }) => type === 'request');
    const names = new Set(written.map(({ instance, id }) => `${instance}/${id}`));
    assert.deepEqual(
      named.filter((name) => !names.has(String(name))),
      [],
    );
    const { ok, requests, findings } = await checkReceipts(directory, { strict: true });
    assert.deepEqual([ok, requests, findings], [true, written.length, []]);
    const refused = Map.groupBy(written, ({ code }) => code);
    assert.equal(refused.get('invalid_json')?.length, REFUSED['invalid_json']?.[1]);
    assert.equal(written.length, named.length + (REFUSED['invalid_json']?.[1] ?? 0));
  },
};

export const CLIENT_SCENARIOS: readonly Scenario[] = [
  flooding,
  ...(['client abort', 'client half-close'] as const).flatMap((how) =>
    WINDOWS.flatMap((window) =>
      (['openai', 'anthropic'] as const).map((style) => leaving(how, window, style)),
    ),
  ),
];
