/** Clients that do not read what they asked for. */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '../../support/processes/eventually.ts';
import { send } from '../ask.ts';
import { type ProcessScene, processScene } from '../process-scene.ts';
import { question, type Scenario, scene } from '../scenario.ts';

/** Resident memory of the proxy in MB; what the kernel holds for its sockets is not part of it. */
function megabytes({ proxy }: ProcessScene): number {
  const status = readFileSync(`/proc/${proxy.process.pid}/status`, 'utf8');
  return Math.round(Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024);
}

/** Asks without reading, a few at a time: the handshakes of a thousand connections take their while. */
async function askUnread(t: TestContext, s: ProcessScene, count: number, model: string): Promise<Socket[]> {
  const sockets: Socket[] = [];
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  const port = Number(new URL(s.url).port);
  for (let i = 0; i < count; i++) {
    sockets.push(send(port, { ...question(s.canaries), prompt: s.canaries.prompt, model }).pause());
    if (i % 20 === 19) await delay(40);
  }
  return sockets;
}

/** Another client gets its answer in time. */
async function servesOthers(s: ProcessScene): Promise<void> {
  const started = performance.now();
  assert.ok((await s.ask({ model: 'sim-20x10' })).terminal);
  const took = performance.now() - started;
  assert.ok(took < 15_000, `another client waited ${Math.round(took)} ms`);
}

/** A file with the answer of the model `endless`, in events of 100 KB. */
function endlessTranscript(t: TestContext): string {
  const choice = { index: 0, delta: { content: 'x'.repeat(100_000) }, logprobs: null, finish_reason: null };
  const data = {
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 1_700_000_000,
    model: 'endless',
    choices: [choice],
    usage: { prompt_tokens: 1, total_tokens: 2, completion_tokens: 1 },
  };
  const path = join(tmpdir(), `privatemode-transcript-${process.pid}.json`);
  writeFileSync(
    path,
    JSON.stringify({ endless: { events: Array.from({ length: 2_000 }, () => ({ data })) } }),
  );
  t.after(() => rmSync(path, { force: true }));
  return path;
}

const THOUSAND = 1_000;
/** MB for a thousand connections, on either side, with their streams. */
const THOUSAND_MAY_TAKE = 400;
const ENDLESS = 20;
/** MB for twenty, garbage included; what they are offered is four thousand. */
const ENDLESS_MAY_TAKE = 300;

export const SLOW_READER_SCENARIOS: readonly Scenario[] = [
  {
    name: '1,000 slow readers',
    outcome: `memory grows by less than ${THOUSAND_MAY_TAKE} MB, another client is served as usual, and all get the whole answer`,
    async run(t) {
      const s = await processScene(t, {
        times: { connectTimeout: 60_000 },
        limits: 'ulimit -n 8192',
        simulator: { recorded: 2 * THOUSAND },
      });
      await s.ready();
      assert.ok((await s.ask()).terminal);
      const before = megabytes(s);
      const sockets = await askUnread(t, s, THOUSAND, 'sim-20x400');
      await eventually(
        'every answer given',
        () => {
          const running = s.simulator.exchanges.inFlight();
          const asked = s.simulator.counts['inference'];
          return running === 0 && asked === THOUSAND + 1;
        },
        60_000,
        100,
      );
      const grown = megabytes(s) - before;
      t.diagnostic(`${THOUSAND} readers: ${grown} MB more`);
      assert.ok(grown < THOUSAND_MAY_TAKE, `${grown} MB more`);
      await servesOthers(s);
      const answers = await Promise.all(sockets.map((socket) => readToEnd(socket)));
      const whole = answers.filter((text) => text.includes('data: [DONE]') && text.endsWith('0\r\n\r\n'));
      assert.equal(whole.length, THOUSAND);
      await s.finish({ upstream: THOUSAND + 2 });
    },
  },
  {
    name: `${ENDLESS} readers who stop reading an endless answer`,
    outcome: `the proxy stops reading from the service: memory grows by less than ${ENDLESS_MAY_TAKE} MB, another client is served as usual`,
    async run(t) {
      const s = await processScene(t, { simulator: { transcripts: endlessTranscript(t) } });
      await s.ready();
      assert.ok((await s.ask()).terminal);
      const before = megabytes(s);
      const sockets = await askUnread(t, s, ENDLESS, 'endless');
      let written = 0;
      await eventually(
        'every stream stuck',
        () => {
          const now = s.simulator.exchanges.all().reduce((sum, exchange) => sum + exchange.written, 0);
          const moved = now > written || s.simulator.exchanges.inFlight() < ENDLESS;
          written = now;
          return !moved;
        },
        60_000,
        1_000,
      );
      const grown = megabytes(s) - before;
      t.diagnostic(`${ENDLESS} stuck streams, ${written / 10} MB written: ${grown} MB more`);
      assert.ok(grown < ENDLESS_MAY_TAKE, `${grown} MB more`);
      await servesOthers(s);
      for (const socket of sockets) socket.destroy();
      await s.finish({ upstream: ENDLESS + 2 });
    },
  },
  {
    name: 'a client that reads nothing of an endless answer for ten minutes',
    outcome: 'its exchange ends and its place is free for the next request; the log says why',
    async run(t) {
      const s = await scene(t, {
        flags: ['--max-in-flight=1'],
        times: { readerWait: 500 },
        simulator: { transcripts: endlessTranscript(t) },
      });
      const socket = send(s.stack.proxy.port, { ...question(s.canaries), model: 'endless' }).pause();
      t.after(() => socket.destroy());
      await eventually('its place', () => s.stack.simulator.exchanges.inFlight() === 1);
      assert.ok((await s.ask()).terminal);
      const ended = s.stack.logLines.map((line) => JSON.parse(line)).filter(({ code }) => code !== undefined);
      assert.deepEqual(
        ended.map(({ code, outcome, reason }) => [code, outcome, reason]),
        [['response_not_read', 'broken_off', 'the client has taken nothing of its response for too long']],
      );
      socket.destroy();
      await s.finish({ upstream: 2 });
    },
  },
];

function readToEnd(socket: Socket): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    if (chunk.includes('0\r\n\r\n')) resolve(Buffer.concat(chunks).toString());
  });
  socket.on('close', () => resolve(Buffer.concat(chunks).toString()));
  socket.resume();
  return promise.finally(() => socket.destroy());
}
