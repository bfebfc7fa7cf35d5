/**
 * Reads multipart/form-data as bytes: forms that arrive encrypted part by part (docs/protocol/inference.md
 * 6.3).
 */
import { Rejection } from './rejection.ts';

export interface FormPart {
  readonly name: string;
  readonly body: Buffer;
  /** Present on file parts only. */
  readonly filename?: string;
  readonly contentType?: string;
}

const fail = (what: string): Rejection => new Rejection(500, `decrypting request: reading form: ${what}`);

const unquote = (text: string): string => text.replace(/\\(.)/g, '$1');

function parseHead(head: string): Omit<FormPart, 'body'> {
  const lines = head.split('\r\n');
  const disposition = lines.find((line) => /^content-disposition:/i.test(line)) ?? '';
  const contentType = lines.find((line) => /^content-type:/i.test(line))?.replace(/^[^:]*:\s*/, '');
  const name = /[;\s]name="((?:[^"\\]|\\.)*)"/.exec(disposition)?.[1];
  const filename = /[;\s]filename="((?:[^"\\]|\\.)*)"/.exec(disposition)?.[1];
  if (!/^content-disposition:\s*form-data;/i.test(disposition) || name === undefined)
    throw fail('part without a name');
  return {
    name: unquote(name),
    ...(filename !== undefined && { filename: unquote(filename) }),
    ...(contentType !== undefined && { contentType }),
  };
}

/** The boundary of a `multipart/form-data` or `multipart/mixed` content type. Throws Rejection. */
export function boundaryOf(contentType: string): string {
  if (!/^multipart\/(form-data|mixed)\s*;/i.test(contentType)) throw fail('not a multipart body');
  const match = /;\s*boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(contentType);
  const boundary = match?.[1] ?? match?.[2];
  if (boundary === undefined) throw fail('no boundary');
  return boundary;
}

/** The parts in wire order. Throws Rejection unless the body is framed to its last boundary. */
export function parseForm(body: Buffer, boundary: string): FormPart[] {
  const parts: FormPart[] = [];
  const opening = `--${boundary}`;
  if (!body.subarray(0, opening.length).equals(Buffer.from(opening))) throw fail('no opening boundary');
  let at = opening.length;
  while (body.toString('latin1', at, at + 2) !== '--') {
    if (body.toString('latin1', at, at + 2) !== '\r\n') throw fail('malformed boundary line');
    const headEnd = body.indexOf('\r\n\r\n', at);
    const bodyEnd = headEnd < 0 ? -1 : body.indexOf(`\r\n--${boundary}`, headEnd + 2);
    if (bodyEnd < 0) throw fail('no closing boundary');
    parts.push({
      ...parseHead(body.toString('utf8', at + 2, headEnd)),
      body: body.subarray(headEnd + 4, Math.max(bodyEnd, headEnd + 4)),
    });
    at = bodyEnd + 2 + opening.length;
  }
  return parts;
}
