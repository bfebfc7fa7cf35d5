/** A deployment and the program in front of it, watched to their end. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Times } from '../../lib/times.ts';
import type { Simulator, SimulatorOptions } from '../../simulator/simulator.ts';
import { type Canaries, newCanaries } from '../support/doors/canaries.ts';
import { assertClean, assertReturned, type Guard, guard, resources } from '../support/doors/invariants.ts';
import { type Stack, sharedHardware, startStack } from '../support/doors/stack.ts';
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

export interface Scene {
  readonly stack: Stack;
  ask(overrides?: Partial<Question>): Promise<ChatResponse>;
  /** Status of /readyz. */
  ready(): Promise<number>;
  /** Every invariant, with this many requests at the service; then nothing may be left of the scene. */
  finish(expected: Parameters<Guard['verify']>[0]): Promise<void>;
}

/** A stack in this process, that ends with the test at the latest. */
export async function scene(t: TestContext, options: Parameters<typeof startStack>[0] = {}): Promise<Scene> {
  const canaries = newCanaries();
  await sharedHardware(); // made once, and no part of what has to be returned
  const before = resources();
  const stack = await startStack({ apiKey: canaries.key, managedManifest: true, ...options });
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= stack.close();
    return closed;
  };
  t.after(close);
  const watched = await guard(stack, canaries, [stack.directory]);
  return {
    stack,
    ask: (overrides) => ask(stack.url, { ...question(canaries), ...overrides }),
    async ready() {
      const { status, body } = await fetch(`${stack.url}/readyz`, { headers: { connection: 'close' } });
      await body?.cancel();
      return status;
    },
    async finish(expected) {
      await watched.verify(expected);
      await close();
      await assertReturned(before);
    },
  };
}

export interface ProcessScene {
  readonly simulator: Simulator;
  readonly proxy: Program;
  readonly canaries: Canaries;
  /** The simulator's files, and the proxy's workspace. */
  readonly directory: string;
  /** Resolves once the log says this. */
  logs(words: string): Promise<unknown>;
  ask(overrides?: Partial<Question>): Promise<ChatResponse>;
  /** SIGTERM unless it has ended already, exit code 0, and every invariant that shows from outside. */
  finish(expected: { readonly upstream: number; readonly shown?: readonly string[] }): Promise<void>;
}

/** The program in a process of its own, for signals, limits of the system, memory. */
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
  await sharedHardware();
  const before = resources();
  const key = options.keyFile?.(canaries);
  const apiKey = key === undefined ? canaries.key : `@${key}`;
  const { simulator, directory, flags, env } = await startRemote({ ...options.simulator, apiKey });
  const more = ['--port=0', '--log-level=debug', ...(options.flags ?? [])];
  const proxy = await startProxyProcess([...flags, ...more], env, options);
  t.after(async () => {
    await proxy.stop('SIGKILL');
    await simulator.close();
  });
  return {
    simulator,
    proxy,
    canaries,
    directory,
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
