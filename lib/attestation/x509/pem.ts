/** PEM text (RFC 7468). */
import { malformed } from './der.ts';

export interface PemBlock {
  readonly label: string;
  readonly der: Uint8Array;
}

const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----\r?\n([A-Za-z0-9+/=\r\n]*?)\r?\n?-----END \1-----/g;

/**
 * Every block of a PEM text, in order. Between and around the blocks only white space may stand, and base64
 * is strict: anything else throws evidence_malformed, as does a text without any block.
 */
export function decodePem(text: string): PemBlock[] {
  const blocks: PemBlock[] = [];
  let end = 0;
  for (const match of text.matchAll(BLOCK)) {
    const [whole, label, body] = match as unknown as [string, string, string];
    if (text.slice(end, match.index).trim() !== '') throw malformed('text stands between PEM blocks');
    blocks.push({ label, der: decodeBody(body.replace(/[\r\n]/g, '')) });
    end = match.index + whole.length;
  }
  if (blocks.length === 0) throw malformed('no PEM block was found');
  if (text.slice(end).trim() !== '') throw malformed('text follows the last PEM block');
  return blocks;
}

function decodeBody(base64: string): Uint8Array {
  const bytes = Buffer.from(base64, 'base64');
  if (bytes.length === 0 || bytes.toString('base64') !== base64) throw malformed('a PEM block is not base64');
  return new Uint8Array(bytes);
}

/** Characters: room for the largest certificate that is read, in base64 with line breaks. */
const MAX_CERTIFICATE_TEXT = 100_000;

/** The DER of a text that holds exactly one CERTIFICATE block. Throws evidence_malformed. */
export function decodeOneCertificate(text: string): Uint8Array {
  if (text.length > MAX_CERTIFICATE_TEXT) throw malformed('a certificate in PEM is too large');
  const [block, ...rest] = decodePem(text);
  if (block?.label !== 'CERTIFICATE' || rest.length > 0) throw malformed('not exactly one CERTIFICATE block');
  return block.der;
}
