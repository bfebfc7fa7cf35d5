import { createSecretKey } from 'node:crypto';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Epoch } from '../session/session.ts';
import type { EpochWire, ErrorWire } from './messages.ts';

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
