/** Transcription forms: taken apart, and built anew with every part sealed on its own (inference.md 6.3). */
import { randomBytes } from 'node:crypto';
import type { RequestCipher } from '../../envelope/request-cipher.ts';
import { PrivatemodeError } from '../../errors.ts';
import { type Piece, sealedBody } from '../encrypt-body.ts';
import { checkModelName } from '../json/model-name.ts';
import { checkFormFlags, MAX_DECODED_BYTES, usageInForm } from '../json/plain-values.ts';
import type { RequestBodyStage, SealedBody } from '../request-body.ts';
import { createFormReader, type FormParts } from './form-parts.ts';

export interface MultipartSealOptions {
  /** The value fields that stay plain: `PLAIN_MEMBERS.T`. */
  readonly plain: ReadonlySet<string>;
  /** Of the request, with its boundary. */
  readonly contentType: string | undefined;
  /** The boundary of the sealed form; default random. Tests only. */
  readonly boundary?: () => string;
}

/** Only JSON answers can be encrypted: json, verbose_json, and what may come of their kind. */
const JSON_FORMAT = /json$/;

const randomBoundary = (): string => randomBytes(30).toString('hex');

/** In a quoted header parameter, where a line break would begin another header: backslash and quote escaped, line breaks percent-encoded. */
const quoted = (name: string): string =>
  `"${name.replace(/["\\]/g, '\\$&').replace(/\r/g, '%0D').replace(/\n/g, '%0A')}"`;

const byName = <T>(parts: ReadonlyMap<string, T>): [string, T][] =>
  [...parts].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));

/** A field as text; null where it is longer than any that is read here. */
function textOf(bytes: readonly Uint8Array[] | undefined): string | null | undefined {
  if (bytes === undefined) return undefined;
  const length = bytes.reduce((sum, chunk) => sum + chunk.length, 0);
  return length > MAX_DECODED_BYTES ? null : Buffer.concat(bytes).toString('utf8');
}

/** Value fields by the bytes of their names, then files likewise; sequence numbers in that order. */
export function sealForm(
  { values, files }: FormParts,
  plain: ReadonlySet<string>,
  boundary: string,
  cipher: RequestCipher,
): SealedBody {
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
  return sealedBody(cipher, pieces, `multipart/form-data; boundary=${boundary}`);
}

/**
 * Takes a form apart as it arrives; files stay lists of chunks. Throws invalid_multipart at once where the
 * content type is no form; invalid_multipart and repeated_form_field (the service keeps only the first value)
 * from `feed` or `finish`; unsupported_response_format, missing_model, invalid_model and invalid_plain_member from
 * `finish`.
 */
export function createMultipartSealer(options: MultipartSealOptions): RequestBodyStage {
  const { plain, contentType, boundary = randomBoundary } = options;
  const form = createFormReader(contentType);
  return {
    feed: (chunk) => form.feed(chunk),
    async finish() {
      const parts = await form.finish();
      const text = (name: string): string | null | undefined => textOf(parts.values.get(name));
      const format = text('response_format');
      if (format === null || (format && !JSON_FORMAT.test(format))) {
        throw new PrivatemodeError('unsupported_response_format', 'only JSON answers can be encrypted');
      }
      const model = checkModelName(text('model'));
      checkFormFlags(text);
      return {
        model,
        shardKey: undefined,
        streaming: /^true$/i.test(text('stream') ?? ''),
        choices: 1,
        format,
        usage: usageInForm(text),
        seal: (cipher) => sealForm(parts, plain, boundary(), cipher),
      };
    },
  };
}
