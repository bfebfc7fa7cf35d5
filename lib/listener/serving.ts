/** Opens a shared port only while there is a secret, and lets responses end when the proxy stops. */
import { type Clock, pause } from '../clock.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Listener } from './listen.ts';

type Log = Record<'info' | 'warn', (fields: Record<string, number>, message: string) => void>;

interface Sharing {
  /** `expiresMonotonic`: the end of the secret, in ms of the monotonic clock. */
  readonly session: { held(): { readonly expiresMonotonic: number } | undefined };
  readonly onPermanent: (error: PrivatemodeError) => void; // `error` is listen_failed
  readonly log: Log;
  readonly clock: Clock;
}

/**
 * Opens the port of `listener`, which has `reusePort`, while there is a secret, and closes it otherwise. The
 * system spreads connections over all processes that listen, even over one that could only refuse requests.
 */
export function sharePort(listener: Pick<Listener, 'open' | 'shut' | 'isOpen'>, sharing: Sharing) {
  const { session, onPermanent, log, clock } = sharing;
  const first = Promise.withResolvers<void>();
  let isOpening = false;
  let hasEnded = false;
  let cancelLook = (): void => {};

  /** Called whenever the state of the session may have changed. */
  async function look(): Promise<void> {
    cancelLook();
    const ends = hasEnded ? undefined : session.held()?.expiresMonotonic;
    // No event reports the expiry of a secret. The timer also keeps the process alive while nothing listens.
    const wait = ends === undefined ? clock.times.standingLook : ends - clock.monotonic();
    if (!hasEnded) cancelLook = clock.after(wait, look, 'waiting');
    if (ends === undefined) {
      if (listener.isOpen())
        log.info({}, hasEnded ? 'The port is closed' : 'The port is closed: no secret is in force');
      return void listener.shut();
    }
    if (isOpening || listener.isOpen()) return;
    isOpening = true;
    const failure = await listener.open().catch(asPrivatemodeError);
    isOpening = false;
    if (failure !== undefined) return onPermanent(failure);
    log.info({}, 'The port is open: a secret is in force');
    first.resolve();
    return look(); // the secret may have expired meanwhile
  }

  return {
    opened: first.promise, // resolves when the port opens for the first time
    look,
    /** Closes the port for good. */
    end(): void {
      hasEnded = true;
      void look();
    },
  };
}

/**
 * Stops accepting connections, and lets the `active` exchanges finish for `grace` ms, or until `hurry`
 * aborts. Then aborts `terminate`: running exchanges send their clients an error, and are cut 2 s later.
 * Resolves once all connections are gone and `settled` (log lines, receipts) has ended. The wait for
 * `settled` takes 2 s at most.
 */
export async function drain(
  listener: Listener,
  options: {
    readonly active: () => number;
    readonly settled: () => Promise<void>;
    readonly grace: number;
    readonly hurry?: AbortSignal;
    readonly terminate: AbortController;
    readonly log: Log;
    readonly clock: Clock;
  },
): Promise<void> {
  const { active, settled, grace, hurry, terminate, log, clock } = options;
  const unfinished = active();
  const waiting = 'Waiting for responses to end; a second signal ends them now';
  const message = unfinished === 0 ? 'No response is under way' : waiting;
  log.info({ unfinished, graceSeconds: grace / 1000 }, message);
  const drained = new AbortController();
  const gone = listener.drain().then(() => drained.abort());
  const enough = AbortSignal.any(hurry === undefined ? [drained.signal] : [drained.signal, hurry]);
  await pause(clock, grace, enough, 'waiting').catch(() => {});
  if (!drained.signal.aborted) {
    log.warn({ unfinished: active() }, 'Ending the responses that are left');
    const why = 'the proxy was shut down before the response was complete';
    terminate.abort(new PrivatemodeError('shutting_down', why));
    await pause(clock, clock.times.farewell, drained.signal, 'waiting').catch(() => {});
    listener.destroy();
    await gone;
  }
  await Promise.race([settled(), pause(clock, clock.times.farewell)]);
}
