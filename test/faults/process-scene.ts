/** A scenario that needs a process of its own: signals, limits of the system, memory. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Times } from '../../lib/times.ts';
import type { Simulator, SimulatorOptions } from '../../simulator/simulator.ts';
import { type Canaries, newCanaries } from '../support/doors/canaries.ts';
import { assertClean, assertReturned, resources } from '../support/doors/invariants.ts';
import { sharedHardware } from '../support/evidence/hardware.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';
import { ask, type ChatResponse, type Question } from './ask.ts';
import { question } from './scenario.ts';

export interface ProcessScene {
  readonly simulator: Simulator;
  readonly proxy: Program;
  readonly canaries: Canaries;
  readonly url: string;
  /** The simulator's files, and the proxy's workspace. */
  readonly directory: string;
  log(): string;
  /** Resolves when the remote has been verified. */
  ready(): Promise<unknown>;
  ask(overrides?: Partial<Question>): Promise<ChatResponse>;
  /** SIGTERM unless it has ended already, exit code 0, and every invariant that shows from outside. */
  finish(expected: { readonly upstream: number; readonly shown?: readonly string[] }): Promise<void>;
}

/**
 * A simulated deployment here, and the program in front of it in a process that ends with the test at the
 * latest.
 */
export async function processScene(
  t: TestContext,
  options: {
    readonly flags?: readonly string[];
    readonly limits?: string;
    readonly times?: Partial<Times>;
    /** Where the API key is; default: on the command line. */
    readonly keyFile?: (canaries: Canaries) => string;
    readonly simulator?: SimulatorOptions;
  } = {},
): Promise<ProcessScene> {
  const canaries = newCanaries();
  await sharedHardware(); // made once, and no part of what has to be returned
  const before = resources();
  const key = options.keyFile?.(canaries);
  const apiKey = key === undefined ? canaries.key : `@${key}`;
  const { simulator, directory, flags, env } = await startRemote({ ...options.simulator, apiKey });
  const proxy = await startProxyProcess(
    [...flags, '--port=0', '--log-level=debug', ...(options.flags ?? [])],
    env,
    options,
  );
  t.after(async () => {
    await proxy.stop('SIGKILL');
    await simulator.close();
  });
  return {
    simulator,
    proxy,
    canaries,
    url: proxy.url,
    directory,
    log: proxy.log,
    ready: () =>
      eventually(
        () => `the secret in ${proxy.log()}`,
        () => proxy.log().includes('Secret updated'),
      ),
    ask: (overrides) => ask(proxy.url, { ...question(canaries), ...overrides }),
    async finish({ upstream, shown = [] }) {
      await eventually('requests at rest', () => simulator.exchanges.inFlight() === 0);
      assert.equal(simulator.counts['inference'], upstream, 'requests that reached the service');
      assert.deepEqual(simulator.exchanges.violations(), [], 'rules of the wire');
      assert.equal(simulator.recorder.containing(canaries.prompt).length, 0, 'plaintext on the wire');
      assert.equal(await proxy.stop(), 0, proxy.log());
      for (const text of [proxy.log(), ...shown]) {
        assert.ok(!text.includes(canaries.prompt) && !text.includes(canaries.key), 'a canary was shown');
      }
      assert.doesNotMatch(proxy.log(), /Warning|uncaught|unhandled/i);
      assertClean(directory, [canaries.prompt, canaries.key]);
      await simulator.close();
      await assertReturned(before);
    },
  };
}
