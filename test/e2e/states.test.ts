/**
 * Each state of the proxy (docs/states.md), and what each view of it shows.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { StateName } from '../../lib/session/standing.ts';
import type { Times } from '../../lib/times.ts';
import type { Simulator, SimulatorOptions } from '../../simulator/simulator.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { assertEveryView } from '../support/doors/every-view.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

interface Scene {
  readonly simulator: Simulator;
  /** Where the proxy listens. */
  readonly proxy: { readonly url: string };
  readonly admin: number;
  readonly ask: (model?: string) => Promise<number>;
}

/** What the simulated service is like, and whether the proxy has a key. */
interface Options {
  readonly faults?: NonNullable<SimulatorOptions['faults']>;
  readonly apiKey?: null;
}

const asking =
  (proxy: { readonly url: string }) =>
  async (model = 'sim-echo'): Promise<number> => {
    const response = await askChat(proxy, { model });
    await response.arrayBuffer();
    return response.status;
  };

/** A proxy in this process. */
async function inStack(
  { faults, apiKey }: Options,
  times: Partial<Times> | undefined,
  use: (scene: Scene) => Promise<void>,
): Promise<void> {
  const admin = await freePort();
  const stack = await startStack({
    simulator: faults === undefined ? {} : { faults },
    managedManifest: true,
    flags: [`--admin-address=127.0.0.1:${admin}`, '--shutdown-grace=1s'],
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(times === undefined ? {} : { times }),
  });
  try {
    const { simulator } = stack;
    await use({ simulator, proxy: stack, admin, ask: asking(stack) });
  } finally {
    await stack.close();
  }
}

const faults = (given: NonNullable<SimulatorOptions['faults']>): Options => ({ faults: given });
const readyz = async ({ proxy }: Scene): Promise<string> => (await fetch(`${proxy.url}/readyz`)).text();
const reaches = (scene: Scene, state: StateName): Promise<unknown> =>
  eventually(state, async () => (await readyz(scene)).startsWith(`${state}:`));
const isReady = ({ proxy }: Scene): Promise<unknown> =>
  eventually('readiness', async () => (await fetch(`${proxy.url}/readyz`)).status === 204);
const denial = 'sim-echo+fault-once=no_secret';

const REACHED: readonly (readonly [
  state: StateName,
  how: string,
  options: Options,
  lead: (scene: Scene) => Promise<unknown>,
  rest?: { readonly ready?: true; readonly times?: Partial<Times> },
])[] = [
  ['verified', 'at the start', {}, isReady],
  [
    'rejected-once',
    'at the first rejection',
    faults({ 'evidence-debug': true }),
    (scene) => reaches(scene, 'rejected-once'),
    { times: { confirmAfter: 600_000 } },
  ],
  [
    'rejected',
    'at the second rejection',
    faults({ 'evidence-debug': true }),
    (scene) => reaches(scene, 'rejected'),
  ],
  [
    'client-too-old',
    'if the service requires a newer client',
    faults({ 'minimum-version': 'v1.99.0' }),
    (scene) => reaches(scene, 'client-too-old'),
  ],
  [
    'unreachable',
    'if the service answers with an error',
    faults({ 'attest-status': 503 }),
    (scene) => reaches(scene, 'unreachable'),
  ],
  [
    'starting',
    'if the service does not answer',
    faults({ 'attest-hang': true }),
    (scene) => reaches(scene, 'starting'),
  ],
  ['awaiting-key', 'without a key', { apiKey: null }, isReady, { ready: true }],
  [
    'key-refused',
    'after its key was revoked and the secret denied',
    {},
    async (scene) => {
      await isReady(scene);
      scene.simulator.setApiKeys(['another']);
      await scene.ask(denial);
      await reaches(scene, 'key-refused');
    },
  ],
  [
    'not-renewable',
    'after a false denial of the secret and a failed renewal',
    {},
    async (scene) => {
      await isReady(scene);
      scene.simulator.faults.set('attest-status', 503);
      assert.equal(await scene.ask(denial), 503);
      assert.equal(await scene.ask(), 200);
      await isReady(scene);
    },
  ],
];

const look = async (
  scene: Scene,
  state: StateName,
  lead: (typeof REACHED)[number][3],
  ready?: true,
): Promise<void> => {
  await lead(scene);
  await assertEveryView(scene.proxy, scene.admin, state, ready === undefined ? {} : { ready });
};

describe('a proxy', { timeout: 600_000, concurrency: 4 }, () => {
  for (const [state, how, options, lead, { ready, times } = {}] of REACHED) {
    it(`has the state ${state} ${how}, in every view of the state`, () =>
      inStack(options, times, (scene) => look(scene, state, lead, ready)));
  }
});
