/**
 * The messages between the process that keeps the session (the primary) and its workers. They travel over the IPC channel
 * of node:cluster with the structured clone algorithm, inside this machine and this user.
 */
import { createSecretKey } from 'node:crypto';
import { asPrivatemodeError, type ErrorCode, PrivatemodeError } from '../errors.ts';
import type { Epoch, Session } from '../session/session.ts';

/** An epoch with its key as bytes: a KeyObject does not cross processes. */
export interface EpochWire extends Omit<Epoch, 'key'> {
  readonly keyBytes: Uint8Array;
}

export interface ErrorWire {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Everything a worker needs to know at any moment; sent whole whenever it changes. */
export interface Standing {
  readonly epoch: EpochWire | undefined;
  readonly state: ReturnType<Session['state']>;
  readonly lastError: ErrorWire | undefined;
  readonly configuredKey: string | undefined;
}

export type ToWorker =
  | {
      readonly type: 'start';
      readonly sharedSalt: string | undefined;
      readonly fd: number | undefined;
      readonly standing: Standing;
    }
  | { readonly type: 'standing'; readonly standing: Standing }
  | { readonly type: 'answer'; readonly id: number; readonly epoch: EpochWire }
  | { readonly type: 'answer'; readonly id: number; readonly error: ErrorWire }
  | { readonly type: 'collect'; readonly id: number }
  | { readonly type: 'reload' }
  | { readonly type: 'drain' };

export type ToPrimary =
  | { readonly type: 'listening'; readonly url: string; readonly port: number }
  | { readonly type: 'failed'; readonly error: ErrorWire }
  | {
      readonly type: 'acquire';
      readonly id: number;
      readonly offeredKey: string | undefined;
      readonly timeoutMs: number;
    }
  | { readonly type: 'renew'; readonly id: number; readonly secretId: string }
  | { readonly type: 'collected'; readonly id: number; readonly metrics: readonly object[] };

export function epochToWire({ key, ...rest }: Epoch): EpochWire {
  return { ...rest, keyBytes: key.export() };
}

/** The epoch as the gateway knows it; the bytes are zeroed once the KeyObject holds them. */
export function epochFromWire({ keyBytes, ...rest }: EpochWire): Epoch {
  const key = createSecretKey(keyBytes);
  keyBytes.fill(0);
  return Object.freeze({ ...rest, key });
}

export function errorToWire(thrown: unknown): ErrorWire {
  const { code, message } = asPrivatemodeError(thrown);
  return { code, message };
}

export function errorFromWire({ code, message }: ErrorWire): PrivatemodeError {
  return new PrivatemodeError(code, message);
}
