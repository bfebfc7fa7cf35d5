/** Ends the exchanges of clients that no longer take what is written to them, which frees their places. */
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';

/** How often an exchange is looked at in the time after which it ends. */
const LOOKS = 10;
/** Bytes that a client has to take from one look to the next: 1 KiB a minute. */
const PROGRESS = 1024;

/** The watched exchange. */
interface Reader {
  readonly req: { readonly socket: Socket };
}

interface Watched {
  taken: number;
  /** Looks in a row at which there was no progress. */
  idle: number;
}

/**
 * Calls `stalled` for an exchange whose client has taken less than 1 KiB a minute for ten minutes, while
 * there was more to take. After a sleep of the machine, the minutes are counted anew. The system's buffers
 * take tens of KiB at a time, so the progress of a client shows in such steps. One timer looks at all
 * exchanges; it ends when it finds none.
 */
export function createReaderWatch<Exchange extends Reader>(
  stalled: (exchange: Exchange) => void,
  clock: Clock,
) {
  const interval = clock.times.readerWait / LOOKS;
  const watched = new Map<Exchange, Watched>();
  /** When the timer that runs was set; undefined: none runs. */
  let lookedAt: number | undefined;

  function lookLater(): void {
    lookedAt = clock.now();
    clock.after(interval, look);
  }

  function look(): void {
    const slept = clock.now() - (lookedAt ?? 0) > 2 * interval;
    lookedAt = undefined;
    if (watched.size > 0) lookLater();
    for (const [exchange, before] of watched) {
      const { socket } = exchange.req;
      const taken = takenFrom(socket);
      const progress = slept || socket.writableLength === 0 || taken - before.taken >= PROGRESS;
      before.taken = taken;
      before.idle = progress ? 0 : before.idle + 1;
      if (before.idle === LOOKS) stalled(exchange);
    }
  }

  return {
    /** Begins to watch an exchange. */
    enter(exchange: Exchange): void {
      watched.set(exchange, { taken: takenFrom(exchange.req.socket), idle: 0 });
      if (lookedAt === undefined) lookLater();
    },
    /** Ends the watch of an exchange, once its response is over. */
    leave(exchange: Exchange): void {
      watched.delete(exchange);
    },
  };
}

/** Bytes that the system has taken of what was written to a connection. */
const takenFrom = ({ bytesWritten = 0, writableLength }: Socket): number => bytesWritten - writableLength;
