/** What can go wrong beyond a single answer: a scenario is a test. */
import type { TestContext } from 'node:test';
import { type Canaries, newCanaries } from '../support/doors/canaries.ts';
import { assertReturned, type Guard, guard, resources } from '../support/doors/invariants.ts';
import { type Stack, sharedHardware, startStack } from '../support/doors/stack.ts';
import { ask, type ChatResponse, type Question } from './ask.ts';

export interface Scenario {
  /** In the words of the catalogue. */
  readonly name: string;
  /** What the client, the operator and the service see of it. */
  readonly outcome: string;
  readonly run: (t: TestContext) => Promise<void>;
}

export interface Scene {
  readonly stack: Stack;
  readonly canaries: Canaries;
  /** Asks for a stream in the OpenAI API style; the prompt is the canary, several times over. */
  ask(overrides?: Partial<Question>): Promise<ChatResponse>;
  /**
   * The end of the scene: every invariant, with this many requests at the service; then nothing may be left
   * of it.
   */
  finish(expected: Parameters<Guard['verify']>[0]): Promise<void>;
}

/** A watched stack of its own, that ends with the test at the latest. */
export async function scene(t: TestContext, options: Parameters<typeof startStack>[0] = {}): Promise<Scene> {
  const canaries = newCanaries();
  await sharedHardware();
  const before = resources();
  const stack = await startStack({ apiKey: canaries.key, ...options });
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= stack.close();
    return closed;
  };
  t.after(close);
  const watched = await guard(stack, canaries, [stack.directory]);
  return {
    stack,
    canaries,
    ask: (overrides) => ask(stack.url, { ...question(canaries), ...overrides }),
    async finish(expected) {
      await watched.verify(expected);
      await close();
      await assertReturned(before);
    },
  };
}

export const question = ({ prompt }: Canaries): Question => ({
  style: 'openai',
  mode: 'stream',
  model: 'sim-echo',
  prompt: Array.from({ length: 12 }, (_, i) => `${prompt}-${i}`).join(' '),
});
