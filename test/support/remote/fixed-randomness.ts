/**
 * Import it first, for its effect: from then on everything that this process draws from node:crypto is the
 * same in every run: all random bytes are one byte, so it does not matter who draws first, how much at once,
 * or what is cut out of it. Nonces and ivs have 12 bytes; all of them are `NONCE`. Responses need other ivs,
 * because a request's own are refused in them.
 */
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';

/** Hex. */
export const NONCE = 'c0'.repeat(12);

type Filled = NodeJS.ArrayBufferView | ArrayBuffer;

function fill<T extends Filled>(target: T, offset = 0, size?: number): T {
  const bytes = ArrayBuffer.isView(target)
    ? Buffer.from(target.buffer, target.byteOffset, target.byteLength)
    : Buffer.from(target);
  const end = size === undefined ? bytes.length : offset + size;
  bytes.fill(0xc0, offset, end);
  return target;
}

type Callback<T> = (error: null, value: T) => void;

/** With a callback, node:crypto answers later. */
function given<T>(value: T, callback: unknown): T | undefined {
  if (typeof callback !== 'function') return value;
  setImmediate(() => (callback as Callback<T>)(null, value));
  return undefined;
}

Object.assign(crypto, {
  randomBytes: (size: number, callback?: unknown) => given(fill(Buffer.alloc(size)), callback),
  randomFillSync: fill,
  randomFill: (target: Filled, ...rest: unknown[]) => {
    const numbers = rest.filter((value) => typeof value === 'number');
    given(fill(target, ...numbers), rest.at(-1));
  },
  randomInt: (a: number, b?: unknown, callback?: unknown) =>
    typeof b === 'number' ? given(a, callback) : given(0, b),
  randomUUID: () => 'c0c1c2c3-c4c5-46c7-88c9-cacbc0c1c2c3',
});
crypto.webcrypto.getRandomValues = fill as typeof crypto.webcrypto.getRandomValues;
crypto.webcrypto.randomUUID = () => 'c0c1c2c3-c4c5-46c7-88c9-cacbc0c1c2c3';
syncBuiltinESMExports();
