/**
 * Each state of the proxy (docs/states.md), in a real process and in workers, and what each view of it shows.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { StateName } from '../../lib/session/standing.ts';
import type { SimulatorOptions } from '../../simulator/simulator.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { assertEveryView } from '../support/doors/every-view.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

interface Scene {
  readonly remote: Remote;
  readonly proxy: Program;
  readonly admin: number;
  readonly ask: (model?: string) => Promise<number>;
}

type Options = Parameters<typeof startRemote>[0];

async function inScene(
  options: Options,
  more: readonly string[],
  use: (scene: Scene) => Promise<void>,
  before?: (remote: Remote) => void,
): Promise<void> {
  await using opened = new AsyncDisposableStack();
  const remote = await startRemote(options);
  opened.defer(() => remote.close());
  before?.(remote);
  const admin = await freePort();
  const flags = [...remote.flags, '--port=0', `--admin-address=127.0.0.1:${admin}`, '--shutdown-grace=1s'];
  const proxy = await startProxyProcess([...flags, ...more], remote.env);
  opened.defer(async () => void (await proxy.stop('SIGKILL')));
  const ask = async (model = 'sim-echo'): Promise<number> => {
    const response = await askChat(proxy, { model });
    await response.arrayBuffer();
    return response.status;
  };
  await use({ remote, proxy, admin, ask });
}

const faults = (given: NonNullable<SimulatorOptions['faults']>): Options => ({ faults: given });
const readyz = async ({ proxy }: Scene): Promise<string> => (await fetch(`${proxy.url}/readyz`)).text();
/** Until the state is known to every process. */
const reaches = (scene: Scene, state: StateName): Promise<unknown> =>
  eventually(state, async () => (await readyz(scene)).startsWith(`${state}:`));
const isReady = ({ proxy }: Scene): Promise<unknown> =>
  eventually('readiness', async () => (await fetch(`${proxy.url}/readyz`)).status === 204);
/** Otherwise a second rejection follows after six seconds, which may be over before the proxy listens. */
async function hangAfterFirst({ recorder, faults }: Remote['simulator']): Promise<void> {
  await eventually('an attestation', () => recorder.requests().some(({ path }) => path.endsWith('/attest')));
  await delay(2_000); // it has been answered then
  faults.set('attest-hang', true);
}
const denial = 'sim-echo+fault-once=no_secret';

const REACHED: readonly (readonly [
  state: StateName,
  how: string,
  options: Options,
  lead: (scene: Scene) => Promise<unknown>,
  ready?: true | undefined,
  before?: (remote: Remote) => void,
])[] = [
  ['verified', 'at the start', {}, isReady],
  [
    'rejected-once',
    'at the first rejection',
    faults({ 'evidence-debug': true }),
    (scene) => reaches(scene, 'rejected-once'),
    undefined,
    ({ simulator }) => void hangAfterFirst(simulator),
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
  ['awaiting-key', 'without a key', { apiKey: null }, isReady, true],
  [
    'key-refused',
    'after its key was revoked and the secret denied',
    {},
    async (scene) => {
      await isReady(scene);
      scene.remote.simulator.setApiKeys(['another']);
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
      scene.remote.simulator.faults.set('attest-status', 503);
      assert.equal(await scene.ask(denial), 503);
      // A worker that has not heard of the suspension yet takes no answer for a proof.
      await eventually('the next answer', async () => {
        assert.equal(await scene.ask(), 200);
        return (await fetch(`${scene.proxy.url}/readyz`)).status === 204;
      });
    },
  ],
];

/** What workers hear of while they serve; the others are reached as in one process. */
const HEARD: readonly StateName[] = ['verified', 'rejected', 'awaiting-key', 'key-refused', 'not-renewable'];

for (const [mode, flags, states] of [
  ['one process', [], REACHED],
  ['two workers', ['--workers=2'], REACHED.filter(([state]) => HEARD.includes(state))],
] as const) {
  describe(`a proxy in ${mode}`, { timeout: 600_000, concurrency: 4 }, () => {
    for (const [state, how, options, lead, ready, before] of states) {
      it(`has the state ${state} ${how}, in every view of the state`, async () => {
        const look = async (scene: Scene): Promise<void> => {
          await lead(scene);
          await delay(100); // workers are told one after the other
          const told = ready === undefined ? {} : { ready };
          await assertEveryView(scene.proxy, scene.admin, state, told);
        };
        await inScene(options, flags, look, before);
      });
    }
  });
}

describe('a proxy with a given manifest', { timeout: 600_000, concurrency: true }, () => {
  it('ends with 1 if evidence that hardware has signed shows another manifest twice', async () => {
    await inScene({}, [`--manifest-path=${await otherManifest()}`], async ({ proxy }) => {
      assert.equal(await exit(proxy), 1);
      assert.match(
        proxy.log(),
        /The proxy cannot go on.*code=manifest_mismatch.*compare it with what its publisher shows/,
      );
    });
  });

  it('keeps running while evidence with a bad signature shows another manifest, and ends with 1 once it is good', async () => {
    const options = faults({ 'evidence-signature': true });
    await inScene(options, [`--manifest-path=${await otherManifest()}`], async (scene) => {
      const { proxy, remote, ask } = scene;
      await reaches(scene, 'rejected');
      assert.match(await readyz(scene), /manifest_mismatch: no hardware vouches for this evidence/);
      assert.equal(await ask(), 400);
      assert.equal(proxy.process.exitCode, null);
      remote.simulator.faults.clear();
      const ended = exit(proxy);
      await eventually('the end of the proxy', () =>
        ask().then(
          () => false,
          () => true,
        ),
      );
      assert.equal(await ended, 1);
    });
  });

  it('ends with 1 at once if it does not understand the given manifest', async () => {
    const path = await otherManifest((text) => JSON.stringify({ ...JSON.parse(text), NewRestriction: true }));
    await inScene({}, [`--manifest-path=${path}`], async ({ proxy }) => {
      assert.equal(await exit(proxy), 1);
      assert.match(proxy.log(), /The proxy cannot go on/);
    });
  });
});

const exit = async ({ process: child }: Program): Promise<number | null> => {
  await eventually('the end of the proxy', () => child.exitCode !== null);
  return child.exitCode;
};

/** The path of a manifest like that of another deployment, changed further where that is asked for. */
async function otherManifest(change = (text: string) => text): Promise<string> {
  const other = await startRemote();
  await other.simulator.rotateManifest();
  const path = join(other.directory, 'other.json');
  writeFileSync(path, change(Buffer.from(other.simulator.manifest).toString()));
  await other.close();
  return path;
}
