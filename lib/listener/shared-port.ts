/** Keeps a port that several processes share open only while this one can serve what it accepts there. */
import type { Clock } from '../clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import type { ListenerLog } from './drain.ts';
import type { Listener } from './listen.ts';

interface Sharing {
  /** When the secret in force expires, in ms of the monotonic clock; undefined: none is in force. */
  readonly secretEnds: () => number | undefined;
  /** Called with listen_failed if the port cannot be opened. */
  readonly failed: (error: PrivatemodeError) => void;
  readonly log: ListenerLog;
  readonly clock: Clock;
}

/**
 * Opens the port of `listener` (one with `reusePort`) while a secret is in force, and closes it otherwise:
 * the system spreads connections over all processes that listen, also over one that could only refuse.
 */
export function sharePort(
  listener: Pick<Listener, 'open' | 'shut' | 'isOpen'>,
  { secretEnds, failed, log, clock }: Sharing,
) {
  const first = Promise.withResolvers<void>();
  let isOpening = false;
  let hasEnded = false;
  let cancelLook = (): void => {};

  /** Called whenever the state of the session may have changed. */
  async function look(): Promise<void> {
    cancelLook();
    const ends = hasEnded ? undefined : secretEnds();
    // No event reports the end of a secret. The timer also keeps the process alive while nothing listens.
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
    if (failure !== undefined) return failed(failure);
    log.info({}, 'The port is open: a secret is in force');
    first.resolve();
    return look(); // the secret may have gone meanwhile
  }

  return {
    /** Resolved once the port has been open. */
    opened: first.promise,
    look,
    /** Closes the port for good. */
    end(): void {
      hasEnded = true;
      void look();
    },
  };
}
