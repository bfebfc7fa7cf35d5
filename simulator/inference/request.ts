/** Decrypts a request: its body becomes plaintext for a model (docs/protocol/inference.md 4 to 6). */

import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Endpoint } from './endpoints.ts';
import { createOpener, type Opener, openMembers, type Protection } from './envelope.ts';
import { topLevelOf } from './json-text.ts';
import { Rejection } from './rejection.ts';
import { PROTOCOL_HEADERS } from './wire-rules.ts';

/** A JSON object whose members are not checked yet. */
export type JsonObject = { readonly [name: string]: unknown };

export const isObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null;

export type OpenedJson = { readonly kind: 'json'; readonly text: string; readonly value: JsonObject };

/** The decrypted body: JSON text with its parsed form, form parts, or the whole body as bytes. */
export type OpenedBody =
  | OpenedJson
  | { readonly kind: 'form'; readonly parts: readonly FormPart[] }
  | { readonly kind: 'raw'; readonly bytes: Buffer; readonly contentType: string };

export interface OpenedRequest {
  readonly endpoint: Endpoint;
  /** Path and query, as sent. */
  readonly target: string;
  readonly model: string;
  readonly stream: boolean;
  readonly body: OpenedBody;
  readonly protection: Protection;
  /** Breaches of the message format that the server tolerates. */
  readonly irregularities: readonly string[];
}

const fail = (what: string): Rejection => new Rejection(500, `decrypting request: ${what}`);

/** One field of a form. */
export interface FormPart {
  readonly name: string;
  readonly body: Buffer;
  /** Present on file parts only. */
  readonly filename?: string;
  readonly contentType?: string;
}

/** The parts of a form in wire order. Throws Rejection unless it is framed to its last boundary. */
async function partsOf(body: Buffer, contentType: string): Promise<FormPart[]> {
  const [, parameters] = /^multipart\/(?:form-data|mixed)\s*;(.*)$/i.exec(contentType) ?? [];
  const headers = { 'content-type': `multipart/form-data;${parameters}` };
  try {
    const form = await new Response(new Uint8Array(body), { headers }).formData();
    const parts = [...form].map(async ([name, value]): Promise<FormPart> => {
      if (typeof value === 'string') return { name, body: Buffer.from(value) };
      return { name, body: Buffer.from(await value.bytes()), filename: value.name, contentType: value.type };
    });
    return await Promise.all(parts);
  } catch {
    throw fail('reading form: not a multipart body with this boundary');
  }
}

const isFile = ({ filename }: FormPart): boolean => filename !== undefined;
const byBytes = (a: FormPart, b: FormPart): number =>
  Buffer.compare(Buffer.from(a.name), Buffer.from(b.name));

/** Decrypts a form: value fields by name, then file fields by name (docs/protocol/inference.md 6.3). */
function openForm(parts: readonly FormPart[], plain: ReadonlySet<string>, opener: Opener): FormPart[] {
  const ordered = [false, true].flatMap((areFiles) => {
    const some = parts.filter((part) => isFile(part) === areFiles).sort(byBytes);
    const twice = some.find(({ name }, index) => some[index + 1]?.name === name);
    if (twice !== undefined) throw fail(`form field ${JSON.stringify(twice.name)} occurs twice`);
    return some;
  });
  return ordered.map((part) =>
    plain.has(part.name) && !isFile(part)
      ? part
      : { ...part, body: opener.open(part.body.toString('latin1')) },
  );
}

async function openBody(
  { body: kind, plainRequest }: Endpoint,
  body: Buffer,
  contentType: string,
  opener: Opener,
): Promise<OpenedBody> {
  if (kind === 'form')
    return { kind, parts: openForm(await partsOf(body, contentType), plainRequest, opener) };
  if (kind === 'raw') return { kind, bytes: opener.open(body.toString('latin1')), contentType };
  const text = openMembers(body, plainRequest, opener);
  return { kind: 'json', text, value: JSON.parse(text) as JsonObject };
}

/** The text of a form's value field. */
export const formField = (parts: readonly FormPart[], name: string): string | undefined =>
  parts.find((part) => part.name === name && part.filename === undefined)?.body.toString('utf8');

/** The text of the cache salt, empty without one; no string: as written (docs/protocol/inference.md 8). */
export function saltText({ text, value }: OpenedJson): string {
  const salt = value['cache_salt'];
  if (salt === undefined || salt === null) return '';
  if (typeof salt === 'string') return salt;
  const span = topLevelOf(text).spans.find(({ name }) => name === 'cache_salt');
  return text.slice(span?.start, span?.end);
}

function modelOf(body: OpenedBody): string {
  if (body.kind === 'raw') return '';
  const model = body.kind === 'json' ? body.value['model'] : formField(body.parts, 'model');
  if (typeof model !== 'string' || model === '') throw new Rejection(500, 'no model specified in request');
  return model;
}

/** Values of `stream` that the server takes for true in a JSON body (docs/protocol/inference.md 5.4). */
const TRUTHS: readonly unknown[] = [true, 1, 'true'];

const isStream = (body: OpenedBody): boolean =>
  (body.kind === 'json' && TRUTHS.includes(body.value['stream'])) ||
  (body.kind === 'form' && /^(true|1)$/i.test(formField(body.parts, 'stream') ?? ''));

/** Decrypts a request. `lookup` finds a secret by its id. Throws Rejection. */
export async function openRequest(
  endpoint: Endpoint,
  target: string,
  headers: IncomingHttpHeaders,
  body: Buffer,
  lookup: (id: string) => Uint8Array | undefined,
): Promise<OpenedRequest> {
  const opener = createOpener(lookup);
  const opened = await openBody(endpoint, body, headers['content-type'] ?? '', opener);
  const protection = opener.protection();
  // Without a message there is no nonce for the response (docs/protocol/inference.md 4).
  if (protection === undefined) throw fail('no encrypted field in the request');
  const { irregularities } = opener;
  const read = { model: modelOf(opened), stream: isStream(opened), body: opened };
  return { endpoint, target, ...read, protection, irregularities };
}

/** Inconsistencies between head and body that a good client avoids; the server does not check them. */
export function consistencyViolations(request: OpenedRequest, headers: IncomingHttpHeaders): string[] {
  const { endpoint, model, protection, body } = request;
  const found = [...request.irregularities];
  if (headers[PROTOCOL_HEADERS.secretId] !== protection.secretId)
    found.push('the secret id of the head is not that of the body');
  const target = String(headers[PROTOCOL_HEADERS.targetModel] ?? '');
  if (endpoint.body !== 'raw' && Buffer.from(target, 'latin1').toString('utf8') !== model)
    found.push('the target model of the head is not that of the body');
  const shardKey = headers[PROTOCOL_HEADERS.shardKey];
  if (typeof shardKey === 'string' && body.kind === 'json') {
    const salt = createHash('sha256').update(saltText(body)).digest('hex');
    if (!shardKey.startsWith(salt.slice(0, 16)))
      found.push('the shard key does not belong to the cache salt');
  }
  if (body.kind === 'form' && headers[PROTOCOL_HEADERS.client] === 'Proxy') {
    for (const { name, filename, contentType } of body.parts)
      if (filename !== undefined && (filename !== name || contentType !== 'application/octet-stream'))
        found.push(`form file ${name} tells its name or type`);
  }
  return found;
}
