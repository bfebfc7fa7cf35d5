/**
 * Encrypts a request. Every value is sealed with the cipher of one attempt: short JSON values at once,
 * everything else while the upload pulls it. The body is a list of pieces in the order of the text, which are
 * gathered into slices.
 */
import { randomBytes } from '../crypto/random.ts';
import type { MessageSealer, RequestCipher } from '../envelope/message-cipher.ts';
import { PrivatemodeError } from '../errors.ts';
import { encryptionOrder } from '../json/names.ts';
import type { SaltedBody } from './inject-salt.ts';
import type { FormContent, JsonContent, MemberEdit } from './request-body.ts';

/** A body on its way to the service. */
export interface EncryptedBody {
  /**
   * In the order in which they leave. They can be sealed only once, because each attempt has a cipher of its
   * own.
   */
  readonly pieces: readonly Piece[];
  /** Exact, known before the first slice. */
  readonly contentLength: number;
  /** Replaces the request's own content type (forms: the boundary). */
  readonly contentType?: string;
}

/** A stretch of the body: bytes as they are or, with a sealer, the plaintext of one message. */
export interface Piece {
  readonly bytes: readonly Uint8Array[];
  readonly sealer?: MessageSealer;
}

/**
 * Encrypts the body for one attempt; call it again with another cipher for a retry. `boundary`, of a form, is
 * for tests only.
 */
export function encryptBody(
  { content, edit }: SaltedBody,
  cipher: RequestCipher,
  boundary = () => randomBytes(30).toString('hex'),
): EncryptedBody {
  switch (content.kind) {
    case 'json':
      return encrypted(memberPieces(content, edit, cipher), cipher);
    case 'form': {
      const drawn = boundary();
      const contentType = `multipart/form-data; boundary=${drawn}`;
      return { ...encrypted(formPieces(content, cipher, drawn), cipher), contentType };
    }
    case 'raw': // one message, also where the body is empty (docs/protocol/inference.md 6.4)
      return encrypted([{ bytes: [content.bytes], sealer: cipher.seal() }], cipher);
  }
}

function encrypted(pieces: readonly Piece[], cipher: RequestCipher): EncryptedBody {
  let contentLength = 0;
  for (const { bytes, sealer } of pieces) {
    const length = bytes.reduce((total, each) => total + each.length, 0);
    contentLength += sealer === undefined ? length : cipher.sealedLength(length);
  }
  return { contentLength, pieces };
}

/**
 * The pieces of the object with its edits applied, in the order of its text. Members that are not in `plain`
 * are sealed.
 */
function memberPieces(
  { chain, members, plain, modelEdit }: JsonContent,
  edit: MemberEdit | undefined,
  cipher: RequestCipher,
): readonly Piece[] {
  const values: MemberEdit[] = members
    .filter(({ name }) => name !== edit?.name)
    .map(({ name, start, end }) => ({ name, start, end, prefix: '', value: chain.slices(start, end) }));
  if (edit !== undefined) values.push(edit);
  const ordered = encryptionOrder(values, plain);
  const messages = cipher.sealAll(ordered.map(({ value }) => value));
  const changed: [MemberEdit, Piece][] = ordered.map((each, i) => {
    const message = messages[i]!;
    return [each, 'head' in message ? { bytes: each.value, sealer: message } : { bytes: [message] }];
  });
  if (modelEdit !== undefined) changed.push([modelEdit, { bytes: modelEdit.value }]);
  const pieces: Piece[] = [];
  let position = 0;
  for (const [{ start, end, prefix }, piece] of changed.sort(([a], [b]) => a.start - b.start)) {
    pieces.push({ bytes: [...chain.slices(position, start), Buffer.from(prefix)] });
    pieces.push(piece);
    position = end;
  }
  pieces.push({ bytes: chain.slices(position, chain.length) });
  return pieces;
}

/** Quotes the name for a header parameter, where a line break would begin another header. */
const quoted = (name: string): string =>
  `"${name.replace(/["\\]/g, '\\$&').replace(/\r/g, '%0D').replace(/\n/g, '%0A')}"`;

const byName = <T>(parts: ReadonlyMap<string, T>) =>
  [...parts].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));

/**
 * The pieces of the form, which is built anew (docs/protocol/inference.md 6.3). Every part is sealed on its
 * own, except for fields in `plain`. Value fields come first, by the bytes of their names, then files
 * likewise; sequence numbers are in that order.
 */
function formPieces(
  { parts, plain }: FormContent,
  cipher: RequestCipher,
  boundary: string,
): readonly Piece[] {
  const pieces: Piece[] = [];
  const part = (headers: string, bytes: Uint8Array, sealed: boolean): void => {
    const before = pieces.length === 0 ? '' : '\r\n';
    pieces.push({ bytes: [Buffer.from(`${before}--${boundary}\r\n${headers}\r\n\r\n`)] });
    pieces.push(sealed ? { bytes: [bytes], sealer: cipher.seal() } : { bytes: [bytes] });
  };
  for (const [name, bytes] of byName(parts.values)) {
    part(`Content-Disposition: form-data; name=${quoted(name)}`, bytes, !plain.has(name));
  }
  for (const [name, bytes] of byName(parts.files)) {
    const disposition = `Content-Disposition: form-data; name=${quoted(name)}; filename=${quoted(name)}`;
    part(`${disposition}\r\nContent-Type: application/octet-stream`, bytes, true);
  }
  pieces.push({ bytes: [Buffer.from(`\r\n--${boundary}--\r\n`)] });
  return pieces;
}

/** Slices of 64 KiB take twice as long over TLS. */
const SLICE_BYTES = 512 * 1024;
/** Bytes sealed or copied in one go. V8 frees what a larger step leaves behind only in a full collection. */
const STEP_BYTES = 32 * 1024;

/** Cuts the pieces into steps: bytes to copy or, with a sealer, plaintext to seal. */
function* stepsOf(pieces: readonly Piece[]): Generator<[Uint8Array, MessageSealer | undefined]> {
  for (const { bytes, sealer } of pieces) {
    if (sealer !== undefined) yield [sealer.head(), undefined];
    for (const each of bytes) {
      for (let i = 0; i < each.length; i += STEP_BYTES) yield [each.subarray(i, i + STEP_BYTES), sealer];
    }
    if (sealer !== undefined) yield [sealer.final(), undefined];
  }
}

/**
 * The body that these pieces make, in slices of at most 512 KiB, each sealed when it is pulled. Each slice
 * stays valid until two more have been pulled: two buffers alternate. Throws `internal` if the bytes do not
 * add up to `contentLength`.
 */
export function* sealedSlices({ pieces, contentLength }: EncryptedBody): Generator<Uint8Array, void> {
  let left = contentLength;
  let used = 0;
  let slice: Buffer = Buffer.allocUnsafe(Math.min(left, SLICE_BYTES));
  let other: Buffer | undefined;
  for (const [bytes, sealer] of stepsOf(pieces)) {
    const size = sealer === undefined ? bytes.length : 2 * bytes.length;
    if (size > left) throw new PrivatemodeError('internal', 'a sealed body outgrew its length');
    if (used + size > slice.length) {
      yield slice.subarray(0, used);
      other ??= Buffer.allocUnsafe(Math.min(left, SLICE_BYTES));
      [slice, other] = [other, slice];
      used = 0;
    }
    if (sealer === undefined) slice.set(bytes, used);
    else sealer.update(bytes, slice, used);
    used += size;
    left -= size;
  }
  if (left !== 0) throw new PrivatemodeError('internal', 'a sealed body fell short of its length');
  yield slice.subarray(0, used);
}
