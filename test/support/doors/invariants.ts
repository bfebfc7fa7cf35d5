/**
 * What must hold after every fault, whatever the fault was: no canary where it does not belong, nothing plain
 * on the wire, nothing left behind, and a `/readyz` that tells the truth.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import { eventually } from '../processes/eventually.ts';
import type { Canaries } from './canaries.ts';
import { proxyAlone } from './library-door.ts';
import type { Stack } from './stack.ts';

/** Of this process, since the beginning: the runtime warns of listeners that pile up, among other things. */
const warnings: string[] = [];
process.on('warning', ({ name, message }) => warnings.push(`${name}: ${message}`));

/**
 * Watches one stack, and the files below `directories`; listeners and warnings of the whole process. Sockets
 * and timers are compared with `baseline`: connections that wait for the next request belong to it. A stack
 * that ends with its test needs none, but `assertReturned` afterwards.
 */
export async function guard(
  stack: Stack,
  canaries: Canaries,
  directories: readonly string[],
  baseline?: Resources,
) {
  const { simulator } = stack;
  const signals = listeners();
  let requestsBefore = simulator.counts['inference'] ?? 0;

  return {
    /**
     * Asserts every invariant, waiting for what ends by itself. `upstream` is the number of inference
     * requests since the last call; `shown` what clients were shown that must hold no canary: errors and
     * headers.
     */
    async verify({ upstream, shown = [] }: { upstream: number; shown?: readonly string[] }): Promise<void> {
      await atRest(stack);
      if (baseline !== undefined) await assertReturned(baseline);
      assert.deepEqual(listeners(), signals, 'listeners on the process');
      assert.deepEqual(warnings, [], 'warnings of the runtime');

      const requests = simulator.counts['inference'] ?? 0;
      assert.equal(requests - requestsBefore, upstream, 'requests that reached the service');
      requestsBefore = requests;

      assert.deepEqual(simulator.exchanges.violations(), [], 'rules of the wire');
      assert.equal(simulator.recorder.containing(canaries.prompt).length, 0, 'plaintext on the wire');
      const secrets = simulator.secrets.ids().flatMap((id) => {
        const secret = Buffer.from(simulator.secrets.lookup(id) ?? []);
        return [secret.toString('hex'), secret.toString('base64')];
      });
      const forbidden = [canaries.prompt, canaries.key, ...secrets].filter((text) => text !== '');
      refuse(forbidden, stack.logLines, 'the log');
      refuse(forbidden, shown, 'an error or a header');
      for (const directory of directories) assertClean(directory, forbidden);

      if (!proxyAlone('listener')) {
        const ready = stack.proxy.session.current() !== undefined;
        assert.equal(await status(`${stack.url}/readyz`), ready ? 204 : 503, '/readyz');
      }
      simulator.recorder.clear();
      simulator.exchanges.clear();
    },
  };
}

export type Guard = Awaited<ReturnType<typeof guard>>;

/** Nothing of a request is running any more, on either side. */
export async function atRest(stack: Stack): Promise<void> {
  const inService = (): number => stack.simulator.exchanges.inFlight();
  const inProxy = (): number => (proxyAlone('counters') ? 0 : stack.proxy.counters.inFlight);
  await eventually(
    () => `the end of ${inService()} requests in the service, ${inProxy()} in the proxy`,
    () => inService() + inProxy() === 0,
  );
}

/** Asserts that no file below `directory` contains any of these texts. */
export function assertClean(directory: string, forbidden: readonly string[]): void {
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const bytes = readFileSync(path);
    for (const text of forbidden) assert.ok(!bytes.includes(text), `${path} contains ${mask(text)}`);
  }
}

function refuse(forbidden: readonly string[], texts: readonly string[], where: string): void {
  for (const text of texts) {
    for (const needle of forbidden) assert.ok(!text.includes(needle), `${where} contains ${mask(needle)}`);
  }
}

/** A failing test must not print a secret either. */
const mask = (text: string): string => `${text.slice(0, 14)}…`;

export type Resources = ReadonlyMap<string, number>;

/** Open sockets, timers that keep the process alive, and the rest of what libuv knows of, by kind. */
export function resources(): Resources {
  const counts = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

/** Requests of the file system are nobody's leak: they end by themselves, and the next one is a new one. */
const PASSING = new Set(['FSReqCallback', 'FSReqPromise', 'FileHandle', 'Immediate', 'GetAddrInfoReqWrap']);

/** Waits until there is no more of anything than there was. */
export async function assertReturned(baseline: Resources): Promise<void> {
  const more = (): string[] => excess(resources(), baseline);
  await eventually(
    () => `an end of ${more().join('; ')}`,
    () => more().length === 0,
  );
}

const excess = (now: Resources, baseline: Resources): string[] =>
  [...now]
    .filter(([kind, count]) => !PASSING.has(kind) && count > (baseline.get(kind) ?? 0))
    .map(([kind, count]) => `${kind}: ${count}, was ${baseline.get(kind) ?? 0}`);

const listeners = (): Record<string, number> =>
  Object.fromEntries(process.eventNames().map((name) => [String(name), process.listenerCount(name)]));

function status(url: string): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  get(url, { agent: false }, (res) => {
    res.resume();
    res.on('close', () => resolve(res.statusCode as number));
  }).on('error', reject);
  return promise;
}
