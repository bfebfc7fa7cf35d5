/** Transcription forms, built anew with every part sealed on its own (docs/protocol/inference.md 6.3). */
import type { RequestCipher } from '../../envelope/request-cipher.ts';
import type { Piece } from '../sealed-slices.ts';
import type { FormParts } from './form-parts.ts';

/** A complete form, taken apart. */
export interface FormContent {
  readonly kind: 'form';
  readonly parts: FormParts;
  /** The value fields that are not encrypted. */
  readonly plain: ReadonlySet<string>;
}

/** In a quoted header parameter, where a line break would begin another header: backslash and quote escaped, line breaks percent-encoded. */
const quoted = (name: string): string =>
  `"${name.replace(/["\\]/g, '\\$&').replace(/\r/g, '%0D').replace(/\n/g, '%0A')}"`;

const byName = <T>(parts: ReadonlyMap<string, T>): [string, T][] =>
  [...parts].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));

/** Value fields by the bytes of their names, then files likewise; sequence numbers in that order. */
export function formPieces(
  { parts: { values, files }, plain }: FormContent,
  cipher: RequestCipher,
  boundary: string,
): readonly Piece[] {
  const pieces: Piece[] = [];
  let delimiter = `--${boundary}\r\n`;
  const part = (headers: string, bytes: readonly Uint8Array[], sealed: boolean): void => {
    pieces.push({ bytes: [Buffer.from(`${delimiter}${headers}\r\n\r\n`)] });
    pieces.push(sealed ? { bytes, sealer: cipher.seal() } : { bytes });
    delimiter = `\r\n--${boundary}\r\n`;
  };
  for (const [name, bytes] of byName(values)) {
    part(`Content-Disposition: form-data; name=${quoted(name)}`, bytes, !plain.has(name));
  }
  for (const [name, bytes] of byName(files)) {
    const disposition = `Content-Disposition: form-data; name=${quoted(name)}; filename=${quoted(name)}`;
    part(`${disposition}\r\nContent-Type: application/octet-stream`, bytes, true);
  }
  pieces.push({ bytes: [Buffer.from(`\r\n--${boundary}--\r\n`)] });
  return pieces;
}
