/**
 * What a scene leaves behind: timers, bodies and answers that should have gone with the requests
 * they belong to.
 */
import { AsyncLocalStorage, createHook } from 'node:async_hooks';
import { Readable } from 'node:stream';
import type { Upstream, UpstreamResponse } from '../../../lib/network/upstream.ts';

interface SetTimer {
  readonly timer: WeakRef<{ readonly _destroyed: boolean }>;
  readonly where: string;
}

/** Files whose timers belong to a request; those of listeners and agents go when they like. */
const OF_REQUESTS =
  /lib\/(limits\/waiting-line|gateway\/[\w-]+|pipeline\/decrypt-stream|network\/upstream)\.ts:\d+/;
const scenes = new AsyncLocalStorage<SetTimer[]>();
const hook = createHook({
  init(_id, type, _trigger, resource) {
    const scene = type === 'Timeout' ? scenes.getStore() : undefined;
    const where = scene && OF_REQUESTS.exec(new Error().stack ?? '')?.[0];
    if (where) scene.push({ timer: new WeakRef(resource as { readonly _destroyed: boolean }), where });
  },
});

export function watchScene() {
  hook.enable();
  const bodies: Readable[] = [];
  const answers: UpstreamResponse[] = [];
  const timers: SetTimer[] = [];
  return {
    /** Sees what passes through it. */
    upstream: ({ authority, send }: Upstream): Upstream => ({
      authority,
      send(res, attempt) {
        if (attempt.body instanceof Readable) bodies.push(attempt.body);
        const sending = send(res, attempt);
        sending.outcome.then(
          (answer) => answers.push(answer),
          () => {},
        );
        return sending;
      },
    }),
    /** Runs it; timers that are set in it, and in what it starts, are of this scene. */
    run: <T>(start: () => Promise<T>): Promise<T> => scenes.run(timers, start),
    /** What is left of the requests, in words. To be asked while the gateway is open. */
    ofRequests: (): string[] => [
      ...bodies.filter(({ destroyed }) => !destroyed).map(() => 'a sealed body'),
      ...answers
        .filter(({ response }) => !response.destroyed && !response.readableEnded)
        .map(() => 'an answer of the remote'),
    ],
    /** Where the timers were set that are still waiting. */
    timers: (): string[] =>
      timers
        .filter(({ timer }) => timer.deref()?._destroyed === false)
        .map(({ where }) => `a timer of ${where}`),
  };
}
