/**
 * What the gateway makes for one short request: promises, listeners and timers, and the files that it runs
 * through. Client and service are in a thread of their own, so only the gateway's share is counted. A figure
 * above its limit is a step of the path that was not there; one below it lowers the limit.
 */
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { EventEmitter, once } from 'node:events';
import { Session } from 'node:inspector/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { createLogger } from '../../lib/observe/log.ts';
import { TIMES } from '../../lib/times.ts';
import { EPOCH, fakeSession, startGateway, type TestGateway } from '../support/doors/gateway.ts';
import { eventually } from '../support/processes/eventually.ts';
import { startScriptedUpstream } from '../support/remote/scripted-upstream.ts';
import { chatStream, completion } from '../support/remote/sealed-answers.ts';

const WARM = 100;
const COUNTED = 50;
/** Of a whole response on connections that are kept; on average. */
const LIMITS = { promises: 14, listeners: 31, timers: 3 };
type Made = keyof typeof LIMITS;
/** Of lib, with a function that one streamed request calls. */
const FILES = 45;

interface Asking {
  readonly port: number;
  readonly requests: number;
  readonly stream: boolean;
}

/** The thread of client and service: tells where the service is, then asks one request after the other. */
async function otherThread(): Promise<void> {
  const upstream = await startScriptedUpstream();
  upstream.on(async (scripted) => {
    const body = await scripted.body();
    const stream = scripted.request.headers['privatemode-target-model'] === 'stream';
    await scripted.write(stream ? chatStream(body) : completion(body));
  });
  parentPort?.on('message', async ({ port, requests, stream }: Asking) => {
    const body = JSON.stringify({ model: stream ? 'stream' : 'whole', stream, messages: [] });
    const answers = new Set<string>();
    for (let i = 0; i < requests; i++) {
      const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, { method: 'POST', body });
      answers.add(`${response.status} ${(await response.text()).slice(-20)}`);
    }
    parentPort?.postMessage([...answers]);
  });
  parentPort?.postMessage({ port: upstream.port, ca: upstream.ca });
}

/** Counts what this thread makes while `work` runs. */
async function counted(work: () => Promise<void>): Promise<Record<Made, number>> {
  const made = { promises: 0, listeners: 0, timers: 0 };
  const hook = createHook({
    init(_id, type) {
      if (type === 'PROMISE') made.promises++;
      if (type === 'Timeout') made.timers++;
    },
  });
  const names = ['on', 'addListener', 'prependListener'] as const; // once() and the like call one of them
  const originals = names.map((name) => EventEmitter.prototype[name]);
  names.forEach((name, i) => {
    EventEmitter.prototype[name] = function counting(this: EventEmitter, ...args) {
      made.listeners++;
      return (originals[i] as (typeof originals)[number]).apply(this, args);
    };
  });
  hook.enable();
  try {
    await work();
  } finally {
    hook.disable();
    names.forEach((name, i) => {
      EventEmitter.prototype[name] = originals[i] as (typeof originals)[number];
    });
  }
  return made;
}

function describePath(): void {
  describe('the path of a short request', { timeout: 120_000 }, () => {
    let other: Worker;
    let gateway: TestGateway;
    before(async () => {
      other = new Worker(new URL(import.meta.url));
      const [upstream] = await once(other, 'message');
      gateway = await startGateway({
        upstream,
        session: fakeSession({ acquire: () => EPOCH }),
        times: TIMES, // those of the product: one timer may serve several waits
        deps: { log: createLogger({ format: 'json', level: 30, output: { write: () => {} } }) },
      });
    });
    after(async () => {
      await gateway?.close();
      await other?.terminate();
    });

    const ask = async (requests: number, stream: boolean): Promise<void> => {
      other.postMessage({ port: gateway.port, requests, stream } satisfies Asking);
      const [answers] = await once(other, 'message');
      assert.equal(answers.length, 1, answers.join('\n'));
      assert.match(answers[0], stream ? /^200 [\s\S]*\[DONE\]\n\n$/ : /^200 [\s\S]*\}\}$/);
      await eventually('the end of all', () => gateway.active() === 0);
    };

    it('makes no more promises, listeners and timers than its limits allow', async (t) => {
      await ask(WARM, false);
      const made = await counted(() => ask(COUNTED, false));
      for (const what of Object.keys(LIMITS) as Made[]) {
        const average = Math.round(made[what] / COUNTED); // and not what asking makes
        t.diagnostic(`a whole response makes ${average} ${what}, at most ${LIMITS[what]}`);
        assert.ok(average > 0, `no ${what} were counted`);
        assert.ok(average <= LIMITS[what], `${average} ${what}, more than ${LIMITS[what]}`);
      }
    });

    it('runs through no more files than its limit allows, if it is streamed and warm', async (t) => {
      const session = new Session();
      session.connect();
      t.after(() => session.disconnect());
      await session.post('Profiler.enable');
      await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
      await ask(WARM, true);
      await session.post('Profiler.takePreciseCoverage'); // and sets all counts to zero
      await ask(1, true);
      const { result } = await session.post('Profiler.takePreciseCoverage');
      const lib = pathToFileURL(join(import.meta.dirname, '../../lib/')).href;
      const files = result
        .filter(
          ({ url, functions }) =>
            url.startsWith(lib) && functions.some(({ ranges: [all] }) => all!.count > 0),
        )
        .map(({ url }) => url.slice(lib.length));
      t.diagnostic(`${files.length} files of lib, at most ${FILES}: ${files.toSorted().join(' ')}`);
      assert.ok(files.length > 0, 'no file was counted');
      assert.ok(files.length <= FILES, `${files.length} files, more than ${FILES}`);
    });
  });
}

if (isMainThread) describePath();
else await otherThread();
