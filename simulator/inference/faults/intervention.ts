/** The places where a fault of the inference side can act, and the shape of its row in the table. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { GpuStatus } from '../gpu-policy.ts';
import type { ModelEvent } from '../models/response.ts';
import { Rejection } from '../rejection.ts';
import type { Step, Wire } from '../wire.ts';

/** Where a piece stands in its response. */
export interface Place {
  readonly index: number;
  /** Whether it is a whole response, the only piece. */
  readonly isWhole: boolean;
  /** The event that ends a stream of this endpoint, as on the wire. */
  readonly terminal: string;
}

/** What goes out in place of a piece; `end` ends the response after what was before it. */
export type Change<In, Out> = (piece: In, place: Place) => readonly (Out | 'end')[];

/**
 * What one armed fault does. A place that it leaves out works normally. The members are in the order of a
 * request's life. A fault is armed for each request, so its functions may remember what they have seen.
 */
export interface Intervention {
  /** Before the body is read; it ends the request here. */
  readonly beforeBody?: (request: IncomingMessage, response: ServerResponse) => Promise<void>;
  /** Reads the body no faster than this. */
  readonly bodyBytesPerSecond?: number;
  /** The status of the worker's GPU certificate, as its authority states it. */
  readonly gpu?: GpuStatus;
  /** Responds in place of the server, before anything is decrypted. */
  readonly instead?: (request: IncomingMessage) => Wire;
  /** Changes the model's response before it is encrypted; the body of a whole one is its `data`. */
  readonly ofModel?: Change<ModelEvent, ModelEvent>;
  /** The nonce under which the response is encrypted. */
  readonly nonce?: (nonce: Buffer) => Buffer;
  /** Leaves the response in clear. */
  readonly unprotected?: true;
  /** Headers beside those of the response. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Tampers with the encrypted response, before its length is known. */
  readonly ofWire?: Change<Buffer, Step>;
  /** Called when the response is ready. `reset`: a TCP reset follows in place of its head. */
  readonly beforeHead?: (response: ServerResponse, signal: AbortSignal) => Promise<'reset' | 'go on'>;
  /** Changes how the bytes are delivered. */
  readonly delivery?: Change<Buffer, Step>;
}

/** The arguments of one fault, `name:first,second`. */
export interface Arguments {
  /** Throws Rejection if the argument is not a number. */
  number(index: number, otherwise: number): number;
  text(index: number, otherwise: string): string;
  /** The first argument as the index of an event. The default is the fourth, which has text of the model. */
  event(): number;
}

export interface FaultRow {
  /** One line: what happens, and the arguments with their defaults. */
  readonly does: string;
  readonly arm: (args: Arguments) => Intervention;
  /** Whether it affects event streams only. */
  readonly streams?: true;
  /** A good client must not fail: the response is complete and authentic. */
  readonly harmless?: true;
}

export const row = (does: string, arm: FaultRow['arm']): FaultRow => ({ does, arm });
export const streams = (does: string, arm: FaultRow['arm']): FaultRow => ({ does, arm, streams: true });
export const harmless = (fault: FaultRow): FaultRow => ({ ...fault, harmless: true });

/** Whether a piece is the event of that index; every whole response is. */
export const isAt = (event: number, { index, isWhole }: Place): boolean => isWhole || index === event;

export function argumentsOf(text: string): Arguments {
  const values = text === '' ? [] : text.split(',');
  const number = (index: number, otherwise: number): number => {
    const value = values[index];
    if (value === undefined) return otherwise;
    if (!/^\d{1,12}$/.test(value)) throw new Rejection(400, `fault argument ${value} is not a number`);
    return Number(value);
  };
  return { number, text: (index, otherwise) => values[index] ?? otherwise, event: () => number(0, 3) };
}
