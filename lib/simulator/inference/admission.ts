/**
 * The rules a decrypted request has to meet, and what the server changes in it before the model sees it
 * (inference.md 5.6, 8).
 */
import { withMember } from './json-text.ts';
import { Rejection } from './rejection.ts';
import type { JsonObject, OpenedBody, OpenedRequest } from './request.ts';

const MIN_SALT_BYTES = 32;

const isObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null;

function checkSalt(value: JsonObject): void {
  const salt = value['cache_salt'];
  const text =
    typeof salt === 'string' ? salt : salt === undefined || salt === null ? '' : JSON.stringify(salt);
  if (Buffer.byteLength(text) < MIN_SALT_BYTES) {
    throw new Rejection(500, 'cache_salt must be at least 32 characters long');
  }
}

/** The URL of one content part, by dialect: OpenAI's `image_url.url`, Anthropic's `source.url`. */
function urlOf(part: JsonObject, member: string): string | undefined {
  const holder = part[member];
  if (typeof holder === 'string') return holder;
  const url = isObject(holder) ? holder['url'] : undefined;
  return typeof url === 'string' ? url : undefined;
}

// The real server quotes the refused URL, user content, in an unencrypted answer (inference.md 14.22).
function checkPart(part: JsonObject): void {
  for (const member of ['audio_url', 'video_url']) {
    const url = urlOf(part, member);
    if (url !== undefined) throw new Rejection(500, `${member} is not allowed: ${url}`);
  }
  const image = urlOf(part, 'image_url') ?? urlOf(part, 'source');
  if (image !== undefined && !/^(https|data):/i.test(image)) {
    throw new Rejection(500, `image URL must use https or data: ${image}`);
  }
}

/** Content parts sit in `messages[].content[]`, and inside tool results once more. */
function checkMedia(content: unknown): void {
  if (!Array.isArray(content)) return;
  for (const part of content) {
    if (!isObject(part)) continue;
    checkPart(part);
    checkMedia(part['content']);
  }
}

/** Refuses what the server refuses. Throws Rejection. */
export function checkAdmission({ endpoint, body }: OpenedRequest): void {
  if (endpoint.salted && body.kind === 'json') checkSalt(body.value);
  const messages = body.kind === 'json' ? body.value['messages'] : undefined;
  if (Array.isArray(messages)) checkMedia(messages);
}

const FORCED_FORM_FIELDS = ['stream_include_usage', 'stream_continuous_usage_stats'];

/**
 * The body the model server gets: for streams, usage in every chunk is forced on. A JSON text that needs
 * no change stays as it is, byte for byte.
 */
export function forModel({ endpoint, body, stream }: OpenedRequest): OpenedBody {
  if (!stream) return body;
  if (body.kind === 'form') {
    const kept = body.parts.filter(({ name }) => !FORCED_FORM_FIELDS.includes(name));
    const forced = FORCED_FORM_FIELDS.map((name) => ({ name, body: Buffer.from('true') }));
    return { kind: 'form', parts: [...forced, ...kept] };
  }
  if (body.kind !== 'json' || !(endpoint.name === 'chat' || endpoint.name === 'completions')) return body;
  const options = isObject(body.value['stream_options']) ? body.value['stream_options'] : {};
  const forced = JSON.stringify({ ...options, include_usage: true, continuous_usage_stats: true });
  const text = withMember(body.text, 'stream_options', forced);
  return { kind: 'json', text, value: JSON.parse(text) as JsonObject };
}
