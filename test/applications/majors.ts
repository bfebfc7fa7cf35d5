/** The cases of one maker's official client, for its current and its previous major. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Stack } from '../support/doors/stack.ts';

interface Majors<Class, Scene> {
  /** By the name that each gives itself. */
  readonly clients: Readonly<Record<string, Class>>;
  /** By what the client does in them. */
  readonly cases: Readonly<Record<string, (scene: Scene) => Promise<void>>>;
  readonly start: (Client: Class) => Promise<Scene>;
  /** Words of the requests that nobody may read at the remote. */
  readonly hidden: readonly string[];
  /** Cases that only one door has, with the reason. */
  readonly skips?: Readonly<Record<string, string | false>>;
}

/** Each case through each client; then that the remote read none of it. */
export function describeMajors<Class, Scene extends { readonly stack: Stack }>({
  clients,
  cases,
  start,
  hidden,
  skips = {},
}: Majors<Class, Scene>): void {
  for (const [name, Client] of Object.entries(clients)) {
    describe(name, () => {
      let scene: Scene;
      before(async () => {
        scene = await start(Client);
      });
      after(() => scene.stack.close());

      for (const [what, run] of Object.entries(cases))
        it(what, { skip: skips[what] ?? false }, () => run(scene));

      it('shows the service no prompt, tool, user or header of its requests, and violates no rule of the protocol', () => {
        const { recorder, exchanges } = scene.stack.simulator;
        assert.ok(exchanges.all().length >= Object.keys(cases).length, 'nearly nothing was recorded');
        for (const word of hidden) {
          const paths = recorder.containing(word).map(({ path }) => path);
          assert.deepEqual(paths, [], word);
        }
        assert.deepEqual(exchanges.violations(), []);
      });
    });
  }

  it(`${Object.keys(clients).join(' and ')} are two successive majors`, () => {
    const [current, previous] = Object.keys(clients).map((name) => Number(/ (\d+)\./.exec(name)?.[1]));
    assert.equal((current as number) - 1, previous);
  });
}
