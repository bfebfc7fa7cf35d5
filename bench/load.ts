/**
 * The generator: streams over raw sockets, so that what it measures is the subject and not an HTTP client.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { createEventCounter } from './event-counter.ts';
import { chatBody, modelOf, type Plan, sealedChatBody } from './fixtures.ts';
import { monotonicMs } from './processes.ts';

/** Where a subject is reached, and what it expects. */
export interface Target {
  readonly port: number;
  readonly host: string;
  /** PEM of the authority, where it speaks TLS. */
  readonly ca?: string;
  /** Bare relays get bodies that are sealed already, and return what is. */
  readonly sealed: boolean;
}

export async function dial(target: Target): Promise<Socket> {
  const { port, host, ca } = target;
  const socket =
    ca === undefined ? connect({ port, host }) : connectTls({ port, host, servername: 'localhost', ca });
  await once(socket, ca === undefined ? 'connect' : 'secureConnect');
  socket.setNoDelay(true);
  return socket;
}

export function requestHead(target: Target, plan: Partial<Plan>, length: number): string {
  const direct = target.sealed ? `Privatemode-Target-Model: ${modelOf(plan)}\r\n` : '';
  return (
    `POST /v1/chat/completions HTTP/1.1\r\nHost: ${target.host}:${target.port}\r\nContent-Type: application/json\r\n` +
    `Authorization: Bearer bench\r\n${direct}Content-Length: ${length}\r\n\r\n`
  );
}

/** A stream that has been asked for. Times as `monotonicMs` tells them. */
export interface RunningStream {
  readonly socket: Socket;
  /** When the request was written, and when its last byte had left. */
  readonly askedAt: number;
  readonly sentAt: Promise<number>;
  /** Arrival of each event, `[DONE]` included; those of one chunk have the same. */
  readonly arrivals: readonly number[];
  /** Resolves at the last event; rejects where the stream breaks or is not what was asked for. */
  readonly finished: Promise<void>;
  /** Resolves when that many events are there. */
  reached(events: number): Promise<void>;
}

/** ms between two pieces of a body that trickles. */
const DRIP = 5;

/** Writes that many bytes a second; calls back when the last have left. */
function trickle(socket: Socket, body: Buffer, rate: number, sent: () => void): void {
  const begin = monotonicMs();
  let at = 0;
  const step = (): void => {
    const due = Math.min(body.length, Math.ceil(((monotonicMs() - begin + DRIP) * rate) / 1000));
    const piece = body.subarray(at, due);
    at = due;
    if (at === body.length) socket.write(piece, sent);
    else {
      socket.write(piece);
      setTimeout(step, DRIP);
    }
  };
  step();
}

/**
 * Asks for a stream on a connection of its own, opened before the clock starts; `prepared` is a body made
 * before, `rate` the bytes a second at which it leaves, without which it does at once.
 */
export async function openStream(
  target: Target,
  plan: Partial<Plan>,
  prepared?: Buffer,
  rate?: number,
): Promise<RunningStream> {
  const socket = await dial(target);
  const bodyOf = target.sealed ? sealedChatBody : chatBody;
  const body = prepared ?? bodyOf(plan);
  const expected = plan.hold === true ? Number.POSITIVE_INFINITY : (plan.events ?? 1) + 1;
  const arrivals: number[] = [];
  const { promise: finished, resolve, reject } = Promise.withResolvers<void>();
  finished.catch(() => {}); // whoever does not wait for it does not care
  const waiting: {
    readonly events: number;
    readonly resolve: () => void;
    readonly reject: (error: Error) => void;
  }[] = [];
  const broken = (why: string): void => {
    const error = new Error(`a stream of port ${target.port} broke after ${arrivals.length} events: ${why}`);
    reject(error);
    for (const waiter of waiting) waiter.reject(error);
  };

  const counter = createEventCounter();
  let over = false;
  socket.on('data', (chunk: Buffer) => {
    const now = monotonicMs();
    let begun = 0;
    try {
      begun = counter.feed(chunk);
    } catch (error) {
      broken((error as Error).message);
    }
    for (let i = 0; i < begun; i++) arrivals.push(now);
    while (waiting.length > 0 && waiting[0]!.events <= arrivals.length) waiting.shift()!.resolve();
    if (!counter.ended) return;
    // A client that leaves before the last chunk has given up, and its proxy drops the upstream connection.
    over = true;
    if (arrivals.length === expected) resolve();
    else broken('ended');
    socket.destroy();
  });
  socket.on('error', (error) => broken(error.message));
  socket.on('close', () => {
    if (!over) broken('closed');
  });

  const { promise: sentAt, resolve: sent } = Promise.withResolvers<number>();
  const askedAt = monotonicMs();
  const left = (): void => sent(monotonicMs());
  socket.cork();
  socket.write(requestHead(target, plan, body.length));
  if (rate === undefined) socket.write(body, left);
  else trickle(socket, body, rate, left);
  socket.uncork();
  return {
    socket,
    askedAt,
    sentAt,
    arrivals,
    finished,
    reached(events) {
      if (arrivals.length >= events) return Promise.resolve();
      return new Promise((done, failed) => {
        waiting.push({ events, resolve: done, reject: failed });
        waiting.sort((a, b) => a.events - b.events);
      });
    },
  };
}

/** Gaps between the arrivals of events that follow each other. */
export const gapsOf = ({ arrivals }: RunningStream): number[] =>
  arrivals.slice(1).map((at, index) => at - arrivals[index]!);

/** `count` paced streams whose first events are spread over one pace, `lead` ms from now. */
export async function openPaced(
  target: Target,
  { count, events, pace, lead }: { count: number; events: number; pace: number; lead: number },
): Promise<RunningStream[]> {
  const begin = Date.now() + lead;
  return Promise.all(
    Array.from({ length: count }, (_, index) =>
      openStream(target, {
        events,
        pace,
        start: Math.round(begin + (index * pace) / count),
      }),
    ),
  );
}
