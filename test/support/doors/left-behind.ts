/**
 * What a scene leaves behind: listeners, timers, bodies and answers that should have gone with the requests
 * they belong to.
 */
import { AsyncLocalStorage, createHook } from 'node:async_hooks';
import { getEventListeners } from 'node:events';
import type { Readable } from 'node:stream';
import type { Upstream, UpstreamResponse } from '../../../lib/network/upstream.ts';
import type { Session } from '../../../lib/session/session.ts';

export interface SceneWatch {
  /** Both see what passes through them. */
  session(session: Session): Session;
  upstream(upstream: Upstream): Upstream;
  /** Runs it; timers that are set in it, and in what it starts, are of this scene. */
  run<T>(start: () => Promise<T>): Promise<T>;
  /**
   * What is left of the requests, in words; empty where all is gone. To be asked while the gateway is open.
   */
  ofRequests(): string[];
  /** Where the timers were set that are still waiting. */
  timers(): string[];
}

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

export function watchScene(): SceneWatch {
  hook.enable();
  const signals = new Set<AbortSignal>();
  const bodies: Readable[] = [];
  const answers: UpstreamResponse[] = [];
  const timers: SetTimer[] = [];
  return {
    session: (session) => ({
      ...session,
      acquire(request) {
        signals.add(request.signal as AbortSignal);
        return session.acquire(request);
      },
    }),
    upstream: ({ authority, send }) => ({
      authority,
      async send(res, attempt) {
        signals.add(attempt.signal);
        if (attempt.body !== undefined) bodies.push(attempt.body);
        const answer = await send(res, attempt);
        answers.push(answer);
        return answer;
      },
    }),
    run: (start) => scenes.run(timers, start),
    ofRequests: () => [
      ...[...signals]
        .filter((signal) => getEventListeners(signal, 'abort').length > 0)
        .map(() => 'a listener of an abort signal'),
      ...bodies.filter(({ destroyed }) => !destroyed).map(() => 'a sealed body'),
      ...answers
        .filter(({ response }) => !response.destroyed && !response.readableEnded)
        .map(() => 'an answer of the remote'),
    ],
    timers: () =>
      timers
        .filter(({ timer }) => timer.deref()?._destroyed === false)
        .map(({ where }) => `a timer of ${where}`),
  };
}
