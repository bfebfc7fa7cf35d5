/** A deployment and the program in front of it, watched to their end. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Simulator, SimulatorOptions } from '../../simulator/simulator.ts';
import { type Canaries, newCanaries } from '../support/doors/canaries.ts';
import { assertClean, assertReturned, resources } from '../support/doors/invariants.ts';
import { sharedHardware } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';
import { ask, type ChatResponse, type Question } from './ask.ts';

/** Asks for a stream in the OpenAI API style; the prompt is the canary, several times over. */
const question = ({ prompt }: Canaries): Question => ({
  style: 'openai',
  mode: 'stream',
  model: 'sim-echo',
  prompt: Array.from({ length: 12 }, (_, i) => `${prompt}-${i}`).join(' '),
});

export interface ProcessScene {
  readonly simulator: Simulator;
  readonly proxy: Program;
  readonly canaries: Canaries;
  /** Resolves once the log says this. */
  logs(words: string): Promise<unknown>;
  ask(overrides?: Partial<Question>): Promise<ChatResponse>;
  /** SIGTERM unless it has ended already, exit code 0, and every invariant that shows from outside. */
  finish(expected: { readonly upstream: number; readonly shown?: readonly string[] }): Promise<void>;
}

/** The program in a process of its own, for limits of the system and memory. */
export async function processScene(
  t: TestContext,
  options: {
    readonly limits?: string;
    readonly simulator?: SimulatorOptions;
  } = {},
): Promise<ProcessScene> {
  const canaries = newCanaries();
  await sharedHardware();
  const before = resources();
  const { simulator, directory, flags, env } = await startRemote({
    ...options.simulator,
    apiKey: canaries.key,
  });
  const proxy = await startProxyProcess([...flags, '--port=0', '--log-level=debug'], env, options);
  t.after(async () => {
    await proxy.stop('SIGKILL');
    await simulator.close();
  });
  return {
    simulator,
    proxy,
    canaries,
    logs: (words) =>
      eventually(
        () => `${words} in ${proxy.log()}`,
        () => proxy.log().includes(words),
      ),
    ask: (overrides) => ask(proxy.url, { ...question(canaries), ...overrides }),
    async finish({ upstream, shown = [] }) {
      await eventually('requests at rest', () => simulator.exchanges.inFlight() === 0);
      assert.equal(simulator.counts['inference'], upstream, 'requests that reached the service');
      assert.deepEqual(simulator.exchanges.violations(), [], 'rules of the wire');
      assert.equal(simulator.recorder.containing(canaries.prompt).length, 0, 'plaintext on the wire');
      assert.equal(await proxy.stop(), 0, proxy.log());
      for (const text of [proxy.log(), ...shown])
        assert.ok(!text.includes(canaries.prompt) && !text.includes(canaries.key), 'a canary was shown');
      assert.doesNotMatch(proxy.log(), /Warning|uncaught|unhandled/i);
      assertClean(directory, [canaries.prompt, canaries.key]);
      await simulator.close();
      await assertReturned(before);
    },
  };
}
