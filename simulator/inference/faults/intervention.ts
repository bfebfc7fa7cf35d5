/** The places where a fault of the inference side can act, and the shape of its row in the table. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { GpuStatus } from '../gpu-policy.ts';
import type { ModelResponse } from '../models/response.ts';
import { Rejection } from '../rejection.ts';
import type { Framed, Steps, Wire } from '../wire.ts';

/**
 * What one armed fault does. A place that it leaves out works normally. The members are in the order of a
 * request's life.
 */
export interface Intervention {
  /** Before the body is read; `answered` ends the request here. */
  readonly beforeBody?: (request: IncomingMessage, response: ServerResponse) => Promise<'answered'>;
  /** Reads the body no faster than this. */
  readonly bodyBytesPerSecond?: number;
  /** The status of the worker's GPU certificate, as its authority states it. */
  readonly gpu?: GpuStatus;
  /** Responds in place of the server, before anything is decrypted. */
  readonly instead?: (request: IncomingMessage) => Wire;
  /** Changes the model's response before it is encrypted. */
  readonly modelResponse?: (response: ModelResponse) => ModelResponse;
  /** The nonce under which the response is encrypted. */
  readonly nonce?: (nonce: Buffer) => Buffer;
  /** Leaves the response in clear. */
  readonly unprotected?: true;
  /** Tampers with the encrypted response; `terminal` is the event that ends a stream. */
  readonly wire?: (wire: Wire, terminal: string) => Wire;
  /**
   * Called when the response is ready, before its head is sent. `reset`: no head follows, but a TCP reset.
   */
  readonly beforeHead?: (
    request: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
  ) => Promise<'reset' | 'go on'>;
  /** Changes how the bytes are delivered. */
  readonly steps?: (steps: Steps, framed: Framed) => Steps;
}

/**
 * The arguments of one fault, `name:first,second`. `number` throws Rejection if the argument is not a number.
 */
export interface Arguments {
  number(index: number, otherwise: number): number;
  text(index: number, otherwise: string): string;
}

export interface FaultRow {
  /** One line: what happens, and the arguments with their defaults. */
  readonly does: string;
  /** `stream`: affects event streams only. */
  readonly applies: 'any' | 'stream';
  /** A good client must not fail: the response is complete and authentic. */
  readonly harmless?: true;
  readonly arm: (args: Arguments) => Intervention;
}

export function argumentsOf(text: string): Arguments {
  const values = text === '' ? [] : text.split(',');
  return {
    number(index, otherwise) {
      const value = values[index];
      if (value === undefined) return otherwise;
      if (!/^\d{1,12}$/.test(value)) throw new Rejection(400, `fault argument ${value} is not a number`);
      return Number(value);
    },
    text: (index, otherwise) => values[index] ?? otherwise,
  };
}
